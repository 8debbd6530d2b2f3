/* Quantisation by least squares to types of two levels: a super-block of 256 inputs has d and dmin,
 * and each of its groups an integer scale and min, which d and dmin multiply.
 *
 * First every group gets its best scale and min, as if they were stored exactly. Values of d and
 * dmin whose multiples come close to these are found by scanning, the cost of a deviation being
 * known from the group's sums. The best of them are then improved in turns: each group chooses among
 * neighbouring integers by their exact error, and d and dmin are refitted to all 256 values. */
#include "quant/quantize_levels.h"

#include "quant/quantize_fit.h"
#include "quant/quantize_grid.h"

enum { GROUPS = QK_SUPER / QK_HALF };
enum {
    UNITS = 3,  /* values of d that are improved */
    ROUNDS = 3, /* most refits of each */
    SCAN = 40   /* values scanned on each side of 0 */
};

struct super_block {
    enum dtype type;
    size_t groups;
    struct fit_range range[GROUPS];
    struct fit_sums sums[GROUPS]; /* at the best line of each */
    int low, high;                /* range of scales; mins begin at 0 */
    float odd; /* types with a grid: scale s is d * odd * (2 s + 1); else 0, and d * s */
};

/* Scales of a super-block, and their errors. */
struct levels {
    float d, dmin;
    int scale[GROUPS], min[GROUPS];
    struct fit_sums sums[GROUPS];
    float error;
};

/* The integer nearest to x, in [low, high]. Adding 1.5 * 2^23 rounds. NaN: low */
static int clamp(float x, int low, int high)
{
    const float magic = 12582912;
    return x > (float)low ? x < (float)high ? (int)((x + magic) - magic) : high : low;
}

/* What d is multiplied by for an integer scale. */
static float factor_of(float odd, int scale)
{
    return odd != 0 ? odd * (float)(2 * scale + 1) : (float)scale;
}

static struct quant_scale line(const struct super_block *s, const struct levels *l, int scale, int min)
{
    return (struct quant_scale){l->d * factor_of(s->odd, scale), -(l->dmin * (float)min)};
}

/* ---- d and dmin ---- */

/* Scales or mins of the groups, which become multiples of a unit, and the cost of a deviation. */
struct targets {
    float x[GROUPS], cost[GROUPS];
    size_t n;
    int low, high;
    float odd;
};

static int multiple(const struct targets *t, size_t g, float unit)
{
    if (unit == 0)
        return 0;
    const float units = t->x[g] / unit;
    return clamp(t->odd != 0 ? (units / t->odd - 1) / 2 : units, t->low, t->high);
}

static float cost_of(const struct targets *t, float unit)
{
    float sum = 0;
    for (size_t g = 0; g < t->n; g++) {
        const float off = t->x[g] - unit * factor_of(t->odd, multiple(t, g, unit));
        sum += t->cost[g] * off * off;
    }
    return sum;
}

/* The best units, of ascending cost; equal ones only once, then infinite ones. */
struct units {
    float unit[UNITS], cost[UNITS];
};

static void offer(struct units *u, const struct targets *t, float unit)
{
    unit = f16_to_f32(f16_from_f32(unit));
    const float cost = cost_of(t, unit);
    size_t at = UNITS;
    for (size_t i = 0; i < UNITS; i++)
        if (u->unit[i] == unit && u->cost[i] < INFINITY)
            return;
    while (at > 0 && cost < u->cost[at - 1])
        at--;
    for (size_t i = UNITS - 1; i > at; i--) {
        u->unit[i] = u->unit[i - 1];
        u->cost[i] = u->cost[i - 1];
    }
    if (at < UNITS) {
        u->unit[at] = unit;
        u->cost[at] = cost;
    }
}

/* Scans the units for which the target of largest magnitude is near an end of its range. All are
 * infinite if targets are too large for an f16. */
static struct units scan_units(const struct targets *t)
{
    struct units u;
    float most = 0;
    for (size_t i = 0; i < UNITS; i++) {
        u.unit[i] = INFINITY;
        u.cost[i] = INFINITY;
    }
    for (size_t g = 0; g < t->n; g++)
        most = fabsf(t->x[g]) > fabsf(most) ? t->x[g] : most;
    const float high = factor_of(t->odd, t->high);
    if (!isfinite(f16_to_f32(f16_from_f32(most / high))))
        return u;
    offer(&u, t, 0);
    for (int i = 0; i < SCAN && most != 0; i++) {
        const float part = 1 - 0.5f * (float)i / SCAN;
        offer(&u, t, most / ((t->odd != 0 ? high : high + 0.5f) * part));
        if (t->low < 0)
            offer(&u, t, most / (((float)t->low - 0.5f) * part));
    }
    return u;
}

/* ---- improving ---- */

/* The integer min that suits a group's scale best, given its sums. */
static int min_for(const struct super_block *s, const struct levels *l, int scale,
                   const struct fit_sums *sums)
{
    if (l->dmin == 0 || !(sums->w > 0))
        return 0;
    const float min = (l->d * (float)scale * sums->c - sums->x) / sums->w;
    return clamp(min / l->dmin, 0, s->high);
}

