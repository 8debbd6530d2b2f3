/* Loads saved rows into a sequence (kv_attach()) and reads them back (kv_read()), for snapshots. */
#include <stdatomic.h>

#include "base/clock.h"
#include "base/threads.h"
#include "kv/kv_rows.h"

static bool has_types(const struct kv *kv, const struct kv_layer_rows *layer)
{
    bool same = true;
    for (size_t l = 0; l < kv->setup.shape.layers; l++)
        same = same && kv_types_equal(layer[l].types, kv_sizes_types(kv_layer_sizes(kv, l)));
    return same;
}

bool kv_attaches(const struct kv *kv, const struct kv_layer_rows *layer)
{
    return kv->policy->attach && !kv->spec.lockstep && !kv->spec.layer_memory && has_types(kv, layer);
}

/* Rows [first, first + rows) of the caller's memory, which become the next ones of the sequence. */
struct append {
    struct kv *kv;
    size_t seq;
    const struct kv_layer_rows *layer; /* [part][layers], of parts of `stored` rows */
    size_t first, rows, stored;
    atomic_size_t kept_bytes;
};

/* Appends the rows of a part. */
static void append_part(void *arg, size_t index)
{
    struct append *a = arg;
    const size_t layers = a->kv->setup.shape.layers, part = a->first / a->stored + index,
                 begin = size_max(a->first, part * a->stored),
                 end = size_min(a->first + a->rows, (part + 1) * a->stored);
    for (size_t l = 0; l < layers; l++) {
        const struct kv_layer_rows *from = &a->layer[part * layers + l];
        const size_t d = kv_layer_sizes(a->kv, l)->head_dim, k = dtype_row_bytes(from->types.k, d),
                     v = dtype_row_bytes(from->types.v, d), at = begin - part * a->stored;
        a->kept_bytes += kv_rows_store(a->kv, a->seq, l, begin - a->first, end - begin,
                                       (const struct kv_row_source[]){
                                           {addr_add(from->k, at * k), from->types.k, k, a->stored * k},
                                           {addr_add(from->v, at * v), from->types.v, v, a->stored * v},
                                       },
                                       NULL);
    }
}

/* Appends rows [first, first + rows) of the caller's memory: copies of those of the cache's types, so that none is
 * quantised twice. */
static int append_rows(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, size_t first,
                       size_t rows, size_t stored, struct err *err)
{
    const struct kv_shape *shape = &kv->setup.shape;
    const bool same = has_types(kv, layer);
    if (!same && kv_shape_dim(shape) > MEMORY_STORE_ELEMENTS)
        return err_set(err, "KV heads of %zu elements are not converted: load it with the type it has",
                       kv_shape_dim(shape));
    if (kv->policy->ensure(kv, seq, rows, err) < 0)
        return -1;
    kv->seq[seq].pending = rows;
    const double start = clock_ms();
    struct append a = {kv, seq, layer, first, rows, stored, 0};
    parallel_for((first + rows - 1) / stored - first / stored + 1, kv_rows_bytes(kv, rows), append_part,
                 &a);
    if (!same)
        atomic_fetch_add(&kv->converted_rows, kv->n_heads * rows);
    kv_count_copied(kv, same ? a.kept_bytes : kv_rows_bytes(kv, rows));
    kv->stats.copy_ms += clock_ms() - start;
    kv->stats.copied_rows += rows;
    return 0;
}

/* All at once, or in chunks where an offloading cache limits memory. On error the sequence is as before. */
static int append_all(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, size_t first,
                      size_t rows, size_t stored, struct err *err)
{
    struct kv_seq *s = &kv->seq[seq];
    const size_t before = kv_position(kv, seq), most = kv->policy->prefetch ? KV_CHUNK_ROWS : rows;
    for (size_t at = 0, n; at < rows; at += n) {
        n = size_min(most, rows - at);
        const int rc = append_rows(kv, seq, layer, first + at, n, stored, err);
        s->pending = 0;
        if (rc < 0) {
            kv_truncate(kv, seq, s->n ? before : 0);
            return -1;
        }
        s->n += n;
    }
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
    return first && (rows != most || kv->setup.sinks) ? 0 : size_min(rows, most);
}

int kv_attach(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, size_t first, size_t rows,
              size_t stored, struct err *err)
{
    struct kv_seq *s = &kv->seq[seq];
    if (s->n || !rows || rows > stored || rows > kv_attachable(kv, first, rows) || stored % TILE_ROWS)
        return err_set(err,
                       "cannot load %zu of %zu tokens at position %zu into an empty sequence of at "
                       "most %zu",
                       rows, stored, first, kv->setup.shape.max_rows);
    if (kv_attaches(kv, layer))
        return attach_in_place(kv, seq, layer, rows, stored, err);
    s->first = first;
    return append_all(kv, seq, layer, 0, rows, stored, err);
}

int kv_extend(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, size_t first, size_t rows,
              size_t stored, size_t expected, struct err *err)
{
    if (rows > kv_left(kv, seq) || kv_position(kv, seq) + rows > kv->untrimmed_limit)
        return err_set(err, "cannot load %zu tokens at position %zu into a sequence of at most %zu",
                       rows, kv_position(kv, seq), kv->setup.shape.max_rows);
    const size_t ahead =
        kv->policy->prefetch || kv->policy->rolling ? rows : size_min(expected, kv_left(kv, seq));
    return ahead > rows && kv->policy->ensure(kv, seq, ahead, err) < 0
               ? -1
               : append_all(kv, seq, layer, first, rows, stored, err);
}

static void prefetch_head(struct kv *kv, size_t seq, size_t layer, size_t head)
{
    const size_t most = size_max(1, kv->offload.heads_at_once), from = head / most * most;
    kv_prefetch(kv, seq, layer, from, size_min(most, kv_layer_sizes(kv, layer)->kv_heads - from));
}

/* Copies those rows at positions [first, end) of one head that a span has, K or V at `from`, to
 * out[end - first][head_dim]. */
static void read_span(const struct kv *kv, const struct kv_span *span, struct device_addr from,
                      size_t matrix, size_t first, size_t end, size_t bytes, char *out)
{
    const size_t begin = size_max(span->first, first), last = size_min(span->first + span->valid, end);
    const bool packed = !span->row && span->row_stride[matrix] == bytes;
    for (size_t at = begin, n; at < last; at += n) {
        n = packed ? last - at : 1;
        kv->memory->read(out + (at - first) * bytes,
                         addr_add(from, (size_t)kv_span_row(span, matrix, at - span->first)),
                         n * bytes);
    }
}

int kv_read_rows(struct kv *kv, size_t seq, size_t layer, bool v, size_t head, size_t first,
                 size_t rows, void *out, struct err *err)
{
    kv = kv_home(kv, seq);
    const size_t bytes = kv_row_bytes(kv, layer, v);
    struct kv_view view;
    prefetch_head(kv, seq, layer, head);
    if (kv_view(kv, seq, layer, head, 1, &view, err) < 0)
        return -1;
    memset(out, 0, kv->policy->rolling ? rows * bytes : 0);
    for (size_t i = 0; i < view.n_spans; i++) {
        const struct kv_span *span = &view.span[i];
        read_span(kv, span, addr_add(v ? span->v : span->k, view.offset[v]), v, first, first + rows,
                  bytes, out);
    }
    return memory_failed(kv->memory, err);
}

int kv_read(struct kv *kv, size_t seq, size_t layer, bool v, size_t head, void *out, struct err *err)
{
    const struct kv_seq_info info = kv_seq_info(kv, seq);
    return kv_read_rows(kv, seq, layer, v, head, info.first, info.n, out, err);
}
