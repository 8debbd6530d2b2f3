/* The roofline of this machine: the limits that measured times are compared with. */
#pragma once

#include "backend/memory.h"
#include "base/err.h"
#include "cpu/cpu.h"
#include "kernel/peak.h"
#include "model/op_counts.h"

/* The machine's peak rates over all threads; 0: not measurable here. */
struct roof {
    double read_gb_s;     /* sequential reads from a block larger than the caches, 10^9 bytes/s */
    double copy_gb_s;     /* memcpy between two such blocks, 10^9 copied bytes/s */
    double page_fault_ns; /* time of the first touch of a 4 KiB page by one thread */
    struct peak_rate {
        double gop_s; /* 10^9 operations per second; a multiply-add counts as two */
        const char *isa;
    } peak[PEAK_KINDS];
};

/* Measures all rates: the best of `repeats` rounds, with blocks of `bytes` bytes, in 1 to 2 s. */
int roof_measure(struct roof *roof, size_t bytes, int repeats, struct err *err) MUST_USE;

/* Measures the read rate of a block and the peaks only, less accurately: 0.1 s with a block larger than most caches, of
 * ROOF_BYTES. */
enum { ROOF_BYTES = 128 << 20 };
int roof_measure_limits(struct roof *roof, size_t bytes, struct err *err) MUST_USE;
void roof_measure_peaks(struct roof *roof, int repeats);

/* The least time of some work, computed as `how` says with a cache of these types: that of reading and writing its bytes
 * at the read rate, or of its multiply-adds at their peaks, whichever is longer. `how` NULL: by a device, whose
 * peaks are unknown, so that bytes alone count. ms is NaN if a rate is unknown. */
struct roof_limit {
    double ms;
    const char *kind; /* of the longer one: "read", or the peak that most of the time goes by */
    double rate;      /* 10^9 bytes, or operations, per second */
};
struct roof_limit roof_limit(const struct roof *roof, const struct pass_work *work,
                             const struct cpu_options *how, struct kv_types cache);

/* A memory block, kept in populated huge pages, to measure bandwidth right beside each forward
 * pass, since it varies on a shared machine. */
struct roof_block {
    char *data;
    size_t bytes;
};

int roof_block_open(struct roof_block *block, size_t bytes, struct err *err) MUST_USE;
void roof_block_close(struct roof_block *block);
double roof_read_gb_s(const struct roof_block *block, int repeats);

/* The rate at which a backend copies a block of its memory, bytes read and written, in 10^9 per second; NaN: it has too
 * little memory. */
double roof_device_gb_s(const struct backend_memory *memory, size_t bytes, int repeats);

/* Peak rate for an operand type, over all threads and the best of `repeats` runs; rate 0 and isa
 * NULL if the CPU lacks the instructions. */
struct peak_rate roof_peak(enum peak_kind kind, int repeats);
