/* segment: rows of a prompt lie once, whoever goes on from it; rows of an answer lie in a buffer of its own that grows by r
 * rows (segment paper 3.2; r is its `step`).
 *
 * When a sequence is forked, what it has becomes a segment that nobody writes to any more, up to a whole tile, and both go on
 * behind it. Of an answer that goes on from a prompt a fork gets a copy; beams that are reordered read each other's entries by an
 * index (kv_select.c). */
#include <stdlib.h>

#include "base/mem.h"
#include "kv/kv_chain.h"
#include "kv/kv_rows.h"

static char *row_at(const struct kv *kv, size_t seq, size_t matrix, size_t head, size_t row)
{
    return kv_chain_row(kv, kv_chain_of(kv, seq), matrix, head, row);
}

static int open_segments(struct kv *kv, struct err *err)
{
    const size_t heads = 2 * kv->setup.shape.layers * kv->setup.shape.kv_heads;
    size_t bytes;
    if (!size_mul(heads, round_up(kv->setup.shape.max_rows, TILE_ROWS) * kv_row_bytes(kv), &bytes))
        return err_set(err, "a reservation of %zu rows is larger than the address space",
                       kv->setup.shape.max_rows);
    kv->store = mem_zalloc(kv->setup.n_seqs, sizeof(struct kv_chain));
    return kv->store ? 0 : err_set(err, "out of memory for the cache's tables");
}

static void close_segments(struct kv *kv) { free(kv->store); }

static int room(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    struct kv_seq *s = &kv->seq[seq];
    struct kv_chain *c = kv_chain_of(kv, seq);
    const size_t cap = kv_segment_cap(kv, s->n + rows);
    const size_t tail_at = size_min(s->n / TILE_ROWS * TILE_ROWS, kv_chain_tail_at(c));
    const bool read_by_others = s->n < kv_chain_tail_at(c) || (c->group && s->n < c->group->filled);
    if (read_by_others && !s->adopted && kv_chain_own(kv, seq, tail_at, err) < 0)
        return -1;
    c->prompt = c->prompt || rows > kv->setup.r;
    if (kv_chain_index(kv, c, s->n + rows, err) < 0)
        return -1;
    if (s->n + rows <= s->cap)
        return 0;
    if (!c->tail && !(c->tail = kv_segment_begin(kv, kv_chain_tail_at(c), cap, err)))
        return -1;
    if (kv_segment_make(kv, c->tail, cap, err) < 0)
        return -1;
    kv->stats.allocations++;
    s->cap = cap;
    return 0;
}

static int view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                struct kv_view *out, struct err *err)
{
    (void)heads;
    (void)err;
    kv_chain_view(kv, kv_chain_of(kv, seq), &(struct kv_head){layer, head}, valid, out);
    return 0;
}

static void keep(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra)
{
    struct kv_chain *c = kv_chain_of(kv, seq);
    const size_t n = rows + n_extra;
    kv_rows_close_up(kv, seq, rows, extra, n_extra);
    if (n >= kv_chain_tail_at(c) && n) {
        kv_chain_index_cut(c, n);
        return;
    }
    kv_chain_drop_tail(kv, c);
    kv->seq[seq].cap = n; /* what is left of a segment may be others', too */
    if (!n)
        kv_chain_cut(kv, seq, 0, NULL);
}

/* The whole tiles before `end` that a chain shares, as another's. */
static struct kv_chain shared_part(const struct kv_chain *c, size_t end)
{
    struct kv_chain part = {0};
    for (size_t i = 0; i < c->n_shared && kv_chain_tail_at(&part) < end; i++) {
        part.shared[part.n_shared] = c->shared[i];
        part.shared[part.n_shared++].end = size_min(end, c->shared[i].end);
    }
    return part;
}

static int fork_rows(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    const size_t whole = rows / TILE_ROWS * TILE_ROWS;
    if ((kv->seq[from].adopted && kv_chain_own(kv, from, 0, err) < 0) ||
        kv_chain_share(kv, from, whole, err) < 0)
        return -1;
    const struct kv_chain *c = kv_chain_of(kv, from);
    struct kv_chain part = shared_part(c, whole);
    const size_t first = kv_chain_tail_at(&part);
    if (rows > first && !(part.tail = kv_chain_copy(kv, c, first, rows, err)))
        return -1;
    for (size_t i = 0; i < part.n_shared; i++)
        part.shared[i].of->users++;
    *kv_chain_of(kv, to) = part;
    kv->seq[to].cap = part.tail ? kv_segment_cap(kv, rows) : rows;
    kv->stats.allocations += part.tail != NULL;
    return 0;
}

static size_t shared(const struct kv *kv, size_t a, size_t b)
{
    const struct kv_chain *x = kv_chain_of(kv, a), *y = kv_chain_of(kv, b);
    size_t rows = 0;
    if (x->group && x->group == y->group)
        return kv_chain_common(kv, a, b);
    for (size_t i = 0; i < size_min(x->n_shared, y->n_shared) && x->shared[i].of == y->shared[i].of;
         i++) {
        rows = size_min(x->shared[i].end, y->shared[i].end);
        if (x->shared[i].end != y->shared[i].end)
            break;
    }
    return size_min(rows, size_min(kv->seq[a].n, kv->seq[b].n));
}

static int adopt(struct kv *kv, size_t seq, const struct kv_rows_in *layer, size_t rows, size_t stored,
                 struct err *err)
{
    (void)rows;
    struct kv_chain *c = kv_chain_of(kv, seq);
    struct kv_segment *s = mem_alloc(1, sizeof *s);
    struct kv_rows_in *adopted = mem_alloc(kv->setup.shape.layers, sizeof *adopted);
    if (!s || !adopted) {
        free(s);
        free(adopted);
        return err_set(err, "out of memory for the cache's tables");
    }
    memcpy(adopted, layer, kv->setup.shape.layers * sizeof *layer);
    *s = (struct kv_segment){.adopted = adopted, .stored = stored, .users = 1};
    c->shared[0].of = s;
    c->shared[0].end = stored;
    c->n_shared = 1;
    return 0;
}

static const struct kv_reading reading = {
    .shared = shared, .join = kv_chains_join, .follow = kv_chain_follow};

const struct kv_policy kv_policy_segment = {
    .name = "segment",
    .summary = "prompts once for all that go on from them, answers r rows ahead (segment:step=16)",
    .growth = &kv_grow_in_segments,
    .rows = KV_ROWS_VALID,
    .reading = &reading,
    .open = open_segments,
    .room = room,
    .row_at = row_at,
    .append = kv_rows_append,
    .view = view,
    .keep = keep,
    .fork = fork_rows,
    .adopt = adopt,
    .close = close_segments,
};
