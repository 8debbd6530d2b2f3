/* Throughput of the multiply-add instructions that kernels are made of: loops over registers (those of plain C over L1), one
 * file per instruction set. */
#ifndef BMC_PEAK_H
#define BMC_PEAK_H

#include "base/base.h"

/* What is multiplied: f32 by f32, bf16 by bf16 summed in f32, bytes by bytes summed in int32. */
enum peak_kind { PEAK_F32, PEAK_BF16, PEAK_INT8, PEAK_KINDS };

/* run() returns the multiply-adds it did; `sink` keeps the compiler from leaving them out. */
struct peak {
    const char *isa;
    enum peak_kind kind;
    bool (*usable)(void);
    double (*run)(size_t rounds, float *sink);
};

extern const struct peak peak_ref, peak_avx2, peak_avx512, peak_bf16, peak_amx_bf16;
extern const struct peak peak_ref_int8, peak_avx2_int8, peak_avxvnni, peak_avx512_int8, peak_vnni,
    peak_amx;

#endif
