/* The sampler: biases, penalties, truncation of the distribution, and drawing a token. */
#include "decode/sample/sampler.h"

#include <float.h>

#include "base/mem.h"
#include "base/repro_math.h"
#include "decode/sample/dry.h"
#include "decode/sample/rng.h"
#include "decode/sample/truncate.h"

int sampler_open(struct sampler *sampler, const struct sampler_options *options, size_t vocab,
                 struct err *err)
{
    *sampler = (struct sampler){.options = *options, .vocab = vocab};
    sampler->adjusted = mem_alloc(vocab, sizeof *sampler->adjusted);
    sampler->count = mem_zalloc(vocab, sizeof *sampler->count);
    sampler->candidate = mem_alloc(vocab, sizeof *sampler->candidate);
    if (!sampler->adjusted || !sampler->count || !sampler->candidate) {
        sampler_close(sampler);
        return err_no_memory(err, "%zu candidates", vocab);
    }
    return 0;
}

void sampler_close(struct sampler *sampler)
{
    free(sampler->adjusted);
    free(sampler->count);
    free(sampler->candidate);
    *sampler = (struct sampler){.vocab = 0};
}

void sampler_begin(struct sampler *s, const struct sampler_options *options, uint64_t seed,
                   uint64_t stream, uint32_t position)
{
    s->options = *options;
    s->seed = seed;
    s->stream = stream;
    s->position = position;
    s->xtc_u = rng_uniform(seed, stream, position, RNG_XTC);
}

bool logits_finite(const float *logits, size_t n)
{
    int beyond = 0;
    for (size_t i = 0; i < n; i++)
        beyond |= !(fabsf(logits[i]) <= FLT_MAX);
    return !beyond;
}

/* The largest of x[0..n), in LANES accumulators so that compilers vectorise the loop. */
static float largest(const float *x, size_t n)
{
    enum { LANES = 8 };
    float best[LANES] = {x[0], x[0], x[0], x[0], x[0], x[0], x[0], x[0]};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            best[l] = x[i + l] > best[l] ? x[i + l] : best[l];
    for (; i < n; i++)
        best[0] = x[i] > best[0] ? x[i] : best[0];
    for (size_t l = 1; l < LANES; l++)
        best[0] = best[l] > best[0] ? best[l] : best[0];
    return best[0];
}

double log_sum_exp(const float *logits, size_t n)
{
    const double max = largest(logits, n);
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += exp(logits[i] - max);
    return max + log(sum);
}

double log_sum_exp_allowed(const float *logits, size_t n, const uint64_t *allowed)
{
    double max = -INFINITY, sum = 0;
    if (!allowed)
        return log_sum_exp(logits, n);
    for (size_t i = 0; i < n; i++)
        if (allowed[i / 64] >> i % 64 & 1)
            max = logits[i] > max ? logits[i] : max;
    for (size_t i = 0; i < n && max > -INFINITY; i++)
        if (allowed[i / 64] >> i % 64 & 1)
            sum += exp(logits[i] - max);
    return max + log(sum);
}

static bool has_penalties(const struct sampler_options *o)
{
    return o->repeat_last_n &&
           (o->repeat_penalty != 1 || o->presence_penalty != 0 || o->frequency_penalty != 0);
}

bool sampler_uses_history(const struct sampler_options *o) { return has_penalties(o) || dry_is_on(o); }

static void add_biases(struct sampler *s)
{
    for (size_t i = 0; i < s->options.n_biases; i++)
        if (s->options.bias[i].id < s->vocab)
            s->adjusted[s->options.bias[i].id] += s->options.bias[i].bias;
}

/* The logit of a token that occurs `count` times: the repeat penalty divides a positive logit and
 * multiplies a negative one; the other penalties are subtracted. */
static float penalized(const struct sampler_options *o, float logit, uint32_t count)
{
    const float penalty = (float)o->repeat_penalty;
    logit = logit > 0 ? logit / penalty : logit * penalty;
    return logit - (float)(o->presence_penalty + count * o->frequency_penalty);
}

/* Penalises every distinct token of the history once. */
static void penalize(struct sampler *s, const uint32_t *last, size_t n)
{
    for (size_t i = 0; i < n; i++)
        s->count[last[i]]++;
    for (size_t i = 0; i < n; i++) {
        const uint32_t id = last[i];
        if (s->count[id])
            s->adjusted[id] = penalized(&s->options, s->adjusted[id], s->count[id]);
        s->count[id] = 0;
    }
}

const float *sampler_adjusted(struct sampler *s, const float *logits, const uint32_t *history,
                              size_t n_history)
{
    const size_t n = has_penalties(&s->options) ? size_min(s->options.repeat_last_n, n_history) : 0;
    const bool dry = n_history && dry_is_on(&s->options) && dry_leads(&s->options);
    if (n == 0 && s->options.n_biases == 0 && !dry)
        return logits;
    memcpy(s->adjusted, logits, s->vocab * sizeof *logits);
    add_biases(s);
    if (n)
        penalize(s, history + n_history - n, n);
    if (dry)
        dry_penalize(&s->options, history, n_history, s->count, s->adjusted);
    return s->adjusted;
}

void sampler_candidates(struct sampler *s, const float *logits, const uint32_t *history,
                        size_t n_history)
{
    logits = sampler_adjusted(s, logits, history, n_history);
    s->history = history;
    s->n_history = n_history;
    const bool greedy = s->options.temp <= 0;
    s->n = top_allowed(logits, s->vocab, greedy ? 1 : sampler_first_cut(s), s->allowed, s->candidate);
    if (greedy && s->n)
        s->candidate[0].p = 1;
    else if (s->n)
        sampler_truncate(s);
}

size_t sampler_draw(const struct sampler *s, size_t n, struct draw *drawn)
{
    size_t found = 0;
    for (size_t i = 0; i < s->n; i++) {
        const struct candidate *c = &s->candidate[i];
        const double u = rng_uniform(s->seed, s->stream, s->position, c->id);
        /* E = -log(1 - u) is at least u: few candidates need the logarithm */
        if (c->p <= 0 || (found == n && u >= drawn[n - 1].order * c->p))
            continue;
        const double order = -repro_log(1 - u) / c->p;
        if (found == n && order >= drawn[n - 1].order)
            continue;
        size_t at = found < n ? found++ : n - 1;
        for (; at > 0 && order < drawn[at - 1].order; at--)
            drawn[at] = drawn[at - 1];
        drawn[at] = (struct draw){c->id, order};
    }
    return found;
}

uint32_t sampler_sample(struct sampler *s, const float *logits, const uint32_t *history,
                        size_t n_history)
{
    struct draw drawn;
    sampler_candidates(s, logits, history, n_history);
    return sampler_draw(s, 1, &drawn) ? drawn.id : 0;
}
