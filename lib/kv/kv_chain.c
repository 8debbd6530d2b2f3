/* Segments of rows that sequences share. */
#include "kv/kv_chain.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/kv_rows.h"

static size_t n_heads(const struct kv *kv)
{
    return 2 * kv->setup.shape.layers * kv->setup.shape.kv_heads;
}

size_t kv_segment_stride(const struct kv *kv, const struct kv_segment *s)
{
    return s->stored * kv_row_bytes(kv);
}

char *kv_segment_row(const struct kv *kv, const struct kv_segment *s, size_t matrix, size_t head,
                     size_t row)
{
    const struct kv_rows_in *layer = s->adopted ? &s->adopted[matrix / 2] : NULL;
    char *heads = !layer       ? s->rows + matrix * kv->setup.shape.kv_heads * kv_segment_stride(kv, s)
                  : matrix % 2 ? layer->v
                               : layer->k;
    return heads + head * kv_segment_stride(kv, s) + (row - s->first) * kv_row_bytes(kv);
}

char *kv_chain_row(const struct kv *kv, const struct kv_chain *c, size_t matrix, size_t head,
                   size_t row)
{
    for (size_t i = 0; i < c->n_shared; i++)
        if (row < c->shared[i].end)
            return kv_segment_row(kv, c->shared[i].of, matrix, head, row);
    const size_t first = kv_chain_tail_at(c);
    if (c->group && row < c->group->common)
        return kv_segment_row(kv, c->group->tail[0], matrix, head, row);
    return row - first < c->n_index
               ? kv_segment_row(kv, c->group->tail[0], matrix, head, first) + c->index[row - first]
               : kv_segment_row(kv, c->tail, matrix, head, row);
}

/* ---- segments ---- */

void kv_segment_leave(struct kv *kv, struct kv_segment *s)
{
    if (!s || --s->users)
        return;
    kv_count_bytes(kv, 0, n_heads(kv) * (s->made - s->first) * kv_row_bytes(kv));
    pages_release(s->rows, n_heads(kv) * kv_segment_stride(kv, s));
    free(s->adopted);
    free(s);
}

int kv_segment_make(struct kv *kv, struct kv_segment *s, size_t cap, struct err *err)
{
    const size_t end = size_max(round_up(cap, TILE_ROWS), s->made), rows = end - s->made;
    const size_t bytes = n_heads(kv) * rows * kv_row_bytes(kv);
    const double start = clock_ms();
    if (!s->rows || !kv_commit_rows(kv, s->rows + (s->made - s->first) * kv_row_bytes(kv),
                                    kv_segment_stride(kv, s), rows))
        return err_set(err,
                       "out of memory: %zu rows of KV cache need %zu bytes; use a smaller -c or -b",
                       rows, bytes);
    kv_count_bytes(kv, bytes, 0);
    s->made = end;
    kv->stats.alloc_ms += clock_ms() - start;
    return 0;
}

struct kv_segment *kv_segment_begin(struct kv *kv, size_t first, size_t cap, struct err *err)
{
    struct kv_segment *s = mem_alloc(1, sizeof *s);
    if (!s) {
        err_set(err, "out of memory for the cache's tables");
        return NULL;
    }
    *s = (struct kv_segment){.first = first, .made = first, .users = 1};
    s->stored = round_up(kv->setup.shape.max_rows, TILE_ROWS) - first;
    s->rows = pages_reserve(kv->alloc, n_heads(kv) * kv_segment_stride(kv, s));
    if (kv_segment_make(kv, s, cap, err) == 0)
        return s;
    kv_segment_leave(kv, s);
    return NULL;
}

