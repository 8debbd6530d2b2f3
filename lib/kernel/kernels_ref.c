/* The reference set: portable C that any CPU runs. Clear before fast; the other sets are checked against
 * it. */
#define VW              4
#define vf_fma(a, b, c) ((a) * (b) + (c))
#define vf_max(a, b)    vf_select((a) > (b), a, b)
#define vf_min(a, b)    vf_select((a) < (b), a, b)
#include "kernel/set_vec.h"

enum { PANEL_ROWS = 1, PANEL_SUMS = 2 };
#include "kernel/set_attend.h"
#include "kernel/set_few.h"
#include "kernel/set_panel.h"
#include "kernel/set_rows.h"

void attend_few_ref(const struct attend *a);

static bool usable(void) { return true; }

const struct kernels kernels_ref = {
    .isa = "ref",
    .summary = "portable C",
    .usable = usable,
    SET_SLOTS,
    INT8_SLOTS,
    .attend_few = attend_few_ref,
};
