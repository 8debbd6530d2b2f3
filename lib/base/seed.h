/* Seeds of random numbers. */
#ifndef BMC_SEED_H
#define BMC_SEED_H

#include "base/err.h"

/* A seed as users give it: any whole number of 64 bits, or -1 to have one drawn. All zero: not given. */
struct seed {
    uint64_t value;
    bool given, draw;
};

/* Parses a seed; the whole text must be one. */
bool seed_parse(const char *text, struct seed *seed);

/* Draws a seed, of 32 bits, so that it is easy to repeat. */
int seed_draw(uint64_t *value, struct err *err) MUST_USE;

#endif
