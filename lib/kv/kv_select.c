/* Index selection: reordered beams read each other's entries where these lie (segment paper 3.3).
 *
 * An index says, for every entry of an answer, where it lies: as an offset in bytes, which is the same for K and V in every layer
 * and head, since all tails of a group have one layout. Attention reads by it, a row at a time. A child gets a copy of its
 * parent's index, and no entry moves.
 *
 * Entries older than the latest common ancestor of all beams have one place for all of them: they are moved to the group's first
 * tail, each once in its life, as soon as they fill a tile. There they lie together, and attention reads them once for all beams. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/threads.h"
#include "kv/kv_chain.h"
#include "kv/kv_rows.h"

/* ---- sequences that read each other's entries ---- */

static bool same_beginning(const struct kv *kv, size_t a, size_t b)
{
    const struct kv_chain *x = kv_chain_of(kv, a), *y = kv_chain_of(kv, b);
    bool same = kv->seq[a].n == kv->seq[b].n && x->group == y->group && x->n_shared == y->n_shared &&
                y->tail && !kv->seq[b].adopted;
    for (size_t i = 0; same && i < x->n_shared; i++)
        same = x->shared[i].of == y->shared[i].of && x->shared[i].end == y->shared[i].end;
    return same;
}

static struct kv_group *make_group(struct kv *kv, const size_t *seq, size_t n)
{
    struct kv_group *group = mem_zalloc(1, sizeof *group + n * sizeof group->tail[0]);
    for (size_t i = 0; group && i < n; i++) {
        struct kv_chain *c = kv_chain_of(kv, seq[i]);
        group->tail[i] = c->tail;
        c->group = group;
    }
    if (group)
        group->users = group->n = n;
    return group;
}

/* The index of entry i of a chain without one: it lies in the chain's own tail. */
static ptrdiff_t own_index(const struct kv *kv, const struct kv_chain *c, size_t i)
{
    const uintptr_t own = (uintptr_t)c->tail->rows, first = (uintptr_t)c->group->tail[0]->rows;
    return (ptrdiff_t)(own - first + i * kv_row_bytes(kv));
}

static ptrdiff_t index_of(const struct kv *kv, const struct kv_chain *c, size_t i)
{
    return i < c->n_index ? c->index[i] : own_index(kv, c, i);
}

/* An entry has one index, which is only passed on with all those before it: where two are equal, those before are, too. */
size_t kv_chain_common(const struct kv *kv, size_t a, size_t b)
{
    const struct kv_chain *x = kv_chain_of(kv, a), *y = kv_chain_of(kv, b);
    const size_t first = kv_chain_tail_at(x), n = size_min(kv->seq[a].n, kv->seq[b].n);
    size_t end = size_min(size_max(x->group->common, first), n);
    for (size_t last = n; end < last;) {
        const size_t middle = end + (last - end) / 2;
        if (index_of(kv, x, middle - first) == index_of(kv, y, middle - first))
            end = middle + 1;
        else
            last = middle;
    }
    return end;
}

/* The position behind the last entry that is the same one for all sequences. */
static size_t common_end(const struct kv *kv, const size_t *seq, size_t n)
{
    size_t end = kv->seq[seq[0]].n;
    for (size_t i = 1; i < n; i++)
        end = size_min(end, kv_chain_common(kv, seq[0], seq[i]));
    return end;
}

struct gathering {
    struct kv *kv;
    const struct kv_chain *chain;
    size_t from, to; /* entries of the tail */
};

/* One head of K or V. */
static void gather_head(void *arg, size_t head)
{
    const struct gathering *g = arg;
    const struct kv_chain *c = g->chain;
    const size_t heads = g->kv->setup.shape.kv_heads, bytes = kv_row_bytes(g->kv);
    char *rows =
        kv_segment_row(g->kv, c->group->tail[0], head / heads, head % heads, kv_chain_tail_at(c));
    size_t copied = 0;
    for (size_t i = g->from; i < g->to; i++)
        if (index_of(g->kv, c, i) != (ptrdiff_t)(i * bytes)) {
            memcpy(rows + i * bytes, rows + index_of(g->kv, c, i), bytes);
            copied += bytes;
        }
    kv_count_copied(g->kv, copied);
}

/* Entries of whole tiles that all sequences have in common move to the group's first tail: what lies there is nobody's any
 * more. */
