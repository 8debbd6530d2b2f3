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

#include "base/clock.h"
#include "base/mem.h"
#include "base/threads.h"
#include "kv/kv_rows.h"
#include "kv/policy/kv_prepare.h"

/* Memory of one layer's K or V, [sequence][KV head][rows][head_dim]: of one sequence, or in
 * lockstep of all sequences. */
struct grow_block {
    struct device_addr data;
    size_t rows;  /* allocated per head */
    bool foreign; /* memory from kv_attach(), owned by its caller */
};

/* The next growth event of a sequence, as far as it was done in advance: kv_prepare.h. */
struct kv_prepare {
    size_t matrices;         /* leading matrices that have their larger blocks already */
    struct grow_block fresh; /* of the matrix after these, being filled; or no data */
    size_t filled;           /* rows at the end of `fresh` that are copied or zeroed */
    size_t unchanged;        /* leading rows that are the same since `fresh` was allocated */
    size_t copied;           /* rows copied, summed over matrices */
    size_t owed;             /* rows that its last pass left to other sequences */
};

struct grow_seq {
    struct kv_prepare prepare;
    size_t dropped_from;       /* rows from here on lost their memory: shrink(); 0: none */
    struct grow_block block[]; /* [stored matrices] */
};

struct grow_store {
    const struct kv_prepare *in_progress; /* of the sequence that has a matrix in progress; or NULL */
};

static size_t grow_members(const struct kv *kv) { return kv->spec.lockstep ? kv->setup.n_seqs : 1; }

static struct grow_block *grow_blocks_of(const struct kv *kv, size_t seq)
{
    return ((struct grow_seq *)kv->seq[seq].store)->block;
}

/* Bytes of blocks of `rows` rows of the matrices [matrix, end). */
static size_t grow_blocks_bytes(const struct kv *kv, size_t matrix, size_t end, size_t rows)
{
    return grow_members(kv) * rows *
           (kv->head[kv->matrix_head[end]].before - kv->head[kv->matrix_head[matrix]].before);
}

/* First row of a head of a sequence in its matrix's block. */
static struct device_addr grow_head(const struct kv *kv, const struct grow_block *block, size_t seq,
                                    size_t head)
{
    const size_t member = kv->spec.lockstep ? seq : 0;
    const struct kv_head *h = &kv->head[head];
    const size_t first = kv->matrix_head[h->matrix], heads = kv->matrix_head[h->matrix + 1] - first;
    return addr_add(block->data, (member * heads + head - first) * block->rows * h->bytes);
}

/* Where a matrix is allocated. */
static const struct backend_memory *memory_of(const struct kv *kv, size_t matrix)
{
    return kv->spec.layer_memory ? kv->spec.layer_memory[kv->head[kv->matrix_head[matrix]].layer]
                                 : kv->memory;
}

/* Frees the block of a matrix unless it is the caller's memory; returns the bytes freed. */
static size_t grow_block_free(const struct kv *kv, const struct grow_block *block, size_t matrix)
{
    if (addr_is_null(block->data) || block->foreign)
        return 0;
    const size_t bytes = grow_blocks_bytes(kv, matrix, matrix + 1, block->rows);
    kv->memory->free(kv->spec.alloc, block->data, bytes);
    return bytes;
}

/* ---- growth in advance (kv_prepare.h) ---- */

static struct kv_prepare *prepare_of(const struct kv *kv, size_t seq)
{
    return &((struct grow_seq *)kv->seq[seq].store)->prepare;
}

/* Fills rows [from, to) of the larger block: copies those before `copied`, zeroes the others. */
static void fill_rows(struct kv *kv, size_t seq, size_t from, size_t to, size_t copied)
{
    struct kv_prepare *p = prepare_of(kv, seq);
    const struct grow_block *old = &grow_blocks_of(kv, seq)[p->matrices];
    const size_t split = size_max(from, size_min(to, copied));
    const double start = clock_ms();
    struct kv_copies copies;
    kv_copies_begin(&copies, kv);
    for (size_t h = kv->matrix_head[p->matrices]; h < kv->matrix_head[p->matrices + 1]; h++) {
        const size_t bytes = kv->head[h].bytes, at = from * bytes;
        kv_copies_add(&copies, addr_add(grow_head(kv, &p->fresh, 0, h), at),
                      addr_add(grow_head(kv, old, 0, h), at), (split - from) * bytes,
                      (to - split) * bytes);
    }
    kv_copies_end(&copies);
    kv->stats.copy_ms += clock_ms() - start;
    p->copied += split - from;
}

