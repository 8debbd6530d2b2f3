/* Quantisation by least squares and by rounding to nearest: types of one level of scales. */
#include "quant/quantize.h"

#include "quant/quantize_fit.h"
#include "quant/quantize_levels.h"

/* Inlined fminf() and fmaxf(); return a if b is NaN. */
static inline float lesser(float a, float b) { return b < a ? b : a; }
static inline float greater(float a, float b) { return b > a ? b : a; }

/* True for types whose only scale is d. */
static bool is_ternary(enum dtype type)
{
    return quant_types[type].scales[SCALE_D].bytes && !quant_types[type].scales[SCALE_MAIN].bytes &&
           !quant_has_grid(type);
}

static float largest(const float *x, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++)
        most = greater(most, fabsf(x[i]));
    return most;
}

/* Stores a scale as the exponent of the smallest power of two that is not below it, so that no value
 * is out of range; returns that power. */
static float store_power(unsigned char *at, float scale)
{
    int exponent;
    const float fraction = frexpf(scale, &exponent);
    *at = (unsigned char)size_min((size_t)(exponent + 128 - (fraction == 0.5f)), QUANT_POWER_MOST);
    return quant_power(*at);
}

/* The quantised value whose entry of a codebook, in any order, is nearest to x. */
static unsigned nearest_of(const uint8_t codebook[16], float x)
{
    unsigned best = 0;
    for (unsigned q = 1; q < 16; q++)
        if (fabsf((float)codebook[q] - x) < fabsf((float)codebook[best] - x))
            best = q;
    return best;
}

/* The weighted error of a group whose values are multiples of `scale`; q[]: their nearest quantised values. */
static float power_error(const uint8_t codebook[16], float zero_point, float scale, const float *x,
                         const float *weight, size_t n, unsigned char q[QK_GROUP])
{
    float error = 0;
    for (size_t i = 0; i < n; i++) {
        q[i] = (unsigned char)nearest_of(codebook, x[i] / scale + zero_point);
        const float off = x[i] - scale * ((float)codebook[q[i]] - zero_point);
        error += (weight ? weight[i] : 1) * off * off;
    }
    return error;
}

/* MXFP4: a codebook with scales that are powers of two. simple: the smallest scale that clips nothing; else the best
 * of that and the next smaller ones. */
static void quantize_power(unsigned char *row, enum dtype type, const float *x, size_t n,
                           const float *weight, bool simple)
{
    const struct quant_types *quant = &quant_types[type];
    const uint8_t *codebook = quant_codebooks[quant->codebook];
    unsigned char *exponent = row + quant_row_scales_at(type, n, SCALE_MAIN);
    memset(row, 0, quant_row_q_bytes(type, n));
    for (size_t from = 0; from < n; from += QK_GROUP, exponent++) {
        const size_t n_group = size_min(QK_GROUP, n - from);
        unsigned char q[QK_GROUP] = {0}, best[QK_GROUP] = {0}, power;
        float least = INFINITY;
        store_power(&power, largest(x + from, n_group) / (float)quant->zero_point);
        for (int smaller = 0; smaller <= (simple ? 0 : 2) && smaller <= power; smaller++) {
            const unsigned char at = (unsigned char)(power - smaller);
            const float error = power_error(codebook, quant->zero_point, quant_power(at), x + from,
                                            weight ? weight + from : NULL, n_group, q);
            if (smaller && error >= least)
                continue;
            least = error;
            *exponent = at;
            memcpy(best, q, sizeof best);
        }
        for (size_t i = 0; i < n_group; i++)
            quant_row_set_q(type, row, from + i, best[i]);
    }
}

/* Stores a group's scale and min as element `index` of a row's scale arrays: scales as f32 or f16,
 * mins as f16. Ternary types have no other scale than d. */
static void store_scale(unsigned char *row, enum dtype type, size_t n, size_t index,
                        struct quant_scale v)
{
    const struct scale_array *scales = quant_types[type].scales;
    const enum scale_kind kind = scales[SCALE_D].bytes ? SCALE_D : SCALE_MAIN;
    unsigned char *scale = row + quant_row_scales_at(type, n, kind) + index * scales[kind].bytes;
    unsigned char *offset =
        row + quant_row_scales_at(type, n, SCALE_MIN) + index * scales[SCALE_MIN].bytes;
    if (scales[kind].bytes == sizeof v.scale)
        memcpy(scale, &v.scale, sizeof v.scale);
    else
        quant_store_f16(scale, v.scale);
    if (scales[SCALE_MIN].bytes)
        quant_store_f16(offset, v.min);
}

