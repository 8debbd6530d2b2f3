/* Begin header of AVX-512 (F, BW, VL, DQ), included before kernel templates (vec.h): 32 registers
 * of 512 bits. */
#pragma once

#define TUNING         TUNING_AVX512
#define SMALLM_HEIGHTS HEIGHTS_6

/* 128 is subtracted from 8-bit weights as in avx2_begin.h, but every 16-bit sum of two int8
 * products is widened to 32 bits immediately. */
#define INT8_ZERO_BY_BITS
#define INT8_ZERO(bits)               ((bits) == 8 ? 128 : 0)
#define vi_dot4_bits(bits, sum, w, x) avx512_dot4_bits(bits, sum, w, x)

#define vi_dot4(sum, u, s) avx512_dot4(sum, u, s)
#define vi_dot2(sum, a, b) ((sum) + (vi)_mm512_madd_epi16((__m512i)(a), (__m512i)(b)))
#include "kernel/x86/vec_512.h"

INLINE vi avx512_dot4(vi sum, vu u, vi s)
{
    const __m512i codes = (__m512i)u, query = (__m512i)s, bytes = _mm512_set1_epi16(255);
    const __m512i even = _mm512_srai_epi16(_mm512_slli_epi16(query, 8), 8);
    const __m512i odd = _mm512_srai_epi16(query, 8);
    sum += (vi)_mm512_madd_epi16(_mm512_and_si512(codes, bytes), even);
    return sum + (vi)_mm512_madd_epi16(_mm512_srli_epi16(codes, 8), odd);
}

INLINE vi avx512_dot4_bits(unsigned bits, vi sum, vu weights, vi x)
{
    __m512i unsigned_w = (__m512i)weights, signed_x = (__m512i)x;
    if (bits == 8) {
        const __m512i centred = (__m512i)(weights ^ 0x80808080u);
        const __mmask64 negative = _mm512_movepi8_mask(centred);
        unsigned_w = _mm512_abs_epi8(centred);
        signed_x = _mm512_mask_sub_epi8(signed_x, negative, _mm512_setzero_si512(), signed_x);
    }
    const __m512i pairs = _mm512_maddubs_epi16(unsigned_w, signed_x);
    return sum + (vi)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}
