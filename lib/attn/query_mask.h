/* The attention mask of one query row: which positions it attends to.
 *
 * A query at position p attends to positions up to its own (causal), in a layer with a sliding
 * window only to the last of these, and in a sparse head (kv_streaming.h) only to the attention
 * sinks and a recent window:
 *
 *   [first, sink_end)       attention sinks; none, unless there is a gap behind them
 *   [recent, position]      all others
 *
 * A node of a draft tree counts its ancestors as the positions before it. Their KV entries lie
 * anywhere among the step's rows: query_mask_entry() finds them. */
#ifndef BMC_QUERY_MASK_H
#define BMC_QUERY_MASK_H

#include "attn/attn.h"

/* Limits that all queries of a layer and KV head share; 0: no limit. */
struct mask_limits {
    size_t window;       /* positions in the layer's sliding window, with the query's own */
    size_t sink, recent; /* positions that a sparse head attends to (struct kv_view) */
};

struct query_mask {
    size_t position; /* position of the query */
    size_t first;    /* start of the layer's sliding window */
    size_t sink_end; /* end of the attention sinks; up to `first`: none */
    size_t recent;
    size_t committed; /* positions before this one equal their entry index */
    /* [position + 1 - committed]: entry index - committed of later positions; NULL: as above */
    const uint32_t *ancestors;
};

/* Computes the mask of row `row` of a query; keeps pointers to query->ancestors. */
struct query_mask query_mask_of(const struct kv *kv, const struct attn_query *query, size_t row,
                                const struct mask_limits *limits);

static inline bool query_mask_has(const struct query_mask *mask, size_t position)
{
    return position <= mask->position &&
           (position >= mask->recent || (position >= mask->first && position < mask->sink_end));
}

/* Index in a view of the KV entry of a position. */
static inline size_t query_mask_entry(const struct query_mask *mask, size_t position)
{
    return mask->ancestors && position >= mask->committed
               ? mask->committed + mask->ancestors[position - mask->committed]
               : position;
}

/* Writes the mask as bias[n] of entries [begin, begin + n): 0 if attended to, else `masked`. */
void query_mask_bias(const struct query_mask *mask, float *bias, size_t begin, size_t n, float masked);

#endif
