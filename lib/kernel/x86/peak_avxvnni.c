/* Peak throughput of AVX-VNNI: int8 dot products, 32 multiply-adds per instruction. */
#include <cpuid.h>

#include "kernel/x86/avxvnni_begin.h"
#include "kernel/template/peak_loops.h"

static bool peak_avxvnni_usable(void)
{
    enum { AVX_VNNI = 1 << 4 };
    unsigned a, b, c, d;
    if (!peak_avx2.usable()) /* it is listed in leaf 7, which exists if it is usable */
        return false;
    __cpuid_count(7, 1, a, b, c, d);
    return a & AVX_VNNI;
}

static double peak_avxvnni_run(size_t rounds, float *sink) { return peak_loop_int8(12, rounds, sink); }

const struct peak peak_avxvnni = {
    .isa = "avxvnni", .kind = PEAK_INT8, .usable = peak_avxvnni_usable, .run = peak_avxvnni_run};
