/* The kernel set ref for processors whose FMA instruction replaces its emulation: the same C, and bits. */
#include "kernel/ref/ref_set.h"

void attend_quant_ref_fma(const struct attend *a);

const struct kernels kernels_ref_fma = REF_SET(attend_quant_ref_fma);
