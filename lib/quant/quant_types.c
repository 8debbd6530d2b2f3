/* Quantised rows: dequantisation, checks. */
#include "quant/quant_types.h"

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

static bool powers_finite(const unsigned char *at, size_t n)
{
    bool large = false;
    for (size_t i = 0; i < n; i++)
        large |= at[i] > QUANT_POWER_MOST;
    return !large;
}

/* With f16 scales it is enough that these are finite: times a quantised value and an 8-bit scale,
 * they are finite in f32. Products with an f32 scale may overflow, so each is checked. */
bool quant_finite(enum dtype type, const void *row, size_t n)
{
    if (quant_types[type].power)
        return powers_finite((const unsigned char *)row + quant_row_scales_at(type, n, SCALE_MAIN),
                             scale_count(quant_types[type].scales[SCALE_MAIN], n));
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
