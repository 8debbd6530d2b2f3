/* Attention over rows of few bits, AVX512-VNNI: one instruction multiplies and adds four codes in every lane. */
#include "kernel/set_512.h"

#define vi_dot4(sum, k, q) (vi) _mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(k), (__m512i)(q))
#define vi_dot2(sum, v, w) (vi) _mm512_dpwssd_epi32((__m512i)(sum), (__m512i)(v), (__m512i)(w))
#include "kernel/set_attend_few.h"

void attend_few_vnni(const struct attend *a);

void attend_few_vnni(const struct attend *a) { attend_few(a); }
