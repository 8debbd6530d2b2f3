/* Begin header of AVX2, FMA and F16C, included before kernel templates (vec.h): 16 registers of
 * 256 bits. */
#pragma once

#define TUNING         TUNING_AVX2
#define SMALLM_HEIGHTS HEIGHTS_4

/* vpmaddubsw multiplies unsigned by signed bytes and adds two products in 16 bits. 8-bit weights
 * would overflow: 128 is subtracted from them and their sign is moved to the activations. With
 * weights of up to 4, of 5 and of 6 bits, sums of 16, 8 and 4 products fit. */
#define INT8_ZERO_BY_BITS
#define INT8_ZERO(bits)  ((bits) == 8 ? 128 : 0)
#define INT8_PAIRS(bits) ((bits) <= 4 ? 8 : (bits) == 5 ? 4 : (bits) == 6 ? 2 : 1)

#define vi_dot4(sum, u, s) avx2_dot4(sum, u, s)
#define vi_dot2(sum, a, b) ((sum) + (vi)_mm256_madd_epi16((__m256i)(a), (__m256i)(b)))
#include "kernel/x86/vec_256.h"

INLINE vi avx2_dot4(vi sum, vu u, vi s)
{
    const __m256i codes = (__m256i)u, query = (__m256i)s, bytes = _mm256_set1_epi16(255);
    const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(query, 8), 8);
    const __m256i odd = _mm256_srai_epi16(query, 8);
    sum += (vi)_mm256_madd_epi16(_mm256_and_si256(codes, bytes), even);
    return sum + (vi)_mm256_madd_epi16(_mm256_srli_epi16(codes, 8), odd);
}

typedef int16_t vs __attribute__((vector_size(4 * VW)));

INLINE vs vs_pairs(unsigned bits, vu weights, vi x)
{
    __m256i unsigned_w = (__m256i)weights, signed_x = (__m256i)x;
    if (bits == 8) {
        const __m256i centred = (__m256i)(weights ^ 0x80808080u);
        unsigned_w = _mm256_abs_epi8(centred);
        signed_x = _mm256_sign_epi8(signed_x, centred);
    }
    return (vs)_mm256_maddubs_epi16(unsigned_w, signed_x);
}

INLINE vi vi_join(vs pairs) { return (vi)_mm256_madd_epi16((__m256i)pairs, _mm256_set1_epi16(1)); }
