/* Attention over rows of few bits, AVX-512: codes become numbers of 16 bits, whose products in pairs are whole numbers of
 * 32. */
#include "kernel/set_512.h"

#define vi_dot4(sum, k, q) dot4(sum, k, q)
INLINE vi dot4(vi sum, vu k, vi q)
{
    const __m512i codes = (__m512i)k, query = (__m512i)q, bytes = _mm512_set1_epi16(255);
    const __m512i even = _mm512_srai_epi16(_mm512_slli_epi16(query, 8), 8);
    const __m512i odd = _mm512_srai_epi16(query, 8);
    sum += (vi)_mm512_madd_epi16(_mm512_and_si512(codes, bytes), even);
    return sum + (vi)_mm512_madd_epi16(_mm512_srli_epi16(codes, 8), odd);
}

#define vi_dot2(sum, v, w) ((sum) + (vi)_mm512_madd_epi16((__m512i)(v), (__m512i)(w)))
#include "kernel/set_attend_few.h"

void attend_few_avx512(const struct attend *a);

void attend_few_avx512(const struct attend *a) { attend_few(a); }
