/* Peak throughput of AVX512-VNNI: int8 dot products, 64 multiply-adds per instruction. */
#include "kernel/x86/vnni_begin.h"
#include "kernel/template/peak_loops.h"

static bool peak_vnni_usable(void)
{
    return peak_avx512.usable() && __builtin_cpu_supports("avx512vnni");
}

static double peak_vnni_run(size_t rounds, float *sink) { return peak_loop_int8(16, rounds, sink); }

const struct peak peak_vnni = {
    .isa = "vnni", .kind = PEAK_INT8, .usable = peak_vnni_usable, .run = peak_vnni_run};
