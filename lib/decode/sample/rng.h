/* Counter-based random numbers: Philox4x32-10 (Salmon et al., 2011). A number depends on its key
 * and counter alone, never on the batch, on threads or on an earlier interruption. */
#pragma once

#include "base/base.h"

void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A random number of 53 bits, uniform in [0, 1). Key: seed; counter: (position, draw, line). */
double rng_uniform(uint64_t seed, uint64_t line, uint32_t position, uint32_t draw);

/* Draws of a position: those below RNG_DRAWS are the noise of the tokens of these ids, the next ones are for
 * rejection sampling, and RNG_XTC is that of XTC. */
#define RNG_DRAWS ((uint32_t)1 << 31)
#define RNG_XTC   UINT32_MAX

/* Random numbers for rejection sampling of drafts at one position. */
struct draws {
    uint64_t seed, line;
    uint32_t position, used;
};

double draws_next(struct draws *draws);
