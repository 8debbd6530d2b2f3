/* Attention over rows of few bits, AVX2: codes become numbers of 16 bits, whose products in pairs are whole numbers of 32. */
#include <immintrin.h>

#define VW              8
#define vf_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define vf_max(a, b)    _mm256_max_ps(a, b)
#define vf_min(a, b)    _mm256_min_ps(a, b)
#define vf_load_f16(p)  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#include "kernel/set_vec.h"

#define vi_dot4(sum, k, q) dot4(sum, k, q)
INLINE vi dot4(vi sum, vu k, vi q)
{
    const __m256i codes = (__m256i)k, query = (__m256i)q, bytes = _mm256_set1_epi16(255);
    const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(query, 8), 8);
    const __m256i odd = _mm256_srai_epi16(query, 8);
    sum += (vi)_mm256_madd_epi16(_mm256_and_si256(codes, bytes), even);
    return sum + (vi)_mm256_madd_epi16(_mm256_srli_epi16(codes, 8), odd);
}

#define vi_load_bytes(p) (vi) _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p)))
#include "kernel/set_attend_few.h"

void attend_few_avx2(const struct attend *a);

void attend_few_avx2(const struct attend *a) { attend_few(a); }
