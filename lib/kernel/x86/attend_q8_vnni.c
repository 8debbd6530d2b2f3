/* AVX512-VNNI: attention over a q8 cache, in a translation unit of its own. */
#include "kernel/x86/attend/attend_q8.h"

void attend_q8_vnni(const struct attend *a);

void attend_q8_vnni(const struct attend *a) { attend_q8(a); }
