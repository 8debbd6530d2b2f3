/* Loads saved rows into a sequence (kv_attach()) and reads them back (kv_read()), for snapshots. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/kv_rows.h"

bool kv_attaches(const struct kv *kv, enum dtype type)
{
    return kv->policy->attach && !kv->spec.lockstep && kv->setup.shape.type == type;
}

/* Dequantises rows [first, first + rows) of all heads from [KV head][stored][head_dim] of a type to
 * f32 [rows][kv_heads * head_dim]. */
static void gather(const struct kv *kv, float *to, const void *from, enum dtype type, size_t stored,
                   size_t first, size_t rows)
{
    const size_t d = kv->setup.shape.head_dim, width = kv->setup.shape.kv_heads * d;
    for (size_t h = 0; h < kv->setup.shape.kv_heads; h++)
        for (size_t i = 0; i < rows; i++) {
            float *to_ih = to + i * width + h * d;
            dtype_to_f32(to_ih, type,
                         (const char *)from + (h * stored + first + i) * dtype_row_bytes(type, d), d);
        }
}

/* Copies rows [first, first + rows) of all layers from the caller's memory to a sequence's new rows, bit
 * for bit: they have the cache's type, so none is quantised twice. */
static void copy_rows(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, size_t first,
                      size_t rows, size_t stored)
{
    const size_t bytes = kv_row_bytes(kv), matrices = kv_matrices(kv);
    for (size_t m = 0; m < matrices * kv->setup.shape.layers; m++)
        for (size_t h = 0; h < kv->setup.shape.kv_heads; h++) {
            const struct kv_layer_rows *own = &layer[m / matrices];
            const char *from = (m % matrices ? own->v : own->k) + (h * stored + first) * bytes;
            for (size_t i = 0; i < rows; i++) {
                char *to = kv->policy->row_at(kv, seq, m, h, kv->seq[seq].n + i);
                if (to)
                    kv_copy(kv, to, from + i * bytes, bytes);
            }
        }
}

/* Copies rows [first, first + rows) of all layers, of another type than the cache's, from the
 * caller's memory to a sequence: in chunks that are converted to f32 for the policy's append(). */
static int convert_rows(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, enum dtype type,
                        size_t first, size_t rows, size_t stored, struct err *err)
{
    const size_t width = kv->setup.shape.kv_heads * kv->setup.shape.head_dim;
    float *k = mem_alloc(2 * KV_CHUNK_ROWS, width * sizeof *k);
    if (!k)
        return err_no_memory(err, "%d tokens of KV cache", KV_CHUNK_ROWS);
    float *v = k + KV_CHUNK_ROWS * width;
    for (size_t l = 0; l < kv->setup.shape.layers; l++)
        for (size_t at = 0, n; at < rows; at += n) {
            n = size_min(KV_CHUNK_ROWS, rows - at);
            gather(kv, k, layer[l].k, type, stored, first + at, n);
            if (kv_matrices(kv) > 1)
                gather(kv, v, layer[l].v, type, stored, first + at, n);
            kv->policy->append(kv, seq, l, at, n, k, v, width);
        }
    free(k);
    return 0;
}

static int append_rows(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, enum dtype type,
                       size_t first, size_t rows, size_t stored, struct err *err)
{
    if (kv->policy->ensure(kv, seq, rows, err) < 0)
        return -1;
    kv->seq[seq].pending = rows;
    const double start = clock_ms();
    if (type == kv->setup.shape.type && kv->policy->row_at) {
        copy_rows(kv, seq, layer, first, rows, stored);
    } else {
        if (convert_rows(kv, seq, layer, type, first, rows, stored, err) < 0)
            return -1;
        kv_count_copied(kv, rows * kv_shape_row_bytes(&kv->setup.shape));
    }
    kv->stats.copy_ms += clock_ms() - start;
    kv->stats.copied_rows += rows;
    return 0;
}

static int attach_in_place(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, size_t rows,
                           size_t stored, struct err *err)
{
    struct kv_seq *s = &kv->seq[seq];
    if (kv->policy->attach(kv, seq, layer, rows, stored, err) < 0)
        return -1;
    s->attached = true;
    s->n = s->cap = s->clean = rows;
    s->stored = stored;
    kv->stats.attached_rows += rows;
    kv->stats.attached_bytes += kv_rows_bytes(kv, stored);
    return 0;
}

size_t kv_attachable(const struct kv *kv, size_t first, size_t rows)
{
    if (!kv->policy->rolling)
        return first ? 0 : size_min(rows, kv->setup.shape.max_rows);
    const size_t most = kv->setup.window - 1;
    return first && rows != most ? 0 : size_min(rows, most);
}

