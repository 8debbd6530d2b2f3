/* The sampler chooses the next token from logits, given the preceding tokens (for penalties) and random
 * numbers, one per token of the vocabulary.
 *
 * Of the candidates, with probabilities p, that token i is drawn whose E_i / p_i is the least, where the E_i are
 * exponentially distributed: the Gumbel-max trick, whose Gumbel noise is -log(E_i) (Maddison and others, 2014).
 * E_i depends on the seed, the request's stream, the position and i alone. So a draft model that draws with the
 * noise of its target mostly draws the token that the target will, and whether a draft token is that token
 * does not depend on who drafted it (Daliri, Musco and Suresh, Coupling without communication and
 * drafter-invariant speculative decoding, 2024). The n least are n draws without replacement (Kool and others,
 * Stochastic beams and where to find them, 2019). */
#pragma once

#include "format/sampling.h"

struct candidate {
    uint32_t id;
    float logit;
    double p;
};

struct sampler {
    struct sampler_options options;
    size_t vocab;
    /* Bit i % 64 of word i / 64 is set if token i may be chosen: all others have probability 0. NULL:
     * all may. The caller sets it before each use. */
    const uint64_t *allowed;
    float *adjusted; /* [vocab]: logits after biases and penalties */
    uint32_t *count; /* [vocab]: occurrences in the history; all 0 between calls */
    struct candidate *candidate;
    size_t n;                /* number of candidates */
    const uint32_t *history; /* during sampler_sample() */
    size_t n_history;
    double mirostat_mu; /* Mirostat's limit on surprise, in bits; set by the caller before each use, see
                           sampler_mirostat_begin() */
    double xtc_u;       /* random number for XTC, uniform in [0, 1); see sampler_begin() */
    double temp;        /* temperature applied so far */
    uint64_t seed, stream; /* of the noise, and the position that is sampled: see sampler_begin() */
    uint32_t position;
};

/* A token, and its place among draws: the least are drawn first. */
struct draw {
    uint32_t id;
    double order;
};

int sampler_open(struct sampler *sampler, const struct sampler_options *options, size_t vocab,
                 struct err *err) MUST_USE;
void sampler_close(struct sampler *sampler);

/* Before the token at a position of a request: its settings, and the key of its random numbers. */
void sampler_begin(struct sampler *sampler, const struct sampler_options *options, uint64_t seed,
                   uint64_t stream, uint32_t position);

/* Sets sampler->candidate[0..n) to the candidates for the token after `history`, most likely first, with their
 * probabilities: one when greedy, none if no token is allowed. */
void sampler_candidates(struct sampler *sampler, const float *logits, const uint32_t *history,
                        size_t n_history);

/* Draws up to n >= 1 different candidates, in order; returns their number. The first is the sample. */
size_t sampler_draw(const struct sampler *sampler, size_t n, struct draw *drawn);

/* Samples the token after `history`: both of these. 0 if no token is allowed. */
uint32_t sampler_sample(struct sampler *sampler, const float *logits, const uint32_t *history,
                        size_t n_history);

/* Mirostat's state: at the start of a sequence, and after sampler_sample() has returned `id`. */
double sampler_mirostat_begin(const struct sampler_options *options);
double sampler_mirostat_next(const struct sampler *sampler, uint32_t id);

/* The logits after biases and penalties: `logits` itself, or a copy that is valid until the next
 * call for this sampler. */
const float *sampler_adjusted(struct sampler *sampler, const float *logits, const uint32_t *history,
                              size_t n_history);

/* True if sampling depends on the history of tokens: a penalty or DRY is set. */
bool sampler_uses_history(const struct sampler_options *options);

/* False if a logit is NaN or infinite: the model is damaged. */
bool logits_finite(const float *logits, size_t n);

/* The logarithm of the softmax denominator. */
double log_sum_exp(const float *logits, size_t n);

/* The log-probability of a token, with norm = log_sum_exp(): f32 wherever it is reported, so that a token has one. */
static inline float logprob_of(const float *logits, uint32_t id, double norm)
{
    return (float)(logits[id] - norm);
}

/* Sorts candidates by logits, best first; among equals the lowest id comes first. */
void candidates_sort(struct candidate *candidate, size_t n);

/* The k <= n highest logits, best first; among equals the lowest id comes first. */
void top_logits(const float *logits, size_t n, size_t k, struct candidate *best);

/* The same among the tokens of a mask as in struct sampler, or all if it is NULL: the number of those
 * found is returned, at most k, and `best` must have room for all allowed ones. */
size_t top_allowed(const float *logits, size_t n, size_t k, const uint64_t *allowed,
                   struct candidate *best);

/* log_sum_exp() over the tokens of a mask, or all if it is NULL; -INFINITY if there are none. */
double log_sum_exp_allowed(const float *logits, size_t n, const uint64_t *allowed);
