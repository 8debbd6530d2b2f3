/* The two buffers per sequence into which offloaded heads are read, in turn. */
#include <sys/mman.h>

#include "kv/offload/offload_heads.h"

void offload_buffers_truncate(struct kv *kv, size_t seq, size_t rows)
{
    struct offload_seq *s = &offload_of(kv)->seq[seq];
    for (size_t i = 0; i < 2; i++)
        s->buffer[i].good = size_min(s->buffer[i].good, rows * kv_row_bytes(kv));
}

static void wait_one(struct kv *kv, struct offload_buffer *b)
{
    struct err err;
    if (offload_file_wait(offload_of(kv)->offload_file, &b->ticket, &err) < 0)
        offload_set_error(kv, &err);
}

void offload_buffers_wait(struct kv *kv, size_t seq)
{
    for (size_t i = 0; i < 2; i++)
        wait_one(kv, &offload_of(kv)->seq[seq].buffer[i]);
}

static void empty(struct kv *kv, struct offload_buffer *b)
{
    wait_one(kv, b);
    b->heads = b->good = 0;
}

void offload_buffers_clear(struct kv *kv, size_t seq)
{
    struct offload_seq *s = &offload_of(kv)->seq[seq];
    const size_t bytes = kv_matrices(kv) * kv->setup.shape.kv_heads * offload_of(kv)->stride;
    for (size_t i = 0; i < 2 && s->rows; i++) {
        empty(kv, &s->buffer[i]);
        madvise(offload_head(kv, seq, kv->setup.shape.layers + i, 0, 0), bytes, MADV_DONTNEED);
    }
}

static struct offload_buffer *find(struct offload_seq *s, size_t layer, size_t head, size_t heads)
{
    for (size_t i = 0; i < 2; i++) {
        struct offload_buffer *b = &s->buffer[i];
        if (b->heads && b->layer == layer && b->head <= head && head + heads <= b->head + b->heads)
            return b;
    }
    return NULL;
}

static char *buffer_at(const struct kv *kv, size_t seq, const struct offload_buffer *b, size_t v,
                       size_t head)
{
    const size_t i = (size_t)(b - offload_of(kv)->seq[seq].buffer);
    return offload_head(kv, seq, kv->setup.shape.layers + i, v, head - b->head);
}

/* Starts to read from the file those blocks of the buffer's heads that the buffer lacks. */
static void read_missing(struct kv *kv, size_t seq, struct offload_buffer *b)
{
    const struct offload *h = offload_of(kv);
    const size_t from = b->good / OFFLOAD_BLOCK * OFFLOAD_BLOCK, to = h->seq[seq].flushed[b->layer];
    if (b->good >= to)
        return;
    for (size_t head = b->head; head < b->head + b->heads; head++)
        for (size_t v = 0; v < kv_matrices(kv) && !offload_is_streaming(kv, b->layer, head); v++)
            offload_file_read(h->offload_file, &b->ticket, buffer_at(kv, seq, b, v, head) + from,
                              offload_offset(kv, seq, b->layer, v, head) + from, to - from);
    b->good = to;
}

void offload_buffers_fetch(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads)
{
    struct offload_seq *s = &offload_of(kv)->seq[seq];
    struct offload_buffer *b = find(s, layer, head, heads);
    if (!b) {
        b = &s->buffer[1 - s->latest];
        empty(kv, b);
        b->layer = layer;
        b->head = head;
        b->heads = heads;
    }
    s->latest = (size_t)(b - s->buffer);
    read_missing(kv, seq, b);
}

/* Completes K and V of the buffer's heads up to byte `end`: copies the rows that are not in the
 * file from memory to the buffer. */
static void copy_tails(struct kv *kv, size_t seq, struct offload_buffer *b, size_t end)
{
    for (size_t head = b->head; head < b->head + b->heads && b->good < end; head++)
        for (size_t v = 0; v < kv_matrices(kv) && !offload_is_streaming(kv, b->layer, head); v++)
            kv_copy(kv, buffer_at(kv, seq, b, v, head) + b->good,
                    offload_head(kv, seq, b->layer, v, head) + b->good, end - b->good);
    b->good = size_max(b->good, end);
}

char *offload_buffers_view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads,
                           size_t rows, struct err *err)
{
    struct offload *h = offload_of(kv);
    struct offload_buffer *b = find(&h->seq[seq], layer, head, heads);
    if (!b || b->good < h->seq[seq].flushed[layer]) {
        err_set(err, "KV heads %zu to %zu of layer %zu are viewed without having been prefetched", head,
                head + heads - 1, layer);
        return NULL;
    }
    if (offload_file_wait(h->offload_file, &b->ticket, err) < 0) {
        b->heads = 0;
        return NULL;
    }
    copy_tails(kv, seq, b, rows * kv_row_bytes(kv));
    return buffer_at(kv, seq, b, 0, head);
}
