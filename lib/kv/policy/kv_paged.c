/* paged: blocks of 16 or 32 tokens and a block table per sequence, as in PagedAttention (BMC paper
 * III). A block has K and V of its tokens in all layers and comes from a pool; its layout is
 * [stored matrix][KV head][rows][head_dim]. Growing copies nothing. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/policy/kv_pool.h"
#include "kv/kv_rows.h"

/* The block table of a sequence: an array of one span per block, to which views point directly. */
struct table {
    struct kv_span *span;
    size_t n, cap;
};

struct paged {
    struct kv_pool pool;
    struct table *table; /* [n_seqs] */
};

static size_t head_bytes(const struct kv *kv) { return kv->setup.r * kv_row_bytes(kv); }

static size_t block_bytes(const struct kv *kv)
{
    return kv_matrices(kv) * kv->setup.shape.layers * kv->setup.shape.kv_heads * head_bytes(kv);
}

static struct paged *paged_of(const struct kv *kv) { return kv->store; }

static struct table *table_of(const struct kv *kv, size_t seq) { return &paged_of(kv)->table[seq]; }

static int open_paged(struct kv *kv, struct err *err)
{
    struct paged *paged = mem_zalloc(1, sizeof *paged);
    kv->store = paged;
    if (!paged || !(paged->table = mem_zalloc(kv->setup.n_seqs, sizeof *paged->table)))
        return err_no_memory(err, "block tables");
    paged->pool.block_bytes = block_bytes(kv);
    return 0;
}

static void close_paged(struct kv *kv)
{
    struct paged *paged = paged_of(kv);
    if (!paged)
        return;
    for (size_t s = 0; paged->table && s < kv->setup.n_seqs; s++)
        free(paged->table[s].span);
    free(paged->pool.spare);
    free(paged->table);
}

/* Sets the number of valid rows in each block of a sequence that has `rows` rows. */
static void set_valid(struct kv *kv, size_t seq, size_t rows)
{
    struct table *table = table_of(kv, seq);
    for (size_t i = table->n; i-- > 0;) {
        struct kv_span *span = &table->span[i];
        const size_t valid = rows > span->first ? size_min(rows - span->first, kv->setup.r) : 0;
        if (span->valid == kv->setup.r && valid == kv->setup.r)
            break; /* all earlier blocks are full, too */
        span->valid = span->rows = valid;
    }
}

static int ensure(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    struct table *table = table_of(kv, seq);
    const size_t need = kv->seq[seq].n + rows;
    const bool grows = need > kv->seq[seq].cap;
    while (need > table->n * kv->setup.r) {
        if (mem_grow(&table->span, &table->cap, table->n, sizeof *table->span, err) < 0)
            return -1;
        char *block = kv_pool_get(kv, &paged_of(kv)->pool);
        if (!block)
            return err_no_memory(err, "a block of %zu rows of KV cache, %zu bytes", kv->setup.r,
                                 block_bytes(kv));
        table->span[table->n] = (struct kv_span){
            .k = block,
            .v = block + kv_v_matrix(kv, 0) * kv->setup.shape.kv_heads * head_bytes(kv),
            .head_stride = head_bytes(kv),
            .row_stride = kv_row_bytes(kv),
            .first = table->n * kv->setup.r,
        };
        table->n++;
    }
    kv->seq[seq].cap = size_min(table->n * kv->setup.r, kv->setup.shape.max_rows);
    kv->stats.allocations += grows;
    set_valid(kv, seq, need);
    return 0;
}

static size_t offset_of(const struct kv *kv, size_t matrix, size_t head)
{
    return (matrix * kv->setup.shape.kv_heads + head) * head_bytes(kv);
}

static char *row_at(const struct kv *kv, size_t seq, size_t matrix, size_t head, size_t row)
{
    const struct kv_span *block = &table_of(kv, seq)->span[row / kv->setup.r];
    return kv_mutable(block->k) + offset_of(kv, matrix, head) + row % kv->setup.r * block->row_stride;
}

static int view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                struct kv_view *out, struct err *err)
{
    (void)heads;
    (void)err;
    const struct table *table = table_of(kv, seq);
    /* pending rows: ensure() has set the counts; none: a truncation may have changed them */
    if (!kv->seq[seq].pending)
        set_valid(kv, seq, valid);
    out->offset = offset_of(kv, kv_k_matrix(kv, layer), head);
    out->n_spans = div_up(valid, kv->setup.r);
    out->span = table->span;
    return 0;
}

static void accept(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra)
{
    struct table *table = table_of(kv, seq);
    kv_rows_compact(kv, seq, rows, extra, n_extra);
    if (rows + n_extra)
        return;
    while (table->n)
        kv_pool_put(kv, &paged_of(kv)->pool, kv_mutable(table->span[--table->n].k));
    kv->seq[seq].cap = 0;
}

static int fork_rows(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    if (ensure(kv, to, rows, err) < 0)
        return -1;
    const double start = clock_ms();
    for (size_t i = 0; i < table_of(kv, to)->n; i++)
        kv_copy(kv, kv_mutable(table_of(kv, to)->span[i].k), table_of(kv, from)->span[i].k,
                block_bytes(kv));
    kv->stats.copied_rows += rows;
    kv->stats.copy_ms += clock_ms() - start;
    return 0;
}

static size_t bytes_of(const struct kv *kv, size_t rows)
{
    size_t bytes;
    return size_mul(div_up(rows, kv->setup.r), block_bytes(kv), &bytes) ? bytes : SIZE_MAX;
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
    .bytes = bytes_of,
};
