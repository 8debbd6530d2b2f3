/* The attention mask of one query row: which positions it attends to.
 *
 * A query attends to positions up to its own (causal; in encoders to later ones of its pass, too), in a layer with a sliding window only to the
 * last of these, in one with chunks only to those of its chunk, and in a streaming head
 * (kv_streaming.h) only to the attention sinks and a recent window. In the members of struct query_mask, these positions are:
 *
 *   [first, sink_end)       attention sinks; none, unless there is a gap behind them
 *   [recent, end)           all others
 *
 * In a draft tree, a node's ancestors have the positions before it. Their KV entries are anywhere
 * among those of the forward pass: query_mask_entry() finds them. */
#pragma once

#include "attn/attn.h"

/* Limits that all queries of a layer and KV head share; 0: no limit. */
struct mask_limits {
    size_t window;       /* positions in the layer's sliding window, with the query's own */
    size_t chunk;        /* positions of the layer's chunks */
    size_t ahead;        /* positions after the query's own, of the same pass */
    size_t sink, recent; /* attention sinks and recent positions of a streaming head */
};

struct query_mask {
    size_t position; /* position of the query */
    size_t end;      /* end of the positions that it attends to: behind its own but in encoders */
    size_t first;    /* start of the layer's sliding window, or chunk */
    size_t sink_end; /* end of the attention sinks; no sinks if it is not above `first` */
    size_t recent;
    size_t committed; /* before this position, a KV entry's index is its position */
    /* draft trees: of each position from `committed` on, its entry's index - committed; or NULL */
    const uint32_t *ancestors;
};

/* Computes the mask of row `row` of a query; the mask points into query->ancestors. */
struct query_mask query_mask_of(const struct kv *kv, const struct attn_query *query, size_t row,
                                const struct mask_limits *limits);

static inline bool query_mask_has(const struct query_mask *mask, size_t position)
{
    return position < mask->end &&
           (position >= mask->recent || (position >= mask->first && position < mask->sink_end));
}

/* Index, in a view of the KV cache, of the entry of a position that the query attends to. */
static inline size_t query_mask_entry(const struct query_mask *mask, size_t position)
{
    return mask->ancestors && position >= mask->committed
               ? mask->committed + mask->ancestors[position - mask->committed]
               : position;
}

/* Writes the mask as bias[n] for KV entries [begin, begin + n): 0 if attended to, else `masked`. */
void query_mask_bias(const struct query_mask *mask, float *bias, size_t begin, size_t n, float masked);
