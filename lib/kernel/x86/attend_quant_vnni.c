/* AVX512-VNNI: attention over quantised KV entries, in a translation unit of its own. */
#include "kernel/x86/vnni_begin.h"
#include "kernel/template/attend_quant.h"
#include "kernel/x86/attend/attend_q4.h"
#include "kernel/x86/attend/attend_q8.h"

void attend_quant_vnni(const struct attend *a);

void attend_quant_vnni(const struct attend *a)
{
    if (a->k_type != DTYPE_Q4_1 && a->v_type != DTYPE_Q4_1)
        attend_q8(a);
    else if (is_q4(a))
        attend_q4(a);
    else
        attend_quant(a);
}
