/* reserve: N rows of address space per sequence in one mapping, made present r rows ahead; no copy
 * ever.
 *
 * [layer][K or V][KV head][N rounded up][d]. The mapping is readable and writable from the start: its
 * access never changes, so the kernel keeps it as one area. Fresh pages are zero, so padding is finite.
 * Where rows were adopted they are a first span, and the mapping begins with the row behind them. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/kv_rows.h"

/* The storage of a sequence. */
struct reserved {
    char *rows;                 /* of positions `first` and on; NULL before the first growth */
    struct kv_rows_in *adopted; /* [layers] of positions before `first`, or NULL */
    size_t first;
};

static struct reserved *reserved_of(const struct kv *kv, size_t seq)
{
    return (struct reserved *)kv->store + seq;
}

static size_t n_heads(const struct kv *kv)
{
    return 2 * kv->setup.shape.layers * kv->setup.shape.kv_heads;
}

static size_t head_bytes(const struct kv *kv, const struct reserved *s)
{
    return (round_up(kv->setup.shape.max_rows, TILE_ROWS) - s->first) * kv_row_bytes(kv);
}

static char *row_at(const struct kv *kv, size_t seq, size_t matrix, size_t head, size_t position)
{
    const struct reserved *s = reserved_of(kv, seq);
    const size_t bytes = kv_row_bytes(kv);
    if (position >= s->first)
        return s->rows + (matrix * kv->setup.shape.kv_heads + head) * head_bytes(kv, s) +
               (position - s->first) * bytes;
    const struct kv_rows_in *layer = &s->adopted[matrix / 2];
    return (char *)(matrix % 2 ? layer->v : layer->k) + (head * s->first + position) * bytes;
}

/* What rows up to `cap` take, in tiles of rows; the pages at the edges of heads are not counted twice. */
static size_t committed_bytes(const struct kv *kv, const struct reserved *s, size_t cap)
{
    return n_heads(kv) * (round_up(size_max(cap, s->first), TILE_ROWS) - s->first) * kv_row_bytes(kv);
}

static int open_reserved(struct kv *kv, struct err *err)
{
    size_t bytes;
    if (!size_mul(n_heads(kv), round_up(kv->setup.shape.max_rows, TILE_ROWS) * kv_row_bytes(kv),
                  &bytes))
        return err_set(err, "a reservation of %zu rows is larger than the address space",
                       kv->setup.shape.max_rows);
    kv->store = mem_zalloc(kv->setup.n_seqs, sizeof(struct reserved));
    return kv->store ? 0 : err_set(err, "out of memory for the cache's tables");
}

static void close_reserved(struct kv *kv) { free(kv->store); }

static int room(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    struct kv_seq *s = &kv->seq[seq];
    struct reserved *storage = reserved_of(kv, seq);
    const size_t need = s->n + rows;
    if (need <= s->cap)
        return 0;
    const size_t cap = size_min(round_up(need, kv->setup.r), kv->setup.shape.max_rows);
    const size_t from = size_max(s->cap, storage->first);
    const double start = clock_ms();
    if (!storage->rows)
        storage->rows = pages_reserve(kv->alloc, n_heads(kv) * head_bytes(kv, storage));
    if (!storage->rows || !kv_commit_rows(kv, row_at(kv, seq, 0, 0, from), head_bytes(kv, storage),
                                          round_up(cap, TILE_ROWS) - from))
        return err_set(err,
                       "out of memory: %zu rows of KV cache need %zu bytes; use a smaller -c or -b",
                       cap, n_heads(kv) * cap * kv_row_bytes(kv));
    kv_count_bytes(kv, committed_bytes(kv, storage, cap) - committed_bytes(kv, storage, s->cap), 0);
    kv->stats.alloc_ms += clock_ms() - start;
    kv->stats.allocations++;
    s->cap = cap;
    return 0;
}

/* The span of `rows` rows beginning at position `first`, where a piece of storage begins. */
static struct kv_span span_at(const struct kv *kv, size_t seq, size_t layer, size_t head, size_t first,
                              size_t rows)
{
    const struct reserved *s = reserved_of(kv, seq);
    const size_t bytes = kv_row_bytes(kv),
                 stored = first < s->first ? s->first * bytes : head_bytes(kv, s);
    const char *k = row_at(kv, seq, 2 * layer, head, first);
    const char *v = row_at(kv, seq, 2 * layer + 1, head, first);
    return (struct kv_span){k, v, stored, bytes, first, rows, rows, NULL};
}

static int view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                struct kv_view *out, struct err *err)
{
    (void)heads;
    (void)err;
    const size_t first = reserved_of(kv, seq)->first;
    out->offset = out->n_spans = 0;
    out->span = out->few;
    if (first)
        out->few[out->n_spans++] = span_at(kv, seq, layer, head, 0, size_min(valid, first));
    if (valid > first)
        out->few[out->n_spans++] = span_at(kv, seq, layer, head, first, valid - first);
    return 0;
}

static void keep(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra)
{
    struct reserved *s = reserved_of(kv, seq);
    kv_rows_close_up(kv, seq, rows, extra, n_extra);
    if (rows + n_extra)
        return;
    kv_count_bytes(kv, 0, committed_bytes(kv, s, kv->seq[seq].cap));
    pages_release(s->rows, n_heads(kv) * head_bytes(kv, s));
    free(s->adopted);
    *s = (struct reserved){0};
    kv->seq[seq].cap = 0;
}

static int fork_rows(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    if (room(kv, to, rows, err) < 0)
        return -1;
    const double start = clock_ms();
    for (size_t i = 0; i < rows; i++)
        kv_rows_copy(kv, to, i, from, i);
    kv->stats.copy_ms += clock_ms() - start;
    return 0;
}

static int adopt(struct kv *kv, size_t seq, const struct kv_rows_in *layer, size_t rows, size_t stored,
                 struct err *err)
{
    (void)rows;
    struct reserved *s = reserved_of(kv, seq);
    s->adopted = mem_alloc(kv->setup.shape.layers, sizeof *layer);
    if (!s->adopted)
        return err_set(err, "out of memory for the cache's tables");
    memcpy(s->adopted, layer, kv->setup.shape.layers * sizeof *layer);
    s->first = stored;
    return 0;
}

const struct kv_policy kv_policy_reserve = {
    .name = "reserve",
    .summary = "N rows of address space, made present r rows ahead; no copy (reserve:r=64)",
    .growth = &kv_grow_in_steps,
    .rows = KV_ROWS_VALID,
    .open = open_reserved,
    .room = room,
    .row_at = row_at,
    .append = kv_rows_append,
    .view = view,
    .keep = keep,
    .fork = fork_rows,
    .adopt = adopt,
    .close = close_reserved,
};
