/* AVX-VNNI: four products of bytes and their sum in one instruction, in the registers of AVX2. */
#include "kernel/kernel.h"

#ifdef AVXVNNI_HEADER /* a stand-in for machines without it */
#include AVXVNNI_HEADER
#else
#include <cpuid.h>

#include "kernel/set_256.h"

static bool has_avxvnni(void)
{
    enum { AVX_VNNI = 1 << 4 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & AVX_VNNI);
}
#endif
#include "kernel/set_vec.h"

extern const struct kernels kernels_avx2;

#define INT8_ZERO(bits) 0
INLINE vi vi_dot4(unsigned bits, vi sum, vu weights, vi x)
{
    (void)bits;
    return (vi)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)weights, (__m256i)x);
}

enum {
    INT8_ROWS = 3,
    INT8_COLUMNS = 1,
    WHOLE_ROWS = 3,
    WHOLE_COLUMNS = 1,
    LINE_ROWS = 4,
    LINE_COLUMNS = 1,
    INT8_FEW_ROWS = 8
};
#include "kernel/set_lines.h"
#include "kernel/set_piece.h"
#include "kernel/set_int8.h"

static bool usable(void) { return kernels_avx2.usable() && has_avxvnni(); }

const struct kernels kernels_avxvnni = {
    .isa = "avxvnni",
    .summary = "AVX-VNNI for weights of few bits, AVX2 for the rest",
    .usable = usable,
    .base = &kernels_avx2,
    .peak = {[PEAK_INT8] = &peak_avxvnni},
    INT8_SLOTS,
};
