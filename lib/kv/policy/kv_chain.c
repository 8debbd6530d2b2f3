/* Chains of segments: storage of policies `segment` and `reserve`. */
#include "kv/policy/kv_chain.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/kv_rows.h"
#include "kv/policy/kv_prepare.h"

static size_t segment_bytes(const struct kv *kv, const struct kv_segment *s)
{
    return kv_token_bytes(kv) * s->stored;
}

struct device_addr kv_segment_row(const struct kv *kv, const struct kv_segment *s, size_t head,
                                  size_t position)
{
    const struct kv_head *h = &kv->head[head];
    const size_t at = (position - s->first) * h->bytes;
    if (!s->attached)
        return addr_add(s->rows, h->before * s->stored + at);
    const struct kv_layer_rows *layer = &s->attached[h->layer];
    const size_t index = head - kv->first_head[h->layer],
                 heads = kv_layer_sizes(kv, h->layer)->kv_heads;
    return addr_add(index >= heads ? layer->v : layer->k, index % heads * s->stored * h->bytes + at);
}

static struct device_addr chain_row(const struct kv *kv, const struct kv_chain *c, size_t head,
                                    size_t row)
{
    for (size_t i = 0; i < c->n_shared; i++)
        if (row < c->shared[i].end)
            return kv_segment_row(kv, c->shared[i].segment, head, row);
    const size_t first = kv_chain_tail_at(c);
    if (c->group && row < c->group->common)
        return kv_segment_row(kv, c->group->tail[0], head, row);
    return row - first < c->n_index ? addr_add(kv_segment_row(kv, c->group->tail[0], head, first),
                                               (size_t)c->index[row - first])
                                    : kv_segment_row(kv, c->tail, head, row);
}

/* Bytes of a row in heads [head, end). */
static size_t heads_bytes(const struct kv *kv, size_t head, size_t end)
{
    return kv->head[end].before - kv->head[head].before;
}

/* Bytes of memory behind `committed`. */
static size_t bytes_ahead(const struct kv *kv, const struct kv_segment *s)
{
    return s->ahead_heads ? heads_bytes(kv, 0, s->ahead_heads) * (s->ahead - s->committed) : 0;
}

/* Drops a reference; the last one frees the segment. NULL is accepted. */
static void segment_unref(struct kv *kv, struct kv_segment *s)
{
    if (!s || --s->refs)
        return;
    kv_count_memory(kv, 0, kv_token_bytes(kv) * (s->committed - s->first) + bytes_ahead(kv, s));
    if (!addr_is_null(s->rows))
        kv->memory->release(s->rows, segment_bytes(kv, s));
    free(s->attached);
    free(s);
}

/* Commits rows from `committed` to `end` of heads [head, end_head), and counts them. */
static bool commit_heads(struct kv *kv, const struct kv_segment *s, size_t head, size_t end_head,
                         size_t end)
{
    const double start = clock_ms();
    const bool ok = kv_commit_memory(kv, s->rows, s->stored, head, end_head, s->committed - s->first,
                                     end - s->first);
    kv_count_memory(kv, ok ? heads_bytes(kv, head, end_head) * (end - s->committed) : 0, 0);
    kv->stats.alloc_ms += clock_ms() - start;
    return ok;
}

/* Completes growth in advance, if some was done, to rows before `ahead` in all heads. */
static bool complete_ahead(struct kv *kv, struct kv_segment *s)
{
    if (!s->ahead_heads)
        return true;
    if (!commit_heads(kv, s, s->ahead_heads, kv->n_heads, s->ahead))
        return false;
    s->committed = s->ahead;
    s->ahead_heads = 0;
    return true;
}

static int segment_commit(struct kv *kv, struct kv_segment *s, size_t cap, struct err *err)
{
    const size_t end = round_up(cap, TILE_ROWS), rows = end > s->committed ? end - s->committed : 0;
    if (addr_is_null(s->rows) || !complete_ahead(kv, s) ||
        (end > s->committed && !commit_heads(kv, s, 0, kv->n_heads, end)))
        return err_no_memory(err, "%zu rows of KV cache, %zu bytes; use a smaller -c or -np", rows,
                             rows * kv_token_bytes(kv));
    s->committed = size_max(end, s->committed);
    return 0;
}

