/* AVX2: int8 products and attention over quantised KV entries; base of the kernel set avx2. */
#include "kernel/x86/avx2_begin.h"
#include "kernel/template/attend_quant.h"
#include "kernel/template/gemm_int8.h"

const struct kernels kernels_int8_avx2 = {INT8_SLOTS, .attend_quant = attend_quant};
