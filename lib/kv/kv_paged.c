/* paged: blocks of 16 or 32 rows and a block table, as vLLM's PagedAttention has them (bmc.txt III).
 *
 * A block holds its rows for all layers: [layer][K or V][KV head][rows][d]. Blocks come from a pool:
 * what a sequence gives back, the next one gets without an allocation; when no sequence has any, the
 * pool is given back. Nothing is ever copied to grow; attention goes from block to block. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/kv_rows.h"

/* The table of a sequence: one span a block, as views show it. */
struct table {
    struct kv_span *span;
    size_t n, cap;
};

struct pool {
    char **spare; /* blocks that no sequence has */
    size_t n, cap;
    size_t in_use;       /* blocks that sequences have */
    struct table *table; /* by sequence */
};

static size_t head_bytes(const struct kv *kv) { return kv->r * kv_row_bytes(kv); }

static size_t block_bytes(const struct kv *kv)
{
    return 2 * kv->shape.layers * kv->shape.kv_heads * head_bytes(kv);
}

static struct pool *pool_of(const struct kv *kv) { return kv->store; }

static struct table *table_of(const struct kv *kv, size_t seq) { return &pool_of(kv)->table[seq]; }

static int open_pool(struct kv *kv, struct err *err)
{
    struct pool *pool = mem_zalloc(1, sizeof *pool);
    kv->store = pool;
    if (pool)
        pool->table = mem_zalloc(kv->n_seqs, sizeof *pool->table);
    return pool && pool->table ? 0 : err_set(err, "out of memory for block tables");
}

static void free_spare(struct kv *kv)
{
    struct pool *pool = pool_of(kv);
    while (pool->n) {
        pages_free(kv->alloc, pool->spare[--pool->n], block_bytes(kv));
        kv_count_bytes(kv, 0, block_bytes(kv));
    }
}

static void close_pool(struct kv *kv)
{
    struct pool *pool = pool_of(kv);
    for (size_t s = 0; pool && pool->table && s < kv->n_seqs; s++)
        free(pool->table[s].span);
    if (pool) {
        free(pool->spare);
        free(pool->table);
    }
    free(pool);
}

/* A block of the pool, or a new one; cleared, so that padding is finite. */
static char *take_block(struct kv *kv)
{
    struct pool *pool = pool_of(kv);
    const double start = clock_ms();
    char *block = pool->n ? pool->spare[--pool->n] : NULL;
    if (!block) {
        block = pages_get(kv->alloc, block_bytes(kv));
        kv_count_bytes(kv, block ? block_bytes(kv) : 0, 0);
    }
    const double taken = clock_ms();
    pool->in_use += block != NULL;
    if (block)
        kv_clear(block, block_bytes(kv));
    kv->stats.alloc_ms += taken - start;
    kv->stats.copy_ms += clock_ms() - taken;
    return block;
}

/* Valid rows of every span, for a sequence of `rows` rows. */
static void set_valid(struct kv *kv, size_t seq, size_t rows)
{
    struct table *table = table_of(kv, seq);
    for (size_t i = table->n; i-- > 0;) {
        struct kv_span *span = &table->span[i];
        const size_t valid = rows > span->first ? size_min(rows - span->first, kv->r) : 0;
        if (span->valid == kv->r && valid == kv->r)
            break; /* all before are full */
        span->valid = span->rows = valid;
    }
}

static int room(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    struct table *table = table_of(kv, seq);
    const size_t need = kv->seq[seq].n + rows;
    const bool grows = need > kv->seq[seq].cap;
    while (need > table->n * kv->r) {
        if (mem_grow(&table->span, &table->cap, table->n, sizeof *table->span, err) < 0)
            return -1;
        char *block = take_block(kv);
        if (!block)
            return err_set(err, "out of memory: a cache block of %zu rows needs %zu bytes", kv->r,
                           block_bytes(kv));
        table->span[table->n] = (struct kv_span){
            .k = block,
            .v = block + kv->shape.kv_heads * head_bytes(kv),
            .head_stride = head_bytes(kv),
            .row_stride = kv_row_bytes(kv),
            .first = table->n * kv->r,
        };
        table->n++;
    }
    kv->seq[seq].cap = size_min(table->n * kv->r, kv->shape.max_rows);
    kv->stats.allocations += grows;
    set_valid(kv, seq, need);
    return 0;
}

