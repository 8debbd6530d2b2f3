/* How far heads look: of the weights that queries give to rows, what goes to neither the first rows nor the last ones. Slow and
 * plain: for choosing sparse heads, once for a model. */
#ifndef BMC_ATTN_REACH_H
#define BMC_ATTN_REACH_H

#include "attn/attn.h"

struct attn_reach {
    size_t sink, recent; /* rows that every head sees */
    size_t from;         /* queries at this position and behind it count */
    double *beyond;      /* [layers][KV heads]: sums over queries and the heads of a group */
};

/* One layer of a step: chains only, of a cache that shows all heads at once. */
int attn_reach_add(const struct attn *attn, const struct attn_step *step,
                   const struct attn_layer *layer, const float *q, struct err *err) MUST_USE;

#endif
