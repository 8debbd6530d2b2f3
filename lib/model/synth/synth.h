/* Reproducible random weights, N(0, 0.02). */
#pragma once

#include "quant/dtype.h"

/* Weights are values of a table of 65536 quantiles of N(0, 0.02). */
struct synth {
    uint64_t seed;
    float *quantile;
    bool repeats; /* large packed matrices repeat their first rows */
};

bool synth_open(struct synth *synth, uint64_t seed);
void synth_close(struct synth *synth);

/* Writes elements [first, first + n) of tensor number `tensor` to `out`, in a type that has a
 * dtype_size(). Multi-threaded. */
void synth_fill(const struct synth *synth, size_t tensor, size_t first, size_t n, enum dtype type,
                void *out);

/* Writes all of matrix number `index` in the stack that tensor number `tensor` is (0: no stack) in
 * packed layout (quant/pack.h); `mat` has its type and shape. Multi-threaded. False if out of memory. */
bool synth_fill_packed(const struct synth *synth, size_t tensor, size_t index, const struct mat *mat,
                       void *packed) MUST_USE;
