/* Allocate, copy, zero: shared by iterative, bmc and upfront, which differ only in r. */
#include "kv/kv_grow.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/threads.h"
#include "kv/kv_rows.h"

/* [sequence of the group][KV head][rows][d]. A group is one sequence, or with lockstep all of them. */
struct block {
    char *data;
    size_t rows;  /* stored per head */
    bool foreign; /* adopted: the memory is somebody else's */
};

static size_t n_blocks(const struct kv *kv) { return 2 * kv->setup.shape.layers; }

static size_t members(const struct kv *kv) { return kv->lockstep ? kv->setup.n_seqs : 1; }

/* Blocks of a sequence's group: K of layer l is at 2l, V at 2l + 1. */
static struct block *blocks_of(const struct kv *kv, size_t seq) { return kv->seq[seq].store; }

static size_t block_bytes(const struct kv *kv, size_t rows)
{
    return members(kv) * kv->setup.shape.kv_heads * rows * kv_row_bytes(kv);
}

/* Rows of one head of a sequence. */
static char *head_rows(const struct kv *kv, const struct block *block, size_t seq, size_t head)
{
    const size_t member = kv->lockstep ? seq : 0;
    return block->data + (member * kv->setup.shape.kv_heads + head) * block->rows * kv_row_bytes(kv);
}

char *kv_grow_row_at(const struct kv *kv, size_t seq, size_t matrix, size_t head, size_t row)
{
    return head_rows(kv, &blocks_of(kv, seq)[matrix], seq, head) + row * kv_row_bytes(kv);
}

int kv_grow_open(struct kv *kv, struct err *err)
{
    const size_t groups = kv->lockstep ? 1 : kv->setup.n_seqs;
    struct block *table = mem_zalloc(groups * n_blocks(kv), sizeof *table);
    if (!table)
        return err_set(err, "out of memory for the cache's tables");
    kv->store = table;
    for (size_t s = 0; s < kv->setup.n_seqs; s++)
        kv->seq[s].store = table + (kv->lockstep ? 0 : s * n_blocks(kv));
    return 0;
}

void kv_grow_close(struct kv *kv) { free(kv->store); }

enum { AT_ONCE = 32 };

/* What one call of grow() works on: a few blocks at a time, so that old and new are both there only for
 * those, and all threads have heads to copy. Sequence `to` + m gets the rows of `from` + m. */
struct growth {
    struct kv *kv;
    size_t from, to;
    const size_t *n; /* rows to copy, per member */
    size_t rows;     /* stored rows of the new blocks */
    size_t first;    /* block that fresh[0] takes the place of */
    struct block fresh[AT_ONCE];
    atomic_bool failed;
};

static void get_block(void *arg, size_t b)
{
    struct growth *g = arg;
    char *data = pages_get(g->kv->alloc, block_bytes(g->kv, g->rows));
    g->fresh[b] = (struct block){data, g->rows, false};
    if (!data)
        atomic_store(&g->failed, true);
}

/* One head of one member: the first n rows from the old block to the new, zeros behind them. */
static void copy_head(void *arg, size_t index)
{
    const struct growth *g = arg;
    struct kv *kv = g->kv;
    const size_t heads = kv->setup.shape.kv_heads, per_block = members(kv) * heads;
    const size_t b = index / per_block, member = index % per_block / heads, head = index % heads;
    const size_t bytes = kv_row_bytes(kv), n = g->n[member];
    const struct block *old = &blocks_of(kv, g->from)[g->first + b];
    char *to = head_rows(kv, &g->fresh[b], g->to + member, head);
    if (n)
        kv_copy(kv, to, head_rows(kv, old, g->from + member, head), n * bytes);
    memset(to + n * bytes, 0, (g->rows - n) * bytes);
}

/* Puts the new blocks in place of the old ones; returns the bytes that this freed. */
static size_t replace_blocks(struct kv *kv, const struct growth *g, size_t count)
{
    size_t freed = 0;
    for (size_t b = 0; b < count; b++) {
        struct block *to = &blocks_of(kv, g->to)[g->first + b];
        if (to->data && !to->foreign) {
            freed += block_bytes(kv, to->rows);
            pages_free(kv->alloc, to->data, block_bytes(kv, to->rows));
        }
        *to = g->fresh[b];
    }
    return freed;
}

/* Grows `count` blocks beginning at g->first; false when memory cannot be had (nothing is lost then). */
static bool grow_blocks(struct kv *kv, struct growth *g, size_t count)
{
    const size_t bytes = block_bytes(kv, g->rows);
    const double start = clock_ms();
    threads_each(count, count * bytes, get_block, g);
    const double allocated = clock_ms();
    kv->stats.alloc_ms += allocated - start;
    if (g->failed) {
        for (size_t b = 0; b < count; b++)
            pages_free(kv->alloc, g->fresh[b].data, bytes);
        return false;
    }
    threads_each(count * members(kv) * kv->setup.shape.kv_heads, count * bytes, copy_head, g);
    const double copied = clock_ms();
    kv->stats.copy_ms += copied - allocated;
    kv_count_bytes(kv, count * bytes, replace_blocks(kv, g, count));
    kv->stats.alloc_ms += clock_ms() - copied;
    return true;
}

/* Blocks that are there twice at a time. */
static size_t blocks_at_once(const struct kv *kv)
{
    const size_t heads = members(kv) * kv->setup.shape.kv_heads;
    return size_min(div_up(4 * (size_t)threads_now(), heads), AT_ONCE);
}

