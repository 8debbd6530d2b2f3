/* Retrieval score of heads: the share of attention weight that goes to neither the attention sinks
 * nor a recent window. Plain and slow, for selecting sparse heads once per model. */
#ifndef BMC_RETRIEVAL_SCORE_H
#define BMC_RETRIEVAL_SCORE_H

#include "attn/attn.h"

struct retrieval_score {
    size_t sink, recent; /* positions that a sparse head attends to */
    size_t from;         /* queries before this position are ignored */
    /* [layers][KV heads]: attention probability beyond sinks and window, summed over queries and
     * the GQA group */
    double *beyond;
};

/* Adds the scores of a layer's queries, all chains. The KV cache must show all heads at once. */
int retrieval_score_add(const struct attn *attn, const struct attn_step *step,
                        const struct attn_layer *layer, const float *q, struct err *err) MUST_USE;

#endif
