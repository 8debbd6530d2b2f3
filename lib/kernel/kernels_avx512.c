/* AVX-512: 512-bit registers, 32 of them. */
#include "kernel/set_512.h"

enum { PANEL_ROWS = 6, PANEL_SUMS = 24 };
#include "kernel/set_attend.h"
#include "kernel/set_lines.h"
#include "kernel/set_widen.h"
#include "kernel/set_panel.h"
#include "kernel/set_rows.h"

extern const struct kernels kernels_int8_avx512;
void attend_few_avx512(const struct attend *a);

static bool usable(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("fma");
}

const struct kernels kernels_avx512 = {
    .isa = "avx512",
    .summary = "AVX-512",
    .usable = usable,
    .base = &kernels_int8_avx512,
    .peak = {[PEAK_F32] = &peak_avx512, [PEAK_INT8] = &peak_avx512_int8},
    SET_SLOTS,
    .attend_few = attend_few_avx512,
};
