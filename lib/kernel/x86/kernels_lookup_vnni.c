/* AVX512-VNNI: the kernels of vnni for LOOKUP_TYPES, on processors without VBMI. */
#include "kernel/x86/vnni_begin.h"

/* The templates' switches have cases for these types only. */
#undef QUANT_TYPES
#define QUANT_TYPES(X, argument) LOOKUP_TYPES(X, argument)
#include "kernel/template/gemm_int8.h"

const struct kernels kernels_lookup_vnni = {INT8_SLOTS};
