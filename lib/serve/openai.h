/* Answers in OpenAI's form: bodies of chat completions and completions, and lines of batches. */
#pragma once

#include "serve/result.h"

/* A request's answer, without its choices. */
struct openai_answer {
    uint64_t number;              /* of the input line */
    const char *id;               /* custom_id as JSON text */
    bool chat;                    /* a chat completion, else a completion */
    const char *model;            /* what the request calls the model */
    int64_t created;              /* seconds since 1970 */
    size_t n_prompt, n_generated; /* tokens */
};

/* The log-probabilities of the generated tokens, in the form of chat completions or of completions. The caller releases
 * it. NULL: error. */
json_t *openai_logprobs(const struct tokenizer *tok, bool chat, const struct gen_result *result,
                        struct logprob_form form, struct err *err);

/* A choice; the caller releases it. NULL: error. */
json_t *openai_choice(const struct tokenizer *tok, bool chat, size_t index,
                      const struct gen_result *result, struct logprob_form form, struct err *err);

/* The body of an answer; takes over `choices`, where NULL is an error that `err` has. The caller releases it. NULL:
 * error. */
json_t *openai_body(const struct openai_answer *answer, json_t *choices, struct err *err);

/* Appends a batch's line with a body, which is taken over; NULL is an error that `err` has. */
int openai_batch_line(const struct openai_answer *answer, json_t *body, struct buf *line,
                      struct err *err) MUST_USE;

/* Appends a batch's line for a request that failed; `id` as JSON text. */
int openai_batch_failure(const char *id, uint64_t number, const struct err *why, struct buf *line,
                         struct err *err) MUST_USE;
