/* Storage of KV entries by head, in memory and in a file. */
#include "kv/offload/offload_heads.h"

#include "base/mem.h"

/* Bytes of address space of a sequence: all layers, and two buffers. */
static size_t seq_bytes(const struct kv *kv) { return offload_of(kv)->at[kv->n_heads + 2]; }

/* The same in the file: all layers. */
static size_t file_bytes(const struct kv *kv) { return offload_of(kv)->at[kv->n_heads]; }

/* Offset of a head, K or V, in the file. */
static size_t offload_offset(const struct kv *kv, size_t seq, size_t head)
{
    return seq * file_bytes(kv) + offload_of(kv)->at[head];
}

/* Lays out the address space; false: it is larger than that of the process. */
static bool lay_out(struct kv *kv, struct offload *h)
{
    const size_t rows = round_up(kv->setup.shape.max_rows, TILE_ROWS);
    size_t all = 0;
    for (size_t i = 0; i < kv->n_heads; i++) {
        const size_t stride = offload_blocks_up(kv->head[i].bytes, rows);
        h->at[i] = all;
        h->widest = size_max(h->widest, stride);
        if (!size_add(all, stride, &all))
            return false;
    }
    for (size_t i = 0; i < 3; i++) {
        size_t bytes;
        h->at[kv->n_heads + i] = all;
        if (!size_mul(2 * kv_shape_heads(&kv->setup.shape), h->widest, &bytes) ||
            !size_add(all, i < 2 ? bytes : 0, &all))
            return false;
    }
    return size_mul(all, kv->setup.n_seqs, &all) && all <= SIZE_MAX / 4;
}

static bool open_tables(struct kv *kv, struct offload *h)
{
    const size_t layers = kv->setup.shape.layers;
    h->resident = mem_alloc(layers, sizeof *h->resident);
    h->at = mem_alloc(kv->n_heads + 3, sizeof *h->at);
    h->seq = mem_zalloc(kv->setup.n_seqs, sizeof *h->seq);
    bool ok = h->resident && h->at && h->seq;
    for (size_t s = 0; ok && s < kv->setup.n_seqs; s++) {
        h->seq[s].flushed = mem_zalloc(2 * kv->n_matrices, sizeof *h->seq[s].flushed);
        if (kv->memory->exchange)
            h->seq[s].block = mem_zalloc(kv->n_heads + 2, sizeof *h->seq[s].block);
        ok = h->seq[s].flushed && (h->seq[s].block || !kv->memory->exchange);
        h->seq[s].written = ok ? h->seq[s].flushed + kv->n_matrices : NULL;
    }
    for (size_t l = 0; ok && l < layers; l++)
        h->resident[l] = kv_layer_sizes(kv, l)->kv_heads;
    return ok;
}

static int copy_streaming(struct kv *kv, const struct kv_streaming *streaming, struct err *err)
{
    const struct kv_shape *shape = &kv->setup.shape;
    if (!streaming)
        return 0;
    if (kv->memory->exchange)
        return err_set(err, "the list of retrieval heads is for the CPU's cache: use headwise on the "
                            "device without it");
    if (shape->n_sizes > 1)
        return err_set(err, "retrieval heads need layers whose KV heads have the same sizes: use "
                            "headwise without them");
    if (streaming->layers != shape->layers || streaming->kv_heads != shape->sizes[0].kv_heads)
        return err_set(
            err,
            "the list of retrieval heads is for %zu layers of %zu KV heads, this cache has %zu of "
            "%zu: it cannot be used with a model that is split",
            streaming->layers, streaming->kv_heads, shape->layers, shape->sizes[0].kv_heads);
    if (streaming->n)
        kv->untrimmed_limit = streaming->sink + streaming->recent - 1;
    return kv_streaming_copy(&offload_of(kv)->streaming, streaming, err);
}

