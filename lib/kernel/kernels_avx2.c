/* AVX2, FMA and F16C: 256-bit registers, 16 of them. */
#include <cpuid.h>
#include "kernel/set_256.h"

enum { PANEL_ROWS = 4, PANEL_SUMS = 4 };
#include "kernel/set_attend.h"
#include "kernel/set_lines.h"
#include "kernel/set_widen.h"
#include "kernel/set_panel.h"
#include "kernel/set_rows.h"

extern const struct kernels kernels_int8_avx2;

static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

void attend_few_avx2(const struct attend *a);

static bool usable(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

const struct kernels kernels_avx2 = {
    .isa = "avx2",
    .summary = "AVX2, FMA and F16C",
    .usable = usable,
    .base = &kernels_int8_avx2,
    .peak = {[PEAK_F32] = &peak_avx2, [PEAK_INT8] = &peak_avx2_int8},
    SET_SLOTS,
    .attend_few = attend_few_avx2,
};