static void gather_common(struct kv *kv, const size_t *seq, size_t n)
{
    const struct kv_chain *c = kv_chain_of(kv, seq[0]);
    const size_t first = kv_chain_tail_at(c),
                 heads = 2 * kv->setup.shape.layers * kv->setup.shape.kv_heads;
    const size_t begin = size_max(c->group->common, first), bytes = kv_row_bytes(kv);
    const size_t end = common_end(kv, seq, n) / TILE_ROWS * TILE_ROWS;
    const double start = clock_ms();
    if (end <= begin)
        return;
    for (size_t i = begin - first; i < end - first; i++)
        kv->stats.copied_rows += index_of(kv, c, i) != (ptrdiff_t)(i * bytes);
    struct gathering g = {kv, c, begin - first, end - first};
    threads_each(heads, heads * (end - begin) * bytes, gather_head, &g);
    c->group->common = end;
    kv->stats.copy_ms += clock_ms() - start;
}

bool kv_chains_join(struct kv *kv, const size_t *seq, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!same_beginning(kv, seq[0], seq[i]))
            return false;
    struct kv_group *group = kv_chain_of(kv, seq[0])->group;
    if (!group && !(group = make_group(kv, seq, n)))
        return false;
    if (group->users != group->n || n != group->n || kv->seq[seq[0]].n < group->filled)
        return false;
    group->filled = kv->seq[seq[0]].n;
    gather_common(kv, seq, n);
    return true;
}

/* ---- the index ---- */

static int grow_index(struct kv_chain *c, size_t n, struct err *err)
{
    while (c->index_cap < n)
        if (mem_grow(&c->index, &c->index_cap, c->index_cap, sizeof *c->index, err) < 0)
            return -1;
    return 0;
}

/* From entry n_index on the chain's own: up to a whole tile, as attention reads them. */
static void add_own(const struct kv *kv, struct kv_chain *c, size_t end)
{
    for (; c->n_index < end; c->n_index++)
        c->index[c->n_index] = own_index(kv, c, c->n_index);
}

int kv_chain_index(struct kv *kv, struct kv_chain *c, size_t n, struct err *err)
{
    const size_t end = round_up(n - size_min(n, kv_chain_tail_at(c)), TILE_ROWS);
    if (!c->n_index)
        return 0;
    if (grow_index(c, end, err) < 0)
        return -1;
    add_own(kv, c, end);
    return 0;
}

void kv_chain_index_cut(struct kv_chain *c, size_t n)
{
    c->n_index = size_min(c->n_index, n - kv_chain_tail_at(c));
}

int kv_chain_follow(struct kv *kv, size_t to, size_t from, struct err *err)
{
    struct kv_chain *t = kv_chain_of(kv, to);
    const struct kv_chain *f = kv_chain_of(kv, from);
    const size_t first = kv_chain_tail_at(f), n = kv->seq[from].n - first;
    const size_t end = round_up(n, TILE_ROWS);
    if (grow_index(t, end, err) < 0)
        return -1;
    for (size_t i = size_max(f->group->common, first) - first; i < n; i++)
        t->index[i] = index_of(kv, f, i);
    t->n_index = n;
    add_own(kv, t, end);
    return 0;
}

/* ---- views ---- */

/* Positions [at, end) of a segment, whose row `base` is where the span's row table counts from, or row `at` without one. */
static struct kv_span span_of(const struct kv *kv, const struct kv_head *of, const struct kv_segment *s,
                              size_t base, size_t at, size_t end)
{
    return (struct kv_span){
        .k = kv_segment_row(kv, s, 2 * of->layer, of->head, base),
        .v = kv_segment_row(kv, s, 2 * of->layer + 1, of->head, base),
        .head_stride = kv_segment_stride(kv, s),
        .row_stride = kv_row_bytes(kv),
        .first = at,
        .rows = end - at,
        .valid = end - at,
    };
}

/* The prompt's segments, what all beams of the group have in common, and the rest of the answer. */
void kv_chain_view(const struct kv *kv, const struct kv_chain *c, const struct kv_head *of,
                   size_t valid, struct kv_view *view)
{
    struct kv_span *span = view->few;
    const size_t first = kv_chain_tail_at(c), common = c->group ? c->group->common : 0;
    size_t at = 0;
    for (size_t i = 0; i < c->n_shared && at < valid; at = c->shared[i++].end)
        *span++ = span_of(kv, of, c->shared[i].of, at, at, size_min(c->shared[i].end, valid));
    if (common > first && at < valid) {
        *span++ = span_of(kv, of, c->group->tail[0], at, at, size_min(common, valid));
        at = common;
    }
    if (at < valid && c->n_index) {
        *span = span_of(kv, of, c->group->tail[0], first, at, valid);
        span++->row = c->index + (at - first);
    } else if (at < valid) {
        *span++ = span_of(kv, of, c->tail, at, at, valid);
    }
    view->offset = 0;
    view->span = view->few;
    view->n_spans = (size_t)(span - view->few);
}
