/* AVX512-VNNI: the kernel set vnni. A 64-byte line of packed weights is an operand of vpdpbusd. */
#include "kernel/x86/vnni_begin.h"
#include "kernel/template/attend_quant.h"
#include "kernel/template/gemm_int8.h"

extern const struct kernels kernels_avx512;

static bool usable(void) { return kernels_avx512.usable() && __builtin_cpu_supports("avx512vnni"); }

const struct kernels kernels_vnni = {
    .isa = "vnni",
    .summary = "AVX512-VNNI",
    .usable = usable,
    .base = &kernels_avx512,
    .peak = {[PEAK_INT8] = &peak_vnni},
    INT8_SLOTS,
    .attend_quant = attend_quant,
};
