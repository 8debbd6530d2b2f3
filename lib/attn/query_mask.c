/* The attention mask of one query row. */
#include "attn/query_mask.h"

struct query_mask query_mask_of(const struct kv *kv, const struct attn_query *query, size_t row,
                                const struct mask_limits *limits)
{
    const size_t committed = kv_position(kv, query->seq);
    const size_t *at = query->ancestors ? &query->ancestors_at[row] : NULL;
    const size_t position = committed + (at ? at[1] - at[0] - 1 : row);
    const size_t chunk = limits->chunk ? position - position % limits->chunk : 0;
    const size_t first = size_max(chunk, kv_recent_start(position, limits->window));
    const size_t recent = kv_recent_start(position, limits->recent);
    const bool gap = recent > limits->sink;
    return (struct query_mask){
        .position = position,
        .end = position + 1 + size_min(limits->ahead, at ? 0 : query->rows - 1 - row),
        .first = first,
        .sink_end = gap ? limits->sink : 0,
        .recent = gap ? size_max(first, recent) : first,
        .committed = committed,
        .ancestors = at ? query->ancestors + at[0] : NULL,
    };
}

/* Sets bias[n], of KV entries [begin, begin + n), to 0 for the entries of positions [from, to). */
static void clear_bias(const struct query_mask *mask, float *bias, size_t begin, size_t n, size_t from,
                       size_t to)
{
    const size_t first = size_max(from, begin), in_order = mask->ancestors ? mask->committed : to;
    const size_t end = size_min(size_min(to, in_order), begin + n);
    if (first < end)
        memset(bias + (first - begin), 0, (end - first) * sizeof *bias);
    for (size_t at = size_max(from, in_order); at < to; at++) {
        const size_t entry = query_mask_entry(mask, at) - begin;
        if (entry < n)
            bias[entry] = 0;
    }
}

void query_mask_bias(const struct query_mask *mask, float *bias, size_t begin, size_t n, float masked)
{
    for (size_t i = 0; i < n; i++)
        bias[i] = masked;
    clear_bias(mask, bias, begin, n, mask->first, mask->sink_end);
    clear_bias(mask, bias, begin, n, mask->recent, mask->end);
}
