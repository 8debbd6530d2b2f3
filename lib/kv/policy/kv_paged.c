/* paged: blocks of 16 or 32 tokens and a block table per sequence, as in PagedAttention (BMC paper
 * III). A block has K and V of its tokens in all layers and comes from a pool; its layout is
 * [kv.n_heads][rows]. Growing copies nothing. */
#include "base/clock.h"
#include "base/mem.h"
#include "kv/kv_rows.h"

/* The block table of a sequence: an array of one span per block, to which views point directly; one for each of the
 * different sizes of layers, as their K and V have other distances. */
struct table {
    struct kv_span *span;
    size_t n, cap;
};

/* A block that was put back is reused without an allocation, as long as no more are unused than used. */
struct paged {
    struct device_addr *spare; /* unused blocks */
    size_t n_spare, spare_cap, in_use;
    struct table *table; /* [n_seqs][n_sizes] */
};

static size_t block_bytes(const struct kv *kv) { return kv_token_bytes(kv) * kv->setup.r; }

static struct paged *paged_of(const struct kv *kv) { return kv->store; }

static struct table *tables_of(const struct kv *kv, size_t seq)
{
    return &paged_of(kv)->table[seq * kv->setup.shape.n_sizes];
}

static int open_paged(struct kv *kv, struct err *err)
{
    struct paged *paged = mem_zalloc(1, sizeof *paged);
    kv->store = paged;
    if (!paged ||
        !(paged->table = mem_zalloc(kv->setup.n_seqs, kv->setup.shape.n_sizes * sizeof *paged->table)))
        return err_no_memory(err, "block tables");
    return 0;
}

static void close_paged(struct kv *kv)
{
    struct paged *paged = paged_of(kv);
    if (!paged)
        return;
    for (size_t i = 0; paged->table && i < kv->setup.n_seqs * kv->setup.shape.n_sizes; i++)
        free(paged->table[i].span);
    free(paged->spare);
    free(paged->table);
}

/* Takes a block from the pool, or allocates one, and zeroes it; none when memory is short. */
static struct device_addr take_block(struct kv *kv)
{
    struct paged *pool = paged_of(kv);
    const double start = clock_ms();
    struct device_addr block = {0};
    if (pool->n_spare) {
        block = pool->spare[--pool->n_spare];
    } else {
        block = kv->memory->alloc(kv->spec.alloc, block_bytes(kv));
        kv_count_memory(kv, addr_is_null(block) ? 0 : block_bytes(kv), 0);
    }
    const double allocated = clock_ms();
    if (!addr_is_null(block)) {
        pool->in_use++;
        kv_zero(kv, block, block_bytes(kv));
    }
    kv->stats.alloc_ms += allocated - start;
    kv->stats.copy_ms += clock_ms() - allocated;
    return block;
}

static void free_block(struct kv *kv, struct device_addr block)
{
    kv->memory->free(kv->spec.alloc, block, block_bytes(kv));
    kv_count_memory(kv, 0, block_bytes(kv));
}

static void put_back(struct kv *kv, struct device_addr block)
{
    struct paged *pool = paged_of(kv);
    struct err err;
    pool->in_use--;
    if (mem_grow(&pool->spare, &pool->spare_cap, pool->n_spare, sizeof *pool->spare, &err) < 0)
        free_block(kv, block);
    else
        pool->spare[pool->n_spare++] = block;
    while (pool->n_spare > pool->in_use)
        free_block(kv, pool->spare[--pool->n_spare]);
}

/* Puts back the blocks of a sequence but for those of its first `rows` rows. */
static void cut_table(struct kv *kv, size_t seq, size_t rows)
{
    struct table *tables = tables_of(kv, seq);
    const size_t kept = div_up(rows, kv->setup.r);
    for (size_t i = tables->n; i-- > kept;)
        put_back(kv, tables->span[i].k);
    for (size_t t = 0; t < kv->setup.shape.n_sizes; t++)
        tables[t].n = size_min(tables[t].n, kept);
    kv->seq[seq].cap = size_min(tables->n * kv->setup.r, kv->setup.shape.max_rows);
}

/* Sets the number of valid rows in each block of a sequence that has `rows` rows. */
static void set_valid(struct kv *kv, size_t seq, size_t rows)
{
    struct table *tables = tables_of(kv, seq);
    for (size_t i = tables->n; i-- > 0;) {
        const struct kv_span *span = &tables->span[i];
        const size_t valid = rows > span->first ? size_min(rows - span->first, kv->setup.r) : 0;
        if (span->valid == kv->setup.r && valid == kv->setup.r)
            break; /* all earlier blocks are full, too */
        for (size_t t = 0; t < kv->setup.shape.n_sizes; t++)
            tables[t].span[i].valid = tables[t].span[i].rows = valid;
    }
}

