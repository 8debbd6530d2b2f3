/* A line of the input: its request, and the answers that are generated for it. */
#ifndef BMC_REQUEST_LINE_H
#define BMC_REQUEST_LINE_H

#include "serve/serve.h"

/* One of the answers to a request. */
struct choice {
    struct request_line *line;
    size_t index;
    struct gen_request gen;
    struct ids ids; /* token ids: prompt, then generated */
    json_t *result; /* of one of several, once it has ended */
};

struct request_line {
    struct request_line *next, **link;
    uint64_t number;
    struct request request;
    struct constraint *constraint; /* the request's own, or NULL */
    struct constraint_cache *constraints;
    struct dry_breakers breakers; /* the request's own */
    float *lora_factor;           /* the request's own, or NULL */
    char *id;                     /* the request's id as JSON text, or NULL */
    struct ids prompt;            /* while the line is being read */
    struct choice *choice;        /* [n_choices] */
    size_t n_choices;             /* 0: no request to be answered */
    size_t n_started, n_ended, n_failed;
    size_t n_prompt, n_generated; /* tokens of the choices that have ended */
    struct err failure;           /* of the first that failed */
    bool queued;                  /* not all choices are in flight yet */
    volatile sig_atomic_t cancelled;
};

/* A line of zeros, first in the list *lines; NULL: out of memory. */
struct request_line *request_line_new(struct request_line **lines);
void request_line_free(struct request_line *line); /* also takes it from its list */

/* Parses a line into a request and the choices to generate. Applies settings: the run's, overridden by a
 * resumed sequence's, then by the request's. `line` has its number. After an error it has its id, if
 * one was found. A request to cancel others has no choices. */
int request_line_read(const struct serve *serve, const struct jsonl_io *io, struct request_line *line,
                      const struct jsonl_line *read, struct err *err) MUST_USE;

#endif