/* Fits a line to each group; simple: to the range of its values, without a search. False: values are too large. */
static bool quantize_groups(unsigned char *row, enum dtype type, const float *x, size_t n,
                            const float *weight, bool simple)
{
    const size_t group = is_ternary(type) ? QK_SUPER : quant_group(type, n);
    memset(row, 0, quant_row_q_bytes(type, n));
    for (size_t from = 0; from < n; from += group) {
        const struct fit_range range =
            fit_range(type, x + from, weight ? weight + from : NULL, size_min(group, n - from));
        const struct fit_best best =
            simple ? (struct fit_best){fit_nearest(&range), 0} : fit_search(&range);
        if (!isfinite(best.error))
            return false;
        fit_store(row, type, &range, best.v, from);
        store_scale(row, type, n, from / group, best.v);
    }
    return true;
}

bool quantize(void *row, enum dtype type, const float *x, size_t n, const float *weight)
{
    if (quant_types[type].scales[SCALE_D].bytes && !is_ternary(type))
        return quantize_levels(row, type, x, n, weight, false);
    if (quant_types[type].power)
        quantize_power(row, type, x, n, weight, false);
    else if (!quantize_groups(row, type, x, n, weight, false))
        return false;
    return quant_finite(type, row, n);
}

/* ---- rounding to nearest ---- */

/* Returns the quantised value q nearest to x; with a scale of 0, that of x = 0. */
static unsigned nearest(float x, struct quant_scale v, const struct quant_types *quant)
{
    const float magic = 12582912.f; /* 1.5 * 2^23: adding it rounds to an integer */
    const float most = (float)((1 << quant->bits) - 1);
    const float whole = ((x - v.min) / v.scale + magic) - magic;
    const float q = v.scale == 0 ? quant->zero_point : whole + (float)quant->zero_point;
    return (unsigned)lesser(most, greater(0, q));
}

/* Computes the scale and min of a quant group x[n], stores them, and returns them rounded to the
 * stored precision. Types with a zero point do not use their lowest quantised value, so that both
 * signs have the same range. */
static struct quant_scale choose_scale(enum dtype type, unsigned char *scale, unsigned char *offset,
                                       const float *x, size_t n)
{
    const struct quant_types *quant = &quant_types[type];
    float low = INFINITY, high = -INFINITY, most = 0;
    for (size_t i = 0; i < n; i++) {
        low = lesser(low, x[i]);
        high = greater(high, x[i]);
        most = greater(most, fabsf(x[i]));
    }
    struct quant_scale v = {quant->offset ? (high - low) / (float)((1 << quant->bits) - 1)
                                          : most / (float)((1 << quant->bits) - 1 - quant->zero_point),
                            0};
    if (quant->scales[SCALE_MAIN].bytes == 4)
        memcpy(scale, &v.scale, sizeof v.scale);
    else
        v.scale = quant_store_f16(scale, v.scale);
    if (quant->offset)
        v.min = quant_store_f16(offset, low);
    return v;
}

/* Types of one level without a codebook. */
static void quantize_one_level(void *row, enum dtype type, const float *x, size_t n)
{
    const size_t group = quant_group(type, n);
    unsigned char *bytes = row, *scale = bytes + quant_row_scales_at(type, n, SCALE_MAIN),
                  *offset = bytes + quant_row_scales_at(type, n, SCALE_MIN);
    memset(bytes, 0, quant_row_q_bytes(type, n));
    for (size_t from = 0; from < n; from += group) {
        const size_t n_group = size_min(group, n - from);
        const struct quant_scale v = choose_scale(type, scale, offset, x + from, n_group);
        for (size_t i = from; i < from + n_group; i++)
            quant_row_set_q(type, bytes, i, nearest(x[i], v, &quant_types[type]));
        scale += quant_types[type].scales[SCALE_MAIN].bytes;
        offset += quant_types[type].scales[SCALE_MIN].bytes;
    }
}

