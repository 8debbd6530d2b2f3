/* Finds the KV entries of attended positions in memory. */
#include "attn/attn_rows.h"

/* Moves *span on to the one with the entry at position `at`, and returns its row there; of positions in a gap, which no
 * query sees, the next span's first row. */
static size_t find_row(const struct kv_view *view, const struct kv_span **span, size_t at)
{
    const struct kv_span *last = view->span + view->n_spans - 1;
    while (*span < last && at >= (*span)->first + (*span)->rows)
        ++*span;
    return size_max(at, (*span)->first) - (*span)->first;
}

size_t view_tiles(const struct kv_view *view, size_t from, size_t to, struct tiles *tiles)
{
    const struct kv_span *span = view->span;
    size_t n = 0;
    for (size_t at = from; at < to; at += ATTEND_TILE, n++) {
        const size_t row = find_row(view, &span, at), contiguous = span->row ? 0 : row;
        tiles->k[n] = span_k(span) + view->offset[KV_K] + contiguous * span->row_stride[KV_K];
        tiles->v[n] = span_v(span) + view->offset[KV_V] + contiguous * span->row_stride[KV_V];
        tiles->k_rows[n] = tiles->v_rows[n] = span->row ? span->row + row : NULL;
    }
    return n;
}

static void find_entry(const struct kv_view *view, size_t at, const char **k, const char **v)
{
    const struct kv_span *span = view->span;
    const size_t row = find_row(view, &span, at);
    *k = span_k(span) + view->offset[KV_K] + kv_span_row(span, KV_K, row);
    *v = span_v(span) + view->offset[KV_V] + kv_span_row(span, KV_V, row);
}

size_t view_scattered(const struct kv_view *view, const size_t *entry, size_t n, struct tiles *tiles,
                      struct row_tables *tables)
{
    const size_t n_tiles = div_up(n, ATTEND_TILE);
    for (size_t i = 0; i < n_tiles * ATTEND_TILE; i++) {
        const char *k, *v;
        /* the last tile is padded with copies of the last entry */
        find_entry(view, entry[size_min(i, n - 1)], &k, &v);
        const size_t t = i / ATTEND_TILE;
        if (i % ATTEND_TILE == 0) {
            tiles->k[t] = k;
            tiles->v[t] = v;
            tiles->k_rows[t] = tables->k + i;
            tiles->v_rows[t] = tables->v + i;
        }
        tables->k[i] = k - tiles->k[t];
        tables->v[i] = v - tiles->v[t];
    }
    return n_tiles;
}
