/* Microbenchmarks of the peak throughput of multiply-add instructions, one file per instruction
 * set. Operands are in registers or in L1. */
#pragma once

#include "base/base.h"

/* Operand types of the multiply-adds: f32; bf16, summed in f32; int8, summed in int32. */
enum peak_kind { PEAK_F32, PEAK_BF16, PEAK_INT8, PEAK_KINDS };

/* A benchmark loop. run() takes time in proportion to `rounds` and returns the number of
 * multiply-adds; it adds a result to *sink so that the compiler cannot remove them. */
struct peak {
    const char *isa;
    enum peak_kind kind;
    bool (*usable)(void);
    double (*run)(size_t rounds, float *sink);
};

extern const struct peak peak_ref, peak_avx2, peak_avx512, peak_bf16, peak_amx_bf16;
extern const struct peak peak_ref_int8, peak_avx2_int8, peak_avxvnni, peak_avx512_int8, peak_vnni,
    peak_amx;
extern const struct peak peak_neon, peak_neon_int8, peak_dotprod,
    peak_i8mm; /* of ARM, with peak_bf16 */
