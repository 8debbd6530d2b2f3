/* Log-probabilities of tokens and of the most likely alternatives. */
#pragma once

#include "decode/sample/sampler.h"
#include "decode/session.h"

struct logprob {
    uint32_t id;
    float logprob; /* natural logarithm, before biases, penalties and temperature */
};

/* Scratch memory for the functions below. Callers set `session` and zero the other members. */
struct logprobs {
    struct session *session;
    struct candidate *best;
    size_t best_cap;
    float *logits; /* [prompt tokens][vocab], allocated on first use */
};

void logprobs_release(struct logprobs *scratch);

/* Sets out[0] to the log-probability of token `id`, out[1..k] to the k most likely tokens. */
int logprobs_of(struct logprobs *scratch, const float *logits, uint32_t id, size_t k,
                struct logprob *out, struct err *err) MUST_USE;

/* logprobs_of() for id[0..n), k + 1 entries each: id[i] follows the token with index first_row + i
 * in the batch of the last forward pass, whose logits are computed here. */
int logprobs_of_rows(struct logprobs *scratch, size_t first_row, const uint32_t *id, size_t n, size_t k,
                     struct logprob *out, struct err *err) MUST_USE;

/* Allocates k + 1 entries for each token id[0..n), with that id and log-probability NaN. Returns
 * NULL, with err set, if memory is exhausted. */
struct logprob *logprobs_alloc(const uint32_t *id, size_t n, size_t k, struct err *err) MUST_USE;
