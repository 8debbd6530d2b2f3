/* What this machine can do at most: the limits that measured times are held against. */
#ifndef BMC_ROOF_H
#define BMC_ROOF_H

#include "base/err.h"
#include "kernel/peak.h"

/* Rates over all threads of the team; 0: cannot be measured here. */
struct roof {
    double read_gb_s;     /* one pass over memory that no cache holds, 10^9 bytes a second */
    double copy_gb_s;     /* payload of memcpy between such blocks */
    double page_fault_ns; /* first touch of a 4 KiB page, one thread */
    struct peak_rate {
        double gop_s; /* multiply-adds, counted as two, 10^9 a second */
        const char *isa;
    } peak[PEAK_KINDS];
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

/* 0, and NULL for its set, where the machine has no such instructions. */
struct peak_rate roof_peak(enum peak_kind kind, int repeats);

#endif
