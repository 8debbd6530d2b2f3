/* Logits -> one token. Knows no sequences: history and the random number come from the caller. */
#ifndef BMC_SAMPLER_H
#define BMC_SAMPLER_H

#include "base/err.h"

/* Added to the logit of a token. */
struct logit_bias {
    uint32_t id;
    float bias;
};

/* A bias that no logit, penalty or temperature makes up for; finite, so that no sum of logits becomes NaN. */
#define LOGIT_BIAS_NEVER (-1e30f)
#define LOGIT_BIAS_MOST  1e6 /* of others */

/* Applied in this order: biases, penalties, top-k, top-p, min-p, temperature. */
struct sampler_options {
    double temp;           /* <= 0: greedy, the highest logit (the lowest id of equals) */
    size_t top_k;          /* 0: off */
    double top_p;          /* 1: off */
    double min_p;          /* 0: off */
    double repeat_penalty; /* 1: off */
    size_t repeat_last_n;  /* tokens that the penalties look at */
    double presence_penalty,
        frequency_penalty;         /* of a token among these: once, and for each time; 0: off */
    const struct logit_bias *bias; /* those of the same id add up */
    size_t n_biases;
};

struct candidate {
    uint32_t id;
    float logit;
    double p;
};

struct sampler {
    struct sampler_options options;
    size_t vocab;
    float *adjusted; /* [vocab] */
    uint32_t *count; /* [vocab]: times among the last tokens; zeros between calls */
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

/* The logits after biases and penalties alone: `logits` themselves, or the sampler's copy, good until its next use. */
const float *sampler_adjusted(struct sampler *sampler, const float *logits, const uint32_t *history,
                              size_t n_history);

/* True when the tokens before matter. */
bool sampler_looks_back(const struct sampler_options *options);

/* False when one of them is NaN or infinite: a damaged model. */
bool logits_finite(const float *logits, size_t n);

/* Natural logarithm of the softmax denominator: logprob(id) = logits[id] - result. */
double log_sum_exp(const float *logits, size_t n);

/* The k highest logits, best first (the lowest id of equals); k <= n. */
void top_logits(const float *logits, size_t n, size_t k, struct candidate *best);

#endif
