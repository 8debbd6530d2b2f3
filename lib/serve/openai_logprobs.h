/* Log-probabilities in the form of OpenAI's chat completions and completions. */
#ifndef BMC_OPENAI_LOGPROBS_H
#define BMC_OPENAI_LOGPROBS_H

#include "base/json.h"
#include "decode/gen_types.h"

/* {"content": [{"token", "logprob", "bytes", "top_logprobs": [..]}, ..]} for n tokens, each followed in
 * `at` by its n_best alternatives, of which `top` are written. The caller releases it. NULL: error. */
json_t *openai_logprobs(const struct tokenizer *tok, const struct logprob *at, size_t n, size_t n_best,
                        size_t top, struct err *err);

/* The same as {"tokens": [..], "token_logprobs": [..], "top_logprobs": [{TOKEN: LOGPROB, ..}, ..], "text_offset": [..]}.
 * Offsets are in bytes of the tokens' texts. */
json_t *openai_text_logprobs(const struct tokenizer *tok, const struct logprob *at, size_t n,
                             size_t n_best, size_t top, struct err *err);

#endif