void kv_chain_advance(struct kv *kv, size_t seq, size_t rows)
{
    struct kv_segment *s = kv_chain_of(kv, seq)->tail;
    const size_t end = round_up(kv_prepare_due(kv, seq, rows), TILE_ROWS);
    if (!s || end <= s->committed || (s->ahead_heads && s->ahead != end))
        return;
    const size_t heads = kv_prepare_share(kv, seq, rows, kv->n_heads, s->ahead_heads);
    if (!heads || !commit_heads(kv, s, s->ahead_heads, s->ahead_heads + heads, end))
        return;
    s->ahead = end;
    s->ahead_heads += heads;
}

/* Opens a segment for positions from `first` on, with memory for those before `cap`, or NULL. */
static struct kv_segment *segment_open(struct kv *kv, size_t first, size_t cap, struct err *err)
{
    struct kv_segment *s = mem_alloc(1, sizeof *s);
    if (!s) {
        err_no_memory(err, "the cache's tables");
        return NULL;
    }
    *s = (struct kv_segment){.first = first, .committed = first, .refs = 1};
    s->stored = round_up(kv->setup.shape.max_rows, TILE_ROWS) - first;
    s->rows = kv->memory->reserve(kv->spec.alloc, segment_bytes(kv, s));
    if (segment_commit(kv, s, cap, err) == 0)
        return s;
    segment_unref(kv, s);
    return NULL;
}

/* Releases the memory of a segment's rows from position `end` on. */
static void shrink(struct kv *kv, struct kv_segment *s, size_t end)
{
    const size_t rows = s->committed > end ? s->committed - end : 0;
    for (size_t h = 0; rows && h < kv->n_heads; h++)
        kv->memory->drop(kv_segment_row(kv, s, h, end), rows * kv->head[h].bytes);
    kv_count_memory(kv, 0, rows * kv_token_bytes(kv));
    s->committed -= rows;
}

int kv_chain_open(struct kv *kv, struct err *err)
{
    size_t bytes;
    if (!size_mul(kv_token_bytes(kv), round_up(kv->setup.shape.max_rows, TILE_ROWS), &bytes))
        return err_set(err, "a reservation of %zu rows is larger than the address space",
                       kv->setup.shape.max_rows);
    kv->store = mem_zalloc(kv->setup.n_seqs, sizeof(struct kv_chain));
    return kv->store ? 0 : err_no_memory(err, "the cache's tables");
}

struct device_addr kv_chain_row_at(const struct kv *kv, size_t seq, size_t head, size_t row)
{
    return chain_row(kv, kv_chain_of(kv, seq), head, row);
}

int kv_chain_attach(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, size_t rows,
                    size_t stored, struct err *err)
{
    (void)rows;
    struct kv_chain *c = kv_chain_of(kv, seq);
    struct kv_segment *s = mem_alloc(1, sizeof *s);
    struct kv_layer_rows *attached = mem_alloc(kv->setup.shape.layers, sizeof *attached);
    if (!s || !attached) {
        free(s);
        free(attached);
        return err_no_memory(err, "the cache's tables");
    }
    memcpy(attached, layer, kv->setup.shape.layers * sizeof *layer);
    *s = (struct kv_segment){.attached = attached, .stored = stored, .refs = 1};
    c->shared[0].segment = s;
    c->shared[0].end = stored;
    c->n_shared = 1;
    return 0;
}

/* Makes a span of a segment's rows at positions [at, end); its `k` and `v` point to the row at
 * position `base`, from which row offsets count. */
static struct kv_span span_of(const struct kv *kv, const struct kv_view *view,
                              const struct kv_segment *s, size_t base, size_t at, size_t end)
{
    return (struct kv_span){
        .k = kv_segment_row(kv, s, kv_k_head(kv, view->layer, view->head), base),
        .v = kv_segment_row(kv, s, kv_v_head(kv, view->layer, view->head), base),
        .head_stride = s->stored * kv_row_bytes(kv, view->layer),
        .row_stride = kv_row_bytes(kv, view->layer),
        .first = at,
        .rows = end - at,
        .valid = end - at,
    };
}

/* Fills a view with a span per shared segment, one of the entries common to the beam group, and one
 * of the sequence's other entries. */
