/* Retrieval scores of heads: the attention weight that queries give to chosen positions, as those of the text
 * that they repeat. Plain and slow, for choosing retrieval and streaming heads once per model. */
#pragma once

#include "attn/attn.h"

struct position_range {
    size_t first, end; /* positions [first, end) */
};

struct retrieval_score {
    size_t from;                        /* queries before this position are ignored */
    const struct position_range *range; /* of each query from there on; an empty one: it is ignored */
    double *weight; /* [layers][heads]: attention weight within the ranges, summed over queries */
};

/* Adds the scores of one layer's queries, without draft trees, to attn->retrieval->weight. All
 * heads of the KV cache must be readable at once (no offloading). */
int retrieval_score_add(const struct attn *attn, const struct attn_step *step,
                        const struct attn_layer *layer, const float *q, struct err *err) MUST_USE;
