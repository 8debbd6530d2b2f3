/* Least-squares fits of a quant group.
 *
 * The scale and min of a quant group define a line, value = scale * c + min, for the integers c
 * that quantised values stand for. For given c the best line is the least-squares fit; for a given
 * line the best c are the nearest. Each group starts from several lines, alternates between the two
 * a few times, and keeps the line with the least error, computed with scales and mins as they are
 * stored. */
#include "quant/quantize_fit.h"

#include "quant/quantize_grid.h"

enum { MORE_FITS = 4 };             /* most refits of a starting line */
static const float hopeless = 2.4f; /* abandons a line at this multiple of the least error */

typedef float lanes __attribute__((vector_size(16)));
typedef int32_t masks __attribute__((vector_size(16)));
enum { LANES = sizeof(lanes) / sizeof(float) };

static lanes all_lanes(float x) { return (lanes){x, x, x, x}; }

static lanes where(masks yes, lanes a, lanes b)
{
    return (lanes)(((masks)a & yes) | ((masks)b & ~yes));
}

static float inverse_of(struct quant_scale v) { return isfinite(1 / v.scale) ? 1 / v.scale : 0; }

static const float ones[LANES] = {1, 1, 1, 1};

static float level(const struct fit_range *s, size_t i)
{
    return (float)s->codebook[i] - s->zero_point;
}

static void set_levels(struct fit_range *s)
{
    s->low = level(s, 0);
    s->high = level(s, FIT_LEVELS - 1);
    for (size_t i = 0; i + 1 < FIT_LEVELS; i++) {
        s->rise[i] = level(s, i + 1) - level(s, i);
        s->middle[i] = (level(s, i + 1) + level(s, i)) / 2;
    }
}

struct fit_range fit_range(enum dtype type, const float *x, const float *weight, size_t n)
{
    const struct quant_types *quant = &quant_types[type];
    struct fit_range range = {.x = x, .weight = weight, .n = n};
    range.zero_point = quant->zero_point;
    range.codebook = quant->codebook ? quant_codebooks[quant->codebook] : NULL;
    range.low = -range.zero_point;
    range.high = (float)((1 << quant->bits) - 1) - range.zero_point;
    if (range.codebook)
        set_levels(&range);
    range.has_min = quant_has_min(type);
    range.min_below_0 = quant->scales[SCALE_DMIN].bytes;
    range.f16 = quant->scales[SCALE_MAIN].bytes == sizeof(f16);
    if (quant_has_grid(type)) {
        range.grid_type = type;
        range.high = grid_highest(type);
    } else if (quant->scales[SCALE_D].bytes && !quant->scales[SCALE_MAIN].bytes) { /* ternary */
        range.high = 1;
        range.f16 = true;
    }
    return range;
}

/* Returns the c nearest to (x - min) / scale in each lane. inverse: 1 / scale or 0. Adding
 * 1.5 * 2^23 rounds. */
static inline lanes integer_of(const struct fit_range *s, lanes x, struct quant_scale v, float inverse)
{
    lanes c = (x - all_lanes(v.min)) * all_lanes(inverse);
    c = where(c > all_lanes(s->low), c, all_lanes(s->low));
    c = where(c < all_lanes(s->high), c, all_lanes(s->high));
    return (c + all_lanes(12582912)) - all_lanes(12582912);
}

/* The same with c in a codebook: adds the distances of all levels that x is nearer to. */
static inline lanes level_of(const struct fit_range *s, lanes x, struct quant_scale v, float inverse)
{
    const lanes y = (x - all_lanes(v.min)) * all_lanes(inverse);
    lanes c = all_lanes(s->low);
    for (size_t i = 0; i + 1 < FIT_LEVELS; i++)
        c += (lanes)((masks)all_lanes(s->rise[i]) & (y > all_lanes(s->middle[i])));
    return c;
}

static float add_up(lanes x) { return (x[0] + x[1]) + (x[2] + x[3]); }

struct lane_sums {
    lanes w, x, c, cc, xc, error;
};

static inline void add_lanes(struct lane_sums *sum, bool levels, const struct fit_range *s,
                             struct quant_scale v, float inverse, lanes x, lanes w)
{
    const lanes c = levels ? level_of(s, x, v, inverse) : integer_of(s, x, v, inverse), wc = w * c;
    const lanes off = x - (all_lanes(v.min) + all_lanes(v.scale) * c);
    sum->w += w;
    sum->x += w * x;
    sum->c += wc;
    sum->cc += wc * c;
    sum->xc += wc * x;
    sum->error += w * off * off;
}