/* No larger block is in progress any more. */
static void end_progress(struct kv *kv, struct kv_prepare *p)
{
    struct grow_store *store = kv->store;
    p->fresh = (struct grow_block){0};
    p->filled = 0;
    if (store->in_progress == p)
        store->in_progress = NULL;
}

/* Allocates the larger block of the next matrix. */
static bool begin_matrix(struct kv *kv, size_t seq, size_t rows)
{
    struct kv_prepare *p = prepare_of(kv, seq);
    const size_t bytes = grow_blocks_bytes(kv, p->matrices, p->matrices + 1, rows);
    const double start = clock_ms();
    p->fresh =
        (struct grow_block){memory_of(kv, p->matrices)->alloc(kv->spec.alloc, bytes), rows, false};
    kv->stats.alloc_ms += clock_ms() - start;
    if (addr_is_null(p->fresh.data))
        return false;
    kv_count_memory(kv, bytes, 0);
    p->unchanged = kv->seq[seq].n;
    ((struct grow_store *)kv->store)->in_progress = p;
    return true;
}

/* Copies rows written in the meantime; the larger block then replaces the matrix's old one. */
static void end_matrix(struct kv *kv, size_t seq)
{
    struct kv_prepare *p = prepare_of(kv, seq);
    struct grow_block *old = &grow_blocks_of(kv, seq)[p->matrices];
    if (kv->seq[seq].n > p->unchanged)
        fill_rows(kv, seq, p->unchanged, kv->seq[seq].n, SIZE_MAX);
    const double start = clock_ms();
    kv_count_memory(kv, 0, grow_block_free(kv, old, p->matrices));
    *old = p->fresh;
    kv->stats.alloc_ms += clock_ms() - start;
    end_progress(kv, p);
    p->matrices++;
}

/* Fills up to `rows` rows of the matrix in progress, from its end; returns how many. */
static size_t fill_matrix(struct kv *kv, size_t seq, size_t rows)
{
    struct kv_prepare *p = prepare_of(kv, seq);
    const size_t end = p->fresh.rows - p->filled, count = size_min(rows, end);
    if (count)
        fill_rows(kv, seq, end - count, end, p->unchanged);
    p->filled += count;
    if (count == end)
        end_matrix(kv, seq);
    return count;
}

/* Forgets what was prepared: frees the block in progress, and adds the rows copied, averaged over matrices, to the
 * statistics. */
static void prepare_reset(struct kv *kv, size_t seq)
{
    struct kv_prepare *p = prepare_of(kv, seq);
    kv->stats.copied_rows += p->copied / kv->n_matrices;
    kv_count_memory(kv, 0, grow_block_free(kv, &p->fresh, p->matrices));
    end_progress(kv, p);
    *p = (struct kv_prepare){0};
}

/* Before a forward pass of `rows` rows, which have been allocated: does the pass's part, or leaves it to the sequence
 * in progress, unless it is the last pass before growth. Does nothing if memory is short, since the growth event then
 * tries again and reports it. */
static void prepare_advance(struct kv *kv, size_t seq, size_t rows)
{
    const size_t cap = kv_prepare_due(kv, seq, rows);
    if (!cap || kv->seq[seq].attached)
        return;
    struct grow_store *store = kv->store;
    struct kv_prepare *p = prepare_of(kv, seq);
    const size_t each = round_up(cap, TILE_ROWS);
    size_t share =
        kv_prepare_share(kv, seq, rows, kv->n_matrices * each, p->matrices * each + p->filled);
    p->owed = 0;
    if (store->in_progress && store->in_progress != p && kv->seq[seq].cap - kv->seq[seq].n > rows) {
        p->owed = share;
        return;
    }
    for (size_t s = 0; s < kv->setup.n_seqs; s++) {
        share += prepare_of(kv, s)->owed;
        prepare_of(kv, s)->owed = 0;
    }
    while (share && p->matrices < kv->n_matrices) {
        if (addr_is_null(p->fresh.data) && !begin_matrix(kv, seq, each))
            return;
        share -= fill_matrix(kv, seq, share);
    }
}

/* At a growth event to `cap` rows: completes the matrix in progress and returns the number of
 * leading matrices that need not grow any more. 0 if something else was prepared. */
static size_t prepare_finish(struct kv *kv, size_t seq, size_t cap)
{
    struct kv_prepare *p = prepare_of(kv, seq);
    if (cap != kv_prepare_next(kv, kv->seq[seq].cap))
        prepare_reset(kv, seq);
    if (!addr_is_null(p->fresh.data))
        fill_matrix(kv, seq, SIZE_MAX);
    return p->matrices;
}

