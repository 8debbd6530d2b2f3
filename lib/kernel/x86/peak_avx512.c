/* Peak throughput of AVX-512: 512-bit FMA, and int8 multiply-adds, which take several
 * instructions. */
#include "kernel/x86/avx512_begin.h"
#include "kernel/template/peak_loops.h"

static bool peak_avx512_usable(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("fma");
}

const struct peak peak_avx512 = {.isa = "avx512", .usable = peak_avx512_usable, .run = peak_loop_fma};
const struct peak peak_avx512_int8 = {
    .isa = "avx512", .kind = PEAK_INT8, .usable = peak_avx512_usable, .run = peak_loop_int8_l1};
