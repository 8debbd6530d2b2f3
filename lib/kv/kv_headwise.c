/* headwise: a cache larger than memory. Rows lie in a file, head by head; in memory are the heads that fit, and two buffers
 * of a group of the others: while attention works on one, the next is read (headinfer paper 4). */
#include "base/clock.h"
#include "kv/kv_heads.h"

static int room(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    struct kv_seq *s = &kv->seq[seq];
    struct heads *h = heads_of(kv);
    const double start = clock_ms();
    if (heads_reserve(kv, seq, err) < 0)
        return -1;
    buffers_wait(kv, seq);
    heads_retreat(kv, seq, s->n, false);
    buffers_cut(kv, seq, s->n);
    heads_thin(kv, seq);
    if (heads_fit(kv, seq, rows, err) < 0 || heads_say(kv, err) < 0)
        return -1;
    for (size_t l = 0; l < kv->setup.shape.layers && h->group; l++)
        heads_flush(kv, seq, l, heads_whole(kv, s->n));
    heads_count(kv, seq, rows);
    const size_t cap = size_min(round_up(s->n + rows, kv->setup.r), kv->setup.shape.max_rows);
    kv->stats.allocations += cap > s->cap;
    s->cap = size_max(s->cap, cap);
    kv->stats.alloc_ms += clock_ms() - start;
    return 0;
}

static char *row_at(const struct kv *kv, size_t seq, size_t matrix, size_t head, size_t row)
{
    return heads_at(kv, seq, matrix / 2, matrix % 2, head) + row * kv_row_bytes(kv);
}

static void append(struct kv *kv, size_t seq, size_t layer, size_t first, size_t rows, const float *k,
                   const float *v, size_t stride)
{
    kv_rows_append(kv, seq, layer, first, rows, k, v, stride);
    if (rows <= KV_PIECE_ROWS || !heads_of(kv)->group)
        return;
    heads_finish(kv, seq);
    heads_flush(kv, seq, layer, heads_whole(kv, kv->seq[seq].n + first + rows));
}

/* The first head that does not stay, from here on; false: they all do. */
static bool find_away(const struct kv *kv, size_t *layer, size_t *head)
{
    const struct heads *h = heads_of(kv);
    for (; *layer < kv->setup.shape.layers; ++*layer, *head = 0)
        for (*head = size_max(*head, h->stay[*layer]); *head < kv->setup.shape.kv_heads; ++*head)
            if (!heads_sparse(kv, *layer, *head))
                return true;
    return false;
}

/* Heads that stay need no reading: then the next ones that do not are read, which attention comes to later. */
static void announce(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads)
{
    const struct heads *h = heads_of(kv);
    const size_t end = kv->setup.shape.kv_heads;
    (void)heads;
    if (!h->group || !find_away(kv, &layer, &head))
        return;
    head = head / h->group * h->group;
    buffers_fetch(kv, seq, layer, head, size_min(h->group, end - head));
}

static int view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                struct kv_view *out, struct err *err)
{
    struct heads *h = heads_of(kv);
    out->offset = 0;
    out->n_spans = valid > 0;
    out->span = out->few;
    if (!valid)
        return 0;
    const char *k = heads_at(kv, seq, layer, 0, head);
    if (heads_sparse(kv, layer, head)) {
        out->sink = h->sparse.sink;
        out->recent = h->sparse.recent;
    } else if (head + heads > h->stay[layer]) {
        pthread_mutex_lock(&h->lock);
        k = heads_say(kv, err) < 0 ? NULL : buffers_view(kv, seq, layer, head, heads, valid, err);
        pthread_mutex_unlock(&h->lock);
    }
    const size_t bytes = kv_row_bytes(kv);
    if (k)
        out->few[0] = (struct kv_span){
            k, k + kv->setup.shape.kv_heads * h->stride, h->stride, bytes, 0, valid, valid, NULL};
    return k ? 0 : -1;
}

