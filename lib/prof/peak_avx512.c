/* Multiply-adds from registers: 512-bit FMA. */
#include <immintrin.h>

#include "prof/roof.h"

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
