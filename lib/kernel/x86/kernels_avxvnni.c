/* AVX-VNNI: the kernel set avxvnni. */
#include "kernel/x86/avxvnni_begin.h"
#include "kernel/template/gemm_int8.h"

#ifndef AVXVNNI_HEADER
static bool has_avxvnni(void) { return peak_avxvnni.usable(); }
#endif

extern const struct kernels kernels_avx2;

static bool avxvnni_usable(void) { return kernels_avx2.usable() && has_avxvnni(); }

const struct kernels kernels_avxvnni = {
    .isa = "avxvnni",
    .summary = "AVX-VNNI for quantised weights, AVX2 for the rest",
    .usable = avxvnni_usable,
    .base = &kernels_avx2,
    .peak = {[PEAK_INT8] = &peak_avxvnni},
    INT8_SLOTS,
};