int offload_open(struct kv *kv, struct err *err)
{
    struct offload *h = kv->store = mem_zalloc(1, sizeof *h);
    if (!h || !open_tables(kv, h))
        return err_no_memory(err, "the cache's tables");
    pthread_mutex_init(&h->lock, NULL);
    kv->offload.ram = kv->spec.offload.ram;
    kv->offload.apart = kv->memory->exchange != NULL;
    if (!lay_out(kv, h))
        return err_set(err, "a reservation of %zu rows is larger than the address space",
                       kv->setup.shape.max_rows);
    return copy_streaming(kv, kv->spec.offload.streaming, err) < 0
               ? -1
               : offload_file_open(&h->offload_file, kv->memory, kv->spec.offload.dir,
                                   kv->setup.n_seqs * file_bytes(kv), err);
}

void offload_close(struct kv *kv)
{
    struct offload *h = offload_of(kv);
    if (!h)
        return;
    for (size_t s = 0; h->seq && s < kv->setup.n_seqs; s++) {
        if (h->seq[s].in_use)
            offload_clear(kv, s);
        free(h->seq[s].block);
        free(h->seq[s].flushed);
    }
    offload_file_close(h->offload_file);
    free(h->seq);
    free(h->resident);
    free(h->at);
    kv_streaming_release(&h->streaming);
}

int offload_reserve(struct kv *kv, size_t seq, struct err *err)
{
    struct offload_seq *s = &offload_of(kv)->seq[seq];
    if (!s->in_use && !s->block)
        s->rows = kv->memory->reserve(VM_MMAP, seq_bytes(kv));
    s->in_use = s->block || !addr_is_null(s->rows);
    return s->in_use
               ? 0
               : err_no_memory(err, "%zu bytes of address space; use a smaller -c", seq_bytes(kv));
}

int offload_report(struct kv *kv, struct err *err)
{
    struct offload *h = offload_of(kv);
    if (!h->failed)
        return 0;
    *err = h->err;
    return -1;
}

/* Bytes [from, to) of heads [head, end) of a matrix, K or V of a layer. */
struct strip {
    size_t matrix, head, end, from, to;
};

typedef void strip_act(struct kv *kv, size_t seq, size_t head, size_t from, size_t to);

/* The layer of a matrix, the bytes of a row, and its number of heads. */
static size_t layer_of(const struct kv *kv, size_t matrix)
{
    return kv->head[kv->matrix_head[matrix]].layer;
}

static size_t row_bytes_of(const struct kv *kv, size_t matrix)
{
    return kv->head[kv->matrix_head[matrix]].bytes;
}

static size_t heads_of(const struct kv *kv, size_t matrix)
{
    return kv->matrix_head[matrix + 1] - kv->matrix_head[matrix];
}

/* The number of a layer's first matrix, K, and how many it has. */
static size_t k_matrix(const struct kv *kv, size_t layer)
{
    return kv->head[kv->first_head[layer]].matrix;
}

static size_t matrices_of(const struct kv *kv, size_t layer)
{
    return kv_matrices(kv_layer_sizes(kv, layer));
}

/* Calls act() for the strip's bytes of each head; skips streaming heads. */
static void each_strip(struct kv *kv, size_t seq, const struct strip *strip, strip_act *act)
{
    for (size_t head = strip->head; head < strip->end && strip->from < strip->to; head++) {
        const size_t h = kv->matrix_head[strip->matrix] + head;
        if (!offload_is_streaming(kv, layer_of(kv, strip->matrix), head))
            act(kv, seq, h, strip->from, strip->to);
    }
}

static void write_strip(struct kv *kv, size_t seq, size_t head, size_t from, size_t to)
{
    struct offload *h = offload_of(kv);
    offload_file_write(h->offload_file, &h->seq[seq].writing,
                       addr_add(offload_head(kv, seq, head), from),
                       offload_offset(kv, seq, head) + from, to - from);
}

static void read_strip(struct kv *kv, size_t seq, size_t head, size_t from, size_t to)
{
    struct offload *h = offload_of(kv);
    offload_cover(kv, seq, head, from, to);
    if (!h->failed)
        offload_file_read(h->offload_file, &h->seq[seq].writing,
                          addr_add(offload_head(kv, seq, head), from),
                          offload_offset(kv, seq, head) + from, to - from);
}

/* Releases the pages of bytes [from, to) of a head, streaming or not. */
static void drop_head(struct kv *kv, size_t seq, size_t matrix, size_t head, size_t from, size_t to)
{
    if (from < to)
        offload_drop(kv, seq, kv->matrix_head[matrix] + head, from, to);
}

