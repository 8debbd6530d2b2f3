/* Helpers for cache policies: write, compact, zero and count the rows of their storage. */
#include "kv/kv_rows.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/threads.h"
#include "kv/kv_scales.h"
#include "quant/cache_types.h"
#include "quant/quant_rows.h"

/* Converts an f32 row of a head of one matrix to the cache's type; `to` is NULL where the cache does not
 * keep the row. */
static void store_row(struct kv *kv, size_t matrix, size_t head, char *to, const float *from)
{
    const struct kv_shape *shape = &kv->setup.shape;
    if (to && kv->range) {
        const struct kv_extent *range = &kv->range[matrix * shape->kv_heads + head];
        quant_rows_quantize_range(to, shape->type, from, shape->head_dim, range->low, range->high);
    } else if (to) {
        dtype_from_f32(to, shape->type, from, shape->head_dim);
    }
    if (to && cache_type_overflowed(shape->type, to, from, shape->head_dim))
        atomic_store_explicit(&kv->overflowed, true, memory_order_relaxed);
}

struct appending {
    struct kv *kv;
    size_t seq, layer, at, rows, stride;
    const float *k, *v;
};

static void append_head(void *arg, size_t h)
{
    const struct appending *a = arg;
    struct kv *kv = a->kv;
    const size_t k_l = kv_k_matrix(kv, a->layer), v_l = kv_v_matrix(kv, a->layer);
    const size_t column = h * kv->setup.shape.head_dim;
    for (size_t i = 0; i < a->rows; i++) {
        const size_t from = i * a->stride + column;
        store_row(kv, k_l, h, kv->policy->row_at(kv, a->seq, k_l, h, a->at + i), a->k + from);
        if (v_l != k_l)
            store_row(kv, v_l, h, kv->policy->row_at(kv, a->seq, v_l, h, a->at + i), a->v + from);
    }
    atomic_fetch_add(&a->kv->converted_rows, kv_matrices(kv) * a->rows);
}

void kv_rows_append(struct kv *kv, size_t seq, size_t layer, size_t first, size_t rows, const float *k,
                    const float *v, size_t stride)
{
    struct appending a = {kv, seq, layer, kv->seq[seq].n + first, rows, stride, k, v};
    const size_t heads = kv->setup.shape.kv_heads;
    parallel_for(heads, rows * heads * kv->setup.shape.head_dim, append_head, &a);
}

/* Copies row `from` of a sequence to row `to`, in all layers and heads. */
static void copy_row(struct kv *kv, size_t seq, size_t to, size_t from)
{
    for (size_t m = 0; m < kv_matrices(kv) * kv->setup.shape.layers; m++)
        for (size_t h = 0; h < kv->setup.shape.kv_heads; h++)
            kv_copy(kv, kv->policy->row_at(kv, seq, m, h, to), kv->policy->row_at(kv, seq, m, h, from),
                    kv_row_bytes(kv));
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

struct clearing {
    char *from;
    size_t bytes;
};

enum { CLEAR_BYTES = 1 << 18 };

static void clear_part(void *arg, size_t index)
{
    const struct clearing *c = arg;
    const size_t at = index * CLEAR_BYTES;
    memset(c->from + at, 0, size_min(CLEAR_BYTES, c->bytes - at));
}

void kv_zero(char *from, size_t bytes)
{
    struct clearing clearing = {from, bytes};
    parallel_for(div_up(bytes, CLEAR_BYTES), bytes, clear_part, &clearing);
}

struct commitment {
    char *at;
    size_t stride, bytes;
    atomic_bool failed;
};

static void commit_head(void *arg, size_t head)
{
    struct commitment *c = arg;
    if (!vm_commit(c->at + head * c->stride, c->bytes))
        atomic_store(&c->failed, true);
}

bool kv_commit_memory(const struct kv *kv, char *at, size_t stride, size_t heads, size_t rows)
{
    struct commitment c = {at, stride, rows * kv_row_bytes(kv), false};
    parallel_for(heads, heads * c.bytes, commit_head, &c);
    return !c.failed;
}

void kv_count_memory(struct kv *kv, size_t more, size_t less)
{
    kv->stats.resident_bytes += more;
    kv->stats.peak_bytes = size_max(kv->stats.peak_bytes, kv->stats.resident_bytes);
    kv->stats.resident_bytes -= less;
}
