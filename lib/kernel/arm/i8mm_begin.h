/* Begin header of the int8 matrix extension of Armv8.6-A, included before kernel templates (vec.h):
 * USDOT adds to each int32_t lane the products of 4 unsigned weights and 4 signed activations; USMMLA
 * multiplies 2 x 8 weights by 8 x 2 activations. */
#pragma once

#define TUNING         TUNING_I8MM
#define SMALLM_HEIGHTS HEIGHTS_4

#define INT8_MATMUL

#define vi_dot4(sum, u, s) ((vi)vusdotq_s32((int32x4_t)(sum), (uint8x16_t)(u), (int8x16_t)(s)))
#include "kernel/arm/vec_128.h"

/* vusmmlaq_s32(), of which gcc 12 copies some sums. */
INLINE vi vi_matmul(vi sum, vu w, vi x)
{
    __asm__("usmmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(w), "w"(x));
    return sum;
}
