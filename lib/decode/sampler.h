/* Logits -> one token. Knows no sequences: history and the random number come from the caller. */
#ifndef BMC_SAMPLER_H
#define BMC_SAMPLER_H

#include "base/err.h"

/* Applied in this order: penalty, top-k, top-p, min-p, temperature. */
struct sampler_options {
    double temp;           /* <= 0: greedy, the highest logit (the lowest id of equals) */
    size_t top_k;          /* 0: off */
    double top_p;          /* 1: off */
    double min_p;          /* 0: off */
    double repeat_penalty; /* 1: off */
    size_t repeat_last_n;  /* tokens that the penalty looks at */
};

struct candidate {
    uint32_t id;
    float logit;
    double p;
};

struct sampler {
    struct sampler_options options;
    size_t vocab;
    float *penalized; /* [vocab] */
    struct candidate *candidate;
    size_t n; /* candidates that are left */
};

int sampler_open(struct sampler *sampler, const struct sampler_options *options, size_t vocab,
                 struct err *err) MUST_USE;
void sampler_close(struct sampler *sampler);

/* The next token after `history`; `u` in [0, 1) decides among the candidates. Afterwards
 * sampler->candidate[0..n) holds them, most likely first, with the probabilities that the draw used
 * (one candidate when greedy). */
uint32_t sampler_choose(struct sampler *sampler, const float *logits, const uint32_t *history,
                        size_t n_history, double u);

/* The logits after the repeat penalty alone: `logits` themselves, or the sampler's copy, good until its next use. */
const float *sampler_penalized(struct sampler *sampler, const float *logits, const uint32_t *history,
                               size_t n_history);

/* False when one of them is NaN or infinite: a damaged model. */
bool logits_finite(const float *logits, size_t n);

/* Natural logarithm of the softmax denominator: logprob(id) = logits[id] - result. */
double log_sum_exp(const float *logits, size_t n);

/* The k highest logits, best first (the lowest id of equals); k <= n. */
void top_logits(const float *logits, size_t n, size_t k, struct candidate *best);

#endif
