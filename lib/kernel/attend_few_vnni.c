/* Attention over rows of few bits, AVX512-VNNI: one instruction multiplies and adds four codes in every lane. */
#include <immintrin.h>

#define VW              16
#define vf_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define vf_max(a, b)    _mm512_max_ps(a, b)
#define vf_min(a, b)    _mm512_min_ps(a, b)
#define vf_load_f16(p)  _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#include "kernel/set_vec.h"

#define vi_dot4(sum, k, q) (vi) _mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(k), (__m512i)(q))
#define vi_load_bytes(p)   (vi) _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define vu_load_some(p, n) (vu) _mm512_maskz_loadu_epi32((__mmask16)((1u << (n)) - 1), p)
#include "kernel/set_attend_few.h"

void attend_few_vnni(const struct attend *a);

void attend_few_vnni(const struct attend *a) { attend_few(a); }