static inline __attribute__((always_inline)) struct fit_sums
measure(bool levels, const struct fit_range *s, struct quant_scale v)
{
    const lanes none = all_lanes(0);
    struct lane_sums sum = {none, none, none, none, none, none};
    const float inverse = inverse_of(v);
    size_t i = 0;
    lanes x, w = all_lanes(1);
    for (; i + LANES <= s->n; i += LANES) {
        memcpy(&x, s->x + i, sizeof x);
        if (s->weight)
            memcpy(&w, s->weight + i, sizeof w);
        add_lanes(&sum, levels, s, v, inverse, x, w);
    }
    if (i < s->n) { /* the last lanes, unused ones with weight 0 */
        x = w = none;
        memcpy(&x, s->x + i, (s->n - i) * sizeof *s->x);
        memcpy(&w, s->weight ? s->weight + i : ones, (s->n - i) * sizeof *s->x);
        add_lanes(&sum, levels, s, v, inverse, x, w);
    }
    return (struct fit_sums){add_up(sum.w),  add_up(sum.x),  add_up(sum.c),
                             add_up(sum.cc), add_up(sum.xc), add_up(sum.error)};
}

struct fit_sums fit_measure(const struct fit_range *s, struct quant_scale v)
{
    if (s->grid_type)
        return grid_measure(s, v.scale);
    return s->codebook ? measure(true, s, v) : measure(false, s, v);
}

static struct quant_scale stored(const struct fit_range *s, struct quant_scale v)
{
    if (s->min_below_0)
        v.min = v.min < 0 ? v.min : 0;
    if (s->f16) {
        v.scale = f16_to_f32(f16_from_f32(v.scale));
        v.min = f16_to_f32(f16_from_f32(v.min));
    }
    return v;
}

/* Returns the least-squares line for the sums of a group, rounded to the stored precision. */
static struct quant_scale fit(const struct fit_range *s, const struct fit_sums *sums)
{
    struct quant_scale v = {sums->xc / sums->cc, 0};
    if (!s->has_min)
        return stored(s, v);
    const struct quant_scale without_min = v;
    v.scale = (sums->w * sums->xc - sums->x * sums->c) / (sums->w * sums->cc - sums->c * sums->c);
    v = stored(s, v);
    v.min = (sums->x - v.scale * sums->c) / sums->w;
    return stored(s, s->min_below_0 && v.min > 0 ? without_min : v);
}

/* Alternates between nearest c and best line, starting from line v; updates *best whenever the
 * error is less. */
static void try_from(const struct fit_range *s, struct quant_scale v, struct fit_best *best)
{
    v = stored(s, v);
    for (int left = MORE_FITS; left >= 0; left--) {
        if (!isfinite(v.scale) || !isfinite(v.min))
            return;
        const struct fit_sums sums = fit_measure(s, v);
        if (sums.error < best->error)
            *best = (struct fit_best){v, sums.error};
        const struct quant_scale next = fit(s, &sums);
        if (sums.error > hopeless * best->error || (next.scale == v.scale && next.min == v.min))
            return;
        v = next;
    }
}

/* ---- starting lines ---- */

struct range {
    float low, high, most; /* most: the value of largest magnitude, with its sign */
    float mean, deviation; /* weighted mean and standard deviation */
};

static struct range range_of(const struct fit_range *s)
{
    struct range r = {.low = s->x[0], .high = s->x[0]};
    float w = 0, sum = 0, square = 0;
    for (size_t i = 0; i < s->n; i++) {
        const float x = s->x[i], weight = s->weight ? s->weight[i] : 1;
        r.low = fminf(r.low, x);
        r.high = fmaxf(r.high, x);
        if (fabsf(x) > fabsf(r.most))
            r.most = x;
        w += weight;
        sum += weight * x;
        square += weight * x * x;
    }
    r.mean = sum / w;
    r.deviation = sqrtf(fmaxf(square / w - r.mean * r.mean, 0));
    return r;
}

/* Starting lines of types without min, each given by the q - zero_point of the value of largest
 * magnitude. quantize_nearest() uses the first. Those outside the range of q clip that value, for a
 * smaller scale. */
static const float ends_of_4_bits[] = {7, -8,     -7.25f, 7.5f, -8.5f,  6.5f,  8, -7.75f,
                                       6, -6.75f, -9,     9,    -6.25f, -5.5f, 5, -10};
static const float ends_of_8_bits[] = {127, 125.5f, 121, 110, 127.4f};

