/* Quantised rows: dequantisation, rounding to nearest, checks. */
#include "quant/quant_types.h"

#include <math.h>

void dequantize(float *to, enum dtype type, const void *row, size_t n)
{
    const size_t group = quant_group(type, n);
    for (size_t from = 0; from < n; from += group) {
        const struct quant_scale v = quant_row_scale(type, row, n, from);
        for (size_t i = from; i < size_min(from + group, n); i++)
            to[i] = quant_value(type, v, quant_row_q(type, row, i));
    }
}

static bool f16_finite(const unsigned char *at, size_t n)
{
    bool full = false;
    for (size_t i = 0; i < n; i++) {
        f16 x;
        memcpy(&x, at + i * sizeof x, sizeof x);
        full |= (x & 0x7c00) == 0x7c00;
    }
    return !full;
}

/* With f16 scales it is enough that these are finite: times a quantised value and an 8-bit scale,
 * they are finite in f32. Products with an f32 scale may overflow, so each is checked. */
bool quant_finite(enum dtype type, const void *row, size_t n)
{
    for (size_t p = 0; p < SCALE_KINDS; p++) {
        const struct scale_array scales = quant_types[type].scales[p];
        if (scales.bytes == sizeof(f16) &&
            !f16_finite((const unsigned char *)row + quant_row_scales_at(type, n, p),
                        scale_count(scales, n)))
            return false;
    }
    for (size_t i = 0; quant_types[type].scales[SCALE_MAIN].bytes == sizeof(float) && i < n; i++)
        if (!isfinite(quant_value(type, quant_row_scale(type, row, n, i), quant_row_q(type, row, i))))
            return false;
    return true;
}

/* Inlined fminf() and fmaxf(); return a if b is NaN. */
static inline float lesser(float a, float b) { return b < a ? b : a; }
static inline float greater(float a, float b) { return b > a ? b : a; }

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
static struct quant_scale choose(enum dtype type, unsigned char *scale, unsigned char *offset,
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

void quantize_nearest(void *row, enum dtype type, const float *x, size_t n)
{
    const size_t group = quant_group(type, n);
    unsigned char *bytes = row, *scale = bytes + quant_row_scales_at(type, n, SCALE_MAIN),
                  *offset = bytes + quant_row_scales_at(type, n, SCALE_MIN);
    memset(bytes, 0, quant_row_q_bytes(type, n));
    for (size_t from = 0; from < n; from += group) {
        const size_t n_group = size_min(group, n - from);
        const struct quant_scale v = choose(type, scale, offset, x + from, n_group);
        for (size_t i = from; i < from + n_group; i++)
            quant_row_set_q(type, bytes, i, nearest(x[i], v, &quant_types[type]));
        scale += quant_types[type].scales[SCALE_MAIN].bytes;
        offset += quant_types[type].scales[SCALE_MIN].bytes;
    }
}
