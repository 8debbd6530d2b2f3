/* Multiply-adds of codes of 8 bits from registers: AVX512-VNNI, 64 a vector. */
#include <immintrin.h>

#include "kernel/peak.h"

static bool usable(void) { return peak_avx512.usable() && __builtin_cpu_supports("avx512vnni"); }

static double run(size_t rounds, float *sink)
{
    enum { CHAINS = 16 }; /* two a cycle at most, each five cycles long */
    __m512i sum[CHAINS];
    const __m512i a = _mm512_set1_epi8(3);
#pragma GCC unroll 16
    for (int c = 0; c < CHAINS; c++)
        sum[c] = _mm512_set1_epi32(c);
    for (size_t i = 0; i < rounds; i++)
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++) {
            sum[c] = _mm512_dpbusd_epi32(sum[c], a, a);
            __asm__("" : "+v"(sum[c])); /* in place: gcc 12 would copy every sum there and back */
        }
#pragma GCC unroll 16
    for (int c = 0; c < CHAINS; c++)
        *sink += (float)_mm_cvtsi128_si32(_mm512_castsi512_si128(sum[c]));
    return (double)rounds * CHAINS * 64;
}

const struct peak peak_vnni = {.isa = "vnni", .kind = PEAK_INT8, .usable = usable, .run = run};
