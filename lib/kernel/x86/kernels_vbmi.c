/* AVX512-VNNI with VBMI and GFNI: the kernels of vnni for LOOKUP_TYPES. */
#include "kernel/x86/vbmi_begin.h"

/* The templates' switches have cases for these types only. */
#undef QUANT_TYPES
#define QUANT_TYPES(X, argument) LOOKUP_TYPES(X, argument)
#include "kernel/template/gemm_int8.h"

const struct kernels kernels_vbmi = {INT8_SLOTS};
