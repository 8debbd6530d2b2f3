/* A request as one line of JSON: which members it may have, and what they set.
 *
 * One table (request.c) is the source of parsing, of the name that an unknown member may have been meant to be, and of
 * what the man page must list. Nothing here needs a model, so that any bytes can be tried.
 *
 * To add a member: a row in the table, a row in the table of bmc-gen(1). */
#ifndef BMC_REQUEST_H
#define BMC_REQUEST_H

#include "base/json.h"
#include "decode/gen_types.h"
#include "text/chat.h"

struct request {
    json_t *root;                /* the line; what follows points into it */
    const json_t *id, *from;     /* any value, or NULL */
    const json_t *text, *ids;    /* the prompt: a string, or a list of token ids; NULL: not given */
    const json_t *messages;      /* or turns of a conversation */
    const json_t *parse_special; /* whether special tokens in the prompt are parsed; NULL: not given */
    struct gen_request gen;      /* what is asked for; its ids are the caller's business */
    struct sampler_options sampling;
    char **stop;             /* the list of gen.stop, if the line has one */
    struct logit_bias *bias; /* that of sampling.bias, if the line has one */
};

/* Parses a line: an object whose members are known, each given once by one of its names. `lenient` passes over others.
 * On error, too, `id` is set if it was found, and request_close() follows. */
int request_open(struct request *request, const char *line, size_t len, bool lenient,
                 struct err *err) MUST_USE;

/* Sets what the line says; in `gen` and `sampling` stand the values for what it does not say. gen.sampling then points
 * to the request's own, which must not move any more. */
int request_apply(struct request *request, struct err *err) MUST_USE;

/* The i-th of its messages; the text stays the request's. */
struct chat_turn request_turn(const struct request *request, size_t i);

/* Appends the token ids of the prompt. */
int request_ids(const struct request *request, struct ids *ids, struct err *err) MUST_USE;

void request_close(struct request *request);

/* What the line says about special tokens in its prompt, or `usual` where it says nothing. */
static inline bool request_parses_special(const struct request *request, bool usual)
{
    return request->parse_special ? json_is_true(request->parse_special) : usual;
}

/* The parts of it that other kinds of lines share: the object that a line is, the caller's to release, NULL on error; and
 * token ids from the value of a member "ids". */
int request_line(const char *line, size_t len, json_t **root, struct err *err) MUST_USE;
int request_ids_of(const json_t *value, struct ids *ids, struct err *err) MUST_USE;

/* The error for a member that is none of `names`: says which of them is near, or what another server's is here. */
int request_unknown(const char *key, const char *const *names, size_t n, struct err *err) MUST_USE;

/* For the test of the man page: the n-th member's names, the first one its own and others its aliases, and what is
 * expected of its value. False when there are no more. */
struct member_doc {
    const char *const *names; /* ended by NULL */
    char expected[80];
};
bool request_member(size_t n, struct member_doc *doc);

#endif
