/* Portable C: attention over quantised KV entries, in a translation unit of its own. */
#include "kernel/ref/ref_begin.h"
#include "kernel/template/attend_quant.h"

void attend_quant_ref(const struct attend *a);

void attend_quant_ref(const struct attend *a) { attend_quant(a); }