void offload_flush(struct kv *kv, size_t seq, size_t layer, size_t rows)
{
    struct offload *h = offload_of(kv);
    struct offload_seq *s = &h->seq[seq];
    const size_t first = k_matrix(kv, layer);
    for (size_t m = first; m < first + matrices_of(kv, layer); m++) {
        const struct strip strip = {m, h->resident[layer], heads_of(kv, m), s->written[m],
                                    offload_blocks_down(row_bytes_of(kv, m), rows)};
        if (strip.head == strip.end || strip.from >= strip.to)
            continue;
        each_strip(kv, seq, &strip, write_strip);
        s->written[m] = strip.to;
    }
}

static bool wait_all(struct kv *kv, size_t seq)
{
    struct err err;
    if (offload_file_wait(offload_of(kv)->offload_file, &offload_of(kv)->seq[seq].writing, &err) == 0)
        return true;
    offload_set_error(kv, &err);
    return false;
}

void offload_flush_wait(struct kv *kv, size_t seq)
{
    struct offload *h = offload_of(kv);
    struct offload_seq *s = &h->seq[seq];
    const bool ok = wait_all(kv, seq);
    for (size_t m = 0; m < kv->n_matrices; m++) {
        const struct strip strip = {m, h->resident[layer_of(kv, m)], heads_of(kv, m), s->flushed[m],
                                    s->written[m]};
        if (ok)
            each_strip(kv, seq, &strip, offload_drop);
        s->flushed[m] = s->written[m] = ok ? s->written[m] : s->flushed[m];
    }
}

void offload_reopen_tail(struct kv *kv, size_t seq, size_t rows, bool all)
{
    struct offload *h = offload_of(kv);
    struct offload_seq *s = &h->seq[seq];
    offload_flush_wait(kv, seq);
    for (size_t m = 0; m < kv->n_matrices; m++) {
        const size_t bytes = row_bytes_of(kv, m), from = offload_blocks_down(bytes, rows);
        if (s->flushed[m] <= from)
            continue;
        const struct strip strip = {m, h->resident[layer_of(kv, m)], heads_of(kv, m), from,
                                    all ? s->flushed[m] : offload_blocks_up(bytes, rows)};
        each_strip(kv, seq, &strip, read_strip);
        s->flushed[m] = s->written[m] = from;
    }
    wait_all(kv, seq);
}

/* Calls act() for bytes [0, to) of the heads that leave memory, those from `resident` on, and for
 * the unwritten blocks before byte `to` of heads that were offloaded earlier. */
static void set_resident_matrix(struct kv *kv, size_t seq, size_t matrix, size_t resident, size_t to,
                                strip_act *act)
{
    const struct offload *h = offload_of(kv);
    const size_t now = h->resident[layer_of(kv, matrix)];
    const struct strip leaving = {matrix, resident, now, 0, to},
                       others = {matrix, now, heads_of(kv, matrix), h->seq[seq].flushed[matrix], to};
    each_strip(kv, seq, &leaving, act);
    each_strip(kv, seq, &others, act);
}

static int set_resident_seq(struct kv *kv, size_t seq, const size_t *resident, struct err *err)
{
    struct offload_seq *s = &offload_of(kv)->seq[seq];
    const size_t n = kv->seq[seq].n;
    offload_reopen_tail(kv, seq, n, false);
    for (size_t m = 0; m < kv->n_matrices; m++)
        set_resident_matrix(kv, seq, m, resident[layer_of(kv, m)],
                            offload_blocks_down(row_bytes_of(kv, m), n), write_strip);
    if (offload_file_wait(offload_of(kv)->offload_file, &s->writing, err) < 0)
        return -1;
    for (size_t m = 0; m < kv->n_matrices; m++) {
        const size_t to = offload_blocks_down(row_bytes_of(kv, m), n), stay = resident[layer_of(kv, m)];
        set_resident_matrix(kv, seq, m, stay, to, offload_drop);
        s->flushed[m] = s->written[m] = stay < heads_of(kv, m) ? to : 0;
    }
    return 0;
}

