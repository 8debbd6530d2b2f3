/* Partial results of online softmax: per query, the result of fused attention over some of the
 * positions; and how partials over different positions are merged (split KV in flash-decoding). */
#ifndef BMC_SOFTMAX_PARTIALS_H
#define BMC_SOFTMAX_PARTIALS_H

#include "kernel/kernel.h"

/* Partial results of `queries` queries with heads of d elements; struct attend describes the
 * arrays. */
struct softmax_partials {
    float *max, *sum, *context; /* [queries], [queries][NR], [queries][d] */
};

/* softmax_partials_floats() returns the floats that the arrays take; softmax_partials_at() places
 * them in such memory, from `at` on. */
size_t softmax_partials_floats(size_t queries, size_t d);
struct softmax_partials softmax_partials_at(size_t queries, float *at);

/* Resets the first `queries` queries: no positions attended to yet. */
void softmax_partials_clear(size_t d, const struct softmax_partials *partials, size_t queries);

/* Merges b into a, where b is for later positions than a. Queries that attended to none of b's
 * positions keep a's results bit for bit. */
void softmax_partials_merge(size_t d, const struct softmax_partials *a,
                            const struct softmax_partials *b, size_t queries);

/* Writes the attention output of query i, its context divided by its sum, to out[d]. `sink` is the score
 * of its head's attention sink, whose exponential is a part of the sum; or NULL. */
void softmax_partials_result(size_t d, const struct softmax_partials *partials, size_t i,
                             const float *sink, float *out);

#endif
