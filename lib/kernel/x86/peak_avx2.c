/* Peak throughput of AVX2: 256-bit FMA, and int8 multiply-adds, which take several instructions. */
#include "kernel/x86/avx2_begin.h"
#include "kernel/template/peak_loops.h"

static bool peak_avx2_usable(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

const struct peak peak_avx2 = {.isa = "avx2", .usable = peak_avx2_usable, .run = peak_loop_fma};
const struct peak peak_avx2_int8 = {
    .isa = "avx2", .kind = PEAK_INT8, .usable = peak_avx2_usable, .run = peak_loop_int8_l1};
