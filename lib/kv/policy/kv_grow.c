/* Policies that grow by allocating a larger block, copying, and zeroing the padding (BMC paper). They differ in r, the
 * rows that a growth event adds (T events fill the context of N rows), and in whether attention
 * computes the padding.
 *
 *   iterative  r = 1, T = N: the dynamic cache of Hugging Face transformers (II-B)
 *   upfront    r = N, T = 1: a static cache, attention computes all N rows (II-C)
 *   bmc        in between: balances memory allocation, copying and redundant computation (V)
 *
 * A sequence has a block of memory per layer for K and one for V, if it is stored: [KV head][rows][head_dim], with
 * allocated rows in whole tiles. Its capacity is a multiple of r rows, at most N. */
#include "kv/policy/kv_grow.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/threads.h"
#include "kv/policy/kv_grow_blocks.h"
#include "kv/policy/kv_prepare.h"

static struct device_addr row_at(const struct kv *kv, size_t seq, size_t head, size_t row)
{
    const struct kv_head *h = &kv->head[head];
    return addr_add(grow_head(kv, &grow_blocks_of(kv, seq)[h->matrix], seq, head), row * h->bytes);
}

static int open_blocks(struct kv *kv, struct err *err)
{
    const size_t groups = kv->spec.lockstep ? 1 : kv->setup.n_seqs;
    const size_t size = sizeof(struct grow_seq) + kv->n_matrices * sizeof(struct grow_block);
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
    const size_t bytes = grow_blocks_bytes(g->kv, g->first + b, g->first + b + 1, g->rows);
    g->fresh[b] = (struct grow_block){g->kv->memory->alloc(g->kv->spec.alloc, bytes), g->rows, false};
    if (addr_is_null(g->fresh[b].data))
        atomic_store(&g->failed, true);
}

/* Copies the first n[m] rows of each sequence to `count` new blocks, and zeroes the rows behind them. */
static void fill_blocks(const struct growth *g, size_t count)
{
    struct kv *kv = g->kv;
    const struct grow_block *old = grow_blocks_of(kv, g->from);
    struct kv_copies copies;
    kv_copies_begin(&copies, kv);
    for (size_t h = kv->matrix_head[g->first]; h < kv->matrix_head[g->first + count]; h++)
        for (size_t m = 0; m < grow_members(kv); m++) {
            const struct kv_head *head = &kv->head[h];
            kv_copies_add(&copies, grow_head(kv, &g->fresh[head->matrix - g->first], g->to + m, h),
                          grow_head(kv, &old[head->matrix], g->from + m, h), g->n[m] * head->bytes,
                          (g->rows - g->n[m]) * head->bytes);
        }
    kv_copies_end(&copies);
}

/* Frees `count` old blocks, puts the new ones in their place, and returns the bytes freed. */
static size_t replace_blocks(struct kv *kv, const struct growth *g, size_t count)
{
    size_t freed = 0;
    for (size_t b = 0; b < count; b++) {
        struct grow_block *to = &grow_blocks_of(kv, g->to)[g->first + b];
        freed += grow_block_free(kv, to, g->first + b);
        *to = g->fresh[b];
    }
    return freed;
}

/* Replaces `count` blocks from g->first on by larger ones. False, with nothing changed, when memory
 * is short. */
static bool grow_blocks(struct kv *kv, struct growth *g, size_t count)
{
    const size_t bytes = grow_blocks_bytes(kv, g->first, g->first + count, g->rows);
    const double start = clock_ms();
    parallel_for(count, bytes, allocate_block, g);
    const double allocated = clock_ms();
    kv->stats.alloc_ms += allocated - start;
    if (g->failed) {
        for (size_t b = 0; b < count; b++)
            grow_block_free(kv, &g->fresh[b], g->first + b);
        return false;
    }
    fill_blocks(g, count);
    const double copied = clock_ms();
    kv->stats.copy_ms += copied - allocated;
    kv_count_memory(kv, bytes, replace_blocks(kv, g, count));
    kv->stats.alloc_ms += clock_ms() - copied;
    return true;
}

/* How many blocks to replace at a time: enough that each thread has about four heads to copy. */
static size_t blocks_at_once(const struct kv *kv, const struct kv_shape *shape)
{
    size_t heads = SIZE_MAX;
    for (size_t i = 0; i < shape->n_sizes; i++)
        heads = size_min(heads, grow_members(kv) * shape->sizes[i].kv_heads);
    return size_min(div_up(4 * (size_t)threads_now(), heads), AT_ONCE);
}

/* One growth event: allocates `cap` rows for sequence `to`, in lockstep for all sequences, and
 * copies the first n[m] rows of sequence from + m, in layers where that was not done in advance. */
