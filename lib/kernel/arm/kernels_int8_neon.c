/* Advanced SIMD: int8 products and attention over quantised KV entries; base of the kernel set neon. */
#include "kernel/arm/neon_begin.h"
#include "kernel/template/attend_quant.h"
#include "kernel/template/gemm_int8.h"

const struct kernels kernels_int8_neon = {INT8_SLOTS, .attend_quant = attend_quant};
