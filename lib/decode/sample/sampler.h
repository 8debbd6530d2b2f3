/* The sampler chooses the next token from logits, given the preceding tokens (for penalties) and a
 * random number. */
#ifndef BMC_SAMPLER_H
#define BMC_SAMPLER_H

#include "base/err.h"

/* A logit bias: added to the logit of token `id`. */
struct logit_bias {
    uint32_t id;
    float bias;
};

/* The bias that forbids a token. It is finite, so that no sum of logits becomes NaN. */
#define LOGIT_BIAS_NEVER (-1e30f)
#define LOGIT_BIAS_MOST  1e6 /* largest magnitude of any other bias */

/* Steps of the sampler after biases and penalties; in the order of the default, which has no Mirostat. */
enum sampler_step {
    SAMPLER_DRY,
    SAMPLER_TOP_N_SIGMA,
    SAMPLER_TOP_K,
    SAMPLER_TYPICAL,
    SAMPLER_TOP_P,
    SAMPLER_MIN_P,
    SAMPLER_XTC,
    SAMPLER_TEMPERATURE,
    SAMPLER_MIROSTAT,
    SAMPLER_STEPS
};

/* Their names in lists, NULL at the end. */
extern const char *const sampler_step_names[SAMPLER_STEPS + 1];

/* The steps in another order, or fewer of them. */
struct sampler_order {
    uint8_t step[SAMPLER_STEPS];
    size_t n; /* 0: the default */
};

/* Applied in the order: biases, penalties, then `order`. Zeros are off. */
struct sampler_options {
    double temp;            /* <= 0: greedy: the highest logit, of equals the lowest id */
    size_t top_k;           /* 0: off */
    double top_p;           /* 1: off */
    double min_p;           /* 0: off */
    double top_n_sigma;     /* standard deviations of the logits below the best; 0: off */
    double typical_p;       /* 0 or 1: off */
    double xtc_probability; /* of leaving out likely candidates; 0: off */
    double xtc_threshold;   /* candidates at least as likely are left out, but for the last */
    double dynatemp_range;  /* temperatures from temp - range to temp + range; 0: off */
    double dynatemp_exponent;
    double dry_multiplier; /* of DRY (dry.h); 0: off */
    double dry_base;
    size_t dry_allowed_length;
    size_t dry_last_n;           /* tokens of history that DRY considers; SIZE_MAX: all */
    const uint64_t *dry_breaker; /* bits by token id, of sequence breakers; NULL: none */
    size_t mirostat; /* 2: Mirostat 2, with the default order only temperature before it; 0: off */
    double mirostat_tau, mirostat_eta; /* target surprise in bits, learning rate */
    struct sampler_order order;
    double repeat_penalty;         /* 1: off */
    size_t repeat_last_n;          /* tokens of history that the penalties consider */
    double presence_penalty;       /* subtracted once if the token is in the history; 0: off */
    double frequency_penalty;      /* subtracted per occurrence; 0: off */
    const struct logit_bias *bias; /* biases of the same id add up */
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
    double xtc_u; /* random number for XTC, uniform in [0, 1); set by the caller before each use */
    double temp;  /* temperature applied so far */
};

int sampler_open(struct sampler *sampler, const struct sampler_options *options, size_t vocab,
                 struct err *err) MUST_USE;
void sampler_close(struct sampler *sampler);

/* Samples the token after `history` with the uniform random number u in [0, 1). Afterwards
 * sampler->candidate[0..n) has the candidates, most likely first, with the probabilities used (one
 * candidate when greedy), or none if no token is allowed. */
uint32_t sampler_sample(struct sampler *sampler, const float *logits, const uint32_t *history,
                        size_t n_history, double u);

/* Mirostat's state: at the start of a sequence, and after sampler_sample() has returned `id`. */
double sampler_mirostat_begin(const struct sampler_options *options);
double sampler_mirostat_next(const struct sampler *sampler, uint32_t id);

/* Reads a list of steps, separated by semicolons or commas: each at most once. */
int sampler_order_parse(const char *text, struct sampler_order *order, struct err *err) MUST_USE;

/* The order in effect; it has at least one step. */
struct sampler_order sampler_order_of(const struct sampler_options *options);

/* The draw of the random number for XTC: rng_uniform(seed, line, position, SAMPLER_XTC_DRAW). */
#define SAMPLER_XTC_DRAW UINT32_MAX

/* The logits after biases and penalties: `logits` itself, or a copy that is valid until the next
 * call for this sampler. */
const float *sampler_adjusted(struct sampler *sampler, const float *logits, const uint32_t *history,
                              size_t n_history);

/* True if sampling depends on the history of tokens: a penalty or DRY is set. */
bool sampler_uses_history(const struct sampler_options *options);

/* False if a logit is NaN or infinite: the model is damaged. */
bool logits_finite(const float *logits, size_t n);

/* The logarithm of the softmax denominator: logprob(id) = logits[id] - log_sum_exp(). */
double log_sum_exp(const float *logits, size_t n);

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

#endif