size_t kv_grow_moving_bytes(const struct kv *kv, size_t rows)
{
    const size_t r = kv->setup.r, last = size_min(rows, kv->setup.shape.max_rows);
    const size_t before = last ? (last - 1) / r * r : 0;
    if (kv->policy->room != kv_grow_room)
        return 0;
    return size_min(blocks_at_once(kv), n_blocks(kv)) * block_bytes(kv, round_up(before, TILE_ROWS));
}

/* Storage of `cap` rows for the group of `to`, with the first n[m] rows of the group of `from`: one
 * growth event. */
static int grow(struct kv *kv, size_t to, size_t from, size_t cap, const size_t *n, struct err *err)
{
    struct growth g = {.kv = kv, .from = from, .to = to, .n = n, .rows = round_up(cap, TILE_ROWS)};
    const size_t heads = members(kv) * kv->setup.shape.kv_heads;
    size_t bytes;
    if (!size_mul(g.rows, heads * kv_row_bytes(kv) * n_blocks(kv), &bytes))
        return err_set(err, "a cache of %zu rows is larger than the address space", cap);
    const size_t group = blocks_at_once(kv);
    for (; g.first < n_blocks(kv); g.first += group)
        if (!grow_blocks(kv, &g, size_min(group, n_blocks(kv) - g.first)))
            return err_set(
                err,
                "out of memory: %zu rows of KV cache need %zu bytes; use a smaller -c or -b, or "
                "another --kv",
                cap, bytes);
    kv->stats.allocations++;
    for (size_t m = 0; m < members(kv); m++) {
        kv->seq[to + m].cap = cap;
        kv->seq[to + m].adopted = false;
        kv->stats.copied_rows += n[m];
    }
    return 0;
}

int kv_grow_room(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    const size_t need = kv->seq[seq].n + rows;
    if (need <= kv->seq[seq].cap)
        return 0;
    const size_t cap = size_min(round_up(need, kv->setup.r), kv->setup.shape.max_rows);
    if (!kv->lockstep)
        return grow(kv, seq, seq, cap, &kv->seq[seq].n, err);
    size_t *n = mem_alloc(kv->setup.n_seqs, sizeof *n);
    if (!n)
        return err_set(err, "out of memory for the cache's tables");
    for (size_t s = 0; s < kv->setup.n_seqs; s++)
        n[s] = kv->seq[s].n;
    const int rc = grow(kv, 0, 0, cap, n, err);
    free(n);
    return rc;
}

int kv_grow_view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                 struct kv_view *view, struct err *err)
{
    (void)heads;
    (void)err;
    const struct block *k_l = &blocks_of(kv, seq)[2 * layer], *v_l = k_l + 1;
    const size_t bytes = kv_row_bytes(kv);
    view->offset = 0;
    view->n_spans = 1;
    view->span = view->few;
    view->few[0] = (struct kv_span){
        .k = head_rows(kv, k_l, seq, head),
        .v = head_rows(kv, v_l, seq, head),
        .head_stride = k_l->rows * bytes,
        .row_stride = bytes,
        .rows = kv->rows == KV_ROWS_CAP ? kv->seq[seq].cap : valid,
        .valid = valid,
    };
    return 0;
}

static void release_blocks(struct kv *kv, size_t seq)
{
    struct block *blocks = blocks_of(kv, seq);
    for (size_t b = 0; b < n_blocks(kv); b++) {
        if (blocks[b].data && !blocks[b].foreign) {
            kv_count_bytes(kv, 0, block_bytes(kv, blocks[b].rows));
            pages_free(kv->alloc, blocks[b].data, block_bytes(kv, blocks[b].rows));
        }
        blocks[b] = (struct block){0};
    }
    for (size_t m = 0; m < members(kv); m++)
        kv->seq[(kv->lockstep ? 0 : seq) + m].cap = 0;
}

/* No other sequence of the group has rows. */
static bool is_last(const struct kv *kv, size_t seq)
{
    for (size_t s = 0; s < kv->setup.n_seqs && kv->lockstep; s++)
        if (s != seq && kv->seq[s].n + kv->seq[s].pending)
            return false;
    return true;
}

void kv_grow_keep(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra)
{
    kv_rows_close_up(kv, seq, rows, extra, n_extra);
    if (rows + n_extra == 0 && is_last(kv, seq))
        release_blocks(kv, seq);
}

int kv_grow_fork(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    if (!kv->lockstep)
        return grow(kv, to, from, size_min(round_up(rows, kv->setup.r), kv->setup.shape.max_rows),
                    &rows, err);
    for (size_t b = 0; b < n_blocks(kv); b++)
        for (size_t h = 0; h < kv->setup.shape.kv_heads; h++)
            kv_copy(kv, head_rows(kv, &blocks_of(kv, to)[b], to, h),
                    head_rows(kv, &blocks_of(kv, from)[b], from, h), rows * kv_row_bytes(kv));
    kv->stats.copied_rows += rows;
    return 0;
}

int kv_grow_adopt(struct kv *kv, size_t seq, const struct kv_rows_in *layer, size_t rows, size_t stored,
                  struct err *err)
{
    (void)rows;
    (void)err;
    struct block *blocks = blocks_of(kv, seq);
    for (size_t l = 0; l < kv->setup.shape.layers; l++) {
        blocks[2 * l] = (struct block){layer[l].k, stored, true};
        blocks[2 * l + 1] = (struct block){layer[l].v, stored, true};
    }
    return 0;
}