/* Takes over scale and min for group g if their error is less. Returns the sums. */
static struct fit_sums try_group(const struct super_block *s, struct levels *l, size_t g, int scale,
                                 int min)
{
    const struct fit_sums sums = fit_measure(&s->range[g], line(s, l, scale, min));
    if (sums.error < l->sums[g].error) {
        l->scale[g] = scale;
        l->min[g] = min;
        l->sums[g] = sums;
    }
    return sums;
}

/* Chooses a group's scale and min near the present ones. */
static void improve_group(const struct super_block *s, struct levels *l, size_t g)
{
    const int scale = l->scale[g], reach = s->high < 16 && s->odd == 0 ? 2 : 1;
    for (int at = scale - reach; at <= scale + reach; at++) {
        if (at < s->low || at > s->high)
            continue;
        int min = s->range[g].has_min ? min_for(s, l, at, &l->sums[g]) : 0;
        const struct fit_sums sums = try_group(s, l, g, at, min);
        if (!s->range[g].has_min)
            continue;
        const int next = min_for(s, l, at, &sums);
        if (next != min)
            try_group(s, l, g, at, next);
    }
}

static void measure_all(const struct super_block *s, struct levels *l)
{
    l->error = 0;
    for (size_t g = 0; g < s->groups; g++) {
        l->sums[g] = fit_measure(&s->range[g], line(s, l, l->scale[g], l->min[g]));
        l->error += l->sums[g].error;
    }
}

/* Refits d and dmin to all values by least squares, the integers being kept. */
static void refit(const struct super_block *s, struct levels *l)
{
    float dd = 0, dm = 0, mm = 0, dx = 0, mx = 0;
    for (size_t g = 0; g < s->groups; g++) {
        const struct fit_sums *sums = &l->sums[g];
        const float scale = factor_of(s->odd, l->scale[g]), min = (float)-l->min[g];
        dd += scale * scale * sums->cc;
        dm += scale * min * sums->c;
        mm += min * min * sums->w;
        dx += scale * sums->xc;
        mx += min * sums->x;
    }
    const float det = dd * mm - dm * dm;
    float d = dx / dd, dmin = l->dmin;
    if (mm > 0 && det > 1e-6f * dd * mm) {
        d = (dx * mm - mx * dm) / det;
        dmin = (dd * mx - dm * dx) / det;
    }
    if (isfinite(d))
        l->d = f16_to_f32(f16_from_f32(d));
    if (isfinite(dmin) && dmin >= 0)
        l->dmin = f16_to_f32(f16_from_f32(dmin));
}

static void improve(const struct super_block *s, struct levels *l, struct levels *best)
{
    for (int round = 0; round < ROUNDS; round++) {
        measure_all(s, l);
        if (l->error < best->error)
            *best = *l;
        else if (round)
            return;
        for (size_t g = 0; g < s->groups; g++)
            improve_group(s, l, g);
        l->error = 0;
        for (size_t g = 0; g < s->groups; g++)
            l->error += l->sums[g].error;
        if (l->error < best->error)
            *best = *l;
        refit(s, l);
    }
    measure_all(s, l);
    if (l->error < best->error)
        *best = *l;
}

/* ---- a super-block ---- */

/* Scales for a given d: dmin comes from the mins that suit the groups' scales. */
static void start_levels(const struct super_block *s, const struct targets *scales, float d,
                         struct levels *l)
{
    struct targets mins = {.n = s->groups, .low = 0, .high = s->high};
    *l = (struct levels){.d = d};
    for (size_t g = 0; g < s->groups; g++) {
        const struct fit_sums *sums = &s->sums[g];
        l->scale[g] = multiple(scales, g, d);
        if (s->range[g].has_min && sums->w > 0)
            mins.x[g] = fmaxf(0, (d * (float)l->scale[g] * sums->c - sums->x) / sums->w);
        mins.cost[g] = sums->w;
    }
    if (!s->range[0].has_min)
        return;
    l->dmin = scan_units(&mins).unit[0];
    for (size_t g = 0; g < s->groups; g++)
        l->min[g] = multiple(&mins, g, l->dmin);
}

/* Fits each group by itself, without a search and weights if `simple`. Returns the scales of the best lines. */
static struct targets fit_groups(struct super_block *s, bool simple)
{
    struct targets scales = {.n = s->groups, .low = s->low, .high = s->high, .odd = s->odd};
    for (size_t g = 0; g < s->groups; g++) {
        struct fit_range range = s->range[g];
        if (simple)
            range.weight = NULL;
        const struct quant_scale ideal = simple ? fit_nearest(&range) : fit_search(&range).v;
        const struct fit_sums sums = s->sums[g] = fit_measure(&range, ideal);
        scales.x[g] = ideal.scale;
        scales.cost[g] = sums.cc;
        if (ideal.min < 0 && sums.w > 0) /* the min follows the scale */
            scales.cost[g] = fmaxf(0, sums.cc - sums.c * sums.c / sums.w);
    }
    return scales;
}

