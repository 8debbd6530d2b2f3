/* Peak throughput of AVX-VNNI: int8 dot products, 32 multiply-adds per instruction. */
#include <cpuid.h>

#include "kernel/x86/avxvnni_begin.h"
#include "kernel/template/peak_loops.h"

static bool peak_avxvnni_usable(void)
{
    enum { AVX_VNNI = 1 << 4 };
    unsigned a, b, c, d;
    return peak_avx2.usable() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & AVX_VNNI;
}

static double peak_avxvnni_run(size_t rounds, float *sink) { return peak_loop_int8(12, rounds, sink); }

const struct peak peak_avxvnni = {
    .isa = "avxvnni", .kind = PEAK_INT8, .usable = peak_avxvnni_usable, .run = peak_avxvnni_run};
