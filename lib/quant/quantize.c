/* Quantisation by least squares.
 *
 * The scale and min of a quant group define a line, value = scale * q + min, for quantised values
 * q. For given q the best line is the least-squares fit; for a given line the best q are the
 * nearest. Each group starts from several lines, alternates between the two a few times, and keeps
 * the result with the least error, computed with scales and mins as they are stored. */
#include "quant/quantize.h"

#include <math.h>

enum { MORE_FITS = 4 };             /* most refits of a starting line */
static const float hopeless = 2.4f; /* abandons a line at this multiple of the least error */

typedef float lanes __attribute__((vector_size(16)));
typedef int32_t masks __attribute__((vector_size(16)));
enum { LANES = sizeof(lanes) / sizeof(float) };

/* The values of a quant group, which share a scale and a min. */
struct fit_range {
    const float *x, *weight; /* weights of squared errors; NULL: all equal */
    size_t n;
    float low, high; /* range of q - zero_point */
};

/* Weighted sums over a group, from which fit() computes a line, with c = q - zero_point; and the
 * squared error. */
struct sums {
    float w, x, c, cc, xc, error;
};

static lanes all(float x) { return (lanes){x, x, x, x}; }

static lanes where(masks yes, lanes a, lanes b)
{
    return (lanes)(((masks)a & yes) | ((masks)b & ~yes));
}

static float inverse_of(struct quant_scale v) { return isfinite(1 / v.scale) ? 1 / v.scale : 0; }

static const float ones[LANES] = {1, 1, 1, 1};

/* Returns the quantised value nearest to x, less the zero point, in each lane. inverse: 1 / scale
 * or 0. Adding 1.5 * 2^23 rounds. */
static inline lanes q_of(const struct fit_range *s, lanes x, struct quant_scale v, float inverse)
{
    lanes q = (x - all(v.min)) * all(inverse);
    q = where(q > all(s->low), q, all(s->low));
    q = where(q < all(s->high), q, all(s->high));
    return (q + all(12582912)) - all(12582912);
}

static float add_up(lanes x) { return (x[0] + x[1]) + (x[2] + x[3]); }

struct lane_sums {
    lanes w, x, c, cc, xc, error;
};

static inline void add(struct lane_sums *sum, const struct fit_range *s, struct quant_scale v,
                       float inverse, lanes x, lanes w)
{
    const lanes q = q_of(s, x, v, inverse), wc = w * q;
    const lanes off = x - (all(v.min) + all(v.scale) * q);
    sum->w += w;
    sum->x += w * x;
    sum->c += wc;
    sum->cc += wc * q;
    sum->xc += wc * x;
    sum->error += w * off * off;
}

static struct sums measure(const struct fit_range *s, struct quant_scale v)
{
    const lanes none = all(0);
    struct lane_sums sum = {none, none, none, none, none, none};
    const float inverse = inverse_of(v);
    size_t i = 0;
    lanes x, w = all(1);
    for (; i + LANES <= s->n; i += LANES) {
        memcpy(&x, s->x + i, sizeof x);
        if (s->weight)
            memcpy(&w, s->weight + i, sizeof w);
        add(&sum, s, v, inverse, x, w);
    }
    if (i < s->n) { /* the last lanes, unused ones with weight 0 */
        x = w = none;
        memcpy(&x, s->x + i, (s->n - i) * sizeof *s->x);
        memcpy(&w, s->weight ? s->weight + i : ones, (s->n - i) * sizeof *s->x);
        add(&sum, s, v, inverse, x, w);
    }
    return (struct sums){add_up(sum.w),  add_up(sum.x),  add_up(sum.c),
                         add_up(sum.cc), add_up(sum.xc), add_up(sum.error)};
}

/* Rounds scale and min to the precision in which the type stores them. */
static struct quant_scale stored(enum dtype type, struct quant_scale v)
{
    if (quant_types[type].scales[SCALE_MAIN].bytes == sizeof(f16))
        v.scale = f16_to_f32(f16_from_f32(v.scale));
    v.min = f16_to_f32(f16_from_f32(v.min));
    return v;
}

/* Returns the least-squares line for the sums of a group, rounded to the stored precision. */
static struct quant_scale fit(enum dtype type, const struct sums *s)
{
    struct quant_scale v = {s->xc / s->cc, 0};
    if (!quant_types[type].offset)
        return stored(type, v);
    v.scale = (s->w * s->xc - s->x * s->c) / (s->w * s->cc - s->c * s->c);
    v = stored(type, v);
    v.min = (s->x - v.scale * s->c) / s->w;
    return stored(type, v);
}

struct best {
    struct quant_scale v;
    float error;
};

