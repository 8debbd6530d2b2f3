/* Finds the KV entries of attended positions in memory. */
#include "attn/attn_rows.h"

size_t view_tiles(const struct kv_view *view, size_t from, size_t to, struct tiles *tiles)
{
    const struct kv_span *span = view->span, *end = span + view->n_spans;
    size_t n = 0;
    for (size_t at = from; at < to; at += ATTEND_TILE, n++) {
        while (span + 1 < end && at >= span[1].first)
            span++;
        const size_t row = size_max(at, span->first) - span->first;
        const size_t offset = view->offset + (span->row ? 0 : row * span->row_stride);
        tiles->k[n] = span_k(span) + offset;
        tiles->v[n] = span_v(span) + offset;
        tiles->k_rows[n] = tiles->v_rows[n] = span->row ? span->row + row : NULL;
    }
    return n;
}

/* Sets *span to the view's span that has position `at` (its first span, if the position was
 * dropped); returns the byte offset of the position's entry from span->k and span->v. */
static ptrdiff_t view_row(const struct kv_view *view, size_t at, const struct kv_span **span)
{
    size_t i = 0;
    at = size_max(at, view->span[0].first);
    while (i + 1 < view->n_spans && at >= view->span[i + 1].first)
        i++;
    *span = &view->span[i];
    return (ptrdiff_t)view->offset + kv_span_row(*span, at - (*span)->first);
}

size_t view_scattered(const struct kv_view *view, const size_t *entry, size_t n, struct tiles *tiles,
                      struct row_tables *tables)
{
    const size_t n_tiles = div_up(n, ATTEND_TILE);
    for (size_t i = 0; i < n_tiles * ATTEND_TILE; i++) {
        const struct kv_span *span;
        /* the last tile is padded with copies of the last entry */
        const ptrdiff_t offset = view_row(view, entry[size_min(i, n - 1)], &span);
        const char *k = span_k(span) + offset, *v = span_v(span) + offset;
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