int kv_chain_view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                  struct kv_view *view, struct err *err)
{
    const struct kv_chain *c = kv_chain_of(kv, seq);
    const size_t first = kv_chain_tail_at(c), common = c->group ? c->group->common : 0;
    struct kv_span *span = view->inline_span;
    size_t at = 0;
    (void)heads;
    (void)err;
    view->layer = layer;
    view->head = head;
    for (size_t i = 0; i < c->n_shared && at < valid; at = c->shared[i++].end)
        *span++ = span_of(kv, view, c->shared[i].segment, at, at, size_min(c->shared[i].end, valid));
    if (common > first && at < valid) {
        *span++ = span_of(kv, view, c->group->tail[0], at, at, size_min(common, valid));
        at = common;
    }
    if (at < valid && c->n_index) {
        *span = span_of(kv, view, c->group->tail[0], first, at, valid);
        span++->row = c->index + (at - first);
    } else if (at < valid) {
        *span++ = span_of(kv, view, c->tail, at, at, valid);
    }
    view->offset = 0;
    view->span = view->inline_span;
    view->n_spans = (size_t)(span - view->inline_span);
    return 0;
}

int kv_chain_grow(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    struct kv_chain *c = kv_chain_of(kv, seq);
    const size_t cap = kv_segment_cap(kv, rows);
    if (!c->tail && !(c->tail = segment_open(kv, kv_chain_tail_at(c), cap, err)))
        return -1;
    if (segment_commit(kv, c->tail, cap, err) < 0)
        return -1;
    kv->stats.allocations++;
    kv->seq[seq].cap = cap;
    return 0;
}

struct kv_segment *kv_chain_copy(struct kv *kv, const struct kv_chain *c, size_t first, size_t end,
                                 struct err *err)
{
    struct kv_segment *to = segment_open(kv, first, kv_segment_cap(kv, end), err);
    const double start = clock_ms();
    const size_t bytes = kv->head[0].bytes;
    struct kv_copies copies;
    kv_copies_begin(&copies, kv);
    for (size_t at = first, next; to && at < end; at = next) {
        const struct device_addr from = chain_row(kv, c, 0, at);
        for (next = at + 1;
             next < end && addr_equal(chain_row(kv, c, 0, next), addr_add(from, (next - at) * bytes));)
            next++;
        for (size_t h = 0; h < kv->n_heads; h++)
            kv_copies_add(&copies, kv_segment_row(kv, to, h, at), chain_row(kv, c, h, at),
                          (next - at) * kv->head[h].bytes, 0);
    }
    kv_copies_end(&copies);
    kv->stats.copy_ms += clock_ms() - start;
    kv->stats.copied_rows += to ? end - first : 0;
    return to;
}

void kv_chain_drop_tail(struct kv *kv, struct kv_chain *c)
{
    struct kv_beam_group *group = c->group;
    if (!group)
        segment_unref(kv, c->tail);
    else if (--group->refs == 0) {
        for (size_t i = 0; i < group->n; i++)
            segment_unref(kv, group->tail[i]);
        free(group);
    }
    free(c->index);
    c->index = NULL;
    c->n_index = c->index_cap = 0;
    c->group = NULL;
    c->tail = NULL;
}

void kv_chain_truncate(struct kv *kv, size_t seq, size_t end, struct kv_segment *tail)
{
    struct kv_chain *c = kv_chain_of(kv, seq);
    kv_chain_drop_tail(kv, c);
    while (c->n_shared && (c->n_shared > 1 ? c->shared[c->n_shared - 2].end : 0) >= end)
        segment_unref(kv, c->shared[--c->n_shared].segment);
    if (c->n_shared)
        c->shared[c->n_shared - 1].end = end;
    c->tail = tail;
    c->prompt = false;
    kv->seq[seq].cap = tail ? kv_segment_cap(kv, kv->seq[seq].n) : end;
}

int kv_chain_make_private(struct kv *kv, size_t seq, size_t end, struct err *err)
{
    const size_t n = kv->seq[seq].n;
    struct kv_segment *tail = n > end ? kv_chain_copy(kv, kv_chain_of(kv, seq), end, n, err) : NULL;
    if (n > end && !tail)
        return -1;
    kv_chain_truncate(kv, seq, end, tail);
    kv->seq[seq].attached = false;
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
    c->shared[c->n_shared].segment = c->tail;
    c->shared[c->n_shared++].end = end;
    shrink(kv, c->tail, end); /* later rows were copied to `tail` */
    c->tail = NULL;
    kv_chain_truncate(kv, seq, end, tail);
    return 0;
}
