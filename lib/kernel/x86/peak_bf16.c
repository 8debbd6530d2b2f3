/* Peak throughput of AVX512-BF16: bf16 dot products, 32 multiply-adds per instruction. */
#include <immintrin.h>

#include "kernel/peak.h"

static bool peak_bf16_usable(void)
{
    return peak_avx512.usable() && __builtin_cpu_supports("avx512bf16");
}

static double peak_bf16_run(size_t rounds, float *sink)
{
    enum { CHAINS = 16 }; /* at least 12: latency is 6 cycles, throughput up to two per cycle */
    __m512 sum[CHAINS];
    const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1.5f), _mm512_set1_ps(0.5f));
    for (int c = 0; c < CHAINS; c++)
        sum[c] = _mm512_setzero_ps();
    for (size_t i = 0; i < rounds; i++)
        for (int c = 0; c < CHAINS; c++)
            sum[c] = _mm512_dpbf16_ps(sum[c], a, a);
    for (int c = 0; c < CHAINS; c++)
        *sink += sum[c][0];
    return (double)rounds * CHAINS * 32;
}

const struct peak peak_bf16 = {
    .isa = "bf16", .kind = PEAK_BF16, .usable = peak_bf16_usable, .run = peak_bf16_run};
