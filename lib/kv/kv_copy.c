/* Loads saved rows into a sequence (kv_attach()) and reads them back (kv_read()), for snapshots. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/kv_rows.h"

bool kv_attaches(const struct kv *kv, enum dtype type)
{
    return kv->policy->attach && !kv->spec.lockstep && kv->setup.shape.type == type;
}

static struct device_addr matrix_of(const struct kv_layer_rows *layer, bool v)
{
    return v ? layer->v : layer->k;
}

/* Copies rows [first, first + rows) of all layers from the caller's memory to a sequence's new rows, bit
 * for bit: they have the cache's type, so none is quantised twice. */
static void copy_rows(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, size_t first,
                      size_t rows, size_t stored)
{
    struct kv_copies copies;
    kv_copies_begin(&copies, kv);
    for (size_t h = 0; h < kv->n_heads; h++) {
        const struct kv_head *head = &kv->head[h];
        const size_t index = h - kv->first_head[head->layer],
                     heads = kv_layer_sizes(kv, head->layer)->kv_heads;
        struct device_addr from = addr_add(matrix_of(&layer[head->layer], index >= heads),
                                           (index % heads * stored + first) * head->bytes);
        for (size_t i = 0; i < rows; i++, from = addr_add(from, head->bytes)) {
            const struct device_addr to = kv->policy->row_at(kv, seq, h, kv->seq[seq].n + i);
            if (!addr_is_null(to))
                kv_copies_add(&copies, to, from, head->bytes, 0);
        }
    }
    kv_copies_end(&copies);
}

/* Rows of another type than the cache's: read, converted to f32 and written to the backend's memory for the
 * policy's append(), a chunk of them at a time. */
struct row_conversion {
    char *rows;  /* [KV_CHUNK_ROWS] of a head, as they are stored */
    float *wide; /* K, then V: [KV_CHUNK_ROWS][kv_heads * head_dim] */
    struct device_addr staged;
    size_t staged_bytes;
};

/* Dequantises rows [first, first + rows) of all heads from [KV head][stored][head_dim] of a type to
 * f32 [rows][kv_heads * head_dim]. */
static void gather(const struct kv *kv, const struct row_conversion *c, float *to,
                   const struct kv_sizes *sizes, struct device_addr from, enum dtype type,
                   size_t stored, size_t first, size_t rows)
{
    const size_t d = sizes->head_dim, width = sizes->kv_heads * d, bytes = dtype_row_bytes(type, d);
    for (size_t h = 0; h < sizes->kv_heads; h++) {
        kv->memory->read(c->rows, addr_add(from, (h * stored + first) * bytes), rows * bytes);
        for (size_t i = 0; i < rows; i++)
            dtype_to_f32(to + i * width + h * d, type, c->rows + i * bytes, d);
    }
}

static void convert_layer(struct kv *kv, size_t seq, size_t l, const struct row_conversion *c,
                          const struct kv_layer_rows *rows_of, enum dtype type, size_t first,
                          size_t rows, size_t stored)
{
    const struct kv_sizes *sizes = kv_layer_sizes(kv, l);
    const size_t width = sizes->kv_heads * sizes->head_dim, matrix = KV_CHUNK_ROWS * width;
    for (size_t at = 0, n; at < rows; at += n) {
        n = size_min(KV_CHUNK_ROWS, rows - at);
        for (size_t m = 0; m < kv_matrices(sizes); m++)
            gather(kv, c, c->wide + m * matrix, sizes, matrix_of(rows_of, m), type, stored, first + at,
                   n);
        kv->memory->write(c->staged, c->wide, kv_matrices(sizes) * matrix * sizeof(float));
        kv->policy->append(kv, seq, l, at, n, c->staged, addr_add(c->staged, matrix * sizeof(float)),
                           width);
    }
}

static int convert_rows(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, enum dtype type,
                        size_t first, size_t rows, size_t stored, struct err *err)
{
    const struct kv_shape *shape = &kv->setup.shape;
    const size_t bytes = 2 * KV_CHUNK_ROWS * kv_shape_width(shape) * sizeof(float);
    const struct row_conversion c = {
        mem_alloc(KV_CHUNK_ROWS, dtype_row_bytes(type, kv_shape_dim(shape))), mem_zalloc(1, bytes),
        kv->memory->alloc(VM_MALLOC, bytes), bytes};
    const bool all = c.rows && c.wide && !addr_is_null(c.staged);
    for (size_t l = 0; l < shape->layers && all; l++)
        convert_layer(kv, seq, l, &c, &layer[l], type, first, rows, stored);
    if (!addr_is_null(c.staged))
        kv->memory->free(VM_MALLOC, c.staged, bytes);
    free(c.rows);
    free(c.wide);
    return all ? 0 : err_no_memory(err, "%d tokens of KV cache", KV_CHUNK_ROWS);
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
        kv_count_copied(kv, kv_rows_bytes(kv, rows));
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

int kv_attach(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, enum dtype type,
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
    return 0;
}

static void prefetch_head(struct kv *kv, size_t seq, size_t layer, size_t head)
{
    const size_t most = size_max(1, kv->offload.heads_at_once), from = head / most * most;
    kv_prefetch(kv, seq, layer, from, size_min(most, kv_layer_sizes(kv, layer)->kv_heads - from));
}

/* Copies those rows at positions [first, end) of one head that a span has, K or V at `from`, to
 * out[end - first][head_dim]. */
static void read_span(const struct kv *kv, const struct kv_span *span, struct device_addr from,
                      size_t first, size_t end, size_t bytes, char *out)
{
    const size_t begin = size_max(span->first, first), last = size_min(span->first + span->valid, end);
    const bool packed = !span->row && span->row_stride == bytes;
    for (size_t at = begin, n; at < last; at += n) {
        n = packed ? last - at : 1;
        kv->memory->read(out + (at - first) * bytes,
                         addr_add(from, (size_t)kv_span_row(span, at - span->first)), n * bytes);
    }
}

int kv_read_rows(struct kv *kv, size_t seq, size_t layer, bool v, size_t head, size_t first,
                 size_t rows, void *out, struct err *err)
{
    const size_t bytes = kv_row_bytes(kv, layer);
    struct kv_view view;
    prefetch_head(kv, seq, layer, head);
    if (kv_view(kv, seq, layer, head, 1, &view, err) < 0)
        return -1;
    memset(out, 0, kv->policy->rolling ? rows * bytes : 0);
    for (size_t i = 0; i < view.n_spans; i++) {
        const struct kv_span *span = &view.span[i];
        read_span(kv, span, addr_add(v ? span->v : span->k, view.offset), first, first + rows, bytes,
                  out);
    }
    return 0;
}

int kv_read(struct kv *kv, size_t seq, size_t layer, bool v, size_t head, void *out, struct err *err)
{
    return kv_read_rows(kv, seq, layer, v, head, kv->seq[seq].first, kv->seq[seq].n, out, err);
}