static int grow(struct kv *kv, size_t to, size_t from, size_t cap, const size_t *n, struct err *err)
{
    struct growth g = {.kv = kv, .from = from, .to = to, .n = n, .rows = round_up(cap, TILE_ROWS)};
    size_t bytes;
    if (!size_mul(g.rows, grow_members(kv) * kv_token_bytes(kv), &bytes))
        return err_set(err, "a cache of %zu rows is larger than the address space", cap);
    const size_t group = blocks_at_once(kv, &kv->setup.shape), layers = kv->setup.shape.layers,
                 prepared = to == from ? kv_prepare_finish(kv, to, cap) : 0;
    for (g.first = kv->head[kv->first_head[prepared]].matrix; g.first < kv->n_matrices;
         g.first += group)
        if (!grow_blocks(kv, &g, size_min(group, kv->n_matrices - g.first)))
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

static int ensure(struct kv *kv, size_t seq, size_t rows, struct err *err)
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

size_t kv_grow_transient_bytes(const struct kv *kv, size_t rows)
{
    const struct kv_shape *shape = &kv->largest;
    const size_t r = kv->setup.r, last = size_min(rows, kv->setup.shape.max_rows);
    const size_t before = last ? (last - 1) / r * r : 0;
    size_t blocks = 0, most = 0;
    if (kv->policy->ensure != ensure)
        return 0;
    for (size_t l = 0; l < shape->layers; l++) {
        const struct kv_sizes *sizes = kv_sizes_of(shape, l);
        blocks += kv_matrices(sizes);
        most = size_max(most, kv_sizes_bytes(sizes, shape->type) / kv_matrices(sizes));
    }
    return size_min(blocks_at_once(kv, shape), blocks) * grow_members(kv) *
           round_up(before, TILE_ROWS) * most;
}

size_t kv_grow_ahead_bytes(const struct kv *kv, size_t rows)
{
    return kv_prepare_bytes(kv, rows, kv->policy->ensure == ensure);
}

static int view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                struct kv_view *out, struct err *err)
{
    (void)heads;
    (void)err;
    const struct grow_block *blocks = grow_blocks_of(kv, seq);
    const size_t k = kv_k_head(kv, layer, head), v = kv_v_head(kv, layer, head),
                 bytes = kv->head[k].bytes;
    out->offset = 0;
    out->n_spans = 1;
    out->span = out->inline_span;
    out->inline_span[0] = (struct kv_span){
        .k = grow_head(kv, &blocks[kv->head[k].matrix], seq, k),
        .v = grow_head(kv, &blocks[kv->head[v].matrix], seq, v),
        .head_stride = blocks[kv->head[k].matrix].rows * bytes,
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
    for (size_t b = 0; b < kv->n_matrices; b++) {
        kv_count_memory(kv, 0, grow_block_free(kv, &blocks[b], b));
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

static void accept(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra)
{
    kv_prepare_invalidate(kv, seq, rows);
    kv_rows_compact(kv, seq, rows, extra, n_extra);
    if (rows + n_extra == 0 && is_last(kv, seq))
        release_blocks(kv, seq);
}

static int fork_rows(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    if (!kv->spec.lockstep)
        return grow(kv, to, from, size_min(round_up(rows, kv->setup.r), kv->setup.shape.max_rows),
                    &rows, err);
    struct kv_copies copies;
    kv_copies_begin(&copies, kv);
    for (size_t h = 0; h < kv->n_heads; h++)
        kv_copies_add(&copies, row_at(kv, to, h, 0), row_at(kv, from, h, 0), rows * kv->head[h].bytes,
                      0);
    kv_copies_end(&copies);
    kv->stats.copied_rows += rows;
    return 0;
}

static int attach(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, size_t rows,
                  size_t stored, struct err *err)
{
    (void)rows;
    (void)err;
    struct grow_block *blocks = grow_blocks_of(kv, seq);
    for (size_t l = 0; l < kv->setup.shape.layers; l++) {
        struct grow_block *k = &blocks[kv->head[kv->first_head[l]].matrix];
        k[0] = (struct grow_block){layer[l].k, stored, true};
        if (!kv_layer_sizes(kv, l)->v_dim)
            k[1] = (struct grow_block){layer[l].v, stored, true};
    }
    return 0;
}

#define GROWS_BY_COPYING                                                                               \
    .lockstep = true, .open = open_blocks, .ensure = ensure, .row_at = row_at,                         \
    .append = kv_rows_append, .view = view, .accept = accept, .fork = fork_rows

const struct kv_policy kv_policy_bmc = {
    .name = "bmc",
    .growth = &kv_grow_in_steps,
    .attend = KV_ATTEND_PADDED,
    .attach = attach,
    GROWS_BY_COPYING,
};

const struct kv_policy kv_policy_iterative = {
    .name = "iterative",
    .growth = &kv_grow_every_row,
    .attend = KV_ATTEND_VALID,
    GROWS_BY_COPYING,
};

const struct kv_policy kv_policy_upfront = {
    .name = "upfront",
    .growth = &kv_grow_once,
    .attend = KV_ATTEND_PADDED,
    GROWS_BY_COPYING,
};
