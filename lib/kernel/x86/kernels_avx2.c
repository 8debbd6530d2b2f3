/* AVX2, FMA and F16C: the kernel set avx2. */
#include <cpuid.h>
#include "kernel/x86/avx2_begin.h"
#include "kernel/template/attend.h"
#include "kernel/template/panel.h"
#include "kernel/template/recur.h"
#include "kernel/template/row_ops.h"

extern const struct kernels kernels_int8_avx2;

/* A CPUID in a virtual machine takes some 30 microseconds, and __get_cpuid() is two. */
static bool avx2_usable(void)
{
    unsigned a, b, c, d;
    if (!peak_avx2.usable())
        return false;
    __cpuid(1, a, b, c, d);
    return c & bit_F16C;
}

const struct kernels kernels_avx2 = {
    .isa = "avx2",
    .summary = "AVX2, FMA and F16C",
    .usable = avx2_usable,
    .base = &kernels_int8_avx2,
    .peak = {[PEAK_F32] = &peak_avx2, [PEAK_INT8] = &peak_avx2_int8},
    SET_SLOTS,
    RECUR_SLOTS,
};