int offload_set_resident(struct kv *kv, const size_t *resident, size_t group, struct err *err)
{
    struct offload *h = offload_of(kv);
    for (size_t s = 0; s < kv->setup.n_seqs; s++)
        if (h->seq[s].in_use && set_resident_seq(kv, s, resident, err) < 0) {
            offload_set_error(kv, err);
            return -1;
        }
    memcpy(h->resident, resident, kv->setup.shape.layers * sizeof *resident);
    h->group = group;
    return offload_report(kv, err);
}

/* A slot of a buffer: K or V of its head number `index`. */
static struct device_addr slot_at(const struct kv *kv, size_t seq, size_t buffer, size_t v,
                                  size_t index)
{
    const struct offload *h = offload_of(kv);
    const struct offload_buffer *b = &h->seq[seq].buffer[buffer];
    const struct device_addr at = offload_head(kv, seq, kv->n_heads + buffer);
    if (!h->seq[seq].block)
        return addr_add(at, (v * kv_shape_heads(&kv->setup.shape) + index) * h->widest);
    const size_t first =
        v ? h->group * offload_blocks_up(kv_row_bytes(kv, b->layer, KV_K), b->rows) : 0;
    return addr_add(at, first + index * offload_blocks_up(kv_row_bytes(kv, b->layer, v), b->rows));
}

static void wait_buffer(struct kv *kv, struct offload_buffer *b)
{
    struct err err;
    if (offload_file_wait(offload_of(kv)->offload_file, &b->ticket, &err) < 0)
        offload_set_error(kv, &err);
}

static void empty_buffer(struct kv *kv, struct offload_buffer *b)
{
    wait_buffer(kv, b);
    b->heads = b->good[KV_K] = b->good[KV_V] = 0;
}

static void free_buffer(struct kv *kv, size_t seq, size_t i)
{
    struct offload_seq *s = &offload_of(kv)->seq[seq];
    empty_buffer(kv, &s->buffer[i]);
    offload_block_free(kv, &s->block[kv->n_heads + i]);
    s->buffer[i].rows = 0;
}

void offload_shrink(struct kv *kv, size_t seq, size_t rows)
{
    const size_t all = kv->seq[seq].n + kv->seq[seq].pending;
    for (size_t m = 0; m < kv->n_matrices; m++)
        for (size_t head = 0; head < heads_of(kv, m); head++)
            drop_head(kv, seq, m, head, offload_blocks_up(row_bytes_of(kv, m), rows),
                      offload_of(kv)->seq[seq].block ? SIZE_MAX
                                                     : offload_blocks_up(row_bytes_of(kv, m), all));
    for (size_t i = 0; i < 2; i++) {
        struct offload_buffer *b = &offload_of(kv)->seq[seq].buffer[i];
        if (offload_of(kv)->seq[seq].block) {
            if (b->rows > offload_held(kv, rows))
                free_buffer(kv, seq, i);
            continue;
        }
        for (size_t v = 0; v < matrices_of(kv, b->layer); v++) {
            const size_t bytes = kv_row_bytes(kv, b->layer, v), from = offload_blocks_up(bytes, rows),
                         to = offload_blocks_up(bytes, all);
            for (size_t head = 0; head < b->heads && from < to; head++)
                kv->memory->drop(addr_add(slot_at(kv, seq, i, v, head), from), to - from);
        }
    }
}

/* Layers with streaming heads have the same sizes and types. */
static size_t sink_bytes(const struct kv *kv, size_t v)
{
    return offload_blocks_up(kv_row_bytes(kv, 0, v), offload_of(kv)->streaming.sink);
}

/* Bytes of a streaming head's K or V that have been released. */
static size_t gap_of(const struct kv *kv, size_t seq, size_t v)
{
    const size_t from = sink_bytes(kv, v), to = offload_of(kv)->seq[seq].dropped[v];
    return to - size_min(from, to);
}

size_t offload_gap(const struct kv *kv, size_t seq)
{
    size_t gap = 0;
    for (size_t v = 0; v < matrices_of(kv, 0); v++)
        gap += gap_of(kv, seq, v);
    return gap;
}

