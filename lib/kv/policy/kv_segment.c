/* segment: sequences that continue one prompt share its KV rows; each sequence's continuation is in
 * its own tail, which grows by r rows (segment paper 3.2, where r is called `step`).
 *
 * Forking a prompt turns its whole tiles into a read-only segment that both sequences share; each
 * continues in its own tail. Forking a continuation copies the tail; beams that are reordered read
 * each other's entries through an index (kv_beam_index.c).
 *
 * reserve: the same storage without sharing. Address space for N rows per sequence is committed r
 * rows at a time, so no row is ever copied to grow. */
#include "kv/kv_rows.h"
#include "kv/policy/kv_chain.h"

static int ensure(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    struct kv_seq *s = &kv->seq[seq];
    struct kv_chain *c = kv_chain_of(kv, seq);
    const size_t tail_at = size_min(s->n / TILE_ROWS * TILE_ROWS, kv_chain_tail_at(c));
    const bool read_by_others = s->n < kv_chain_tail_at(c) || (c->group && s->n < c->group->filled);
    if (read_by_others && !s->attached && kv_chain_make_private(kv, seq, tail_at, err) < 0)
        return -1;
    c->prompt = c->prompt || rows > kv->setup.r;
    if (kv_chain_index_extend(kv, c, s->n + rows, err) < 0)
        return -1;
    if (s->n + rows > s->cap)
        return kv_chain_grow(kv, seq, s->n + rows, err);
    kv_chain_advance(kv, seq, rows);
    return 0;
}

static void accept(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra)
{
    struct kv_chain *c = kv_chain_of(kv, seq);
    const size_t n = rows + n_extra;
    kv_rows_compact(kv, seq, rows, extra, n_extra);
    if (n >= kv_chain_tail_at(c) && n) {
        kv_chain_index_truncate(c, n);
        return;
    }
    kv_chain_drop_tail(kv, c);
    kv->seq[seq].cap = n; /* later rows of a shared segment may be in use by other sequences */
    if (!n)
        kv_chain_truncate(kv, seq, 0, NULL);
}

/* A chain of the shared segments of `c` only, cut at position `end`, a multiple of TILE_ROWS. */
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
    if ((kv->seq[from].attached && kv_chain_make_private(kv, from, 0, err) < 0) ||
        kv_chain_share(kv, from, whole, err) < 0)
        return -1;
    const struct kv_chain *c = kv_chain_of(kv, from);
    struct kv_chain part = shared_part(c, whole);
    const size_t first = kv_chain_tail_at(&part);
    if (rows > first && !(part.tail = kv_chain_copy(kv, c, first, rows, err)))
        return -1;
    for (size_t i = 0; i < part.n_shared; i++)
        part.shared[i].segment->refs++;
    *kv_chain_of(kv, to) = part;
    kv->seq[to].cap = part.tail ? kv_segment_cap(kv, rows) : rows;
    kv->stats.allocations += part.tail != NULL;
    return 0;
}

/* ---- reserve ---- */

/* Implements kv_policy.accept: compacts rows in place; memory is freed only if no row is kept. */
static void accept_private(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra)
{
    kv_rows_compact(kv, seq, rows, extra, n_extra);
    if (rows + n_extra == 0)
        kv_chain_truncate(kv, seq, 0, NULL);
}

static int fork_private(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    struct kv_chain *c = kv_chain_of(kv, to);
    c->tail = kv_chain_copy(kv, kv_chain_of(kv, from), 0, rows, err);
    if (!c->tail)
        return -1;
    kv->seq[to].cap = kv_segment_cap(kv, rows);
    kv->stats.allocations++;
    return 0;
}

#define GROWS_IN_PLACE                                                                                 \
    .attend = KV_ATTEND_VALID, .open = kv_chain_open, .ensure = ensure, .row_at = kv_chain_row_at,     \
    .append = kv_rows_append, .view = kv_chain_view, .attach = kv_chain_attach

const struct kv_policy kv_policy_segment = {
    .name = "segment",
    .growth = &kv_grow_in_segments,
    .shares_prefix = true,
    GROWS_IN_PLACE,
    .accept = accept,
    .fork = fork_rows,
    .alias = kv_chain_alias,
};

const struct kv_policy kv_policy_reserve = {
    .name = "reserve",
    .growth = &kv_grow_in_steps,
    GROWS_IN_PLACE,
    .accept = accept_private,
    .fork = fork_private,
};