static bool fit_super_block(struct super_block *s, bool simple, struct levels *best)
{
    struct targets scales = fit_groups(s, true); /* the candidate that quantize_nearest() stores */
    struct levels l;
    start_levels(s, &scales, scan_units(&scales).unit[0], best);
    measure_all(s, best);
    if (simple || !isfinite(best->error))
        return isfinite(best->error);
    scales = fit_groups(s, false);
    const struct units units = scan_units(&scales);
    for (size_t i = 0; i < UNITS && units.cost[i] < INFINITY; i++) {
        start_levels(s, &scales, units.unit[i], &l);
        improve(s, &l, best);
    }
    return isfinite(best->error);
}

/* Stores the scale of group g of a type with a grid: in its unit, or in half a byte of `scales`. */
static void store_grid_scale(enum dtype type, unsigned char *unit, unsigned char *scales, size_t g,
                             int scale)
{
    const struct quant_grid *grid = &quant_types[type].grid;
    unsigned char *signs = unit + grid_signs_at(grid);
    if (quant_types[type].halves)
        scales[g / 2] |= (unsigned char)(scale << g % 2 * 4);
    else if (grid->delta)
        signs[1] |= (unsigned char)(scale << 4);
    else
        for (size_t i = 0; i < GRID_SIGN_BYTES; i++)
            signs[i] |= (unsigned char)((scale >> i & 1) << 7);
}

/* Stores the scales of the super-block that begins at input `from` of a row of n. */
static void store_levels(unsigned char *row, size_t n, size_t from, const struct super_block *s,
                         const struct levels *l)
{
    const struct quant_types *quant = &quant_types[s->type];
    unsigned char *at[SCALE_KINDS];
    for (size_t p = 0; p < SCALE_KINDS; p++)
        at[p] = row + quant_row_scales_at(s->type, n, p) +
                (quant->scales[p].every ? from / quant->scales[p].every * quant->scales[p].bytes : 0);
    quant_store_f16(at[SCALE_D], l->d);
    if (quant->scales[SCALE_DMIN].bytes)
        quant_store_f16(at[SCALE_DMIN], l->dmin);
    for (size_t g = 0; g < s->groups; g++) {
        if (quant_has_grid(s->type)) {
            store_grid_scale(s->type, row + (from / QK_GROUP + g) * quant->grid.unit, at[SCALE_MAIN], g,
                             l->scale[g]);
            continue;
        }
        at[SCALE_MAIN][g] = (unsigned char)(l->scale[g] | (quant->paired ? l->min[g] << 4 : 0));
        if (quant->scales[SCALE_MIN].bytes)
            at[SCALE_MIN][g] = (unsigned char)l->min[g];
    }
}

/* Sets `to` to the weights of a super-block of n values; zeros become ones if there are no others.
 * Types of 2 bits have no room for outliers: larger values weigh more there, which lowers
 * perplexity. */
static void weigh(float *to, enum dtype type, const float *x, size_t n, const float *weight)
{
    const bool emphasised = quant_types[type].bits == 2;
    float square = 0, sum = 0;
    for (size_t i = 0; i < n; i++)
        square += x[i] * x[i] / (float)n;
    for (size_t i = 0; i < n; i++) {
        to[i] = emphasised ? weight[i] * sqrtf(2 * square + x[i] * x[i]) : weight[i];
        sum += to[i];
    }
    for (size_t i = 0; sum == 0 && i < n; i++)
        to[i] = 1;
}

bool quantize_levels(void *row, enum dtype type, const float *x, size_t n, const float *weight,
                     bool simple)
{
    const struct quant_types *quant = &quant_types[type];
    const size_t group = quant_group(type, n);
    struct super_block s = {.type = type};
    struct levels best;
    float weights[QK_SUPER];
    if (quant_has_grid(type)) {
        grid_prepare(type);
        s.high = quant->grid.delta ? 7 : 15;
        s.odd = quant->grid.factor;
    } else {
        s.high = (1 << (quant->level_bits - (quant->zero_point ? 1 : 0))) - 1;
        s.low = quant->zero_point ? -s.high - 1 : 0;
    }
    memset(row, 0, quant_row_scales_at(type, n, SCALE_KINDS));
    for (size_t from = 0; from < n; from += QK_SUPER) {
        const size_t n_super = size_min(QK_SUPER, n - from);
        if (weight)
            weigh(weights, type, x + from, n_super, weight + from);
        s.groups = div_up(n_super, group);
        for (size_t g = 0, at = 0; g < s.groups; g++, at += group)
            s.range[g] = fit_range(type, x + from + at, weight ? weights + at : NULL,
                                   size_min(group, n_super - at));
        if (!fit_super_block(&s, simple, &best))
            return false;
        for (size_t g = 0; g < s.groups; g++)
            fit_store(row, type, &s.range[g], line(&s, &best, best.scale[g], best.min[g]),
                      from + g * group);
        store_levels(row, n, from, &s, &best);
    }
    return quant_finite(type, row, n);
}
