/* Rotation of vectors by a Hadamard matrix, before they are quantised: it spreads large elements over
 * their neighbours, and leaves dot products of rotated vectors as they are. */
#pragma once

#include "base/base.h"

enum {
    HADAMARD_MOST = 256,
    ROTATED_MOST = 4096 /* elements of a head that a cache can rotate */
};

/* The number of elements that are rotated together in vectors of n: the largest power of two that
 * divides n, at most HADAMARD_MOST. */
static inline size_t hadamard_block(size_t n)
{
    const size_t power = n & (0 - n);
    return power < HADAMARD_MOST ? power : HADAMARD_MOST;
}

/* Multiplies each `block` elements of x[n] by H / sqrt(block), H of order `block` (Sylvester's); twice
 * is the identity, but for rounding. n is a multiple of `block`, a power of two. Every sum has one
 * order. */
void hadamard(float *x, size_t n, size_t block);