/* Bytes from a block's start to a layer's K of a head; V lies KV heads further on. */
static size_t offset_of(const struct kv *kv, size_t layer, size_t head)
{
    return (2 * layer * kv->shape.kv_heads + head) * head_bytes(kv);
}

static void append(struct kv *kv, size_t seq, size_t layer, size_t first, size_t rows, const float *k,
                   const float *v, size_t stride)
{
    const size_t d = kv->shape.head_dim;
    for (size_t h = 0; h < kv->shape.kv_heads; h++)
        for (size_t i = 0; i < rows; i++) {
            const size_t at = kv->seq[seq].n + first + i;
            const struct kv_span *span = &table_of(kv, seq)->span[at / kv->r];
            const size_t offset = offset_of(kv, layer, h) + at % kv->r * span->row_stride;
            kv_store_row(kv, kv_mutable(span->k) + offset, k + i * stride + h * d);
            kv_store_row(kv, kv_mutable(span->v) + offset, v + i * stride + h * d);
        }
}

static int view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                struct kv_view *out, struct err *err)
{
    (void)heads;
    (void)err;
    const struct table *table = table_of(kv, seq);
    /* room() has set the step's rows; outside a step they may be fewer. */
    if (!kv->seq[seq].pending)
        set_valid(kv, seq, valid);
    out->layout = LAYOUT_ROWS;
    out->offset = offset_of(kv, layer, head);
    out->n_spans = div_up(valid, kv->r);
    out->span = table->span;
    return 0;
}

/* Moves one row of all layers and heads. */
static void move_row(const struct kv *kv, const struct table *table, size_t to, size_t from)
{
    const struct kv_span *a = &table->span[to / kv->r], *b = &table->span[from / kv->r];
    for (size_t l = 0; l < 2 * kv->shape.layers; l++)
        for (size_t h = 0; h < kv->shape.kv_heads; h++) {
            const size_t head = (l * kv->shape.kv_heads + h) * head_bytes(kv);
            memcpy(kv_mutable(a->k) + head + to % kv->r * a->row_stride,
                   (const char *)b->k + head + from % kv->r * b->row_stride, kv_row_bytes(kv));
        }
}

static void keep(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra)
{
    struct pool *pool = pool_of(kv);
    struct table *table = table_of(kv, seq);
    struct err err;
    for (size_t i = 0; i < n_extra; i++)
        if (extra[i] != rows + i)
            move_row(kv, table, rows + i, extra[i]);
    if (rows + n_extra)
        return;
    while (table->n) {
        char *block = kv_mutable(table->span[--table->n].k);
        if (mem_grow(&pool->spare, &pool->cap, pool->n, sizeof *pool->spare, &err) < 0) {
            pages_free(kv->alloc, block, block_bytes(kv));
            kv_count_bytes(kv, 0, block_bytes(kv));
        } else {
            pool->spare[pool->n++] = block;
        }
        pool->in_use--;
    }
    if (!pool->in_use)
        free_spare(kv);
    kv->seq[seq].cap = 0;
}

static int fork_rows(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    if (room(kv, to, rows, err) < 0)
        return -1;
    for (size_t i = 0; i < table_of(kv, to)->n; i++)
        memcpy(kv_mutable(table_of(kv, to)->span[i].k), table_of(kv, from)->span[i].k, block_bytes(kv));
    kv->stats.copied_rows += rows;
    kv->stats.copied_bytes += rows * 2 * kv->shape.layers * kv->shape.kv_heads * kv_row_bytes(kv);
    return 0;
}

const struct kv_policy kv_policy_paged = {
    .name = "paged",
    .summary = "blocks of 16 or 32 rows and a block table (paged:16, paged:32)",
    .growth = KV_GROW_IN_BLOCKS,
    .rows = KV_ROWS_VALID,
    .open = open_pool,
    .room = room,
    .append = append,
    .view = view,
    .done = NULL,
    .keep = keep,
    .fork = fork_rows,
    .adopt = NULL,
    .close = close_pool,
};
