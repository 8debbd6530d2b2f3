/* Rows of few bits by least squares.
 *
 * For given codes the best step and base are a line fitted to (code, value); for a given line the best codes are the
 * nearest. Each group begins with several lines, goes from one to the other some times, and keeps what had the least
 * error of all that can be stored: steps and bases are rounded to the planes' types before they are judged. */
#include "base/few_make.h"

#include <math.h>

enum { MORE_FITS = 4 };             /* of a beginning */
static const float hopeless = 2.4f; /* times the least error: no fit is worth its time */

typedef float lanes __attribute__((vector_size(16)));
typedef int32_t masks __attribute__((vector_size(16)));
enum { LANES = sizeof(lanes) / sizeof(float) };

/* What shares a step and a base. */
struct span {
    const float *x, *weight; /* weight: NULL, all the same */
    size_t n;
    float low, high; /* codes, their zero taken off */
};

/* Weighted sums over a span: what it takes to fit a line to the codes, and the error of the line that they are of. */
struct sums {
    float w, x, c, cc, xc, error;
};

static lanes all(float x) { return (lanes){x, x, x, x}; }

static lanes where(masks yes, lanes a, lanes b)
{
    return (lanes)(((masks)a & yes) | ((masks)b & ~yes));
}

static float inverse_of(struct few_values v) { return isfinite(1 / v.step) ? 1 / v.step : 0; }

static const float ones[LANES] = {1, 1, 1, 1};

/* The nearest codes; adding 1.5 * 2^23 rounds as rintf() does. A step so small that nothing is its inverse has only what
 * counts as 0 to hold. */
static inline lanes codes_of(const struct span *s, lanes x, struct few_values v, float inverse)
{
    lanes code = (x - all(v.base)) * all(inverse);
    code = where(code > all(s->low), code, all(s->low));
    code = where(code < all(s->high), code, all(s->high));
    return (code + all(12582912)) - all(12582912);
}

static float add_up(lanes x) { return (x[0] + x[1]) + (x[2] + x[3]); }

struct lane_sums {
    lanes w, x, c, cc, xc, error;
};

static inline void add(struct lane_sums *sum, const struct span *s, struct few_values v, float inverse,
                       lanes x, lanes w)
{
    const lanes code = codes_of(s, x, v, inverse), wc = w * code;
    const lanes off = x - (all(v.base) + all(v.step) * code);
    sum->w += w;
    sum->x += w * x;
    sum->c += wc;
    sum->cc += wc * code;
    sum->xc += wc * x;
    sum->error += w * off * off;
}

static struct sums measure(const struct span *s, struct few_values v)
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
    if (i < s->n) { /* lanes behind the last count nothing */
        x = w = none;
        memcpy(&x, s->x + i, (s->n - i) * sizeof *s->x);
        memcpy(&w, s->weight ? s->weight + i : ones, (s->n - i) * sizeof *s->x);
        add(&sum, s, v, inverse, x, w);
    }
    return (struct sums){add_up(sum.w),  add_up(sum.x),  add_up(sum.c),
                         add_up(sum.cc), add_up(sum.xc), add_up(sum.error)};
}

/* As the planes of the type hold it. */
static struct few_values stored(enum dtype type, struct few_values v)
{
    if (few_bits[type].plane[FEW_SCALE].bytes == sizeof(f16))
        v.step = f16_to_f32(f16_from_f32(v.step));
    v.base = f16_to_f32(f16_from_f32(v.base));
    return v;
}

/* The line nearest to the values that have these codes, as it can be stored. */
static struct few_values fit(enum dtype type, const struct sums *s)
{
    struct few_values v = {s->xc / s->cc, 0};
    if (!few_bits[type].offset)
        return stored(type, v);
    v.step = (s->w * s->xc - s->x * s->c) / (s->w * s->cc - s->c * s->c);
    v = stored(type, v);
    v.base = (s->x - v.step * s->c) / s->w;
    return stored(type, v);
}

struct best {
    struct few_values v;
    float error;
};

/* From that line on, to and fro. */
static void try_from(enum dtype type, const struct span *s, struct few_values v, struct best *best)
{
    v = stored(type, v);
    for (int left = MORE_FITS; left >= 0; left--) {
        if (!isfinite(v.step) || !isfinite(v.base))
            return;
        const struct sums sums = measure(s, v);
        if (sums.error < best->error)
            *best = (struct best){v, sums.error};
        const struct few_values next = fit(type, &sums);
        if (sums.error > hopeless * best->error || (next.step == v.step && next.base == v.base))
            return;
        v = next;
    }
}

/* ---- where to begin ---- */

