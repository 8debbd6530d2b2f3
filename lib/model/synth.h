/* Random weights N(0, 0.02), reproducible and fast. */
#ifndef BMC_SYNTH_H
#define BMC_SYNTH_H

#include "base/dtype.h"

/* A table of 65536 values of N(0, 0.02); every weight is one of them. */
struct synth {
    uint64_t seed;
    float *quantile;
};

bool synth_open(struct synth *synth, uint64_t seed);
void synth_close(struct synth *synth);

/* Elements [first, first + n) of tensor `tensor`, in the given type, which has a dtype_size(). Uses all threads. */
void synth_fill(const struct synth *synth, size_t tensor, size_t first, size_t n, enum dtype type,
                void *out);

/* All elements of tensor `tensor`, a matrix [out][in], packed (base/pack.h). Uses all threads. False when memory for rows
 * of few bits cannot be had. */
bool synth_fill_packed(const struct synth *synth, size_t tensor, size_t out, size_t in, enum dtype type,
                       void *packed) MUST_USE;

#endif
