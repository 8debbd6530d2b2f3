/* Template: quantises activation rows to int8. */
#pragma once

#include "kernel/template/quant_lines.h"

#define LARGER_FLIPPED(x, s) x = larger(x, FLIPPED(x, s));

INLINE vi larger(vi a, vi b)
{
    const vi above = a > b;
    return (a & above) | (b & ~above);
}

INLINE vi abs_bits(const float *x) { return (vi)vu_load(x) & 0x7fffffff; }

/* Returns the bits of the largest |x[i]|, i < n, as an integer. Bits are compared as integers, so
 * that infinity and NaN are the largest. */
INLINE int32_t max_abs_bits(const float *x, size_t n)
{
    const size_t whole = n / VW * VW;
    int32_t most = 0, bits;
    vi all = {0};
    for (size_t i = 0; i < whole; i += VW)
        all = larger(all, abs_bits(x + i));
    ALL_STEPS(LARGER_FLIPPED, all)
    most = all[0];
    for (size_t i = whole; i < n; i++) {
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

/* Quantises QK_HALF elements, q = round(x * inverse), and returns the sum of these q. */
INLINE int32_t quantize_half(int8_t *q, const float *x, float inverse)
{
    vi sum = {0};
    for (int i = 0; i < QK_HALF; i += VW) {
        const vi rounded = (vi)(vf_load(x + i) * vf_set1(inverse) + vf_set1(MAGIC_FLOAT)) - MAGIC_BITS;
        vi_store_i8(q + i, rounded);
        sum += rounded;
    }
    ALL_STEPS(ADD_FLIPPED, sum)
    return sum[0];
}

/* Quantises the last n < QK_HALF elements of a row as quantize_half() does; returns their sum. */
static int32_t quantize_rest(int8_t *q, const float *x, size_t n, float inverse)
{
    float padded[QK_HALF] = {0};
    int8_t whole[QK_HALF];
    memcpy(padded, x, n * sizeof *x);
    quantize_half(whole, padded, inverse);
    memcpy(q, whole, n);
    int32_t all = 0;
    for (size_t i = 0; i < n; i++)
        all += q[i];
    return all;
}

/* Quantises n elements of an activation row that share a scale: writes q, scale and sums of q. */
INLINE void quantize_group(int8_t *q, float *scale, int32_t *sum, const float *x, size_t n)
{
    const int32_t bits = max_abs_bits(x, n);
    const bool finite = bits < 0x7f800000;
    float max;
    memcpy(&max, &bits, sizeof max);
    const float inverse = 127 / max < INFINITY ? 127 / max : 0; /* q = 0 if max is tiny */
    for (size_t g = 0; g < div_up(n, QK_GROUP); g++)
        scale[g] = finite ? max / 127 : NAN;
    if (!finite) {
        memset(q, 0, n);
        memset(sum, 0, div_up(n, QK_HALF) * sizeof *sum);
        return;
    }
    for (; n >= QK_HALF; n -= QK_HALF, q += QK_HALF, x += QK_HALF)
        *sum++ = quantize_half(q, x, inverse);
    if (n > 0)
        *sum = quantize_rest(q, x, n, inverse);
}

static void to_int8(int8_t *q, float *scale, int32_t *sum, const float *x, size_t n, size_t group)
{
    size_t from = 0;
    for (; group == QK_GROUP && from + QK_GROUP <= n; from += QK_GROUP)
        quantize_group(q + from, scale++, sum + from / QK_HALF, x + from, QK_GROUP);
    if (from < n)
        quantize_group(q + from, scale, sum + from / QK_HALF, x + from, n - from);
}