/* kv_attach() for the layers of one of both sizes. */
static int attach_layers(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, enum dtype type,
                         size_t first, size_t rows, size_t stored, struct err *err)
{
    struct kv_seq *s = &kv->seq[seq];
    if (s->n || !rows || rows > stored || rows > kv_attachable(kv, first, rows) || stored % TILE_ROWS)
        return err_set(err,
                       "cannot load %zu of %zu tokens at position %zu into an empty sequence of at "
                       "most %zu",
                       rows, stored, first, kv->setup.shape.max_rows);
    if (kv_attaches(kv, type))
        return attach_in_place(kv, seq, layer, rows, stored, err);
    /* all rows at once, or in chunks where an offloading cache limits memory */
    s->first = first;
    const size_t most = kv->policy->prefetch ? KV_CHUNK_ROWS : rows;
    for (size_t at = 0; at < rows; at = s->n) {
        const size_t more = size_min(most, rows - at);
        if (append_rows(kv, seq, layer, type, at, more, stored, err) < 0) {
            kv_truncate(kv, seq, 0);
            return -1;
        }
        s->n += more;
        s->pending = 0;
    }
    return 0;
}

int kv_attach(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, enum dtype type,
              size_t first, size_t rows, size_t stored, struct err *err)
{
    if (attach_layers(kv, seq, layer, type, first, rows, stored, err) < 0)
        return -1;
    if (!kv->other || attach_layers(kv->other, seq, layer + kv->setup.shape.layers, type, first, rows,
                                    stored, err) == 0)
        return 0;
    kv_truncate(kv, seq, 0);
    return -1;
}

int kv_extend(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, size_t first, size_t rows,
              size_t stored, size_t expected, struct err *err)
{
    struct kv_seq *s = &kv->seq[seq];
    if (rows > kv_left(kv, seq) || kv_position(kv, seq) + rows > kv->untrimmed_limit)
        return err_set(err, "cannot load %zu tokens at position %zu into a sequence of at most %zu",
                       rows, kv_position(kv, seq), kv->setup.shape.max_rows);
    const size_t ahead =
        kv->policy->prefetch || kv->policy->rolling ? rows : size_min(expected, kv_left(kv, seq));
    if ((ahead > rows && kv->policy->ensure(kv, seq, ahead, err) < 0) ||
        append_rows(kv, seq, layer, kv->setup.shape.type, first, rows, stored, err) < 0) {
        s->pending = 0;
        return -1;
    }
    s->n += rows;
    s->pending = 0;
    if (!kv->other || kv_extend(kv->other, seq, layer + kv->setup.shape.layers, first, rows, stored,
                                expected, err) == 0)
        return 0;
    kv->policy->accept(kv, seq, s->n - rows, NULL, 0);
    s->n -= rows;
    return -1;
}

static void prefetch_head(struct kv *kv, size_t seq, size_t layer, size_t head)
{
    const size_t most = size_max(1, kv->offload.heads_at_once), from = head / most * most;
    kv_prefetch(kv, seq, layer, from, size_min(most, kv->setup.shape.kv_heads - from));
}

/* Copies those rows at positions [first, end) of one head that a span has, K or V at `from`, to
 * out[end - first][head_dim]. */
static void read_span(const struct kv *kv, const struct kv_span *span, const char *from, size_t first,
                      size_t end, char *out)
{
    const size_t bytes = kv_row_bytes(kv), last = size_min(span->first + span->valid, end);
    for (size_t at = size_max(span->first, first); at < last; at++)
        memcpy(out + (at - first) * bytes, from + kv_span_row(span, at - span->first), bytes);
}

int kv_read_rows(struct kv *kv, size_t seq, size_t layer, bool v, size_t head, size_t first,
                 size_t rows, void *out, struct err *err)
{
    kv = kv_of_layer(kv, &layer);
    struct kv_view view;
    prefetch_head(kv, seq, layer, head);
    if (kv_view(kv, seq, layer, head, 1, &view, err) < 0)
        return -1;
    memset(out, 0, kv->policy->rolling ? rows * kv_row_bytes(kv) : 0);
    for (size_t i = 0; i < view.n_spans; i++) {
        const struct kv_span *span = &view.span[i];
        read_span(kv, span, (const char *)(v ? span->v : span->k) + view.offset, first, first + rows,
                  out);
    }
    return 0;
}

int kv_read(struct kv *kv, size_t seq, size_t layer, bool v, size_t head, void *out, struct err *err)
{
    return kv_read_rows(kv, seq, layer, v, head, kv->seq[seq].first, kv->seq[seq].n, out, err);
}
