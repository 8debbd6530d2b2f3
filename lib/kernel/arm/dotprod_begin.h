/* Begin header of the dot product extension of Armv8.2-A, included before kernel templates (vec.h):
 * SDOT adds to each int32_t lane the products of 4 signed bytes each. */
#pragma once

#define TUNING         TUNING_DOTPROD
#define SMALLM_HEIGHTS HEIGHTS_4

/* As in neon_begin.h. */
#define INT8_ZERO_BY_BITS
#define INT8_ZERO(bits) ((bits) == 8 ? 128 : 0)

#define vi_dot4(sum, u, s)            dotprod_dot4(sum, u, s)
#define vi_dot4_bits(bits, sum, w, x) dotprod_dot4_bits(bits, sum, w, x)
#include "kernel/arm/vec_128.h"

INLINE vi dotprod_dot4_bits(unsigned bits, vi sum, vu w, vi x)
{
    return (vi)vdotq_s32((int32x4_t)sum, (int8x16_t)(bits == 8 ? w ^ 0x80808080u : w), (int8x16_t)x);
}

/* u * s = (u - 128) * s + 64 * s + 64 * s; the compiler computes `rest` once per s. */
INLINE vi dotprod_dot4(vi sum, vu u, vi s)
{
    const vi rest = (vi)vdotq_s32(vdupq_n_s32(0), vdupq_n_s8(64), (int8x16_t)s);
    return dotprod_dot4_bits(8, sum + rest + rest, u, s);
}