size_t offload_gap_of(const struct kv *kv, size_t n)
{
    size_t gap = 0;
    for (size_t v = 0; v < matrices_of(kv, 0); v++) {
        const size_t from = sink_bytes(kv, v),
                     to = offload_blocks_down(kv_row_bytes(kv, 0, v),
                                              kv_recent_start(n, offload_of(kv)->streaming.recent));
        gap += to - size_min(from, to);
    }
    return gap;
}

void offload_drop_unseen(struct kv *kv, size_t seq)
{
    const struct kv_streaming *streaming = &offload_of(kv)->streaming;
    struct offload_seq *s = &offload_of(kv)->seq[seq];
    for (size_t v = 0; streaming->n && v < matrices_of(kv, 0); v++) {
        const size_t from = size_max(s->dropped[v], sink_bytes(kv, v));
        const size_t to = offload_blocks_down(kv_row_bytes(kv, 0, v),
                                              kv_recent_start(kv->seq[seq].n, streaming->recent));
        if (to <= from)
            continue;
        for (size_t l = 0; l < streaming->layers; l++)
            for (size_t head = 0; head < streaming->kv_heads; head++)
                if (offload_is_streaming(kv, l, head))
                    drop_head(kv, seq, k_matrix(kv, l) + v, head, from, to);
        s->dropped[v] = to;
    }
}

void offload_clear(struct kv *kv, size_t seq)
{
    struct offload_seq *s = &offload_of(kv)->seq[seq];
    wait_all(kv, seq);
    if (s->block) {
        for (size_t i = 0; i < kv->n_heads + 2; i++)
            offload_block_free(kv, &s->block[i]);
        offload_file_drop(offload_of(kv)->offload_file, seq * file_bytes(kv), file_bytes(kv));
    } else {
        kv->memory->release(s->rows, seq_bytes(kv));
    }
    s->rows = (struct device_addr){0};
    s->in_use = false;
    s->dropped[KV_K] = s->dropped[KV_V] = 0;
    memset(s->flushed, 0, 2 * kv->n_matrices * sizeof *s->flushed);
}

/* Copies a strip of one head, all of it in memory or all in the file, from sequence `from` to `to`.
 * If the head is offloaded, blocks before byte `whole` are then written to the file. */
static void copy_strip(struct kv *kv, size_t to, size_t from, const struct strip *strip, size_t whole)
{
    struct offload *h = offload_of(kv);
    const bool offloaded = strip->head >= h->resident[layer_of(kv, strip->matrix)];
    const struct strip block = {strip->matrix, strip->head, strip->end, strip->from,
                                round_up(strip->to, OFFLOAD_BLOCK)};
    struct offload_seq *t = &h->seq[to];
    const size_t head = kv->matrix_head[strip->matrix] + strip->head;
    offload_cover(kv, to, head, strip->from, block.to);
    const struct device_addr at = addr_add(offload_head(kv, to, head), strip->from);
    if (h->failed)
        return;
    if (offloaded && strip->from < h->seq[from].flushed[strip->matrix])
        offload_file_read(h->offload_file, &t->writing, at,
                          offload_offset(kv, from, head) + strip->from, block.to - block.from);
    else
        kv_copy(kv, at, addr_add(offload_head(kv, from, head), strip->from), strip->to - strip->from);
    if (!wait_all(kv, to) || !offloaded || strip->from >= whole)
        return;
    each_strip(kv, to, &block, write_strip);
    wait_all(kv, to);
    each_strip(kv, to, &block, offload_drop);
}

static void copy_streaming_head(struct kv *kv, size_t to, size_t from, size_t matrix, size_t head,
                                size_t rows)
{
    const size_t v = matrix - k_matrix(kv, layer_of(kv, matrix)), h = kv->matrix_head[matrix] + head;
    const size_t bytes = rows * row_bytes_of(kv, matrix), gap = gap_of(kv, from, v);
    const size_t first = gap ? sink_bytes(kv, v) : bytes, next = first + gap;
    kv_copy(kv, offload_head(kv, to, h), offload_head(kv, from, h), first);
    if (next < bytes)
        kv_copy(kv, addr_add(offload_head(kv, to, h), next), addr_add(offload_head(kv, from, h), next),
                bytes - next);
}

