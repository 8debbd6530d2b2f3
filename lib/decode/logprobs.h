/* Log-probabilities of tokens, beside those of the best ones in their place. */
#ifndef BMC_LOGPROBS_H
#define BMC_LOGPROBS_H

#include "decode/sampler.h"
#include "decode/session.h"

struct logprob {
    uint32_t id;
    float
        logprob; /* natural logarithm, of the model's own distribution: before biases, penalties and temperature
                    */
};

/* Scratch memory; all zeros but for the session before its first use. */
struct logprobs {
    struct session *session;
    struct candidate *best;
    size_t best_cap;
    float *logits; /* of a few rows of a prompt at a time; NULL: not needed yet */
};

void logprobs_release(struct logprobs *scratch);

/* The token and the k best ones, to out[0..k]. */
int logprobs_of(struct logprobs *scratch, const float *logits, uint32_t id, size_t k,
                struct logprob *out, struct err *err) MUST_USE;

/* Of id[0..n), each of which follows a row of the step just run, of which `first_row` is the first; k + 1 of each. */
int logprobs_of_rows(struct logprobs *scratch, size_t first_row, const uint32_t *id, size_t n, size_t k,
                     struct logprob *out, struct err *err) MUST_USE;

/* Those of id[0..n) before any is known, k + 1 of each; NULL, and the error: out of memory. */
struct logprob *logprobs_unknown(const uint32_t *id, size_t n, size_t k, struct err *err) MUST_USE;

#endif
