/* What a pass of fused attention keeps of each query, and how two that saw different rows become one. */
#ifndef BMC_ATTN_STATES_H
#define BMC_ATTN_STATES_H

#include "kernel/kernel.h"

/* Of queries of d elements each, as struct attend has them. */
struct states {
    float *max, *sum, *context; /* [queries], [queries][LANES], [queries][d] */
};

/* Floats that they need, and the states that lie there. */
size_t states_floats(size_t queries, size_t d);
struct states states_at(size_t queries, float *at);

/* The first `queries` of them have seen nothing. */
void states_clear(size_t d, const struct states *states, size_t queries);

/* a becomes what both saw; b comes after a. A query that saw nothing of b keeps its bits. */
void states_join(size_t d, const struct states *a, const struct states *b, size_t queries);

/* context[d] of query i, divided by its sum. */
void states_result(size_t d, const struct states *states, size_t i, float *context);

#endif
