/* Peak throughput of Advanced SIMD: 128-bit FMA, and int8 multiply-adds, which take several
 * instructions. */
#include "kernel/arm/neon_begin.h"
#include "kernel/template/peak_loops.h"

static bool peak_neon_usable(void) { return true; }

const struct peak peak_neon = {.isa = "neon", .usable = peak_neon_usable, .run = peak_loop_fma};
const struct peak peak_neon_int8 = {
    .isa = "neon", .kind = PEAK_INT8, .usable = peak_neon_usable, .run = peak_loop_int8_l1};
