/* Multiply-adds of codes of 8 bits from registers: AVX-VNNI, 32 a vector. */
#include <cpuid.h>
#include <immintrin.h>

#include "kernel/peak.h"

static bool usable(void)
{
    enum { AVX_VNNI = 1 << 4 };
    unsigned a, b, c, d;
    return peak_avx2.usable() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & AVX_VNNI;
}

static double run(size_t rounds, float *sink)
{
    enum { CHAINS = 12 }; /* two a cycle, each five cycles long */
    __m256i sum[CHAINS];
    const __m256i a = _mm256_set1_epi8(3);
#pragma GCC unroll 12
    for (int c = 0; c < CHAINS; c++)
        sum[c] = _mm256_set1_epi32(c);
    for (size_t i = 0; i < rounds; i++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) {
            sum[c] = _mm256_dpbusd_avx_epi32(sum[c], a, a);
            __asm__("" : "+x"(sum[c])); /* in place: gcc 12 would copy every sum there and back */
        }
#pragma GCC unroll 12
    for (int c = 0; c < CHAINS; c++)
        *sink += (float)_mm256_extract_epi32(sum[c], 0);
    return (double)rounds * CHAINS * 32;
}

const struct peak peak_avxvnni = {.isa = "avxvnni", .kind = PEAK_INT8, .usable = usable, .run = run};
