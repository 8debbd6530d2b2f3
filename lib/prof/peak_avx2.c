/* Multiply-adds from registers: 256-bit FMA. */
#include <immintrin.h>

#include "prof/roof.h"

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
