/* The kernel set ref for any processor. */
#include "kernel/ref/ref_set.h"

void attend_quant_ref(const struct attend *a);

const struct kernels kernels_ref = REF_SET(attend_quant_ref);
