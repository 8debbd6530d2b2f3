/* Armv8.2-A dot products: the kernel set dotprod. */
#include "kernel/arm/dotprod_begin.h"
#include "kernel/arm/arm_cpu.h"
#include "kernel/template/attend_quant.h"
#include "kernel/template/gemm_int8.h"

extern const struct kernels kernels_neon;

const struct kernels kernels_dotprod = {
    .isa = "dotprod",
    .summary = "Advanced SIMD with dot products",
    .usable = arm_has_dotprod,
    .base = &kernels_neon,
    .peak = {[PEAK_INT8] = &peak_dotprod},
    INT8_SLOTS,
    .attend_quant = attend_quant,
};
