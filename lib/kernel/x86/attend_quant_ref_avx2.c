/* The set ref with the FMA instruction: attention over quantised KV entries. */
#include "kernel/ref/ref_begin.h"
#include "kernel/template/attend_quant.h"

void attend_quant_ref_fma(const struct attend *a);

void attend_quant_ref_fma(const struct attend *a) { attend_quant(a); }