struct range {
    float low, high, most; /* most: of the absolute values, with its sign */
    float mean, deviation; /* as they are weighed */
};

static struct range range_of(const struct span *s)
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

/* Codes that the largest value may have; the first is few_narrow()'s. Those beyond the end cut it, and others with
 * it, for the sake of finer steps. */
static const float ends_of_4_bits[] = {7, -8,     -7.25f, 7.5f, -8.5f,  6.5f,  8, -7.75f,
                                       6, -6.75f, -9,     9,    -6.25f, -5.5f, 5, -10};
static const float ends_of_8_bits[] = {127, 125.5f, 121, 110, 127.4f};

/* Codes reach so many deviations to both sides of the mean: where what stands out counts little. */
static const float reaches[] = {1.6f, 2.2f};

/* So many steps above the lowest value, and below the highest, codes end. */
static const float insets[] = {0.25f, -0.33f, 0.75f, -0.75f};

static void begin_with_zero(enum dtype type, const struct span *s, struct range r, struct best *best)
{
    const bool wide = few_bits[type].bits == 8;
    const float *ends = wide ? ends_of_8_bits : ends_of_4_bits;
    const size_t n = wide ? ARRAY_LEN(ends_of_8_bits) : ARRAY_LEN(ends_of_4_bits);
    try_from(type, s, (struct few_values){fabsf(r.most) / ends[0], 0}, best);
    for (size_t i = 0; i < n; i++)
        try_from(type, s, (struct few_values){r.most / ends[i], 0}, best);
}

static void begin_with_offset(enum dtype type, const struct span *s, struct range r, struct best *best)
{
    for (size_t i = 0; i < ARRAY_LEN(reaches); i++) {
        const float reach = reaches[i] * r.deviation;
        try_from(type, s, (struct few_values){2 * reach / s->high, r.mean - reach}, best);
    }
    try_from(type, s, (struct few_values){(r.high - r.low) / s->high, r.low}, best);
    for (size_t i = 0; i < ARRAY_LEN(insets); i++)
        for (size_t j = 0; j < ARRAY_LEN(insets); j++) {
            const float step = (r.high - r.low) / (s->high + insets[i] + insets[j]);
            try_from(type, s, (struct few_values){step, r.low + insets[i] * step}, best);
        }
}

static struct best best_of(enum dtype type, const struct span *s)
{
    struct best best = {{0, 0}, INFINITY};
    if (few_bits[type].offset)
        begin_with_offset(type, s, range_of(s), &best);
    else
        begin_with_zero(type, s, range_of(s), &best);
    return best;
}

/* ---- rows ---- */

static void put_codes(unsigned char *row, enum dtype type, const struct span *s, struct few_values v,
                      size_t at)
{
    const float inverse = inverse_of(v);
    for (size_t i = 0; i < s->n; i++) {
        const float code = codes_of(s, all(s->x[i]), v, inverse)[0];
        few_set_code(type, row, at + i, (unsigned)((int)code + few_bits[type].zero));
    }
}

/* Number `index` of the planes: a step is an f32 or an f16 there, a base an f16. */
static void put_values(unsigned char *row, enum dtype type, size_t n, size_t index, struct few_values v)
{
    const struct few_plane *plane = few_bits[type].plane;
    unsigned char *scale = row + few_plane_at(type, n, FEW_SCALE) + index * plane[FEW_SCALE].bytes;
    unsigned char *offset = row + few_plane_at(type, n, FEW_LOW) + index * plane[FEW_LOW].bytes;
    const f16 step = f16_from_f32(v.step), base = f16_from_f32(v.base);
    if (plane[FEW_SCALE].bytes == sizeof v.step)
        memcpy(scale, &v.step, sizeof v.step);
    else
        memcpy(scale, &step, sizeof step);
    if (plane[FEW_LOW].bytes)
        memcpy(offset, &base, sizeof base);
}

bool few_make(void *row, enum dtype type, const float *x, size_t n, const float *weight)
{
    const struct few_bits *few = &few_bits[type];
    const size_t group = few_group(type, n);
    memset(row, 0, few_code_bytes(type, n));
    for (size_t from = 0; from < n; from += group) {
        const struct span span = {x + from, weight ? weight + from : NULL, size_min(group, n - from),
                                  (float)-few->zero, (float)((1 << few->bits) - 1 - few->zero)};
        const struct best best = best_of(type, &span);
        if (!isfinite(best.error))
            return false;
        put_codes(row, type, &span, best.v, from);
        put_values(row, type, n, from / group, best.v);
    }
    return few_finite(type, row, n);
}
