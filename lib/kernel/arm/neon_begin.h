/* Begin header of Advanced SIMD (NEON) of Armv8-A, included before kernel templates (vec.h): 32
 * registers of 128 bits. */
#pragma once

#define TUNING         TUNING_NEON
#define SMALLM_HEIGHTS HEIGHTS_4

/* Bytes are multiplied with sign: 128 is subtracted from 8-bit weights. */
#define INT8_ZERO_BY_BITS
#define INT8_ZERO(bits) ((bits) == 8 ? 128 : 0)

#define vi_dot4(sum, u, s)            neon_dot4(sum, u, s)
#define vi_dot4_bits(bits, sum, w, x) neon_dot4_bits(bits, sum, w, x)
#include "kernel/arm/vec_128.h"

INLINE vi neon_dot4_bits(unsigned bits, vi sum, vu w, vi x)
{
    const int8x16_t a = (int8x16_t)(bits == 8 ? w ^ 0x80808080u : w), b = (int8x16_t)x;
    return neon_sum(sum, a, b);
}

/* u * s = (u - 128) * s + 64 * s + 64 * s */
INLINE vi neon_dot4(vi sum, vu u, vi s)
{
    const int8x16_t half = vdupq_n_s8(64), b = (int8x16_t)s;
    const vi rest = neon_sum((vi){0}, half, b);
    return neon_dot4_bits(8, sum + rest + rest, u, s);
}
