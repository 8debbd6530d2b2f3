/* The int8 matrix extension of Armv8.6-A: the kernel set i8mm. */
#include "kernel/arm/i8mm_begin.h"
#include "kernel/arm/arm_cpu.h"
#include "kernel/template/attend_quant.h"
#include "kernel/template/gemm_int8.h"

extern const struct kernels kernels_dotprod;

static bool i8mm_usable(void) { return kernels_dotprod.usable() && arm_has_i8mm(); }

const struct kernels kernels_i8mm = {
    .isa = "i8mm",
    .summary = "int8 matrix products",
    .usable = i8mm_usable,
    .base = &kernels_dotprod,
    .peak = {[PEAK_INT8] = &peak_i8mm},
    INT8_SLOTS,
    .attend_quant = attend_quant,
};
