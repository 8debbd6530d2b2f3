/* The analytical model of decode time from the BMC paper. */
#include "tune/costmodel.h"

/* ---- rate curves: interpolation and selection ---- */

const char *rate_curve_name(enum curve_what what)
{
    static const char *const name[] = {CURVE_NAMES};
    return name[what];
}

double rate_curve_at(const struct rate_curve *c, double bytes)
{
    size_t i = 0;
    if (bytes <= c->at[0].bytes)
        return c->at[0].value;
    while (i + 1 < c->n && c->at[i + 1].bytes < bytes)
        i++;
    if (i + 1 == c->n)
        return c->at[i].value;
    const struct curve_point *a = &c->at[i], *b = a + 1;
    const double share = log(bytes / a->bytes) / log(b->bytes / a->bytes);
    return a->value * pow(b->value / a->value, share);
}

int rate_curve_check(const struct rate_curve *c, struct err *err)
{
    if (c->n == 0)
        return err_set(err, "constant %s has no points", rate_curve_name(c->what));
    for (size_t i = 0; i < c->n; i++) {
        const struct curve_point *p = &c->at[i];
        if (!(p->bytes > 0 && p->value > 0 && isfinite(p->bytes) && isfinite(p->value)))
            return err_set(err, "constant %s is %g at %g bytes; both must be positive",
                           rate_curve_name(c->what), p->value, p->bytes);
        if (i && !(p->bytes > c->at[i - 1].bytes))
            return err_set(err, "constant %s: sizes must ascend, %g bytes come after %g",
                           rate_curve_name(c->what), p->bytes, c->at[i - 1].bytes);
    }
    return 0;
}

bool rate_curve_same(const struct rate_curve *a, const struct rate_curve *b)
{
    return a->what == b->what && strcmp(a->attn, b->attn) == 0 && a->type == b->type &&
           a->width == b->width && a->group == b->group && a->rows == b->rows && a->batch == b->batch &&
           a->cold == b->cold;
}

static double apart(size_t a, size_t b)
{
    return fabs(log2((double)size_max(a, 1) / (double)size_max(b, 1)));
}

const struct rate_curve *rate_curve_find(const struct rate_curve *curve, size_t n,
                                         const struct rate_curve *like)
{
    const struct rate_curve *best = NULL;
    double best_distance = 0;
    for (size_t i = 0; i < n; i++) {
        const struct rate_curve *c = &curve[i];
        if (c->what != like->what || strcmp(c->attn, like->attn) != 0 || c->type != like->type ||
            c->cold != like->cold)
            continue;
        /* Mismatches, weighted by importance: query positions, GQA group size, batch, width. */
        const double distance = 1000 * apart(c->rows, like->rows) + 100 * apart(c->group, like->group) +
                                10 * apart(c->batch, like->batch) + apart(c->width, like->width);
        if (!best || distance < best_distance) {
            best = c;
            best_distance = distance;
        }
    }
    return best;
}

/* ---- the model ---- */

/* Fails unless N >= 2, rates are positive, everything is finite and 1 <= m <= k. */
static int cost_check(const struct cost *c, struct err *err)
{
    if (c->N < 2)
        return err_set(err, "a context of N = %zu leaves no T to choose; at least 2 are needed", c->N);
    if (!(c->elements > 0) || !isfinite(c->elements))
        return err_set(err, "B * L * D is %g elements; it must be positive", c->elements);
    if (!(c->copy_elem_s > 0) || !isfinite(c->copy_elem_s))
        return err_set(err, "a bandwidth of %g elements a second; it must be positive", c->copy_elem_s);
    if (!(c->sdpa_mac_s > 0) || !isfinite(c->sdpa_mac_s))
        return err_set(err, "%g multiply-accumulates a second; they must be positive", c->sdpa_mac_s);
    if (!(c->growth_s >= 0) || !isfinite(c->growth_s))
        return err_set(err, "C0 of %g seconds; it cannot be negative", c->growth_s);
    if (!(c->gq > 0) || !isfinite(c->gq))
        return err_set(err, "G * Q is %g; it must be positive", c->gq);
    if (!(c->m >= 1) || !(c->k >= c->m) || !isfinite(c->k))
        return err_set(err, "k = %g candidates, m = %g accepted: 1 <= m <= k is expected", c->k, c->m);
    return 0;
}

/* Copying time per growth: the first term of BMC paper, eq. 5 and 8, without (T + 1). */
static double copy_term(const struct cost *c)
{
    return 2 * c->elements * (double)c->N / (c->copy_elem_s * c->gq);
}

/* Attention time without padding: the last term of BMC paper, eq. 5 and 9, without (1 + 1/T). */
static double sdpa_term(const struct cost *c)
{
    return c->elements * c->k * (double)c->N * (double)c->N / (c->m * c->sdpa_mac_s);
}

