/* Vectors in 512-bit registers: the operations of vec.h that have instructions of their own. */
#pragma once

#include "kernel/x86/unpack_256.h"

#define VW                   16
#define vf_fma(a, b, c)      _mm512_fmadd_ps(a, b, c)
#define vf_max(a, b)         _mm512_max_ps(a, b)
#define vf_min(a, b)         _mm512_min_ps(a, b)
#define vf_load_f16(p)       _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define vi_load_u8(p)        ((vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))))
#define vi_load_i8(p)        ((vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))))
#define vi_store_i8(p, x)    _mm_storeu_si128((__m128i *)(void *)(p), _mm512_cvtepi32_epi8((__m512i)(x)))
#define vf_load_e4m3_half(p) avx512_load_e4m3_half(p)
#define vu_lookup(table, q)                                                                            \
    ((vu)_mm512_shuffle_epi8(                                                                          \
        _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)(table))),               \
        (__m512i)(q)))
#define vu_gather(table, index) ((vu)_mm512_i32gather_epi32((__m512i)(index), (const void *)(table), 4))
#define vu_load_some(p, n)      (vu) _mm512_maskz_loadu_epi32((__mmask16)((1u << (n)) - 1), p)
#define vu_keep(x)              avx512_keep(x)
#define vi_load_own(p)          avx512_load_own(p)
#include "kernel/template/vec.h"

/* quant_e4m3_half(): as f16, whose exponent is biased by 8 more. */
INLINE vf avx512_load_e4m3_half(const unsigned char *at)
{
    const __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)at));
    const __m256i half = _mm256_and_si256(_mm256_slli_epi16(x, 7), _mm256_set1_epi16(0x3f80));
    return _mm512_cvtph_ps(half) * _mm512_set1_ps(0x1p7f);
}

INLINE vu avx512_keep(vu x)
{
    __asm__("" : "+v"(x));
    return x;
}

INLINE vi avx512_load_own(const char *at)
{
    vi x;
    __asm__ volatile("vpbroadcastd %1, %0" : "=v"(x) : "m"(*(const int32_t *)(const void *)at));
    return x;
}
