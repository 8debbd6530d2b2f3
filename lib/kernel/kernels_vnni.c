/* AVX512-VNNI: vpdpbusd multiplies 4 bytes of a lane, weights without a sign and activations with one, and adds them to
 * an int32_t. A line of packed codes is one such operand. */
#include "kernel/set_512.h"

#define vi_dot4(bits, sum, w, x)                                                                       \
    ((void)(bits), (vi)_mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(w), (__m512i)(x)))
#define INT8_ZERO(bits) 0

enum {
    INT8_ROWS = 3,
    INT8_COLUMNS = 4,
    WHOLE_ROWS = 4,
    WHOLE_COLUMNS = 4,
    LINE_ROWS = 8,
    LINE_COLUMNS = 2,
    INT8_FEW_ROWS = 48
};
#include "kernel/set_lines.h"
#include "kernel/set_piece.h"
#include "kernel/set_int8.h"

extern const struct kernels kernels_avx512;

void attend_few_vnni(const struct attend *a);

static bool usable(void) { return kernels_avx512.usable() && __builtin_cpu_supports("avx512vnni"); }

const struct kernels kernels_vnni = {
    .isa = "vnni",
    .summary = "AVX512-VNNI",
    .usable = usable,
    .base = &kernels_avx512,
    .peak = {[PEAK_INT8] = &peak_vnni},
    INT8_SLOTS,
    .attend_few = attend_few_vnni,
};
