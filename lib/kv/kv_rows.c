/* Small things that storage of every kind needs. */
#include "kv/kv_rows.h"

#include <stdatomic.h>

#include "base/threads.h"

void kv_store_row(const struct kv *kv, char *to, const float *from)
{
    dtype_narrow(to, kv->setup.shape.type, from, kv->setup.shape.head_dim);
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

void kv_count_copied(struct kv *kv, size_t rows)
{
    kv->stats.copied_rows += rows;
    kv->stats.copied_bytes +=
        rows * 2 * kv->setup.shape.layers * kv->setup.shape.kv_heads * kv_row_bytes(kv);
}
