/* Lines that have been read and have no result yet: requests in flight, those that wait for a free slot, texts.
 * serve_lines() keeps a queue, text_lines.c for texts to score or embed, and rank 0 under data parallelism, where slots are
 * those of all ranks. */
#pragma once

#include "decode/rerank.h"
#include "serve/openai.h"
#include "serve/serve.h"

/* One of the answers to a request, or one of its texts to be scored, embedded or reranked. */
struct choice {
    struct request_line *line;
    size_t index;
    struct gen_request gen;
    struct ids ids; /* token ids: prompt, then generated */
    size_t second;  /* of a pair to be reranked: struct text_ids; and its relevance: */
    struct rerank_score relevance;
    json_t *result;          /* once it has ended with at least one token */
    struct openai_said said; /* of chats whose answers are divided */
    struct tool_answer parts;
};

/* A receipt that is verified, and the parts of its request that no line for --jsonl has. */
struct replay {
    json_t *receipt;
    struct ids expected, ends;
    char **stop; /* strings of `receipt` */
};

struct request_line {
    struct request_line *next, **link;
    uint64_t number;  /* of the input line, from 0 */
    size_t index;     /* of the lines that are not blank, from 0 */
    char *id;         /* the request's id as JSON text, or NULL */
    const char *name; /* in its place in OpenAI's form, or NULL */
    bool waits;       /* not all of its choices are in flight yet */
    bool batch;       /* of a batch of OpenAI's */
    volatile sig_atomic_t cancelled;
    const volatile sig_atomic_t *cancelled_by; /* of a text: serve_input.cancelled */
    struct request request;
    /* Where it is served: */
    struct constraint *constraint; /* the request's own, or NULL */
    struct constraint_cache *constraints;
    struct answer_plan plan;      /* limits of reasoning, constraints on calls */
    struct dry_breakers breakers; /* the request's own */
    float *lora_factor;           /* the request's own, or NULL */
    /* its answer is divided into text, reasoning and tool calls, if the chat has a format of them */
    bool divides;
    /* how its answer writes tool calls and reasoning; NULL: it is text */
    const struct tool_format *tools;
    struct buf prompt_text; /* of such a chat, while the request is being read */
    struct ids prompt;      /* while the request is being read */
    struct choice *choice;  /* [n_choices] */
    size_t n_choices;       /* 0: no request to be answered */
    size_t n_started, n_ended, n_failed;
    size_t n_prompt, n_cached, n_generated; /* tokens of the choices that have ended */
    struct err failure;                     /* of the first that failed */
    struct hash logits_hash;                /* of the choices that have ended */
    bool base64;                            /* embeddings are wanted in base64 */
    json_t *logprobs;      /* of the tokens of a text scored so far; NULL: not requested */
    struct replay *replay; /* NULL: it is no receipt */
    /* Where it is distributed: */
    struct buf text;  /* the line, while it waits */
    int rank;         /* that serves it */
    bool told_cancel; /* the rank knows that it was cancelled */
};

struct line_queue {
    struct serve *serve;
    const struct serve_io *io;
    /* Parses a line and prepares what it asks for; sets its id, also if it fails. -1: it fails for this reason. */
    int (*prepare)(struct line_queue *queue, struct request_line *line, const struct serve_input *input,
                   struct err *err);
    /* Makes the result of a line that failed before its first token; NULL: that of a request. */
    int (*failure)(const struct line_queue *queue, const struct request_line *line,
                   const struct err *why, struct buf *text, struct err *err);
    void *job; /* of these two */
    struct request_line *lines;
    size_t n_waiting, n_read;
};

/* Requests that are read before they can be served, so that those that cancel others are found. */
enum { QUEUE_READ_AHEAD = 64 };

/* Reads the next request, which becomes one of the queue's; returns as serve_io.next(). Those that cannot be read, or that
 * cancel others, get their results at once. */
int line_queue_read(struct line_queue *queue, bool wait, struct request_line **line,
                    struct err *err) MUST_USE;

/* For prepare(): parses a request and checks what needs no model. */
int line_queue_open(const struct line_queue *queue, struct request_line *line,
                    const struct serve_input *input, struct err *err) MUST_USE;

/* The answer to a line, in OpenAI's form if that is true. */
bool line_queue_is_openai(const struct line_queue *queue, const struct request_line *line);
struct openai_answer line_queue_answer(const struct line_queue *queue, const struct request_line *line);

void line_queue_set_waiting(struct line_queue *queue, struct request_line *line, bool waits);

/* The waiting request that was read first; NULL: none waits. */
struct request_line *line_queue_first(const struct line_queue *queue);

/* Writes a result, unless `rc` is an error, which it returns, and frees the line. Takes ownership of `text`. */
int line_queue_put(struct line_queue *queue, struct request_line *line, int rc, bool failed,
                   struct buf *text, struct err *err) MUST_USE;

/* Writes the result of a request that failed before its first token, and frees the line. */
int line_queue_fail(struct line_queue *queue, struct request_line *line, const struct err *why,
                    struct err *err) MUST_USE;

/* Frees a line that needs no result, or has it; all lines. */
void line_queue_drop(struct line_queue *queue, struct request_line *line);
void line_queue_release(struct line_queue *queue);
