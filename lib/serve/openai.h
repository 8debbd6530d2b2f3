/* Answers in OpenAI's form: chat completions and completions, chunks of them, errors, and lines of batches. */
#pragma once

#include "serve/result.h"
#include "text/tools/tool_answer.h"

/* Status codes of HTTP, which lines of batches have, too. */
enum { OPENAI_OK = 200, OPENAI_BAD_REQUEST = 400, OPENAI_SERVER_ERROR = 500, OPENAI_UNAVAILABLE = 503 };

/* A request's answer, without its choices. */
struct openai_answer {
    uint64_t number;                        /* of the input line */
    const char *id;                         /* of the object; NULL: it is made of the number */
    bool batch;                             /* it is the answer to a line of a batch, */
    const char *custom_id;                  /* which has this id as JSON text; or NULL */
    bool unnumbered;                        /* errors do not name the line */
    bool chat;                              /* a chat completion, else a completion */
    const char *model;                      /* what the request calls the model */
    int64_t created;                        /* seconds since 1970 */
    size_t n_prompt, n_cached, n_generated; /* tokens */
    /* all choices have ended: the object has the hash of their logits, and the seed that was drawn */
    bool ended;
    struct hash logits_hash;
    const uint64_t *seed; /* NULL: none was drawn */
};

/* The log-probabilities of the generated tokens, in the form of chat completions or of completions. The caller releases
 * it. NULL: error. */
json_t *openai_logprobs(const struct tokenizer *tok, bool chat, const struct gen_result *result,
                        struct logprob_form form, struct err *err);

/* What a choice says, and how much of it chunks have said. */
struct openai_said {
    /* content, reasoning and tool calls; NULL: the text is all content */
    const struct tool_answer *parts;
    size_t content, reasoning, calls;
    bool in_call;     /* the call behind these has begun, */
    size_t arguments; /* and so many bytes of its arguments are said */
    bool begun;       /* there was a chunk */
};

/* A choice; the caller releases it. NULL: error. */
json_t *openai_choice(const struct tokenizer *tok, bool chat, size_t index,
                      const struct gen_result *result, const struct openai_said *said,
                      struct logprob_form form, struct err *err);

/* A choice of a chunk: what is new in `said`, or the text of `more`, and its log-probabilities; in the `last` one, how the
 * choice ended. The caller releases it. NULL: error. */
json_t *openai_piece(const struct tokenizer *tok, bool chat, size_t index,
                     const struct gen_result *more, struct openai_said *said, bool last,
                     struct logprob_form form, struct err *err);

/* Whether openai_piece() would say anything before the last one. */
bool openai_has_more(const struct openai_said *said, const struct gen_result *more);

/* Append an answer, or a chunk of one, as a line. Take over `choices`, a list of them, where NULL is an error that `err`
 * has. */
int openai_put(const struct openai_answer *answer, json_t *choices, struct buf *line,
               struct err *err) MUST_USE;
int openai_put_chunk(const struct openai_answer *answer, json_t *choices, bool usage, struct buf *line,
                     struct err *err) MUST_USE;

/* The embedding of the text `index` of a request, as numbers or in base64. The caller releases it. NULL: error. */
json_t *openai_embedding(size_t index, const float *embedding, size_t n, bool base64, struct err *err);

/* openai_put() of a list of embeddings, "data", or of the relevance of documents, "results" as Jina's and Cohere's
 * servers have them. */
int openai_put_list(const struct openai_answer *answer, const char *name, json_t *list,
                    struct buf *line, struct err *err) MUST_USE;

/* The status of a request that failed: 400 if it is wrong (ERR_INVALID, ERR_FULL), 503 if it may be repeated (ERR_BUSY,
 * ERR_INTERRUPTED), else 500. */
int openai_status(const struct err *why);

/* Append the line of a request that failed; of an error without one. */
int openai_put_failure(const struct openai_answer *answer, const struct err *why, struct buf *line,
                       struct err *err) MUST_USE;
int openai_put_error(int status, const char *message, struct buf *line, struct err *err) MUST_USE;
