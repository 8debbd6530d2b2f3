/* AVX-512: the kernel set avx512. */
#include "kernel/x86/avx512_begin.h"
#define SET_ATTEND attend_avx512
#include "kernel/template/panel.h"
#include "kernel/template/recur.h"
#include "kernel/template/row_ops.h"
#include "kernel/x86/attend/attend_direct.h"

extern const struct kernels kernels_int8_avx512;

static void attend_avx512(const struct attend *a)
{
    if (is_direct(a))
        attend_direct(a);
    else
        attend(a);
}

static bool avx512_usable(void) { return peak_avx512.usable(); }

const struct kernels kernels_avx512 = {
    .isa = "avx512",
    .summary = "AVX-512",
    .usable = avx512_usable,
    .base = &kernels_int8_avx512,
    .peak = {[PEAK_F32] = &peak_avx512, [PEAK_INT8] = &peak_avx512_int8},
    SET_SLOTS,
    RECUR_SLOTS,
};
