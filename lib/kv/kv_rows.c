/* Helpers for cache policies: write, copy, compact and count the rows of their storage. */
#include "kv/kv_rows.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/threads.h"
#include "kv/kv_scales.h"

enum { STORES = 128 }; /* conversions of consecutive rows that are made together */

struct appending {
    struct kv *kv;
    size_t seq, at, rows, kept_bytes;
    size_t n;
    struct memory_store list[STORES];
};

static void store_rows(struct appending *a)
{
    if (!a->kv->memory->store(a->list, a->n))
        atomic_store_explicit(&a->kv->overflowed, true, memory_order_relaxed);
    a->n = 0;
}

/* Adds the new rows of a head, number `h` of its matrix, to the list: runs of consecutive rows that the cache keeps.
 * `queries` are those of this head. */
static void append_head(struct appending *a, size_t head, size_t h, size_t d,
                        const struct kv_row_source *source, struct kv_queries queries)
{
    const struct kv *kv = a->kv;
    const bool same = source->type == kv->head[head].type && source->type != DTYPE_F32;
    const struct kv_extent *range = kv->range && !same ? &kv->range[head] : NULL;
    const size_t bytes = kv->head[head].bytes;
    const struct device_addr from = addr_add(source->at, h * source->head);
    struct memory_store *last = NULL;
    for (size_t i = 0; i < a->rows; i++) {
        const struct device_addr to = kv->policy->row_at(kv, a->seq, head, a->at + i);
        a->kept_bytes += addr_is_null(to) ? 0 : bytes;
        if (last && addr_equal(to, addr_add(last->to, last->rows * bytes))) {
            last->rows++;
            continue;
        }
        last = NULL;
        if (addr_is_null(to))
            continue;
        if (a->n == STORES)
            store_rows(a);
        last = &a->list[a->n++];
        *last = (struct memory_store){
            .to = to,
            .from = addr_add(from, i * source->row),
            .type = kv->head[head].type,
            .from_type = source->type,
            .rows = 1,
            .d = d,
            .to_stride = bytes,
            .from_stride = source->row,
            .ranged = range != NULL,
            .low = range ? range->low : 0,
            .high = range ? range->high : 0,
            .queries = addr_add(queries.at, i * queries.stride * sizeof(float)),
            .n_queries = queries.heads,
            .queries_stride = queries.stride * sizeof(float),
        };
    }
}

size_t kv_rows_store(struct kv *kv, size_t seq, size_t layer, size_t first, size_t rows,
                     const struct kv_row_source from[2], const struct kv_queries *queries)
{
    const struct kv_sizes *sizes = kv_layer_sizes(kv, layer);
    struct appending a;
    a.kv = kv;
    a.seq = seq;
    a.at = kv->seq[seq].n + first;
    a.rows = rows;
    a.kept_bytes = 0;
    a.n = 0;
    struct kv_queries own = queries ? *queries : (struct kv_queries){0};
    own.heads /= sizes->kv_heads;
    for (size_t h = 0; h < sizes->kv_heads; h++) {
        append_head(&a, kv_k_head(kv, layer, h), h, sizes->head_dim, &from[KV_K], own);
        own.at = addr_add(own.at, own.heads * sizes->head_dim * sizeof(float));
        if (!sizes->v_dim)
            append_head(&a, kv_v_head(kv, layer, h), h, sizes->head_dim, &from[KV_V],
                        (struct kv_queries){0});
    }
    store_rows(&a);
    return a.kept_bytes;
}

void kv_rows_append(struct kv *kv, size_t seq, size_t layer, size_t first, size_t rows,
                    struct device_addr k, struct device_addr v, size_t stride,
                    const struct kv_queries *queries)
{
    const struct kv_sizes *sizes = kv_layer_sizes(kv, layer);
    const size_t row = stride * sizeof(float), head = sizes->head_dim * sizeof(float);
    kv_rows_store(kv, seq, layer, first, rows,
                  (const struct kv_row_source[]){{k, DTYPE_F32, row, head}, {v, DTYPE_F32, row, head}},
                  queries);
    atomic_fetch_add(&kv->converted_rows, kv_matrices(sizes) * sizes->kv_heads * rows);
}

/* Copies row `from` of a sequence to row `to`, in all layers and heads. */
static void copy_row(struct kv *kv, size_t seq, size_t to, size_t from)
{
    struct kv_copies copies;
    kv_copies_begin(&copies, kv);
    for (size_t h = 0; h < kv->n_heads; h++)
        kv_copies_add(&copies, kv->policy->row_at(kv, seq, h, to), kv->policy->row_at(kv, seq, h, from),
                      kv->head[h].bytes, 0);
    kv_copies_end(&copies);
    kv->stats.copied_rows++;
}

void kv_rows_compact(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n)
{
    const double start = clock_ms();
    for (size_t i = 0; i < n; i++)
        if (extra[i] != rows + i)
            copy_row(kv, seq, rows + i, extra[i]);
    kv->stats.copy_ms += n ? clock_ms() - start : 0;
}

void kv_count_copied(struct kv *kv, size_t bytes)
{
    __atomic_fetch_add(&kv->stats.copied_bytes, bytes, __ATOMIC_RELAXED);
}

void kv_copies_end(struct kv_copies *c)
{
    size_t copied = 0;
    for (size_t i = 0; i < c->n; i++)
        copied += c->list[i].bytes;
    c->kv->memory->copy(c->list, c->n);
    kv_count_copied(c->kv, copied);
    c->n = 0;
}

void kv_copies_add(struct kv_copies *c, struct device_addr to, struct device_addr from, size_t bytes,
                   size_t zeros)
{
    if (!bytes && !zeros)
        return;
    if (c->n == KV_COPIES)
        kv_copies_end(c);
    c->list[c->n++] = (struct memory_copy){to, from, bytes, zeros};
}

void kv_copy(struct kv *kv, struct device_addr to, struct device_addr from, size_t bytes)
{
    kv->memory->copy(&(struct memory_copy){to, from, bytes, 0}, bytes > 0);
    kv_count_copied(kv, bytes);
}

void kv_zero(struct kv *kv, struct device_addr from, size_t bytes)
{
    kv->memory->copy(&(struct memory_copy){from, from, 0, bytes}, bytes > 0);
}

struct commitment {
    const struct kv *kv;
    struct device_addr base;
    size_t stored, head, from, to;
    atomic_bool failed;
};

static void commit_head(void *arg, size_t index)
{
    struct commitment *c = arg;
    const struct kv_head *head = &c->kv->head[c->head + index];
    if (!c->kv->memory->commit(addr_add(c->base, head->before * c->stored + c->from * head->bytes),
                               (c->to - c->from) * head->bytes))
        atomic_store(&c->failed, true);
}

bool kv_commit_memory(const struct kv *kv, struct device_addr base, size_t stored, size_t head,
                      size_t end, size_t from, size_t to)
{
    struct commitment c = {kv, base, stored, head, from, to, false};
    parallel_for(end - head, (to - from) * (kv->head[end].before - kv->head[head].before), commit_head,
                 &c);
    return !c.failed;
}

void kv_count_memory(struct kv *kv, size_t more, size_t less)
{
    if (kv->owner)
        kv = kv->owner;
    kv->stats.resident_bytes += more;
    kv->stats.peak_bytes = size_max(kv->stats.peak_bytes, kv->stats.resident_bytes);
    kv->stats.resident_bytes -= less;
    kv->freed += less;
}