double cost_seconds(const struct cost *c, double T)
{
    return copy_term(c) * (T + 1) + T * c->growth_s + sdpa_term(c) * (1 + 1 / T);
}

int cost_closed_T(const struct cost *c, double *T, struct err *err)
{
    if (cost_check(c, err) < 0)
        return -1;
    /* BMC paper, eq. 6; eq. 7 when C0 = 0 */
    *T = sqrt(sdpa_term(c) / (copy_term(c) + c->growth_s));
    return isfinite(*T) ? 0 : err_set(err, "the constants give no finite T");
}

int cost_config_check(const struct cost_config *config, struct err *err)
{
    if (rate_curve_check(config->copy, err) < 0 || rate_curve_check(config->sdpa, err) < 0 ||
        (config->alloc && rate_curve_check(config->alloc, err) < 0))
        return -1;
    if (!(config->row_bytes > 0) || !isfinite(config->row_bytes))
        return err_set(err, "a row of %g bytes; it must be positive", config->row_bytes);
    const struct cost constant = cost_constant_rates(config);
    return cost_check(&constant, err);
}

/* C0 of a growth to `cap` entries: two allocation calls (K, V) per layer and sequence. */
static double growth_s(const struct cost_config *config, double cap)
{
    return config->alloc ? 2 * (double)(config->layers * config->batch) *
                               rate_curve_at(config->alloc, cap * config->row_bytes)
                         : 0;
}

static double elements(const struct cost_config *config)
{
    return (double)config->batch * (double)config->layers * (double)config->width; /* C1 */
}

struct cost cost_constant_rates(const struct cost_config *config)
{
    const double cap = (double)config->N / 2, bytes = cap * config->row_bytes;
    return (struct cost){
        .N = config->N,
        .elements = elements(config),
        .copy_elem_s = rate_curve_at(config->copy, bytes),
        .sdpa_mac_s = rate_curve_at(config->sdpa, bytes * (double)config->batch),
        .growth_s = growth_s(config, cap),
        .gq = config->gq,
        .k = config->k,
        .m = config->m,
    };
}

double cost_growth_seconds(const struct cost_config *config, double cap)
{
    return 4 * elements(config) * cap /
               (rate_curve_at(config->copy, cap * config->row_bytes) * config->gq) +
           growth_s(config, cap);
}

/* Decode time when every growth adds r tokens (BMC paper, eq. 4). */
static double seconds_by_r(const struct cost_config *config, size_t r)
{
    const double C1 = elements(config);
    double sum = 0;
    for (size_t from = 0; from < config->N; from += r) {
        const double cap = (double)size_min(from + r, config->N), rows = cap - (double)from;
        const double bytes = cap * config->row_bytes;
        sum += cost_growth_seconds(config, cap);
        sum += rows / config->m * 2 * C1 * cap * config->k /
               rate_curve_at(config->sdpa, bytes * (double)config->batch); /* BMC paper, eq. 2, 9 */
    }
    return sum;
}

double cost_config_seconds(const struct cost_config *config, size_t T)
{
    return seconds_by_r(config, div_up(config->N, T));
}

/* The faster of the two powers of two around `T`, within [1, N]. */
static size_t round_by_cost(const struct cost_config *config, double T)
{
    size_t low = 1;
    while (low * 2 <= config->N && (double)low * 2 <= T)
        low *= 2;
    const size_t high = low * 2;
    if (high > config->N || (double)low >= T)
        return low;
    return cost_config_seconds(config, high) < cost_config_seconds(config, low) ? high : low;
}

int cost_answer(const struct cost_config *config, struct cost_answer *answer, struct err *err)
{
    *answer = (struct cost_answer){0};
    if (cost_config_check(config, err) < 0)
        return -1;
    const struct cost constant = cost_constant_rates(config);
    if (cost_closed_T(&constant, &answer->closed, err) < 0)
        return -1;
    answer->pow2 = round_by_cost(config, answer->closed);
    answer->pow2_s = cost_config_seconds(config, answer->pow2);
    return 0;
}

void cost_least(const struct cost_config *config, struct cost_answer *answer)
{
    /* Tries each r once, which evaluates N log N growths in total; trying each T would take N^2. */
    const size_t range = config->N <= 1 << 15 ? config->N : 8;
    const size_t from = div_up(config->N, size_min(answer->pow2 * range, config->N));
    const size_t to = size_min(config->N / size_max(answer->pow2 / range, 1), config->N);
    answer->least = 0;
    for (size_t r = from; r <= to; r++) {
        const double seconds = seconds_by_r(config, r);
        if (!answer->least || seconds < answer->least_s) {
            answer->least = div_up(config->N, r);
            answer->least_s = seconds;
        }
    }
}
