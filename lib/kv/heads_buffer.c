/* The two buffers that heads are read into, turn by turn. */
#include <sys/mman.h>

#include "kv/kv_heads.h"

void buffers_cut(struct kv *kv, size_t seq, size_t rows)
{
    struct heads_seq *s = &heads_of(kv)->seq[seq];
    for (size_t i = 0; i < 2; i++)
        s->buffer[i].good = size_min(s->buffer[i].good, rows * kv_row_bytes(kv));
}

static void wait_one(struct kv *kv, struct heads_buffer *b)
{
    struct err err;
    if (spill_wait(heads_of(kv)->spill, &b->reading, &err) < 0)
        heads_give_up(kv, &err);
}

void buffers_wait(struct kv *kv, size_t seq)
{
    for (size_t i = 0; i < 2; i++)
        wait_one(kv, &heads_of(kv)->seq[seq].buffer[i]);
}

static void forget(struct kv *kv, struct heads_buffer *b)
{
    wait_one(kv, b);
    b->heads = b->good = 0;
}

void buffers_clear(struct kv *kv, size_t seq)
{
    struct heads_seq *s = &heads_of(kv)->seq[seq];
    const size_t bytes = 2 * kv->setup.shape.kv_heads * heads_of(kv)->stride;
    for (size_t i = 0; i < 2 && s->rows; i++) {
        forget(kv, &s->buffer[i]);
        madvise(heads_at(kv, seq, kv->setup.shape.layers + i, 0, 0), bytes, MADV_DONTNEED);
    }
}

static struct heads_buffer *find(struct heads_seq *s, size_t layer, size_t head, size_t heads)
{
    for (size_t i = 0; i < 2; i++) {
        struct heads_buffer *b = &s->buffer[i];
        if (b->heads && b->layer == layer && b->head <= head && head + heads <= b->head + b->heads)
            return b;
    }
    return NULL;
}

/* Where a buffer has a head's K or V. */
static char *buffer_at(const struct kv *kv, size_t seq, const struct heads_buffer *b, size_t v,
                       size_t head)
{
    const size_t i = (size_t)(b - heads_of(kv)->seq[seq].buffer);
    return heads_at(kv, seq, kv->setup.shape.layers + i, v, head - b->head);
}

/* What the file has and the buffer lacks. */
static void read_missing(struct kv *kv, size_t seq, struct heads_buffer *b)
{
    const struct heads *h = heads_of(kv);
    const size_t from = b->good / SPILL_BLOCK * SPILL_BLOCK, to = h->seq[seq].flushed[b->layer];
    if (b->good >= to)
        return;
    for (size_t head = b->head; head < b->head + b->heads; head++)
        for (size_t v = 0; v < 2 && !heads_sparse(kv, b->layer, head); v++)
            spill_read(h->spill, &b->reading, buffer_at(kv, seq, b, v, head) + from,
                       heads_offset(kv, seq, b->layer, v, head) + from, to - from);
    b->good = to;
}

void buffers_fetch(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads)
{
    struct heads_seq *s = &heads_of(kv)->seq[seq];
    struct heads_buffer *b = find(s, layer, head, heads);
    if (!b) {
        b = &s->buffer[1 - s->latest];
        forget(kv, b);
        b->layer = layer;
        b->head = head;
        b->heads = heads;
    }
    s->latest = (size_t)(b - s->buffer);
    read_missing(kv, seq, b);
}

/* Rows that stayed in memory come behind those of the file: up to `end` bytes. */
static void copy_tails(struct kv *kv, size_t seq, struct heads_buffer *b, size_t end)
{
    for (size_t head = b->head; head < b->head + b->heads && b->good < end; head++)
        for (size_t v = 0; v < 2 && !heads_sparse(kv, b->layer, head); v++)
            kv_copy(kv, buffer_at(kv, seq, b, v, head) + b->good,
                    heads_at(kv, seq, b->layer, v, head) + b->good, end - b->good);
    b->good = size_max(b->good, end);
}

char *buffers_view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t rows,
                   struct err *err)
{
    struct heads *h = heads_of(kv);
    struct heads_buffer *b = find(&h->seq[seq], layer, head, heads);
    if (!b || b->good < h->seq[seq].flushed[layer]) {
        err_set(err, "heads %zu to %zu of layer %zu are viewed, and were not announced", head,
                head + heads - 1, layer);
        return NULL;
    }
    if (spill_wait(h->spill, &b->reading, err) < 0) {
        b->heads = 0;
        return NULL;
    }
    copy_tails(kv, seq, b, rows * kv_row_bytes(kv));
    return buffer_at(kv, seq, b, 0, head);
}
