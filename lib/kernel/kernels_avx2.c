/* AVX2 and FMA: 256-bit registers, 16 of them. */
#include <immintrin.h>

#define VW              8
#define vf_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define vf_max(a, b)    _mm256_max_ps(a, b)
#define vf_min(a, b)    _mm256_min_ps(a, b)
#include "kernel/set_vec.h"

enum { PANEL_ROWS = 4, PANEL_SUMS = 4 };
#include "kernel/set_attend.h"
#include "kernel/set_panel.h"
#include "kernel/set_rows.h"

static bool usable(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

const struct kernels kernels_avx2 = {
    .isa = "avx2",
    .summary = "AVX2 and FMA",
    .usable = usable,
    SET_SLOTS,
};
