/* The kernel set ref: portable C for any CPU, clear rather than fast. Tests compare the other sets
 * with it. */
#include "kernel/ref/ref_begin.h"
#include "kernel/template/attend.h"
#include "kernel/template/panel.h"
#include "kernel/template/recur.h"
#include "kernel/template/row_ops.h"

void attend_quant_ref(const struct attend *a);

static bool ref_usable(void) { return true; }

const struct kernels kernels_ref = {
    .isa = "ref",
    .summary = "portable C",
    .usable = ref_usable,
    SET_SLOTS,
    RECUR_SLOTS,
    INT8_SLOTS,
    .attend_quant = attend_quant_ref,
};
