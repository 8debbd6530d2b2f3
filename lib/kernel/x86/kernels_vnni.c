/* AVX512-VNNI: the kernel set vnni. A 64-byte line of packed weights is an operand of vpdpbusd. */
#include "kernel/x86/vnni_begin.h"

/* The templates' switches have cases for these types only; the others have translation units of their own. */
#undef QUANT_TYPES
#define QUANT_TYPES(X, argument) PLAIN_TYPES(X, argument)
#include "kernel/template/gemm_int8.h"
#include "kernel/x86/rows_int8_vnni.h"
#include "kernel/cpu_traits.h"

extern const struct kernels kernels_avx512, kernels_vbmi, kernels_lookup_vnni;
void attend_quant_vnni(const struct attend *a);

#define OR_TYPE(name, number, text, unused) || type == DTYPE_##name

static bool is_looked_up(enum dtype type) { return false LOOKUP_TYPES(OR_TYPE, ); }

static void panel_vnni(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    (!is_looked_up(w->type) ? panel_int8
     : vbmi_unpacks         ? kernels_vbmi.panel_int8
                            : kernels_lookup_vnni.panel_int8)(y, x, rows, w);
}

/* Many rows, too, are multiplied in tiles that unpack weights in registers, once per 16 rows, where that is
 * faster than K slabs: not in types with a grid, whose unpacking takes longest. */
static size_t int8_mr_vnni(enum dtype type, size_t rows)
{
    enum { SLAB_ROWS = 48 };
    if (rows > SLAB_ROWS && quant_has_grid(type))
        return gemm_mr(type);
    return rows > SMALLM_MAX ? SMALLM_MR : int8_mr(type, rows);
}
_Static_assert(INT8_MAX_ROWS % SMALLM_MR == 0, "chunks of rows end where tiles do");

static bool vnni_usable(void)
{
    return kernels_avx512.usable() && __builtin_cpu_supports("avx512vnni");
}

const struct kernels kernels_vnni = {
    .isa = "vnni",
    .summary = "AVX512-VNNI",
    .usable = vnni_usable,
    .base = &kernels_avx512,
    .peak = {[PEAK_INT8] = &peak_vnni},
    .panel_int8 = panel_vnni,
    .interleave_int8 = interleave_int8_vnni,
    .int8_mr = int8_mr_vnni,
    .to_int8 = to_int8_vnni,
    .attend_quant = attend_quant_vnni,
};
