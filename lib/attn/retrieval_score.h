/* Retrieval score of heads: the share of attention weight on neither the attention sinks nor a
 * recent window. Plain and slow, for choosing retrieval and streaming heads once per model. */
#ifndef BMC_RETRIEVAL_SCORE_H
#define BMC_RETRIEVAL_SCORE_H

#include "attn/attn.h"

struct retrieval_score {
    size_t sink, recent; /* sinks and recent positions of a streaming head */
    size_t from;         /* queries before this position are ignored */
    /* [layers][KV heads]: attention weight beyond sinks and recent window, summed over queries and
     * the GQA group */
    double *beyond;
};

/* Adds the scores of one layer's queries, without draft trees, to attn->retrieval->beyond. All
 * heads of the KV cache must be readable at once (no offloading). */
int retrieval_score_add(const struct attn *attn, const struct attn_step *step,
                        const struct attn_layer *layer, const float *q, struct err *err) MUST_USE;

#endif