struct kv_segment *kv_chain_copy(struct kv *kv, const struct kv_chain *c, size_t first, size_t end,
                                 struct err *err)
{
    struct kv_segment *to = kv_segment_begin(kv, first, kv_segment_cap(kv, end), err);
    const double start = clock_ms();
    const size_t bytes = kv_row_bytes(kv);
    for (size_t at = first, next; to && at < end; at = next) {
        const char *from = kv_chain_row(kv, c, 0, 0, at);
        for (next = at + 1;
             next < end && kv_chain_row(kv, c, 0, 0, next) == from + (next - at) * bytes;)
            next++;
        for (size_t i = 0; i < n_heads(kv); i++) {
            const size_t matrix = i / kv->setup.shape.kv_heads, head = i % kv->setup.shape.kv_heads;
            kv_copy(kv, kv_segment_row(kv, to, matrix, head, at), kv_chain_row(kv, c, matrix, head, at),
                    (next - at) * bytes);
        }
    }
    kv->stats.copy_ms += clock_ms() - start;
    kv->stats.copied_rows += to ? end - first : 0;
    return to;
}

/* Nobody has rows from `end` on any more. */
static void shrink(struct kv *kv, struct kv_segment *s, size_t end)
{
    const size_t rows = s->made > end ? s->made - end : 0, at = (end - s->first) * kv_row_bytes(kv);
    for (size_t h = 0; rows && h < n_heads(kv); h++)
        pages_drop(s->rows + h * kv_segment_stride(kv, s) + at, rows * kv_row_bytes(kv));
    kv_count_bytes(kv, 0, n_heads(kv) * rows * kv_row_bytes(kv));
    s->made -= rows;
}

/* ---- chains ---- */

void kv_chain_drop_tail(struct kv *kv, struct kv_chain *c)
{
    struct kv_group *group = c->group;
    if (!group)
        kv_segment_leave(kv, c->tail);
    else if (--group->users == 0) {
        for (size_t i = 0; i < group->n; i++)
            kv_segment_leave(kv, group->tail[i]);
        free(group);
    }
    free(c->index);
    c->index = NULL;
    c->n_index = c->index_cap = 0;
    c->group = NULL;
    c->tail = NULL;
}

void kv_chain_cut(struct kv *kv, size_t seq, size_t end, struct kv_segment *tail)
{
    struct kv_chain *c = kv_chain_of(kv, seq);
    kv_chain_drop_tail(kv, c);
    while (c->n_shared && (c->n_shared > 1 ? c->shared[c->n_shared - 2].end : 0) >= end)
        kv_segment_leave(kv, c->shared[--c->n_shared].of);
    if (c->n_shared)
        c->shared[c->n_shared - 1].end = end;
    c->tail = tail;
    c->prompt = false;
    kv->seq[seq].cap = tail ? kv_segment_cap(kv, kv->seq[seq].n) : end;
}

int kv_chain_own(struct kv *kv, size_t seq, size_t end, struct err *err)
{
    const size_t n = kv->seq[seq].n;
    struct kv_segment *tail = n > end ? kv_chain_copy(kv, kv_chain_of(kv, seq), end, n, err) : NULL;
    if (n > end && !tail)
        return -1;
    kv_chain_cut(kv, seq, end, tail);
    kv->seq[seq].adopted = false;
    return 0;
}

int kv_chain_share(struct kv *kv, size_t seq, size_t end, struct err *err)
{
    struct kv_chain *c = kv_chain_of(kv, seq);
    const size_t n = kv->seq[seq].n;
    if (c->group || c->n_shared == KV_CHAIN_SHARED || end <= kv_chain_tail_at(c) ||
        (c->n_shared && !c->prompt))
        return 0;
    struct kv_segment *tail = n > end ? kv_chain_copy(kv, c, end, n, err) : NULL;
    if (n > end && !tail)
        return -1;
    c->shared[c->n_shared].of = c->tail;
    c->shared[c->n_shared++].end = end;
    shrink(kv, c->tail, end); /* what was behind it is copied */
    c->tail = NULL;
    kv_chain_cut(kv, seq, end, tail);
    return 0;
}
