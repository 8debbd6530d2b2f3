/* Benchmarks of the multiply-add instructions that kernels use: loops over registers (over L1 in
 * plain C), one file per instruction set. */
#ifndef BMC_PEAK_H
#define BMC_PEAK_H

#include "base/base.h"

/* Operands: f32; bf16, summed in f32; int8, summed in int32. */
enum peak_kind { PEAK_F32, PEAK_BF16, PEAK_INT8, PEAK_KINDS };

/* run() executes `rounds` iterations and returns the number of multiply-adds; `sink` keeps the
 * compiler from removing them. */
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
