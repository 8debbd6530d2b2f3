/* Index selection: beams that change places copy nothing. A table says in whose buffer each row of an answer lies (segment paper
 * 3.3), and views follow it: whole tiles where they lie, a tile whose rows are in several places put together. */
#include <stdlib.h>

#include "base/mem.h"
#include "kv/kv_chain.h"
#include "kv/kv_rows.h"

/* ---- sequences that read each other's rows ---- */

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

bool kv_chains_join(struct kv *kv, const size_t *seq, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!same_beginning(kv, seq[0], seq[i]))
            return false;
    struct kv_group *group = kv_chain_of(kv, seq[0])->group;
    if (!group && !(group = make_group(kv, seq, n)))
        return false;
    if (group->users != n || kv->seq[seq[0]].n < group->filled)
        return false;
    group->filled = kv->seq[seq[0]].n;
    return true;
}

int kv_chain_follow(struct kv *kv, size_t to, size_t from, struct err *err)
{
    struct kv_chain *t = kv_chain_of(kv, to);
    const struct kv_chain *f = kv_chain_of(kv, from);
    const size_t first = kv_chain_tail_at(f), n = kv->seq[from].n - first;
    while (t->places_cap < n)
        if (mem_grow(&t->place, &t->places_cap, t->places_cap, sizeof *t->place, err) < 0)
            return -1;
    for (size_t i = 0; i < n; i++)
        t->place[i] = kv_chain_segment(f, first + i);
    t->n_places = n;
    return 0;
}

/* ---- views ---- */

static struct kv_span span_of(const struct kv *kv, const struct kv_segment *s, size_t layer,
                              size_t head, size_t first, size_t end)
{
    return (struct kv_span){
        .k = kv_segment_row(kv, s, 2 * layer, head, first),
        .v = kv_segment_row(kv, s, 2 * layer + 1, head, first),
        .head_stride = kv_segment_stride(kv, s),
        .row_stride = kv_row_bytes(kv),
        .first = first,
        .rows = end - first,
        .valid = end - first,
    };
}

/* The segment that all of these rows lie in, at most a tile; NULL: several. */
static const struct kv_segment *only_segment(const struct kv_chain *c, size_t first, size_t end)
{
    const struct kv_segment *only = kv_chain_segment(c, first);
    for (size_t row = first + 1; row < end; row++)
        if (kv_chain_segment(c, row) != only)
            return NULL;
    return only;
}

/* A tile of K and V of these heads at `to`, row by row: [K or V][head][TILE_ROWS][d]. */
static struct kv_span gather(const struct kv *kv, const struct kv_view *view, size_t first, size_t end,
                             char *to)
{
    const struct kv_chain *c = kv_chain_of(kv, view->seq);
    const size_t bytes = kv_row_bytes(kv), tile = TILE_ROWS * bytes;
    memset(to, 0, 2 * view->heads * tile);
    for (size_t i = 0; i < 2 * view->heads; i++)
        for (size_t row = first; row < end; row++)
            memcpy(to + i * tile + (row - first) * bytes,
                   kv_segment_row(kv, kv_chain_segment(c, row), 2 * view->layer + i / view->heads,
                                  view->head + i % view->heads, row),
                   bytes);
    return (struct kv_span){
        .k = to,
        .v = to + view->heads * tile,
        .head_stride = tile,
        .row_stride = bytes,
        .first = first,
        .rows = end - first,
        .valid = end - first,
    };
}

/* Spans of an answer's rows from `first` on, of which each tile is a step. `rows` is room for those that are put together. */
static void add_tiles(const struct kv *kv, struct kv_view *view, struct kv_span *span, size_t first,
                      size_t valid, char *rows)
{
    const struct kv_chain *c = kv_chain_of(kv, view->seq);
    const struct kv_segment *before = NULL;
    for (size_t end; first < valid; first = end) {
        end = size_min(first + TILE_ROWS, valid);
        const struct kv_segment *only = only_segment(c, first, end);
        if (only && only == before) {
            span[view->n_spans - 1].rows += end - first;
            span[view->n_spans - 1].valid += end - first;
        } else if (only) {
            span[view->n_spans++] = span_of(kv, only, view->layer, view->head, first, end);
        } else {
            span[view->n_spans++] = gather(kv, view, first, end, rows);
            rows += 2 * view->heads * TILE_ROWS * kv_row_bytes(kv);
        }
        before = only;
    }
}

/* Memory for the spans of a view, and behind them for `rows` bytes; NULL when it is short. */
static struct kv_span *make_spans(size_t spans, size_t bytes, char **rows)
{
    enum { LINE = 64 };
    const size_t table = round_up(spans * sizeof(struct kv_span), LINE);
    char *memory = mem_alloc(1, table + bytes);
    *rows = memory ? memory + table : NULL;
    return (struct kv_span *)(void *)memory;
}

int kv_chain_view(const struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads,
                  size_t valid, struct kv_view *view, struct err *err)
{
    const struct kv_chain *c = kv_chain_of(kv, seq);
    const size_t first = kv_chain_tail_at(c), tiles = div_up(valid - size_min(valid, first), TILE_ROWS);
    struct kv_span *span = view->few;
    char *rows = NULL;
    size_t mixed = 0;
    for (size_t t = 0; c->n_places && t < tiles; t++)
        mixed += !only_segment(c, first + t * TILE_ROWS, size_min(first + (t + 1) * TILE_ROWS, valid));
    if (c->n_places && tiles &&
        !(span =
              make_spans(c->n_shared + tiles, mixed * 2 * heads * TILE_ROWS * kv_row_bytes(kv), &rows)))
        return err_set(err, "out of memory for a view of %zu rows", valid);
    view->offset = view->n_spans = 0;
    view->span = span;
    for (size_t i = 0, at = 0; i < c->n_shared && at < valid; at = c->shared[i++].end)
        span[view->n_spans++] =
            span_of(kv, c->shared[i].of, layer, head, at, size_min(c->shared[i].end, valid));
    if (c->n_places)
        add_tiles(kv, view, span, first, valid, rows);
    else if (valid > first)
        span[view->n_spans++] = span_of(kv, c->tail, layer, head, first, valid);
    return 0;
}

void kv_chain_view_end(struct kv_view *view)
{
    if (view->span != view->few)
        free((void *)(uintptr_t)view->span);
}