static void copy_head(struct kv *kv, size_t to, size_t from, size_t matrix, size_t head, size_t rows)
{
    if (offload_is_streaming(kv, layer_of(kv, matrix), head)) {
        copy_streaming_head(kv, to, from, matrix, head, rows);
        return;
    }
    const size_t row_bytes = row_bytes_of(kv, matrix), bytes = rows * row_bytes,
                 whole = offload_blocks_down(row_bytes, rows);
    const size_t flushed = offload_of(kv)->seq[from].flushed[matrix];
    for (size_t at = 0, end; at < bytes; at = end) {
        end = size_min(at + OFFLOAD_STRIP_BYTES, at < whole ? whole : bytes);
        if (at < flushed)
            end = size_min(end, flushed);
        const struct strip strip = {matrix, head, head + 1, at, end};
        copy_strip(kv, to, from, &strip, whole);
    }
}

void offload_copy(struct kv *kv, size_t to, size_t from, size_t rows)
{
    struct offload *h = offload_of(kv);
    offload_flush_wait(kv, from);
    offload_flush_wait(kv, to);
    memcpy(h->seq[to].dropped, h->seq[from].dropped, sizeof h->seq[to].dropped);
    for (size_t m = 0; m < kv->n_matrices; m++) {
        for (size_t head = 0; head < heads_of(kv, m); head++)
            copy_head(kv, to, from, m, head, rows);
        h->seq[to].flushed[m] = h->seq[to].written[m] =
            h->resident[layer_of(kv, m)] < heads_of(kv, m)
                ? offload_blocks_down(row_bytes_of(kv, m), rows)
                : 0;
    }
}

/* ---- the two buffers per sequence into which offloaded heads are read, in turn ---- */

void offload_buffers_truncate(struct kv *kv, size_t seq, size_t rows)
{
    struct offload_seq *s = &offload_of(kv)->seq[seq];
    for (size_t i = 0; i < 2; i++)
        for (size_t v = 0; v < 2; v++)
            s->buffer[i].good[v] =
                size_min(s->buffer[i].good[v], rows * kv_row_bytes(kv, s->buffer[i].layer, v));
}

void offload_buffers_wait(struct kv *kv, size_t seq)
{
    for (size_t i = 0; i < 2; i++)
        wait_buffer(kv, &offload_of(kv)->seq[seq].buffer[i]);
}

void offload_buffers_clear(struct kv *kv, size_t seq)
{
    const struct offload *h = offload_of(kv);
    struct offload_seq *s = &offload_of(kv)->seq[seq];
    for (size_t i = 0; i < 2 && s->in_use; i++) {
        empty_buffer(kv, &s->buffer[i]);
        if (s->block)
            free_buffer(kv, seq, i);
        else
            kv->memory->drop(offload_head(kv, seq, kv->n_heads + i),
                             h->at[kv->n_heads + i + 1] - h->at[kv->n_heads + i]);
    }
}

static struct offload_buffer *find_buffer(struct offload_seq *s, size_t layer, size_t head,
                                          size_t heads)
{
    for (size_t i = 0; i < 2; i++) {
        struct offload_buffer *b = &s->buffer[i];
        if (b->heads && b->layer == layer && b->head <= head && head + heads <= b->head + b->heads)
            return b;
    }
    return NULL;
}

static struct device_addr buffer_at(const struct kv *kv, size_t seq, const struct offload_buffer *b,
                                    size_t v, size_t head)
{
    return slot_at(kv, seq, (size_t)(b - offload_of(kv)->seq[seq].buffer), v, head - b->head);
}

/* Bytes of a buffer that has slots of `rows` rows. */
static size_t buffer_bytes(const struct kv *kv, size_t rows)
{
    const struct kv_shape *shape = &kv->setup.shape;
    size_t most = 0;
    for (size_t i = 0; i < shape->n_sizes; i++) {
        size_t bytes = 0;
        for (size_t m = 0; m < kv_matrices(&shape->sizes[i]); m++)
            bytes += offload_blocks_up(kv_sizes_row_bytes(&shape->sizes[i], m), rows);
        most = size_max(most, bytes);
    }
    return offload_of(kv)->group * most;
}

