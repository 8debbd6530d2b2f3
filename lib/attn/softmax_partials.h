/* Partial results of online softmax: per query, the result of fused attention over some of the
 * positions; and how partials over different positions are merged (split KV in flash-decoding). */
#ifndef BMC_SOFTMAX_PARTIALS_H
#define BMC_SOFTMAX_PARTIALS_H

#include "kernel/kernel.h"

/* Partials of some queries with heads of d elements; struct attend describes the arrays. */
struct softmax_partials {
    float *max, *sum, *context; /* [queries], [queries][NR], [queries][d] */
};

/* Number of floats that partials take; partials with their arrays at `at`. */
size_t softmax_partials_floats(size_t queries, size_t d);
struct softmax_partials softmax_partials_at(size_t queries, float *at);

/* Resets the partials of the first `queries` queries to no positions. */
void softmax_partials_clear(size_t d, const struct softmax_partials *partials, size_t queries);

/* Merges b into a; b's positions come after a's. a stays the same bit for bit for queries that
 * attended to none of b's positions. */
void softmax_partials_merge(size_t d, const struct softmax_partials *a,
                            const struct softmax_partials *b, size_t queries);

/* Writes the attention output of query i, its context divided by its sum, to out[d]. */
void softmax_partials_result(size_t d, const struct softmax_partials *partials, size_t i, float *out);

#endif
