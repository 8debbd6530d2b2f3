/* AVX512-VNNI: the kernel set vnni. A 64-byte line of packed weights is an operand of vpdpbusd. */
#include "kernel/x86/vnni_begin.h"
#include "kernel/template/attend_quant.h"
#include "kernel/template/gemm_int8.h"
#include "kernel/x86/vbmi.h"

extern const struct kernels kernels_avx512, kernels_vbmi;

bool vbmi_unpacks;

void attend_q8_vnni(const struct attend *a);

static void attend_vnni(const struct attend *a)
{
    if (a->type == DTYPE_Q8_CHANNEL)
        attend_q8_vnni(a);
    else
        attend_quant(a);
}

static void panel_vnni(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    if (vbmi_unpacks && (quant_has_grid(w->type) || quant_types[w->type].ternary))
        kernels_vbmi.panel_int8(y, x, rows, w);
    else
        panel_int8(y, x, rows, w);
}

/* Many rows, too, are multiplied in tiles that unpack weights in registers, where those are faster than K slabs:
 * by 5 % in q4_0, 1 to 3 % in q8_0. */
static size_t int8_mr_vnni(enum dtype type, size_t rows)
{
    const bool unpack = type == DTYPE_Q4_0 || type == DTYPE_Q8_0;
    return unpack && rows > SMALLM_MAX ? SMALLM_MR : int8_mr(type, rows);
}
_Static_assert(INT8_MAX_ROWS % SMALLM_MR == 0, "chunks of rows end where tiles do");

static bool usable(void) { return kernels_avx512.usable() && __builtin_cpu_supports("avx512vnni"); }

const struct kernels kernels_vnni = {
    .isa = "vnni",
    .summary = "AVX512-VNNI",
    .usable = usable,
    .base = &kernels_avx512,
    .peak = {[PEAK_INT8] = &peak_vnni},
    .panel_int8 = panel_vnni,
    .interleave_int8 = interleave_int8,
    .int8_mr = int8_mr_vnni,
    .to_int8 = to_int8,
    .attend_quant = attend_vnni,
};