/* Starting lines of other types without min: these are multiples of the least and the greatest c, in
 * units of half a step, or of 1/28 of the range if that is more. */
static void start_at_ends(const struct fit_range *s, struct range r, struct fit_best *best)
{
    const float part = s->codebook ? s->high / 15 : fmaxf(s->high / 28, 0.5f);
    try_from(s, (struct quant_scale){fabsf(r.most) / s->high, 0}, best);
    for (int i = -1; i <= 4; i++) {
        try_from(s, (struct quant_scale){r.most / (s->high - (float)i * part), 0}, best);
        try_from(s, (struct quant_scale){r.most / (s->low + (float)i * part), 0}, best);
    }
}

/* Starting lines of types with min: the range of q covers this many standard deviations on both
 * sides of the mean, for groups whose outliers have little weight. */
static const float reaches[] = {1.6f, 2.2f};

/* Starting lines of types with min: the lowest q stands for a value this many steps above the
 * group's lowest, the highest q for one this many steps below the group's highest. */
static const float insets[] = {0.25f, -0.33f, 0.75f, -0.75f};

/* Starting lines of ternary types and of grids: the greatest c stands for this multiple of the value of largest magnitude.
 * The last ones are for groups of nearly equal magnitudes. */
static const float covers[] = {1, 0.82f, 0.66f, 0.5f, 0.38f, 1.7f, 5.3f};

static void start_without_min(const struct fit_range *s, struct range r, struct fit_best *best)
{
    for (size_t i = 0; (s->grid_type || s->high == 1) && i < ARRAY_LEN(covers); i++)
        try_from(s, (struct quant_scale){fabsf(r.most) * covers[i] / s->high, 0}, best);
    if (s->grid_type || s->high == 1)
        return;
    const bool wide = s->high > 100 && !s->codebook;
    const float *ends = wide ? ends_of_8_bits : ends_of_4_bits;
    const size_t n = wide ? ARRAY_LEN(ends_of_8_bits) : ARRAY_LEN(ends_of_4_bits);
    if (s->high != 7 && !wide) {
        start_at_ends(s, r, best);
        return;
    }
    try_from(s, (struct quant_scale){fabsf(r.most) / ends[0], 0}, best);
    for (size_t i = 0; i < n; i++)
        try_from(s, (struct quant_scale){r.most / ends[i], 0}, best);
}

static void start_with_min(const struct fit_range *s, struct range r, struct fit_best *best)
{
    for (size_t i = 0; i < ARRAY_LEN(reaches); i++) {
        const float reach = reaches[i] * r.deviation;
        try_from(s, (struct quant_scale){2 * reach / s->high, r.mean - reach}, best);
    }
    try_from(s, (struct quant_scale){(r.high - r.low) / s->high, r.low}, best);
    if (s->min_below_0)
        try_from(s, (struct quant_scale){r.high / s->high, 0}, best);
    for (size_t i = 0; i < ARRAY_LEN(insets); i++)
        for (size_t j = 0; j < ARRAY_LEN(insets); j++) {
            const float step = (r.high - r.low) / (s->high + insets[i] + insets[j]);
            try_from(s, (struct quant_scale){step, r.low + insets[i] * step}, best);
        }
}

struct fit_best fit_search(const struct fit_range *s)
{
    struct fit_best best = {{0, 0}, INFINITY};
    if (s->has_min)
        start_with_min(s, range_of(s), &best);
    else
        start_without_min(s, range_of(s), &best);
    return best;
}

struct quant_scale fit_nearest(const struct fit_range *s)
{
    const struct range r = range_of(s);
    if (!s->has_min)
        return stored(s, (struct quant_scale){fabsf(r.most) / s->high, 0});
    const float min = stored(s, (struct quant_scale){0, r.low}).min;
    return stored(s, (struct quant_scale){fmaxf(r.high - min, 0) / s->high, min});
}

void fit_store(unsigned char *row, enum dtype type, const struct fit_range *s, struct quant_scale v,
               size_t at)
{
    const float inverse = inverse_of(v);
    if (s->grid_type)
        grid_store(row, type, s, v.scale, at);
    for (size_t i = 0; !s->grid_type && i < s->n; i++) {
        unsigned q = 0;
        if (s->codebook)
            for (const float y = (s->x[i] - v.min) * inverse; q + 1 < FIT_LEVELS && y > s->middle[q];)
                q++;
        else
            q = (unsigned)((int)integer_of(s, all_lanes(s->x[i]), v, inverse)[0] +
                           quant_types[type].zero_point);
        quant_row_set_q(type, row, at + i, q);
    }
}