/* Alternates between nearest q and best line, starting from line v; updates *best whenever the
 * error is less. */
static void try_from(enum dtype type, const struct fit_range *s, struct quant_scale v,
                     struct best *best)
{
    v = stored(type, v);
    for (int left = MORE_FITS; left >= 0; left--) {
        if (!isfinite(v.scale) || !isfinite(v.min))
            return;
        const struct sums sums = measure(s, v);
        if (sums.error < best->error)
            *best = (struct best){v, sums.error};
        const struct quant_scale next = fit(type, &sums);
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

/* Starting lines of types with min: the range of q covers this many standard deviations on both
 * sides of the mean, for groups whose outliers have little weight. */
static const float reaches[] = {1.6f, 2.2f};

/* Starting lines of types with min: the lowest q stands for a value this many steps above the
 * group's lowest, the highest q for one this many steps below the group's highest. */
static const float insets[] = {0.25f, -0.33f, 0.75f, -0.75f};

static void start_without_min(enum dtype type, const struct fit_range *s, struct range r,
                              struct best *best)
{
    const bool wide = quant_types[type].bits == 8;
    const float *ends = wide ? ends_of_8_bits : ends_of_4_bits;
    const size_t n = wide ? ARRAY_LEN(ends_of_8_bits) : ARRAY_LEN(ends_of_4_bits);
    try_from(type, s, (struct quant_scale){fabsf(r.most) / ends[0], 0}, best);
    for (size_t i = 0; i < n; i++)
        try_from(type, s, (struct quant_scale){r.most / ends[i], 0}, best);
}

static void start_with_min(enum dtype type, const struct fit_range *s, struct range r,
                           struct best *best)
{
    for (size_t i = 0; i < ARRAY_LEN(reaches); i++) {
        const float reach = reaches[i] * r.deviation;
        try_from(type, s, (struct quant_scale){2 * reach / s->high, r.mean - reach}, best);
    }
    try_from(type, s, (struct quant_scale){(r.high - r.low) / s->high, r.low}, best);
    for (size_t i = 0; i < ARRAY_LEN(insets); i++)
        for (size_t j = 0; j < ARRAY_LEN(insets); j++) {
            const float step = (r.high - r.low) / (s->high + insets[i] + insets[j]);
            try_from(type, s, (struct quant_scale){step, r.low + insets[i] * step}, best);
        }
}

static struct best best_of(enum dtype type, const struct fit_range *s)
{
    struct best best = {{0, 0}, INFINITY};
    if (quant_types[type].offset)
        start_with_min(type, s, range_of(s), &best);
    else
        start_without_min(type, s, range_of(s), &best);
    return best;
}

static void store_q(unsigned char *row, enum dtype type, const struct fit_range *s,
                    struct quant_scale v, size_t at)
{
    const float inverse = inverse_of(v);
    for (size_t i = 0; i < s->n; i++) {
        const float q = q_of(s, all(s->x[i]), v, inverse)[0];
        quant_row_set_q(type, row, at + i, (unsigned)((int)q + quant_types[type].zero_point));
    }
}

/* Stores a group's scale and min as element `index` of a row's scale arrays: scales as f32 or f16,
 * mins as f16. */
static void store_scale(unsigned char *row, enum dtype type, size_t n, size_t index,
                        struct quant_scale v)
{
    const struct scale_array *scales = quant_types[type].scales;
    unsigned char *scale =
        row + quant_row_scales_at(type, n, SCALE_MAIN) + index * scales[SCALE_MAIN].bytes;
    unsigned char *offset =
        row + quant_row_scales_at(type, n, SCALE_MIN) + index * scales[SCALE_MIN].bytes;
    if (scales[SCALE_MAIN].bytes == sizeof v.scale)
        memcpy(scale, &v.scale, sizeof v.scale);
    else
        quant_store_f16(scale, v.scale);
    if (scales[SCALE_MIN].bytes)
        quant_store_f16(offset, v.min);
}

bool quantize(void *row, enum dtype type, const float *x, size_t n, const float *weight)
{
    const struct quant_types *quant = &quant_types[type];
    const size_t group = quant_group(type, n);
    memset(row, 0, quant_row_q_bytes(type, n));
    for (size_t from = 0; from < n; from += group) {
        const struct fit_range span = {x + from, weight ? weight + from : NULL,
                                       size_min(group, n - from), (float)-quant->zero_point,
                                       (float)((1 << quant->bits) - 1 - quant->zero_point)};
        const struct best best = best_of(type, &span);
        if (!isfinite(best.error))
            return false;
        store_q(row, type, &span, best.v, from);
        store_scale(row, type, n, from / group, best.v);
    }
    return quant_finite(type, row, n);
}
