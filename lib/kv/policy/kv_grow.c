/* Storage that grows by allocating a larger block, copying, and zeroing the padding. */
#include "kv/policy/kv_grow.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/threads.h"
#include "kv/policy/kv_grow_blocks.h"
#include "kv/policy/kv_prepare.h"

static size_t n_blocks(const struct kv *kv) { return kv_matrices(kv) * kv->setup.shape.layers; }

char *kv_grow_row_at(const struct kv *kv, size_t seq, size_t matrix, size_t head, size_t row)
{
    return grow_head(kv, &grow_blocks_of(kv, seq)[matrix], seq, head) + row * kv_row_bytes(kv);
}

int kv_grow_open(struct kv *kv, struct err *err)
{
    const size_t groups = kv->spec.lockstep ? 1 : kv->setup.n_seqs;
    const size_t size = sizeof(struct grow_seq) + n_blocks(kv) * sizeof(struct grow_block);
    char *table = mem_zalloc(groups, size);
    if (!table)
        return err_no_memory(err, "the cache's tables");
    kv->store = table;
    for (size_t s = 0; s < kv->setup.n_seqs; s++)
        kv->seq[s].store = table + (kv->spec.lockstep ? 0 : s * size);
    return 0;
}

enum { AT_ONCE = 32 };

/* A growth event replaces a few blocks at a time: only those exist twice, and all threads have
 * heads to copy. Sequence to + m gets the rows of sequence from + m; m is 0 except in lockstep. */
struct growth {
    struct kv *kv;
    size_t from, to;
    const size_t *n; /* [m] rows to copy of sequence from + m */
    size_t rows;     /* rows per head of the new blocks */
    size_t first;    /* index of the block that fresh[0] replaces */
    struct grow_block fresh[AT_ONCE];
    atomic_bool failed;
};

static void allocate_block(void *arg, size_t b)
{
    struct growth *g = arg;
    char *data = vm_get(g->kv->spec.alloc, grow_block_bytes(g->kv, g->rows));
    g->fresh[b] = (struct grow_block){data, g->rows, false};
    if (!data)
        atomic_store(&g->failed, true);
}

/* Copies a sequence's first n rows of one head to a new block, and zeroes the rows behind them. */
static void copy_head(void *arg, size_t index)
{
    const struct growth *g = arg;
    struct kv *kv = g->kv;
    const size_t heads = kv->setup.shape.kv_heads, per_block = grow_members(kv) * heads;
    const size_t b = index / per_block, member = index % per_block / heads, head = index % heads;
    const size_t bytes = kv_row_bytes(kv), n = g->n[member];
    const struct grow_block *old = &grow_blocks_of(kv, g->from)[g->first + b];
    char *to = grow_head(kv, &g->fresh[b], g->to + member, head);
    if (n)
        kv_copy(kv, to, grow_head(kv, old, g->from + member, head), n * bytes);
    memset(to + n * bytes, 0, (g->rows - n) * bytes);
}

/* Frees `count` old blocks, puts the new ones in their place, and returns the bytes freed. */
static size_t replace_blocks(struct kv *kv, const struct growth *g, size_t count)
{
    size_t freed = 0;
    for (size_t b = 0; b < count; b++) {
        struct grow_block *to = &grow_blocks_of(kv, g->to)[g->first + b];
        freed += grow_block_free(kv, to);
        *to = g->fresh[b];
    }
    return freed;
}

/* Replaces `count` blocks from g->first on by larger ones. False, with nothing changed, when memory
 * is short. */
static bool grow_blocks(struct kv *kv, struct growth *g, size_t count)
{
    const size_t bytes = grow_block_bytes(kv, g->rows);
    const double start = clock_ms();
    parallel_for(count, count * bytes, allocate_block, g);
    const double allocated = clock_ms();
    kv->stats.alloc_ms += allocated - start;
    if (g->failed) {
        for (size_t b = 0; b < count; b++)
            vm_free(kv->spec.alloc, g->fresh[b].data, bytes);
        return false;
    }
    parallel_for(count * grow_members(kv) * kv->setup.shape.kv_heads, count * bytes, copy_head, g);
    const double copied = clock_ms();
    kv->stats.copy_ms += copied - allocated;
    kv_count_memory(kv, count * bytes, replace_blocks(kv, g, count));
    kv->stats.alloc_ms += clock_ms() - copied;
    return true;
}

/* How many blocks to replace at a time: enough that each thread has about four heads to copy. */
static size_t blocks_at_once(const struct kv *kv)
{
    const size_t heads = grow_members(kv) * kv->setup.shape.kv_heads;
    return size_min(div_up(4 * (size_t)threads_now(), heads), AT_ONCE);
}

size_t kv_grow_transient_bytes(const struct kv *kv, size_t rows)
{
    const size_t r = kv->setup.r, last = size_min(rows, kv->setup.shape.max_rows);
    const size_t before = last ? (last - 1) / r * r : 0;
    if (kv->policy->ensure != kv_grow_ensure)
        return 0;
    return size_min(blocks_at_once(kv), n_blocks(kv)) *
           grow_block_bytes(kv, round_up(before, TILE_ROWS));
}

size_t kv_grow_ahead_bytes(const struct kv *kv, size_t rows)
{
    return kv_prepare_bytes(kv, rows, kv->policy->ensure == kv_grow_ensure);
}

