/* Peak throughput of USMMLA: int8 matrix products, 32 multiply-adds per instruction. */
#include "kernel/arm/i8mm_begin.h"
#include "kernel/arm/arm_cpu.h"

static double peak_i8mm_run(size_t rounds, float *sink)
{
    enum { CHAINS = 16 };
    vi sum[CHAINS];
    const vi a = vi_set1(0x03030303);
    UNROLL(for (int c = 0; c < CHAINS; c++))
    sum[c] = vi_set1(c);
    for (size_t i = 0; i < rounds; i++)
        UNROLL(for (int c = 0; c < CHAINS; c++))
        {
            sum[c] = vi_matmul(sum[c], (vu)a, a);
            __asm__("" : "+" VECTOR_REGISTER(sum[c]));
        }
    UNROLL(for (int c = 0; c < CHAINS; c++))
    *sink += (float)sum[c][0];
    return (double)rounds * CHAINS * 32;
}

const struct peak peak_i8mm = {
    .isa = "i8mm", .kind = PEAK_INT8, .usable = arm_has_i8mm, .run = peak_i8mm_run};
