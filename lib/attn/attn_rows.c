/* Where the rows of a view lie. */
#include "attn/attn_rows.h"

size_t view_tiles(const struct kv_view *view, size_t from, size_t to, const char **k, const char **v)
{
    const struct kv_span *span = view->span, *end = span + view->n_spans;
    size_t n = 0;
    for (size_t at = from; at < to; at += ATTEND_TILE, n++) {
        while (span + 1 < end && at >= span[1].first)
            span++;
        const size_t offset =
            view->offset + (size_max(at, span->first) - span->first) * span->row_stride;
        k[n] = (const char *)span->k + offset;
        v[n] = (const char *)span->v + offset;
    }
    return n;
}

size_t view_row(const struct kv_view *view, size_t at, const struct kv_span **span)
{
    size_t i = 0;
    at = size_max(at, view->span[0].first);
    while (i + 1 < view->n_spans && at >= view->span[i + 1].first)
        i++;
    *span = &view->span[i];
    return view->offset + (at - view->span[i].first) * view->span[i].row_stride;
}

bool view_same_row(const struct kv_view *a, const struct kv_view *b, size_t at)
{
    const struct kv_span *in_a, *in_b;
    const size_t offset_a = view_row(a, at, &in_a), offset_b = view_row(b, at, &in_b);
    return (const char *)in_a->k + offset_a == (const char *)in_b->k + offset_b &&
           (const char *)in_a->v + offset_a == (const char *)in_b->v + offset_b;
}
