/* Multiply-adds from registers: 256-bit FMA, and codes of 8 bits in three steps. */
#include <immintrin.h>

#include "kernel/peak.h"

static bool usable(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

static double run(size_t rounds, float *sink)
{
    enum { CHAINS = 10 };
    __m256 sum[CHAINS];
    const __m256 a = _mm256_set1_ps(1.0001f);
    for (int c = 0; c < CHAINS; c++)
        sum[c] = a;
    for (size_t i = 0; i < rounds; i++)
        for (int c = 0; c < CHAINS; c++)
            sum[c] = _mm256_fmadd_ps(sum[c], a, a);
    for (int c = 0; c < CHAINS; c++)
        *sink += sum[c][0];
    return (double)rounds * CHAINS * 8;
}

const struct peak peak_avx2 = {.isa = "avx2", .usable = usable, .run = run};

/* Codes come from the first-level cache, as in a product, from another place each time: else they would be multiplied once. */
static double run_int8(size_t rounds, float *sink)
{
    enum { CHAINS = 8, PLACES = 8 };
    __m256i sum[CHAINS], code[CHAINS + PLACES];
    const __m256i a = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
    for (int c = 0; c < CHAINS + PLACES; c++)
        code[c] = _mm256_set1_epi8((char)c);
#pragma GCC unroll 8
    for (int c = 0; c < CHAINS; c++)
        sum[c] = _mm256_set1_epi32(c);
    for (size_t i = 0; i < rounds; i++)
#pragma GCC unroll 8
        for (size_t c = 0; c < CHAINS; c++)
            sum[c] = _mm256_add_epi32(
                sum[c], _mm256_madd_epi16(_mm256_maddubs_epi16(code[i % PLACES + c], a), ones));
#pragma GCC unroll 8
    for (int c = 0; c < CHAINS; c++)
        *sink += (float)_mm256_extract_epi32(sum[c], 0);
    return (double)rounds * CHAINS * 32;
}

const struct peak peak_avx2_int8 = {
    .isa = "avx2", .kind = PEAK_INT8, .usable = usable, .run = run_int8};