/* Adds a block to the tables of a sequence, which have room for it. */
static void add_block(struct kv *kv, struct table *tables, struct device_addr block)
{
    const struct kv_shape *shape = &kv->setup.shape;
    for (size_t t = 0; t < shape->n_sizes; t++) {
        const struct kv_sizes *sizes = &shape->sizes[t];
        const size_t k_bytes = kv_sizes_row_bytes(sizes, KV_K),
                     v_bytes = kv_sizes_row_bytes(sizes, KV_V);
        tables[t].span[tables[t].n] = (struct kv_span){
            .k = block,
            .v = block,
            .head_stride = {kv->setup.r * k_bytes, kv->setup.r * v_bytes},
            .row_stride = {k_bytes, v_bytes},
            .first = tables[t].n * kv->setup.r,
        };
        tables[t].n++;
    }
}

static int ensure(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    struct table *tables = tables_of(kv, seq);
    const size_t need = kv->seq[seq].n + rows;
    const bool grows = need > kv->seq[seq].cap;
    while (need > tables->n * kv->setup.r) {
        for (size_t t = 0; t < kv->setup.shape.n_sizes; t++)
            if (mem_grow(&tables[t].span, &tables[t].cap, tables[t].n, sizeof *tables[t].span, err) < 0)
                return -1;
        const struct device_addr block = take_block(kv);
        if (addr_is_null(block))
            return err_no_memory(err, "a block of %zu rows of KV cache, %zu bytes", kv->setup.r,
                                 block_bytes(kv));
        add_block(kv, tables, block);
    }
    kv->seq[seq].cap = size_min(tables->n * kv->setup.r, kv->setup.shape.max_rows);
    kv->stats.allocations += grows;
    set_valid(kv, seq, need);
    return 0;
}

static struct device_addr row_at(const struct kv *kv, size_t seq, size_t head, size_t row)
{
    const struct kv_head *h = &kv->head[head];
    return addr_add(tables_of(kv, seq)->span[row / kv->setup.r].k,
                    h->before * kv->setup.r + row % kv->setup.r * h->bytes);
}

static int view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                struct kv_view *out, struct err *err)
{
    (void)heads;
    (void)err;
    /* pending rows: ensure() has set the counts; none: a truncation may have changed them */
    if (!kv->seq[seq].pending)
        set_valid(kv, seq, valid);
    out->offset[KV_K] = kv->head[kv_k_head(kv, layer, head)].before * kv->setup.r;
    out->offset[KV_V] = kv->head[kv_v_head(kv, layer, head)].before * kv->setup.r;
    out->n_spans = div_up(valid, kv->setup.r);
    out->span = tables_of(kv, seq)[kv->setup.shape.size_of[layer]].span;
    return 0;
}

static void accept(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra)
{
    kv_rows_compact(kv, seq, rows, extra, n_extra);
    if (rows + n_extra == 0)
        cut_table(kv, seq, 0);
}

/* Implements kv_policy.shrink: frees unused blocks of all sequences, too. */
static void shrink(struct kv *kv, size_t seq)
{
    struct paged *pool = paged_of(kv);
    cut_table(kv, seq, kv->seq[seq].n);
    while (pool->n_spare)
        free_block(kv, pool->spare[--pool->n_spare]);
}

static int fork_rows(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    if (ensure(kv, to, rows, err) < 0)
        return -1;
    const double start = clock_ms();
    struct kv_copies copies;
    kv_copies_begin(&copies, kv);
    for (size_t i = 0; i < tables_of(kv, to)->n; i++)
        kv_copies_add(&copies, tables_of(kv, to)->span[i].k, tables_of(kv, from)->span[i].k,
                      block_bytes(kv), 0);
    kv_copies_end(&copies);
    kv->stats.copied_rows += rows;
    kv->stats.copy_ms += clock_ms() - start;
    return 0;
}

static size_t bytes_of(const struct kv *kv, const struct kv_shape *shape, size_t rows)
{
    size_t bytes;
    return size_mul(div_up(rows, kv->setup.r), kv_shape_row_bytes(shape) * kv->setup.r, &bytes)
               ? bytes
               : SIZE_MAX;
}

const struct kv_policy kv_policy_paged = {
    .name = "paged",
    .growth = &kv_grow_in_blocks,
    .attend = KV_ATTEND_VALID,
    .open = open_paged,
    .close = close_paged,
    .ensure = ensure,
    .row_at = row_at,
    .append = kv_rows_append,
    .view = view,
    .accept = accept,
    .fork = fork_rows,
    .shrink = shrink,
    .bytes = bytes_of,
};