/* Rows from `rows` on will change: those that were copied already will be copied again. */
static void prepare_invalidate(struct kv *kv, size_t seq, size_t rows)
{
    struct kv_prepare *p = prepare_of(kv, seq);
    p->unchanged = size_min(p->unchanged, rows);
}

/* ---- growth ---- */

static struct device_addr row_at(const struct kv *kv, size_t seq, size_t head, size_t row)
{
    const struct kv_head *h = &kv->head[head];
    return addr_add(grow_head(kv, &grow_blocks_of(kv, seq)[h->matrix], seq, head), row * h->bytes);
}

static int open_blocks(struct kv *kv, struct err *err)
{
    const size_t groups = kv->spec.lockstep ? 1 : kv->setup.n_seqs;
    const size_t size = sizeof(struct grow_seq) + kv->n_matrices * sizeof(struct grow_block);
    char *store = mem_zalloc(1, sizeof(struct grow_store) + groups * size);
    if (!store)
        return err_no_memory(err, "the cache's tables");
    kv->store = store;
    char *table = store + sizeof(struct grow_store);
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
    g->fresh[b] = (struct grow_block){memory_of(g->kv, g->first + b)->alloc(g->kv->spec.alloc, bytes),
                                      g->rows, false};
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
 * copies the first n[m] rows of sequence from + m, in matrices where that was not done in advance. */
static int reallocate(struct kv *kv, size_t to, size_t from, size_t cap, const size_t *n,
                      struct err *err)
{
    struct growth g = {.kv = kv, .from = from, .to = to, .n = n, .rows = round_up(cap, TILE_ROWS)};
    size_t bytes;
    if (!size_mul(g.rows, grow_members(kv) * kv_token_bytes(kv), &bytes))
        return err_set(err, "a cache of %zu rows is larger than the address space", cap);
    const size_t group = blocks_at_once(kv, &kv->setup.shape),
                 prepared = to == from ? prepare_finish(kv, to, cap) : 0;
    for (g.first = prepared; g.first < kv->n_matrices; g.first += group)
        if (!grow_blocks(kv, &g, size_min(group, kv->n_matrices - g.first)))
            return err_no_memory(err,
                                 "%zu rows of KV cache, %zu bytes; use a smaller -c or -np, or "
                                 "another --kv",
                                 cap, bytes);
    for (size_t m = 0; m < grow_members(kv); m++) {
        kv->seq[to + m].cap = cap;
        kv->seq[to + m].attached = false;
        kv->stats.copied_rows += n[m] * (kv->n_matrices - prepared) / kv->n_matrices;
    }
    prepare_reset(kv, to);
    return 0;
}

static size_t cap_of(const struct kv *kv, size_t rows)
{
    return size_min(round_up(rows, kv->setup.r), kv->setup.shape.max_rows);
}

/* Reallocates a sequence, in lockstep all of them, with its rows. */
static int resize(struct kv *kv, size_t seq, size_t cap, struct err *err)
{
    if (!kv->spec.lockstep)
        return reallocate(kv, seq, seq, cap, &kv->seq[seq].n, err);
    size_t *n = mem_alloc(kv->setup.n_seqs, sizeof *n);
    if (!n)
        return err_no_memory(err, "the cache's tables");
    for (size_t s = 0; s < kv->setup.n_seqs; s++)
        n[s] = kv->seq[s].n;
    const int rc = reallocate(kv, 0, 0, cap, n, err);
    free(n);
    return rc;
}

/* Bytes of rows that lost their memory. */
static size_t dropped_bytes(const struct kv *kv, size_t seq)
{
    const struct grow_seq *g = kv->seq[seq].store;
    const size_t rows = g->block[0].rows;
    return g->dropped_from ? grow_blocks_bytes(kv, 0, kv->n_matrices, rows - g->dropped_from) : 0;
}

/* Counts the memory of dropped rows that are about to be written, which is allocated again by that. */
static void restore_dropped(struct kv *kv, size_t seq, size_t rows)
{
    struct grow_seq *g = kv->seq[seq].store;
    const size_t before = dropped_bytes(kv, seq);
    if (!before || rows <= g->dropped_from)
        return;
    g->dropped_from = rows < g->block[0].rows ? rows : 0;
    kv_count_memory(kv, before - dropped_bytes(kv, seq), 0);
}

static int ensure(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    const size_t need = kv->seq[seq].n + rows;
    restore_dropped(kv, seq, need);
    if (need <= kv->seq[seq].cap) {
        prepare_advance(kv, seq, rows);
        return 0;
    }
    if (resize(kv, seq, cap_of(kv, need), err) < 0)
        return -1;
    kv->stats.allocations++;
    return 0;
}

/* Returns the pages behind the first `rows` rows of each head, which read as zeros from then on. */
static void drop_pages(struct kv *kv, size_t seq, size_t rows)
{
    struct grow_seq *g = kv->seq[seq].store;
    const size_t all = g->block[0].rows, before = dropped_bytes(kv, seq);
    if (rows >= (g->dropped_from ? g->dropped_from : all))
        return;
    for (size_t m = 0; m < grow_members(kv); m++)
        for (size_t h = 0; h < kv->n_heads; h++)
            kv->memory->drop(row_at(kv, (kv->spec.lockstep ? 0 : seq) + m, h, rows),
                             (all - rows) * kv->head[h].bytes);
    g->dropped_from = rows;
    kv_count_memory(kv, 0, dropped_bytes(kv, seq) - before);
}

/* Implements kv_policy.shrink: a smaller block replaces the larger one; where one step is the whole context, its pages are
 * returned. */
static void shrink(struct kv *kv, size_t seq)
{
    const size_t first = kv->spec.lockstep ? 0 : seq;
    size_t most = 0;
    struct err err;
    for (size_t m = 0; m < grow_members(kv); m++)
        most = size_max(most, kv->seq[first + m].n);
    const size_t cap = cap_of(kv, most);
    if (cap == kv->setup.shape.max_rows) {
        if (kv->setup.r >= cap)
            drop_pages(kv, seq, round_up(most, TILE_ROWS));
        return;
    }
    if (cap < kv->seq[first].cap && resize(kv, seq, cap, &err) < 0)
        for (size_t m = 0; m < grow_members(kv); m++)
            kv->seq[first + m].cap = cap; /* some blocks are that small already */
}

size_t kv_grow_transient_bytes(const struct kv *kv, size_t rows)
{
    const struct kv_shape *shape = &kv->largest;
    const size_t r = kv->setup.r, last = size_min(rows, kv->setup.shape.max_rows);
    const size_t before = last ? (last - 1) / r * r : 0;
    size_t blocks = 0, at_once;
    if (kv->policy->ensure != ensure)
        return 0;
    for (size_t l = 0; l < shape->layers; l++)
        blocks += kv_matrices(kv_sizes_of(shape, l));
    at_once = size_min(blocks_at_once(kv, shape), blocks) * grow_members(kv) *
              round_up(before, TILE_ROWS) * kv_shape_matrix_bytes(shape);
    return size_max(at_once, kv_prepare_copied_bytes(kv, rows));
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
                 k_bytes = kv->head[k].bytes, v_bytes = kv->head[v].bytes;
    out->offset[KV_K] = out->offset[KV_V] = 0;
    out->n_spans = 1;
    out->span = out->inline_span;
    out->inline_span[0] = (struct kv_span){
        .k = grow_head(kv, &blocks[kv->head[k].matrix], seq, k),
        .v = grow_head(kv, &blocks[kv->head[v].matrix], seq, v),
        .head_stride = {blocks[kv->head[k].matrix].rows * k_bytes,
                        blocks[kv->head[v].matrix].rows * v_bytes},
        .row_stride = {k_bytes, v_bytes},
        .rows = kv->attend == KV_ATTEND_PADDED ? kv->seq[seq].cap : valid,
        .valid = valid,
    };
    return 0;
}

static void release_blocks(struct kv *kv, size_t seq)
{
    struct grow_block *blocks = grow_blocks_of(kv, seq);
    const size_t dropped = dropped_bytes(kv, seq);
    size_t freed = 0;
    prepare_reset(kv, seq);
    for (size_t b = 0; b < kv->n_matrices; b++) {
        freed += grow_block_free(kv, &blocks[b], b);
        blocks[b] = (struct grow_block){0};
    }
    ((struct grow_seq *)kv->seq[seq].store)->dropped_from = 0;
    kv_count_memory(kv, 0, freed - dropped);
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
    prepare_invalidate(kv, seq, rows);
    kv_rows_compact(kv, seq, rows, extra, n_extra);
    if (rows + n_extra == 0 && is_last(kv, seq))
        release_blocks(kv, seq);
}

static int fork_rows(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    if (!kv->spec.lockstep) {
        if (reallocate(kv, to, from, cap_of(kv, rows), &rows, err) < 0)
            return -1;
        kv->stats.allocations++;
        return 0;
    }
    restore_dropped(kv, to, rows);
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
    .lockstep = true, .by_layer = true, .open = open_blocks, .ensure = ensure, .row_at = row_at,       \
    .append = kv_rows_append, .view = view, .accept = accept, .fork = fork_rows, .shrink = shrink

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
