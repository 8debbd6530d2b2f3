/* Advanced SIMD of Armv8-A: the kernel set neon. */
#include "kernel/arm/neon_begin.h"
#include "kernel/template/attend.h"
#include "kernel/template/panel.h"
#include "kernel/template/recur.h"
#include "kernel/template/row_ops.h"

extern const struct kernels kernels_int8_neon;

static bool neon_usable(void) { return true; }

const struct kernels kernels_neon = {
    .isa = "neon",
    .summary = "Advanced SIMD",
    .usable = neon_usable,
    .base = &kernels_int8_neon,
    .peak = {[PEAK_F32] = &peak_neon, [PEAK_INT8] = &peak_neon_int8},
    SET_SLOTS,
    RECUR_SLOTS,
};
