/* Random numbers without state: Philox4x32-10 (Salmon et al., 2011), a counter-based generator. A draw
 * depends on its key alone, so neither batch nor threads nor an interruption can change it. */
#ifndef BMC_RNG_H
#define BMC_RNG_H

#include "base/base.h"

/* Ten rounds over a counter of four words under a key of two. */
void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Uniform in [0, 1), 53 bits: key = seed, counter = (position, draw, line). */
double rng_uniform(uint64_t seed, uint64_t line, uint32_t position, uint32_t draw);

/* A row of draws at one position that plain decoding never makes (it makes draw 0): for speculation. */
struct draws {
    uint64_t seed, line;
    uint32_t position, next;
};

double draws_next(struct draws *draws);

#endif
