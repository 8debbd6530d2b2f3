/* Peak throughput of SDOT: int8 dot products, 16 multiply-adds per instruction. */
#include "kernel/arm/dotprod_begin.h"
#include "kernel/arm/arm_cpu.h"
#include "kernel/template/peak_loops.h"

static double peak_dotprod_run(size_t rounds, float *sink) { return peak_loop_int8(16, rounds, sink); }

const struct peak peak_dotprod = {
    .isa = "dotprod", .kind = PEAK_INT8, .usable = arm_has_dotprod, .run = peak_dotprod_run};
