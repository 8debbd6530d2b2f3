/* reserve: N rows of address space per sequence in one mapping, made present r rows ahead; no copy
 * ever.
 *
 * [layer][K or V][KV head][N rounded up][d]. The mapping is readable and writable from the start: its
 * access never changes, so the kernel keeps it as one area. Fresh pages are zero, so padding is finite.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/threads.h"
#include "kv/kv_rows.h"

static size_t stored_rows(const struct kv *kv) { return round_up(kv->shape.max_rows, TILE_ROWS); }

static size_t head_bytes(const struct kv *kv) { return stored_rows(kv) * kv_row_bytes(kv); }

static size_t n_heads(const struct kv *kv) { return 2 * kv->shape.layers * kv->shape.kv_heads; }

/* Rows of head h of K (2 * layer) or V (2 * layer + 1). */
static char *head_rows(const struct kv *kv, size_t seq, size_t matrix, size_t head)
{
    return (char *)kv->seq[seq].store + (matrix * kv->shape.kv_heads + head) * head_bytes(kv);
}

/* What `cap` rows take, in tiles of rows; the pages at the edges of heads are not counted twice. */
static size_t committed_bytes(const struct kv *kv, size_t cap)
{
    return n_heads(kv) * round_up(cap, TILE_ROWS) * kv_row_bytes(kv);
}

static int open_none(struct kv *kv, struct err *err)
{
    size_t bytes;
    if (!size_mul(n_heads(kv), stored_rows(kv) * kv_row_bytes(kv), &bytes))
        return err_set(err, "a reservation of %zu rows is larger than the address space",
                       kv->shape.max_rows);
    return 0;
}

static void close_none(struct kv *kv) { (void)kv; }

struct commitment {
    const struct kv *kv;
    size_t seq, from, bytes; /* first row, and bytes per head */
    atomic_bool failed;
};

static void commit_head(void *arg, size_t head)
{
    struct commitment *c = arg;
    char *rows = head_rows(c->kv, c->seq, 0, head) + c->from * kv_row_bytes(c->kv);
    if (!pages_commit(rows, c->bytes))
        atomic_store(&c->failed, true);
}

/* Makes rows [from, to) of every head present. */
static bool commit_rows(const struct kv *kv, size_t seq, size_t from, size_t to)
{
    struct commitment c = {kv, seq, from, (to - from) * kv_row_bytes(kv), false};
    threads_each(n_heads(kv), n_heads(kv) * c.bytes, commit_head, &c);
    return !c.failed;
}

static int room(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    struct kv_seq *s = &kv->seq[seq];
    const size_t need = s->n + rows;
    if (need <= s->cap)
        return 0;
    const size_t cap = size_min(round_up(need, kv->r), kv->shape.max_rows);
    const double start = clock_ms();
    if (!s->store)
        s->store = pages_reserve(kv->alloc, n_heads(kv) * head_bytes(kv));
    if (!s->store || !commit_rows(kv, seq, s->cap, round_up(cap, TILE_ROWS)))
        return err_set(err,
                       "out of memory: %zu rows of KV cache need %zu bytes; use a smaller -c or -b",
                       cap, n_heads(kv) * cap * kv_row_bytes(kv));
    kv_count_bytes(kv, committed_bytes(kv, cap) - committed_bytes(kv, s->cap), 0);
    kv->stats.alloc_ms += clock_ms() - start;
    kv->stats.allocations++;
    s->cap = cap;
    return 0;
}

static void append(struct kv *kv, size_t seq, size_t layer, size_t first, size_t rows, const float *k,
                   const float *v, size_t stride)
{
    const size_t bytes = kv_row_bytes(kv), d = kv->shape.head_dim, at = kv->seq[seq].n + first;
    for (size_t h = 0; h < kv->shape.kv_heads; h++)
        for (size_t i = 0; i < rows; i++) {
            kv_store_row(kv, head_rows(kv, seq, 2 * layer, h) + (at + i) * bytes,
                         k + i * stride + h * d);
            kv_store_row(kv, head_rows(kv, seq, 2 * layer + 1, h) + (at + i) * bytes,
                         v + i * stride + h * d);
        }
}

static int view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                struct kv_view *out, struct err *err)
{
    (void)heads;
    (void)err;
    out->layout = LAYOUT_ROWS;
    out->offset = 0;
    out->n_spans = 1;
    out->span = out->few;
    out->few[0] = (struct kv_span){
        .k = head_rows(kv, seq, 2 * layer, head),
        .v = head_rows(kv, seq, 2 * layer + 1, head),
        .head_stride = head_bytes(kv),
        .row_stride = kv_row_bytes(kv),
        .rows = valid,
        .valid = valid,
    };
    return 0;
}

static void keep(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra)
{
    struct kv_seq *s = &kv->seq[seq];
    const size_t bytes = kv_row_bytes(kv);
    if (rows + n_extra == 0) {
        kv_count_bytes(kv, 0, committed_bytes(kv, s->cap));
        pages_release(s->store, n_heads(kv) * head_bytes(kv));
        s->store = NULL;
        s->cap = 0;
        return;
    }
    for (size_t h = 0; h < n_heads(kv); h++) {
        char *rows_h = head_rows(kv, seq, 0, h);
        for (size_t i = 0; i < n_extra; i++)
            if (extra[i] != rows + i)
                memcpy(rows_h + (rows + i) * bytes, rows_h + extra[i] * bytes, bytes);
    }
}

static int fork_rows(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    if (room(kv, to, rows, err) < 0)
        return -1;
    for (size_t h = 0; h < n_heads(kv); h++)
        memcpy(head_rows(kv, to, 0, h), head_rows(kv, from, 0, h), rows * kv_row_bytes(kv));
    kv->stats.copied_rows += rows;
    kv->stats.copied_bytes += rows * n_heads(kv) * kv_row_bytes(kv);
    return 0;
}

const struct kv_policy kv_policy_reserve = {
    .name = "reserve",
    .summary = "N rows of address space, made present r rows ahead; no copy (reserve:r=64)",
    .growth = KV_GROW_IN_STEPS,
    .rows = KV_ROWS_VALID,
    .open = open_none,
    .room = room,
    .append = append,
    .view = view,
    .done = NULL,
    .keep = keep,
    .fork = fork_rows,
    .adopt = NULL,
    .close = close_none,
};