/* Types with a d alone. */
static void quantize_super(void *row, enum dtype type, const float *x, size_t n)
{
    unsigned char *d = (unsigned char *)row + quant_row_scales_at(type, n, SCALE_D);
    memset(row, 0, quant_row_q_bytes(type, n));
    for (size_t from = 0; from < n; from += QK_SUPER, d += sizeof(f16)) {
        const size_t n_super = size_min(QK_SUPER, n - from);
        const struct quant_scale v = {quant_store_f16(d, largest(x + from, n_super)), 0};
        for (size_t i = from; i < from + n_super; i++)
            quant_row_set_q(type, row, i, nearest(x[i], v, &quant_types[type]));
    }
}

/* Types with a grid: any points, taken from bits of x, with a d for values up to the largest of x. */
static void draw_grid(unsigned char *row, enum dtype type, const float *x, size_t n)
{
    const struct quant_types *quant = &quant_types[type];
    const size_t d = quant_row_scales_at(type, n, SCALE_D);
    for (size_t j = 0; j < d; j++) {
        uint32_t bits;
        memcpy(&bits, &x[j % n], sizeof bits);
        row[j] = (unsigned char)(bits >> 8 ^ j);
    }
    for (size_t i = 0; i < scale_count(quant->scales[SCALE_D], n); i++) {
        const size_t from = i * QK_SUPER;
        const float most = largest(x + from, size_min(QK_SUPER, n - from));
        quant_store_f16(row + d + i * sizeof(f16),
                        most / ((float)quant->zero_point * 32 * quant->grid.factor));
    }
}

/* Types whose scales are not per quant group, or of 8 bits: for each, the smallest scale that clips neither the largest
 * nor the smallest value, or half of that for values of one bit, and zero points in the middle. */
static void quantize_scaled(unsigned char *row, enum dtype type, const float *x, size_t n)
{
    const struct quant_types *quant = &quant_types[type];
    const size_t every = quant->scales[SCALE_MAIN].every;
    const unsigned codes = 1U << quant->bits, zero = quant->zeros ? codes / 2 : quant->zero_point;
    unsigned char *scale = row + quant_row_scales_at(type, n, SCALE_MAIN),
                  *zeros = row + quant_row_scales_at(type, n, SCALE_MIN);
    memset(row, 0, quant_row_q_bytes(type, n));
    for (size_t from = 0; from < n; from += every, scale += quant->scales[SCALE_MAIN].bytes) {
        const size_t end = size_min(n, from + every);
        float step = largest(x + from, end - from) / (float)(quant->bits == 1 ? 2 : zero);
        if (quant->e4m3) {
            *scale = 0;
            while (*scale < 0x7e && quant_e4m3_half(*scale) < step)
                ++*scale;
            step = quant_e4m3_half(*scale);
        } else {
            step = quant_store_f16(scale, step);
        }
        if (quant->zeros)
            *zeros++ = (unsigned char)zero;
        for (size_t i = from; i < end; i++) {
            const float want = step > 0 ? x[i] / step + (float)zero : (float)zero;
            unsigned best = 0;
            for (unsigned q = 1; q < codes; q++)
                if (fabsf((float)quant_integer(type, q) - want) <
                    fabsf((float)quant_integer(type, best) - want))
                    best = q;
            quant_row_set_q(type, row, i, best);
        }
    }
}

void quantize_nearest(void *row, enum dtype type, const float *x, size_t n)
{
    if (quant_has_grid(type))
        draw_grid(row, type, x, n);
    else if (is_ternary(type))
        quantize_super(row, type, x, n);
    else if (quant_types[type].scales[SCALE_D].bytes)
        quantize_levels(row, type, x, n, NULL, true);
    else if (quant_types[type].power)
        quantize_power(row, type, x, n, NULL, true);
    else if (quant_types[type].e4m3 || quant_types[type].zeros ||
             quant_types[type].scales[SCALE_MAIN].every > QK_GROUP)
        quantize_scaled(row, type, x, n);
    else if (quant_types[type].codebook)
        quantize_groups(row, type, x, n, NULL, true);
    else
        quantize_one_level(row, type, x, n);
}
