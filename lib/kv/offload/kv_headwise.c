/* headwise: a cache larger than memory (HeadInfer paper 4). KV heads that do not fit are offloaded
 * to a file; while attention computes one group of them, the next is read into the other of two
 * buffers. */
#include "base/clock.h"
#include "kv/offload/offload_heads.h"

static int ensure(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    struct kv_seq *s = &kv->seq[seq];
    struct offload *h = offload_of(kv);
    const double start = clock_ms();
    if (offload_reserve(kv, seq, err) < 0)
        return -1;
    offload_buffers_wait(kv, seq);
    offload_reopen_tail(kv, seq, s->n, false);
    offload_buffers_truncate(kv, seq, s->n);
    offload_drop_unseen(kv, seq);
    if (offload_budget(kv, seq, rows, err) < 0 || offload_report(kv, err) < 0)
        return -1;
    for (size_t l = 0; l < kv->setup.shape.layers && h->group; l++)
        offload_flush(kv, seq, l, offload_blocks_down(kv, s->n));
    offload_count(kv, seq, rows);
    const size_t cap = size_min(round_up(s->n + rows, kv->setup.r), kv->setup.shape.max_rows);
    kv->stats.allocations += cap > s->cap;
    s->cap = size_max(s->cap, cap);
    kv->stats.alloc_ms += clock_ms() - start;
    return 0;
}

static char *row_at(const struct kv *kv, size_t seq, size_t matrix, size_t head, size_t row)
{
    const size_t n = kv_matrices(kv);
    return offload_head(kv, seq, matrix / n, matrix % n, head) + row * kv_row_bytes(kv);
}

static void append(struct kv *kv, size_t seq, size_t layer, size_t first, size_t rows, const float *k,
                   const float *v, size_t stride)
{
    kv_rows_append(kv, seq, layer, first, rows, k, v, stride);
    if (rows <= KV_CHUNK_ROWS || !offload_of(kv)->group)
        return;
    offload_flush_wait(kv, seq);
    offload_flush(kv, seq, layer, offload_blocks_down(kv, kv->seq[seq].n + first + rows));
}

/* Finds the first offloaded head at or after head *head of layer *layer; false if there is none. */
static bool next_offloaded(const struct kv *kv, size_t *layer, size_t *head)
{
    const struct offload *h = offload_of(kv);
    for (; *layer < kv->setup.shape.layers; ++*layer, *head = 0)
        for (*head = size_max(*head, h->resident[*layer]); *head < kv->setup.shape.kv_heads; ++*head)
            if (!offload_is_streaming(kv, *layer, *head))
                return true;
    return false;
}

/* Finds the first offloaded head at or after head `head` of `layer`, and starts to read the group
 * of heads that it belongs to from the file. */
static void prefetch(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads)
{
    const struct offload *h = offload_of(kv);
    const size_t end = kv->setup.shape.kv_heads;
    (void)heads;
    if (!h->group || !next_offloaded(kv, &layer, &head))
        return;
    head = head / h->group * h->group;
    offload_buffers_fetch(kv, seq, layer, head, size_min(h->group, end - head));
}

static int view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                struct kv_view *out, struct err *err)
{
    struct offload *h = offload_of(kv);
    out->offset = 0;
    out->n_spans = valid > 0;
    out->span = out->inline_span;
    if (!valid)
        return 0;
    const char *k = offload_head(kv, seq, layer, 0, head);
    if (offload_is_streaming(kv, layer, head)) {
        out->sink = h->streaming.sink;
        out->recent = h->streaming.recent;
    } else if (head + heads > h->resident[layer]) {
        pthread_mutex_lock(&h->lock);
        k = offload_report(kv, err) < 0 ? NULL
                                        : offload_buffers_view(kv, seq, layer, head, heads, valid, err);
        pthread_mutex_unlock(&h->lock);
    }
    const size_t bytes = kv_row_bytes(kv),
                 to_v = kv_v_matrix(kv, 0) * kv->setup.shape.kv_heads * h->stride;
    if (k)
        out->inline_span[0] = (struct kv_span){k, k + to_v, h->stride, bytes, 0, valid, valid, NULL};
    return k ? 0 : -1;
}

static void accept(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra)
{
    struct offload *h = offload_of(kv);
    if (!h->seq[seq].rows)
        return;
    if (rows + n_extra) {
        offload_buffers_wait(kv, seq);
        offload_reopen_tail(kv, seq, rows, n_extra > 0);
        kv_rows_compact(kv, seq, rows, extra, n_extra);
        offload_buffers_truncate(kv, seq, rows);
        offload_shrink(kv, seq, rows + n_extra);
        return;
    }
    offload_buffers_clear(kv, seq);
    offload_clear(kv, seq);
    kv->seq[seq].cap = kv->seq[seq].n = kv->seq[seq].pending = 0;
    offload_count(kv, seq, 0);
    if (h->counted)
        return;
    /* all sequences are empty: start over with all heads in memory */
    for (size_t l = 0; l < kv->setup.shape.layers; l++)
        h->resident[l] = kv->setup.shape.kv_heads;
    h->group = kv->offload.heads_at_once = 0;
}

static int fork_rows(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    bool *copying = &offload_of(kv)->seq[to].copying;
    *copying = true;
    int rc = ensure(kv, to, rows, err);
    if (rc == 0) {
        const double start = clock_ms();
        offload_copy(kv, to, from, rows);
        kv->stats.copied_rows += rows;
        kv->stats.copy_ms += clock_ms() - start;
        rc = offload_report(kv, err);
    }
    *copying = false;
    return rc;
}

const struct kv_policy kv_policy_headwise = {
    .name = "headwise",
    .growth = &kv_growth_offload,
    .attend = KV_ATTEND_VALID,
    .open = offload_open,
    .close = offload_close,
    .ensure = ensure,
    .row_at = row_at,
    .append = append,
    .view = view,
    .accept = accept,
    .fork = fork_rows,
    .bytes = offload_bytes,
    .prefetch = prefetch,
};
