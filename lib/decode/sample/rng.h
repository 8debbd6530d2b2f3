/* Counter-based random numbers: Philox4x32-10 (Salmon et al., 2011). A number depends on its key
 * and counter alone, never on the batch, on threads or on an earlier interruption. */
#pragma once

#include "base/base.h"

void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A random number of 53 bits, uniform in [0, 1). Key: seed; counter: (position, draw, line). */
double rng_uniform(uint64_t seed, uint64_t line, uint32_t position, uint32_t draw);

/* Random numbers for speculative decoding at one position: draws 1, 2, ..; plain decoding uses
 * draw 0. */
struct draws {
    uint64_t seed, line;
    uint32_t position, next;
};

double draws_next(struct draws *draws);
