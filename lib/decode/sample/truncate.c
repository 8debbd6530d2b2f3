/* Truncation of the distribution, and temperature. */
#include "decode/sample/truncate.h"

#include "base/repro_math.h"
#include "decode/sample/dry.h"

/* Sets probabilities at the temperature so far. */
static void sampler_probabilities(struct sampler *s)
{
    double sum = 0;
    for (size_t i = 0; i < s->n; i++) {
        s->candidate[i].p =
            repro_exp(((double)s->candidate[i].logit - s->candidate[0].logit) / s->temp);
        sum += s->candidate[i].p;
    }
    for (size_t i = 0; i < s->n; i++)
        s->candidate[i].p /= sum;
}

/* The entropy of these, in nats. */
static double sampler_entropy(const struct sampler *s)
{
    double sum = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->candidate[i].p > 0)
            sum -= s->candidate[i].p * repro_log(s->candidate[i].p);
    return sum;
}

/* Keeps candidates whose logit is at most n standard deviations below the best (Tang and others, 2024). */
static void sampler_top_n_sigma(struct sampler *s)
{
    double mean = 0, square = 0;
    if (s->options.top_n_sigma <= 0)
        return;
    for (size_t i = 0; i < s->n; i++)
        mean += s->candidate[i].logit;
    mean /= (double)s->n;
    for (size_t i = 0; i < s->n; i++)
        square += (s->candidate[i].logit - mean) * (s->candidate[i].logit - mean);
    const double least = s->candidate[0].logit - s->options.top_n_sigma * sqrt(square / (double)s->n);
    while (s->n > 1 && s->candidate[s->n - 1].logit < least)
        s->n--;
}

static void sampler_top_k(struct sampler *s)
{
    if (s->options.top_k)
        s->n = size_min(s->n, s->options.top_k);
}

/* Keeps the smallest set of most likely candidates whose probabilities add up to top_p. */
static void sampler_top_p(struct sampler *s)
{
    double sum = 0;
    if (s->options.top_p >= 1)
        return;
    sampler_probabilities(s);
    for (size_t i = 0; i < s->n; i++) {
        sum += s->candidate[i].p;
        if (sum >= s->options.top_p) {
            s->n = i + 1;
            return;
        }
    }
}

/* Keeps candidates at least min_p times as likely as the best. */
static void sampler_min_p(struct sampler *s)
{
    if (s->options.min_p <= 0)
        return;
    sampler_probabilities(s);
    size_t n = 1;
    while (n < s->n && s->candidate[n].p >= s->options.min_p * s->candidate[0].p)
        n++;
    s->n = n;
}

/* The most typical candidates of a sorted list are a range around the entropy: [*from, *to). Keeps the
 * shortest one whose probabilities exceed typical_p (Meister and others, 2023). */
static void sampler_typical(struct sampler *s)
{
    struct candidate *c = s->candidate;
    if (s->options.typical_p <= 0 || s->options.typical_p >= 1)
        return;
    sampler_probabilities(s);
    const double h = sampler_entropy(s);
    size_t from = 0;
    while (from < s->n && -repro_log(c[from].p) < h)
        from++;
    size_t to = from; /* candidates before `from` are less surprising than the entropy, others more */
    for (double sum = 0; sum <= s->options.typical_p && (from > 0 || to < s->n);) {
        const bool up =
            to >= s->n || (from > 0 && h + repro_log(c[from - 1].p) <= -repro_log(c[to].p) - h);
        sum += up ? c[--from].p : c[to++].p;
    }
    memmove(c, c + from, (to - from) * sizeof *c);
    s->n = to - from;
}

/* With some probability leaves out all candidates above the threshold but the least likely of them. */
static void sampler_xtc(struct sampler *s)
{
    size_t above = 0;
    if (s->options.xtc_probability <= 0 || s->options.xtc_threshold > 0.5 ||
        s->xtc_u >= s->options.xtc_probability)
        return;
    sampler_probabilities(s);
    while (above < s->n && s->candidate[above].p >= s->options.xtc_threshold)
        above++;
    if (above < 2)
        return;
    s->n -= above - 1;
    memmove(s->candidate, s->candidate + above - 1, s->n * sizeof *s->candidate);
}

/* Penalises repetitions among the candidates, unless all logits were penalised before. */
static void sampler_dry(struct sampler *s)
{
    if (!dry_is_on(&s->options) || dry_leads(&s->options))
        return;
    dry_penalize_candidates(&s->options, s->history, s->n_history, s->count, s->candidate, s->n);
    candidates_sort(s->candidate, s->n);
}

/* In bits. */
static double surprise(double p) { return repro_log(p) * -0x1.71547652b82fep+0; }

/* Keeps candidates whose surprise, in bits, is at most the limit (Basu and others, 2021). */
static void sampler_mirostat(struct sampler *s)
{
    if (!s->options.mirostat)
        return;
    sampler_probabilities(s);
    size_t n = 1;
    while (n < s->n && surprise(s->candidate[n].p) <= s->mirostat_mu)
        n++;
    s->n = n;
}

double sampler_mirostat_begin(const struct sampler_options *options)
{
    return options->mirostat_mu != 0 ? options->mirostat_mu : 2 * options->mirostat_tau;
}

double sampler_mirostat_next(const struct sampler *s, uint32_t id)
{
    double p = 1;
    for (size_t i = 0; i < s->n; i++)
        if (s->candidate[i].id == id)
            p = s->candidate[i].p;
    return s->mirostat_mu - s->options.mirostat_eta * (surprise(p) - s->options.mirostat_tau);
}

/* Sets the temperature, a dynamic one by the entropy of the candidates relative to the highest one. */
static void sampler_temperature(struct sampler *s)
{
    const struct sampler_options *o = &s->options;
    double temp = o->temp;
    if (o->dynatemp_range > 0) {
        const double low = fmax(0, temp - o->dynatemp_range), high = temp + o->dynatemp_range;
        sampler_probabilities(s);
        const double share = s->n > 1 ? sampler_entropy(s) / repro_log((double)s->n) : 0;
        temp = fmax(low + (high - low) * repro_pow(share, o->dynatemp_exponent), 1e-6);
    }
    s->temp *= temp;
}

size_t sampler_first_cut(const struct sampler *s)
{
    const struct sampler_order order = sampler_order_of(&s->options);
    size_t first = 0;
    while (first < order.n &&
           (order.step[first] == SAMPLER_DRY ||
            (order.step[first] == SAMPLER_TOP_N_SIGMA && s->options.top_n_sigma <= 0)))
        if (order.step[first++] == SAMPLER_DRY && first > 1 && dry_is_on(&s->options))
            return s->vocab;
    return first < order.n && order.step[first] == SAMPLER_TOP_K && s->options.top_k
               ? size_min(s->options.top_k, s->vocab)
               : s->vocab;
}

void sampler_truncate(struct sampler *s)
{
#define STEP(NAME, function, ...) [SAMPLER_##NAME] = sampler_##function,
    static void (*const steps[SAMPLER_STEPS])(struct sampler *) = {SAMPLER_LIST(STEP)};
#undef STEP
    const struct sampler_order order = sampler_order_of(&s->options);
    s->temp = 1;
    for (size_t i = 0; i < order.n; i++)
        steps[order.step[i]](s);
    sampler_probabilities(s);
}
