/* Formats results of requests as lines of JSON. Out of memory is an error: no field is left out. */
#pragma once

#include "base/json.h"
#include "decode/gen_types.h"
#include "text/tools/tool_answer.h"

/* Appends a line of JSON: field "id" (JSON text; NULL: null), then the fields of `object`. */
int result_put_line(const char *id, const json_t *object, struct buf *line, struct err *err) MUST_USE;

/* How log-probabilities of generated tokens are written. */
struct logprob_form {
    bool openai;     /* {"content": [..]} as in OpenAI's chat completions, */
    size_t n_openai; /* with that many alternatives, of those computed */
};

/* Appends a generation result as a line of JSON. `id` is that of its request, as JSON text; NULL:
 * null. On error nothing is appended. */
int result_line(const struct tokenizer *tok, const char *id, const struct gen_result *result,
                struct logprob_form form, struct buf *line, struct err *err) MUST_USE;

/* A result as an object, of one of several choices with its index first; SIZE_MAX: there is one only. `parts`: those of its
 * text; NULL: it is not divided. NULL: error. */
json_t *result_choice(const struct tokenizer *tok, size_t index, const struct gen_result *result,
                      const struct tool_answer *parts, struct logprob_form form,
                      struct err *err) MUST_USE;
json_t *failed_choice(size_t index, uint64_t number, const struct err *why, struct err *err) MUST_USE;

/* Appends the result of a request for several choices. Takes over `choices`, a list of them; NULL is an error that
 * `err` has. `why`: NULL, or the reason why one failed. */
int choices_line(const char *id, uint64_t number, json_t *choices, const struct err *why,
                 struct buf *line, struct err *err) MUST_USE;

/* Appends an event of a request that streams, of choice `index`; SIZE_MAX: there is one only. `value` is taken over: a
 * "delta", the text generated since the last one, or what else `name` says. */
int result_event(const char *id, size_t index, const char *name, json_t *value, struct buf *line,
                 struct err *err) MUST_USE;

/* Appends the result line of a request to cancel others, of which `n` were in flight. */
int result_cancelled(const char *id, size_t n, struct buf *line, struct err *err) MUST_USE;

/* Appends the generated text of the i-th beam to `text`. */
int result_beam_text(const struct tokenizer *tok, const struct gen_result *result, size_t i,
                     struct buf *text, struct err *err) MUST_USE;

/* Appends the result line of a request that failed without generating a token. */
int failure_line(const char *id, uint64_t number, const struct err *why, struct buf *line,
                 struct err *err) MUST_USE;