/* One growth event: allocates `cap` rows for sequence `to`, in lockstep for all sequences, and
 * copies the first n[m] rows of sequence from + m, in layers where that was not done in advance. */
static int grow(struct kv *kv, size_t to, size_t from, size_t cap, const size_t *n, struct err *err)
{
    struct growth g = {.kv = kv, .from = from, .to = to, .n = n, .rows = round_up(cap, TILE_ROWS)};
    const size_t heads = grow_members(kv) * kv->setup.shape.kv_heads;
    size_t bytes;
    if (!size_mul(g.rows, heads * kv_row_bytes(kv) * n_blocks(kv), &bytes))
        return err_set(err, "a cache of %zu rows is larger than the address space", cap);
    const size_t group = blocks_at_once(kv), layers = kv->setup.shape.layers,
                 prepared = to == from ? kv_prepare_finish(kv, to, cap) : 0;
    for (g.first = kv_k_matrix(kv, prepared); g.first < n_blocks(kv); g.first += group)
        if (!grow_blocks(kv, &g, size_min(group, n_blocks(kv) - g.first)))
            return err_no_memory(err,
                                 "%zu rows of KV cache, %zu bytes; use a smaller -c or -np, or "
                                 "another --kv",
                                 cap, bytes);
    kv->stats.allocations++;
    for (size_t m = 0; m < grow_members(kv); m++) {
        kv->seq[to + m].cap = cap;
        kv->seq[to + m].attached = false;
        kv->stats.copied_rows += n[m] * (layers - prepared) / layers;
    }
    kv_prepare_reset(kv, to);
    return 0;
}

int kv_grow_ensure(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    const size_t need = kv->seq[seq].n + rows;
    if (need <= kv->seq[seq].cap) {
        kv_prepare_advance(kv, seq, rows);
        return 0;
    }
    const size_t cap = size_min(round_up(need, kv->setup.r), kv->setup.shape.max_rows);
    if (!kv->spec.lockstep)
        return grow(kv, seq, seq, cap, &kv->seq[seq].n, err);
    size_t *n = mem_alloc(kv->setup.n_seqs, sizeof *n);
    if (!n)
        return err_no_memory(err, "the cache's tables");
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
    const struct grow_block *blocks = grow_blocks_of(kv, seq), *k_l = &blocks[kv_k_matrix(kv, layer)],
                            *v_l = &blocks[kv_v_matrix(kv, layer)];
    const size_t bytes = kv_row_bytes(kv);
    view->offset = 0;
    view->n_spans = 1;
    view->span = view->inline_span;
    view->inline_span[0] = (struct kv_span){
        .k = grow_head(kv, k_l, seq, head),
        .v = grow_head(kv, v_l, seq, head),
        .head_stride = k_l->rows * bytes,
        .row_stride = bytes,
        .rows = kv->attend == KV_ATTEND_PADDED ? kv->seq[seq].cap : valid,
        .valid = valid,
    };
    return 0;
}

static void release_blocks(struct kv *kv, size_t seq)
{
    struct grow_block *blocks = grow_blocks_of(kv, seq);
    kv_prepare_reset(kv, seq);
    for (size_t b = 0; b < n_blocks(kv); b++) {
        kv_count_memory(kv, 0, grow_block_free(kv, &blocks[b]));
        blocks[b] = (struct grow_block){0};
    }
    for (size_t m = 0; m < grow_members(kv); m++)
        kv->seq[(kv->spec.lockstep ? 0 : seq) + m].cap = 0;
}

/* True if no other sequence has rows in the same blocks. */
static bool is_last(const struct kv *kv, size_t seq)
{
    for (size_t s = 0; s < kv->setup.n_seqs && kv->spec.lockstep; s++)
        if (s != seq && kv->seq[s].n + kv->seq[s].pending)
            return false;
    return true;
}

void kv_grow_accept(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra)
{
    kv_prepare_invalidate(kv, seq, rows);
    kv_rows_compact(kv, seq, rows, extra, n_extra);
    if (rows + n_extra == 0 && is_last(kv, seq))
        release_blocks(kv, seq);
}

int kv_grow_fork(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    if (!kv->spec.lockstep)
        return grow(kv, to, from, size_min(round_up(rows, kv->setup.r), kv->setup.shape.max_rows),
                    &rows, err);
    for (size_t b = 0; b < n_blocks(kv); b++)
        for (size_t h = 0; h < kv->setup.shape.kv_heads; h++)
            kv_copy(kv, grow_head(kv, &grow_blocks_of(kv, to)[b], to, h),
                    grow_head(kv, &grow_blocks_of(kv, from)[b], from, h), rows * kv_row_bytes(kv));
    kv->stats.copied_rows += rows;
    return 0;
}

int kv_grow_attach(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, size_t rows,
                   size_t stored, struct err *err)
{
    (void)rows;
    (void)err;
    struct grow_block *blocks = grow_blocks_of(kv, seq);
    for (size_t l = 0; l < kv->setup.shape.layers; l++) {
        if (kv_matrices(kv) > 1)
            blocks[kv_v_matrix(kv, l)] = (struct grow_block){layer[l].v, stored, true};
        blocks[kv_k_matrix(kv, l)] = (struct grow_block){layer[l].k, stored, true};
    }
    return 0;
}