/* Gives a buffer that is a block slots for all rows of the sequence; what it held is read again. */
static bool size_buffer(struct kv *kv, size_t seq, struct offload_buffer *b)
{
    struct offload_seq *s = &offload_of(kv)->seq[seq];
    struct offload_block *block = s->block ? &s->block[kv->n_heads + (size_t)(b - s->buffer)] : NULL;
    const size_t rows = offload_held(kv, kv->seq[seq].n + kv->seq[seq].pending),
                 bytes = buffer_bytes(kv, rows);
    if (!block || (block->bytes >= bytes && block->bytes <= 2 * bytes && b->rows >= rows))
        return true;
    wait_buffer(kv, b);
    b->good[KV_K] = b->good[KV_V] = 0;
    b->rows = rows;
    return offload_block_new(kv, block, bytes);
}

/* Starts to read from the file those blocks of the buffer's heads that the buffer lacks. */
static void read_missing(struct kv *kv, size_t seq, struct offload_buffer *b)
{
    const struct offload *h = offload_of(kv);
    if (!size_buffer(kv, seq, b))
        return;
    for (size_t v = 0; v < matrices_of(kv, b->layer); v++) {
        const size_t matrix = k_matrix(kv, b->layer) + v,
                     from = b->good[v] / OFFLOAD_BLOCK * OFFLOAD_BLOCK,
                     to = h->seq[seq].flushed[matrix];
        if (b->good[v] >= to)
            continue;
        for (size_t head = b->head; head < b->head + b->heads; head++)
            if (!offload_is_streaming(kv, b->layer, head))
                offload_file_read(
                    h->offload_file, &b->ticket, addr_add(buffer_at(kv, seq, b, v, head), from),
                    offload_offset(kv, seq, kv->matrix_head[matrix] + head) + from, to - from);
        b->good[v] = to;
    }
}

void offload_buffers_fetch(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads)
{
    struct offload_seq *s = &offload_of(kv)->seq[seq];
    struct offload_buffer *b = find_buffer(s, layer, head, heads);
    if (!b) {
        b = &s->buffer[1 - s->latest];
        empty_buffer(kv, b);
        b->layer = layer;
        b->head = head;
        b->heads = heads;
    }
    s->latest = (size_t)(b - s->buffer);
    read_missing(kv, seq, b);
}

/* Completes K and V of the buffer's heads to `rows` rows: copies those that are not in the file from
 * memory to the buffer. */
static void copy_tails(struct kv *kv, size_t seq, struct offload_buffer *b, size_t rows)
{
    for (size_t v = 0; v < matrices_of(kv, b->layer); v++) {
        const size_t first = kv->matrix_head[k_matrix(kv, b->layer) + v], from = b->good[v],
                     end = rows * kv_row_bytes(kv, b->layer, v);
        for (size_t head = b->head; head < b->head + b->heads && from < end; head++)
            if (!offload_is_streaming(kv, b->layer, head))
                kv_copy(kv, addr_add(buffer_at(kv, seq, b, v, head), from),
                        addr_add(offload_head(kv, seq, first + head), from), end - from);
        b->good[v] = size_max(from, end);
    }
}

/* True if the buffer has, or is reading, all that is in the file of its heads. */
static bool has_flushed(const struct kv *kv, size_t seq, const struct offload_buffer *b)
{
    bool all = true;
    for (size_t v = 0; v < matrices_of(kv, b->layer); v++)
        all = all && b->good[v] >= offload_of(kv)->seq[seq].flushed[k_matrix(kv, b->layer) + v];
    return all;
}

int offload_buffers_view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads,
                         size_t rows, struct device_addr *k, struct device_addr *v, struct err *err)
{
    struct offload *h = offload_of(kv);
    struct offload_buffer *b = find_buffer(&h->seq[seq], layer, head, heads);
    if (!b || !has_flushed(kv, seq, b))
        return err_set(err,
                       "KV heads %zu to %zu of layer %zu are viewed without having been prefetched",
                       head, head + heads - 1, layer);
    if (offload_file_wait(h->offload_file, &b->ticket, err) < 0) {
        b->heads = 0;
        return -1;
    }
    copy_tails(kv, seq, b, rows);
    *k = buffer_at(kv, seq, b, 0, head);
    *v = buffer_at(kv, seq, b, matrices_of(kv, layer) - 1, head);
    return 0;
}
