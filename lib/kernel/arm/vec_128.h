/* Vectors in 128-bit registers of Advanced SIMD: the operations of vec.h that have instructions of
 * their own. Sums of products differ between begin headers. */
#pragma once

#include <arm_neon.h>

#define VW              4
#define VECTOR_REGISTER "w"
#define vf_fma(a, b, c) ((vf)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#define vf_max(a, b)    vf_select((a) > (b), a, b) /* FMAX treats NaN differently */
#define vf_min(a, b)    vf_select((a) < (b), a, b)
#define vf_load_f16(p)  ((vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))))
#define vi_load_u8(p)   ((vi)vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(neon_load_word(p))))))
#define vi_load_i8(p)   ((vi)vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(neon_load_word(p))))))
#define vi_store_i8(p, x)                                                                              \
    neon_store_word(                                                                                   \
        p, vreinterpret_u32_s8(vmovn_s16(vcombine_s16(vmovn_s32((int32x4_t)(x)), vdup_n_s16(0)))))
#define vu_lookup(table, q)  ((vu)vqtbl1q_u8(vld1q_u8(table), (uint8x16_t)(q)))
#define vbl_lookup(table, q) neon_lookup(table, &(q))
#define vi_dot2(sum, a, b)   ((sum) + neon_dot2((int16x8_t)(a), (int16x8_t)(b)))

static inline uint32x2_t neon_load_word(const void *p)
{
    uint32_t word;
    __builtin_memcpy(&word, p, sizeof word);
    return vdup_n_u32(word);
}

static inline void neon_store_word(void *p, uint32x2_t x)
{
    const uint32_t word = vget_lane_u32(x, 0);
    __builtin_memcpy(p, &word, sizeof word);
}

typedef uint8_t neon_block __attribute__((vector_size(32)));
static inline __attribute__((always_inline)) neon_block neon_lookup(const uint8_t table[2][16],
                                                                    const neon_block *q)
{
    uint8x16_t x[2];
    memcpy(x, q, sizeof x);
    for (int half = 0; half < 2; half++)
        x[half] = vqtbl1q_u8(vld1q_u8(table[half]), x[half]);
    neon_block found;
    memcpy(&found, x, sizeof found);
    return found;
}

/* The two products of each pair of 16-bit numbers, added up. */
#define neon_dot2(a, b)                                                                                \
    ((vi)vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b)))

/* The products of 4 signed bytes each, added up: pairs of products fit in 16 bits, since one factor is
 * above -128. */
#define neon_sum(sum, a, b)                                                                            \
    ((vi)vpadalq_s16((int32x4_t)(sum),                                                                 \
                     vpaddq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_high_s8(a, b))))
#include "kernel/template/vec.h"
