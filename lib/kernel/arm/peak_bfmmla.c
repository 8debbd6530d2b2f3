/* Peak throughput of BFMMLA: 16 multiply-adds per instruction. */
#include "kernel/arm/neon_begin.h"
#include "kernel/arm/arm_cpu.h"

static double peak_bfmmla_run(size_t rounds, float *sink)
{
    enum { CHAINS = 16 };
    float32x4_t sum[CHAINS];
    uint32x4_t ones = vdupq_n_u32(0x3f803f80);
    __asm__("" : "+" VECTOR_REGISTER(ones)); /* gcc 12 has no instruction for this constant as bf16 */
    const bfloat16x8_t a = vreinterpretq_bf16_u32(ones);
    UNROLL(for (int c = 0; c < CHAINS; c++))
    sum[c] = vdupq_n_f32(1);
    for (size_t i = 0; i < rounds; i++)
        UNROLL(for (int c = 0; c < CHAINS; c++))
        {
            sum[c] = vbfmmlaq_f32(sum[c], a, a);
            __asm__("" : "+" VECTOR_REGISTER(sum[c]));
        }
    UNROLL(for (int c = 0; c < CHAINS; c++))
    *sink += vgetq_lane_f32(sum[c], 0);
    return (double)rounds * CHAINS * 16;
}

const struct peak peak_bf16 = {
    .isa = "bf16", .kind = PEAK_BF16, .usable = arm_has_bf16, .run = peak_bfmmla_run};
