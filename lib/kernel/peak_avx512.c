/* Multiply-adds from registers: 512-bit FMA, and codes of 8 bits in three steps. */
#include <immintrin.h>

#include "kernel/peak.h"

static bool usable(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("fma");
}

static double run(size_t rounds, float *sink)
{
    enum { CHAINS = 10 };
    __m512 sum[CHAINS];
    const __m512 a = _mm512_set1_ps(1.0001f);
    for (int c = 0; c < CHAINS; c++)
        sum[c] = a;
    for (size_t i = 0; i < rounds; i++)
        for (int c = 0; c < CHAINS; c++)
            sum[c] = _mm512_fmadd_ps(sum[c], a, a);
    for (int c = 0; c < CHAINS; c++)
        *sink += sum[c][0];
    return (double)rounds * CHAINS * 16;
}

const struct peak peak_avx512 = {.isa = "avx512", .usable = usable, .run = run};

/* Codes come from the first-level cache, as in a product, from another place each time: else they would be multiplied once. */
static double run_int8(size_t rounds, float *sink)
{
    enum { CHAINS = 8, PLACES = 8 };
    __m512i sum[CHAINS], code[CHAINS + PLACES];
    const __m512i a = _mm512_set1_epi8(3), ones = _mm512_set1_epi16(1);
    for (int c = 0; c < CHAINS + PLACES; c++)
        code[c] = _mm512_set1_epi8((char)c);
#pragma GCC unroll 8
    for (int c = 0; c < CHAINS; c++)
        sum[c] = _mm512_set1_epi32(c);
    for (size_t i = 0; i < rounds; i++)
#pragma GCC unroll 8
        for (size_t c = 0; c < CHAINS; c++)
            sum[c] = _mm512_add_epi32(
                sum[c], _mm512_madd_epi16(_mm512_maddubs_epi16(code[i % PLACES + c], a), ones));
#pragma GCC unroll 8
    for (int c = 0; c < CHAINS; c++)
        *sink += (float)_mm_cvtsi128_si32(_mm512_castsi512_si128(sum[c]));
    return (double)rounds * CHAINS * 64;
}

const struct peak peak_avx512_int8 = {
    .isa = "avx512", .kind = PEAK_INT8, .usable = usable, .run = run_int8};
