/* Template: benchmark loops that run at the throughput of a kernel set's multiply-add
 * instructions. */
#pragma once

#include "kernel/template/vec.h"

/* Benchmark loop of f32 FMA in registers; returns the number of multiply-adds. */
INLINE double peak_loop_fma(size_t rounds, float *sink)
{
    enum { CHAINS = 10 };
    vf sum[CHAINS];
    const vf a = vf_set1(1.0001f);
    for (int c = 0; c < CHAINS; c++)
        sum[c] = a;
    for (size_t i = 0; i < rounds; i++)
        for (int c = 0; c < CHAINS; c++)
            sum[c] = vf_fma(sum[c], a, a);
    for (int c = 0; c < CHAINS; c++)
        *sink += sum[c][0];
    return (double)rounds * CHAINS * VW;
}

INLINE vi peak_dot4(vi sum, vu w, vi x)
{
#ifdef INT8_PAIRS
    return sum + vi_join(vs_pairs(4, w, x));
#else
    return vi_dot4_bits(4, sum, w, x);
#endif
}

/* Benchmark loop of int8 dot products that take several instructions. Weights are loaded from L1,
 * as in a GEMM, at changing addresses, or the compiler would hoist the product out of the loop. */
INLINE double peak_loop_int8_l1(size_t rounds, float *sink)
{
    enum { CHAINS = 8, PLACES = 8 };
    vi sum[CHAINS];
    vu w[CHAINS + PLACES];
    const vi a = vi_set1(0x03030303);
    for (unsigned c = 0; c < CHAINS + PLACES; c++)
        w[c] = c * 0x01010101u - (vu){0};
    UNROLL(for (int c = 0; c < CHAINS; c++))
    sum[c] = vi_set1(c);
    for (size_t i = 0; i < rounds; i++)
        UNROLL(for (size_t c = 0; c < CHAINS; c++))
    sum[c] = peak_dot4(sum[c], w[i % PLACES + c], a);
    UNROLL(for (int c = 0; c < CHAINS; c++))
    *sink += (float)sum[c][0];
    return (double)rounds * CHAINS * VW * 4;
}

/* Benchmark loop of int8 dot products that take one instruction, in registers. Latency is 5 cycles,
 * throughput up to two per cycle: `chains` >= 10 independent sums hide the latency. */
INLINE double peak_loop_int8(const int chains, size_t rounds, float *sink)
{
    vi sum[16];
    const vi a = vi_set1(0x03030303);
    UNROLL(for (int c = 0; c < chains; c++))
    sum[c] = vi_set1(c);
    for (size_t i = 0; i < rounds; i++)
        UNROLL(for (int c = 0; c < chains; c++))
        {
            sum[c] = peak_dot4(sum[c], (vu)a, a);
            __asm__("" : "+" VECTOR_REGISTER(sum[c])); /* in place: gcc 12 would copy each sum */
        }
    UNROLL(for (int c = 0; c < chains; c++))
    *sink += (float)sum[c][0];
    return (double)rounds * chains * VW * 4;
}
