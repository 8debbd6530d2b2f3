/* What this machine can do at most: the limits that measured times are held against. */
#ifndef BMC_ROOF_H
#define BMC_ROOF_H

#include "base/err.h"

/* Rates over all threads of the team; 0: cannot be measured here. */
struct roof {
    double read_gb_s;     /* one pass over memory that no cache holds, 10^9 bytes a second */
    double copy_gb_s;     /* payload of memcpy between such blocks */
    double f32_gflop_s;   /* multiply-adds from registers, counted as two */
    double bf16_gflop_s;  /* the same with bf16 dot products */
    double page_fault_ns; /* first touch of a 4 KiB page, one thread */
    const char *f32_isa, *bf16_isa;
};

/* Best of `repeats` rounds each, over blocks of `bytes` bytes. Takes a second or two. */
int roof_measure(struct roof *roof, size_t bytes, int repeats, struct err *err) MUST_USE;

/* The two limits of model steps by themselves, to be measured again beside each step: on a shared machine they
 * change by the minute. The block is in huge pages and has been touched. */
struct roof_block {
    char *data;
    size_t bytes;
};

int roof_block_open(struct roof_block *block, size_t bytes, struct err *err) MUST_USE;
void roof_block_close(struct roof_block *block);
double roof_read_gb_s(const struct roof_block *block, int repeats);

/* 0, and NULL for `isa`, where the machine has no such instructions. */
double roof_gflop_s(bool bf16, int repeats, const char **isa);

/* Loops over registers only, one file per instruction set. Returns multiply-adds done; `sink` keeps the compiler
 * from leaving them out. */
struct peak {
    const char *isa;
    bool bf16;
    bool (*usable)(void);
    double (*run)(size_t rounds, float *sink);
};

extern const struct peak peak_ref, peak_avx2, peak_avx512, peak_bf16;

#endif
