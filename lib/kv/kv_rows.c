/* Small things that storage of every kind needs. */
#include "kv/kv_rows.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/threads.h"

/* One row of one head into place, if it is kept, in the cache's type: the only time in its life that it is rounded. */
static void store_row(const struct kv *kv, char *to, const float *from)
{
    if (to)
        dtype_narrow(to, kv->setup.shape.type, from, kv->setup.shape.head_dim);
}

struct appending {
    struct kv *kv;
    size_t seq, layer, at, rows, stride;
    const float *k, *v;
};

static void append_head(void *arg, size_t h)
{
    const struct appending *a = arg;
    const struct kv *kv = a->kv;
    const size_t k_l = 2 * a->layer, v_l = k_l + 1, column = h * kv->setup.shape.head_dim;
    for (size_t i = 0; i < a->rows; i++) {
        const size_t from = i * a->stride + column;
        store_row(kv, kv->policy->row_at(kv, a->seq, k_l, h, a->at + i), a->k + from);
        store_row(kv, kv->policy->row_at(kv, a->seq, v_l, h, a->at + i), a->v + from);
    }
    atomic_fetch_add(&a->kv->rounded_rows, 2 * a->rows);
}

void kv_rows_append(struct kv *kv, size_t seq, size_t layer, size_t first, size_t rows, const float *k,
                    const float *v, size_t stride)
{
    struct appending a = {kv, seq, layer, kv->seq[seq].n + first, rows, stride, k, v};
    const size_t heads = kv->setup.shape.kv_heads;
    threads_each(heads, rows * heads * kv->setup.shape.head_dim, append_head, &a);
}

void kv_rows_copy(struct kv *kv, size_t to, size_t to_row, size_t from, size_t from_row)
{
    for (size_t m = 0; m < 2 * kv->setup.shape.layers; m++)
        for (size_t h = 0; h < kv->setup.shape.kv_heads; h++)
            kv_copy(kv, kv->policy->row_at(kv, to, m, h, to_row),
                    kv->policy->row_at(kv, from, m, h, from_row), kv_row_bytes(kv));
    kv->stats.copied_rows++;
}

void kv_rows_close_up(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n)
{
    const double start = clock_ms();
    for (size_t i = 0; i < n; i++)
        if (extra[i] != rows + i)
            kv_rows_copy(kv, seq, rows + i, seq, extra[i]);
    kv->stats.copy_ms += n ? clock_ms() - start : 0;
}

struct clearing {
    char *from;
    size_t bytes;
};

enum { PIECE = 1 << 18 };

static void clear_piece(void *arg, size_t index)
{
    const struct clearing *c = arg;
    const size_t at = index * PIECE;
    memset(c->from + at, 0, size_min(PIECE, c->bytes - at));
}

void kv_clear(char *from, size_t bytes)
{
    struct clearing clearing = {from, bytes};
    threads_each(div_up(bytes, PIECE), bytes, clear_piece, &clearing);
}

struct commitment {
    char *at;
    size_t stride, bytes;
    atomic_bool failed;
};

static void commit_head(void *arg, size_t head)
{
    struct commitment *c = arg;
    if (!pages_commit(c->at + head * c->stride, c->bytes))
        atomic_store(&c->failed, true);
}

bool kv_commit_rows(const struct kv *kv, char *at, size_t stride, size_t rows)
{
    const size_t heads = 2 * kv->setup.shape.layers * kv->setup.shape.kv_heads;
    struct commitment c = {at, stride, rows * kv_row_bytes(kv), false};
    threads_each(heads, heads * c.bytes, commit_head, &c);
    return !c.failed;
}

void kv_count_bytes(struct kv *kv, size_t more, size_t less)
{
    kv->stats.resident_bytes += more;
    kv->stats.peak_bytes = size_max(kv->stats.peak_bytes, kv->stats.resident_bytes);
    kv->stats.resident_bytes -= less;
}
