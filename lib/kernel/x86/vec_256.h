/* Vectors in 256-bit registers: the operations of vec.h that have instructions of their own. */
#pragma once

#include "kernel/x86/unpack_256.h"

#define VW              8
#define vf_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define vf_max(a, b)    _mm256_max_ps(a, b)
#define vf_min(a, b)    _mm256_min_ps(a, b)
#define vf_load_f16(p)  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define vi_load_u8(p)   ((vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p))))
#define vi_load_i8(p)   ((vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p))))
#define vu_lookup(table, q)                                                                            \
    ((vu)_mm256_shuffle_epi8(                                                                          \
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(table))),          \
        (__m256i)(q)))
#define vu_gather(table, index)                                                                        \
    ((vu)_mm256_i32gather_epi32((const int *)(const void *)(table), (__m256i)(index), 4))
#define vi_store_i8(p, x) avx2_store_i8(p, (__m256i)(x))
static inline void avx2_store_i8(int8_t *p, __m256i x)
{
    const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packs_epi16(halves, halves));
}
#include "kernel/template/vec.h"
