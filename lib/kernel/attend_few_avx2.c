/* Attention over rows of few bits, AVX2: codes become numbers of 16 bits, whose products in pairs are whole numbers of 32. */
#include "kernel/set_256.h"

#define vi_dot4(sum, k, q) dot4(sum, k, q)
INLINE vi dot4(vi sum, vu k, vi q)
{
    const __m256i codes = (__m256i)k, query = (__m256i)q, bytes = _mm256_set1_epi16(255);
    const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(query, 8), 8);
    const __m256i odd = _mm256_srai_epi16(query, 8);
    sum += (vi)_mm256_madd_epi16(_mm256_and_si256(codes, bytes), even);
    return sum + (vi)_mm256_madd_epi16(_mm256_srli_epi16(codes, 8), odd);
}

#define vi_dot2(sum, v, w) ((sum) + (vi)_mm256_madd_epi16((__m256i)(v), (__m256i)(w)))
#include "kernel/set_attend_few.h"

void attend_few_avx2(const struct attend *a);

void attend_few_avx2(const struct attend *a) { attend_few(a); }
