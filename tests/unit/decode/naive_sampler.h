/* The distribution of a sampled token from the definitions in bmc-gen(1), SAMPLING: penalties, biases, and the
 * samplers in the default order, without DRY and Mirostat. For small vocabularies: it compares all pairs. */
#ifndef BMC_TEST_NAIVE_SAMPLER_H
#define BMC_TEST_NAIVE_SAMPLER_H

#include <math.h>
#include <string.h>

#include "format/sampling.h"

enum { NAIVE_VOCAB = 64 };

struct naive {
    size_t n;
    double x[NAIVE_VOCAB]; /* logits; -INFINITY: left out */
};

static void naive_softmax(const struct naive *d, double temp, double *p)
{
    double best = -INFINITY, sum = 0;
    for (size_t i = 0; i < d->n; i++)
        best = fmax(best, d->x[i]);
    for (size_t i = 0; i < d->n; i++)
        sum += p[i] = exp((d->x[i] - best) / temp);
    for (size_t i = 0; i < d->n; i++)
        p[i] /= sum;
}

static double naive_entropy(const struct naive *d, const double *p)
{
    double h = 0;
    for (size_t i = 0; i < d->n; i++)
        h -= p[i] > 0 ? p[i] * log(p[i]) : 0;
    return h;
}

/* Leaves out the tokens that come after others, by `key` ascending, whose probabilities reach `mass`. */
static void naive_cut(struct naive *d, const double *p, const double *key, double mass)
{
    bool out[NAIVE_VOCAB];
    for (size_t i = 0; i < d->n; i++) {
        double before = 0;
        for (size_t j = 0; j < d->n; j++)
            before += key[j] < key[i] || (key[j] == key[i] && j < i) ? p[j] : 0;
        out[i] = before >= mass;
    }
    for (size_t i = 0; i < d->n; i++)
        d->x[i] = out[i] ? -INFINITY : d->x[i];
}

static void naive_penalties(struct naive *d, const struct sampler_options *o, const uint32_t *history,
                            size_t n)
{
    double count[NAIVE_VOCAB] = {0};
    for (size_t i = 0; i < n; i++)
        count[history[i]] += n - i <= o->repeat_last_n;
    for (size_t i = 0; i < o->n_biases; i++)
        d->x[o->bias[i].id] += o->bias[i].bias;
    for (size_t i = 0; i < d->n; i++)
        if (count[i] > 0)
            d->x[i] = (d->x[i] > 0 ? d->x[i] / o->repeat_penalty : d->x[i] * o->repeat_penalty) -
                      o->presence_penalty - count[i] * o->frequency_penalty;
}

static void naive_sigma_and_k(struct naive *d, const struct sampler_options *o)
{
    double mean = 0, square = 0, best = -INFINITY, rank[NAIVE_VOCAB], one[NAIVE_VOCAB];
    for (size_t i = 0; i < d->n; i++) {
        mean += d->x[i] / (double)d->n;
        best = fmax(best, d->x[i]);
    }
    for (size_t i = 0; i < d->n; i++)
        square += (d->x[i] - mean) * (d->x[i] - mean) / (double)d->n;
    for (size_t i = 0; i < d->n; i++) {
        if (o->top_n_sigma > 0 && d->x[i] < best - o->top_n_sigma * sqrt(square))
            d->x[i] = -INFINITY;
        rank[i] = -d->x[i];
        one[i] = 1;
    }
    if (o->top_k)
        naive_cut(d, one, rank, (double)o->top_k);
}

static void naive_masses(struct naive *d, const struct sampler_options *o)
{
    double p[NAIVE_VOCAB], key[NAIVE_VOCAB], best = 0;
    naive_softmax(d, 1, p);
    if (o->typical_p > 0 && o->typical_p < 1) {
        const double h = naive_entropy(d, p);
        for (size_t i = 0; i < d->n; i++)
            key[i] = fabs(-log(p[i]) - h);
        naive_cut(d, p, key, o->typical_p);
    }
    naive_softmax(d, 1, p);
    for (size_t i = 0; i < d->n; i++)
        key[i] = -p[i];
    if (o->top_p < 1)
        naive_cut(d, p, key, o->top_p);
    naive_softmax(d, 1, p);
    for (size_t i = 0; i < d->n; i++)
        best = fmax(best, p[i]);
    for (size_t i = 0; i < d->n; i++)
        if (p[i] < o->min_p * best)
            d->x[i] = -INFINITY;
}

/* Leaves out all tokens of at least the threshold but the least likely of them. */
static void naive_xtc(struct naive *d, const struct sampler_options *o)
{
    double p[NAIVE_VOCAB], least = 2;
    naive_softmax(d, 1, p);
    for (size_t i = 0; i < d->n; i++)
        least = p[i] >= o->xtc_threshold ? fmin(least, p[i]) : least;
    for (size_t i = 0; i < d->n; i++)
        if (p[i] > least)
            d->x[i] = -INFINITY;
}

static void naive_add(const struct naive *d, const struct sampler_options *o, double weight,
                      double *share)
{
    double p[NAIVE_VOCAB], temp = o->temp, kept = 0;
    naive_softmax(d, 1, p);
    for (size_t i = 0; i < d->n; i++)
        kept += d->x[i] > -INFINITY;
    if (o->dynatemp_range > 0) {
        const double low = fmax(0, temp - o->dynatemp_range);
        temp = low + (temp + o->dynatemp_range - low) *
                         pow(kept > 1 ? naive_entropy(d, p) / log(kept) : 0, o->dynatemp_exponent);
    }
    naive_softmax(d, temp, p);
    for (size_t i = 0; i < d->n; i++)
        share[i] += weight * p[i];
}

/* Sets share[vocab] to the probabilities of the token after `history`. */
static void naive_shares(const struct sampler_options *o, const float *logits, size_t vocab,
                         const uint32_t *history, size_t n_history, double *share)
{
    struct naive d = {.n = vocab};
    for (size_t i = 0; i < vocab; i++) {
        d.x[i] = logits[i];
        share[i] = 0;
    }
    naive_penalties(&d, o, history, n_history);
    naive_sigma_and_k(&d, o);
    naive_masses(&d, o);
    naive_add(&d, o, 1 - o->xtc_probability, share);
    if (o->xtc_probability > 0) {
        naive_xtc(&d, o);
        naive_add(&d, o, o->xtc_probability, share);
    }
}

#endif