static void keep(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra)
{
    struct heads *h = heads_of(kv);
    if (!h->seq[seq].rows)
        return;
    if (rows + n_extra) {
        buffers_wait(kv, seq);
        heads_retreat(kv, seq, rows, n_extra > 0);
        kv_rows_close_up(kv, seq, rows, extra, n_extra);
        buffers_cut(kv, seq, rows);
        heads_shrink(kv, seq, rows + n_extra);
        return;
    }
    buffers_clear(kv, seq);
    heads_clear(kv, seq);
    kv->seq[seq].cap = kv->seq[seq].n = kv->seq[seq].pending = 0;
    heads_count(kv, seq, 0);
    if (h->counted)
        return;
    /* Nothing is left: what comes may stay in memory again. */
    for (size_t l = 0; l < kv->setup.shape.layers; l++)
        h->stay[l] = kv->setup.shape.kv_heads;
    h->group = kv->setup.heads_at_once = 0;
}

static int fork_rows(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    bool *copying = &heads_of(kv)->seq[to].copying;
    *copying = true;
    int rc = room(kv, to, rows, err);
    if (rc == 0) {
        const double start = clock_ms();
        heads_copy(kv, to, from, rows);
        kv->stats.copied_rows += rows;
        kv->stats.copy_ms += clock_ms() - start;
        rc = heads_say(kv, err);
    }
    *copying = false;
    return rc;
}

static const struct kv_reading reading = {.announce = announce};

/* What a sparse head has at the end of so many rows, of its blocks. */
static size_t sparse_bytes(const struct kv *kv, size_t rows)
{
    const struct kv_sparse *sparse = &heads_of(kv)->sparse;
    const size_t first = heads_begun(kv, sparse->sink),
                 gone = heads_whole(kv, kv_recent_start(rows, sparse->recent));
    return heads_begun(kv, rows) - (gone - size_min(first, gone));
}

static size_t bytes_of(const struct kv *kv, size_t rows)
{
    const struct kv_shape *shape = &kv->setup.shape;
    const size_t sparse = heads_of(kv)->sparse.n, whole = shape->layers * shape->kv_heads - sparse;
    return size_plus(size_times(2 * whole, heads_begun(kv, rows)),
                     size_times(2 * sparse, sparse_bytes(kv, rows)));
}

/* Two buffers of a group; of every head what has not become whole blocks yet, and the two last short steps; rows of a long one
 * besides. Blocks may be whole when a step begins. */
static size_t least_of(const struct kv *kv, size_t rows, size_t step)
{
    const struct kv_shape *shape = &kv->setup.shape;
    const struct kv_sparse *sparse = &heads_of(kv)->sparse;
    const size_t piece = heads_begun(kv, 2 * size_min(step, KV_PIECE_ROWS));
    const struct kv_memory m = {
        .layers = shape->layers,
        .kv_heads = shape->kv_heads,
        .head_bytes = size_times(2, heads_begun(kv, rows)),
        .tail_bytes = step ? 2 * (piece + 2 * SPILL_BLOCK) : 0,
        .other_bytes =
            step ? size_max(heads_passing(kv, step, false), heads_passing(kv, rows, true)) : 0,
        .sparse = sparse->n ? sparse : NULL,
        .sparse_bytes =
            size_times(2 * sparse->n, size_plus(sparse_bytes(kv, rows), heads_begun(kv, step))),
    };
    return kv_plan_bytes(&m, size_min(size_max(kv->spec.spill.group, 1), shape->kv_heads), 0);
}

const struct kv_policy kv_policy_headwise = {
    .name = "headwise",
    .summary =
        "heads that memory does not hold lie in a file (headwise:ram=1G,dir=/var/tmp,group=auto)",
    .growth = &kv_grow_on_disk,
    .rows = KV_ROWS_VALID,
    .sparse = true,
    .reading = &reading,
    .open = heads_open,
    .room = room,
    .row_at = row_at,
    .append = append,
    .view = view,
    .keep = keep,
    .fork = fork_rows,
    .adopt = NULL,
    .bytes = bytes_of,
    .least = least_of,
    .beyond = heads_beyond,
    .close = heads_close,
};
