/* The default kernel set: the newest that is not slower than an older one at what this processor does.
 *
 * A processor may support an instruction that it runs slowly: VDPBF16PS has half the throughput of f32 FMA on some Xeons,
 * where products of bf16 weights, which need two of them, then take four times as long as f32 products of the same weights.
 * CPUID does not say so, and its family and model are often masked in virtual machines; so the instructions are timed. */
#ifndef BMC_RATES_H
#define BMC_RATES_H

#include "kernel/kernel.h"

/* RATES_BRIEF takes one to two milliseconds; RATES_LONG is for results that are kept. */
enum { RATES_MOST = 16, RATES_BRIEF = 20, RATES_LONG = 200 };

/* A set that this machine can run, and the throughput of its instructions on one core, 10^9 operations a second, multiply-adds
 * counted as two; 0: not known. */
struct kernel_rates {
    const struct kernels *kernels;
    double gop_s[PEAK_KINDS];
};

/* Rates of the usable ones of `sets` (kernel_sets), in their order, up to RATES_MOST; returns their number. The instructions are
 * timed in `turns` interleaved bursts, of which the fastest counts. Where only one set has instructions to time, none is
 * timed. */
size_t rates_measure(struct kernel_rates *rates, const struct kernels *const *sets, int turns);

/* The default among `n` >= 1 sets, plainest first. A set takes the place of the ones before unless it is slower for some class
 * of weights (f32 and f16, bf16, quantised) by more than RATES_MARGIN; a rate that is not known decides nothing.
 *
 * Few and many rows run at these rates; a single row is limited by memory in every set. Rates of two instructions are in the
 * ratio of small integers: the margin lies between 1 (the newer set stays) and 2 (it is left out), and no error of one measurement
 * below 30 % changes the choice. */
#define RATES_MARGIN 1.5
const struct kernels *rates_fastest(const struct kernel_rates *rates, size_t n);

#endif
