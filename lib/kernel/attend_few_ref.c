/* The reference set's attention over rows of few bits, in a file of its own: such files take long to compile. */
#define VW              4
#define vf_fma(a, b, c) ((a) * (b) + (c))
#define vf_max(a, b)    vf_select((a) > (b), a, b)
#define vf_min(a, b)    vf_select((a) < (b), a, b)
#include "kernel/set_vec.h"

#include "kernel/set_attend_few.h"

void attend_few_ref(const struct attend *a);

void attend_few_ref(const struct attend *a) { attend_few(a); }
