/* Selects the default kernel set: the newest that is not slower than an older one on this
 * processor.
 *
 * A processor may support an instruction but run it slowly: VDPBF16PS has half the throughput of
 * f32 FMA on some Xeons, so products of bf16 weights, which need two of them, take four times as
 * long as f32 products of the same weights. CPUID does not tell, and virtual machines often mask
 * family and model; so the instructions are timed. */
#pragma once

#include "kernel/kernel.h"

/* RATES_MOST: maximum number of kernel sets. Values for `turns`: RATES_BRIEF measures for 0.2 to 0.4 milliseconds; RATES_LONG is
 * for results that are stored. RATES_ROUNDS: how often that is repeated, at most, while the newest set seems slower than
 * another. */
enum { RATES_MOST = 16, RATES_BRIEF = 5, RATES_LONG = 50, RATES_ROUNDS = 16 };

/* A kernel set that this machine can run, and the throughput of its instructions on one core in
 * 10^9 operations per second, a multiply-add counting as two; 0: unknown. */
struct kernel_rates {
    const struct kernels *kernels;
    double gop_s[PEAK_KINDS];
};

/* Fills rates[] with the kernel sets of `sets` (ended by NULL) that are usable here, in that order
 * and at most RATES_MOST; returns their number. Times the instructions of each in `turns`
 * interleaved bursts, up to RATES_ROUNDS times, and keeps the fastest: once if the newest set is not
 * slower, RATES_ROUNDS / 4 times if it is so without doubt. Times nothing if only one set could be timed. */
size_t rates_measure(struct kernel_rates *rates, const struct kernels *const *sets, int turns);

/* Chooses the default among `n` >= 1 kernel sets, simplest first. A set replaces the ones before it
 * unless it is slower by more than RATES_MARGIN for some class of weights (f32 and f16, bf16,
 * quantised); unknown rates are ignored.
 *
 * These rates limit products of several rows; a single row is memory-bound in every set. Rates
 * of two instructions are in the ratio of small integers: the margin is between 1 (keep the
 * newer set) and 2 (leave it out), so an error of one measurement below 30 % does not change the
 * choice. */
#define RATES_MARGIN 1.5
const struct kernels *rates_fastest(const struct kernel_rates *rates, size_t n);
