/* Storage of KV entries by head, in memory and in a file. */
#include "kv/offload/offload_heads.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/mem.h"

/* Heads of K and V in a layer, as they are stored. */
static size_t layer_heads(const struct kv *kv) { return kv_matrices(kv) * kv->setup.shape.kv_heads; }

/* The same in all layers. */
static size_t all_heads(const struct kv *kv) { return kv->setup.shape.layers * layer_heads(kv); }

/* Bytes of address space of a sequence: all layers, and two buffers, each as large as a layer. */
static size_t seq_bytes(const struct kv *kv)
{
    return (all_heads(kv) + 2 * layer_heads(kv)) * offload_of(kv)->stride;
}

static size_t offset_of(const struct kv *kv, size_t layer, size_t v, size_t head)
{
    return (layer * layer_heads(kv) + v * kv->setup.shape.kv_heads + head) * offload_of(kv)->stride;
}

char *offload_head(const struct kv *kv, size_t seq, size_t layer, size_t v, size_t head)
{
    return offload_of(kv)->seq[seq].rows + offset_of(kv, layer, v, head);
}

size_t offload_offset(const struct kv *kv, size_t seq, size_t layer, size_t v, size_t head)
{
    return seq * all_heads(kv) * offload_of(kv)->stride + offset_of(kv, layer, v, head);
}

size_t offload_blocks_down(const struct kv *kv, size_t rows)
{
    return size_times(rows, kv_row_bytes(kv)) / OFFLOAD_BLOCK * OFFLOAD_BLOCK;
}

size_t offload_blocks_up(const struct kv *kv, size_t rows)
{
    const size_t bytes = size_times(rows, kv_row_bytes(kv));
    return bytes > SIZE_MAX - OFFLOAD_BLOCK ? SIZE_MAX : round_up(bytes, OFFLOAD_BLOCK);
}

static bool open_tables(struct kv *kv, struct offload *h)
{
    const size_t layers = kv->setup.shape.layers;
    h->resident = mem_alloc(layers, sizeof *h->resident);
    h->seq = mem_zalloc(kv->setup.n_seqs, sizeof *h->seq);
    bool ok = h->resident && h->seq;
    for (size_t s = 0; ok && s < kv->setup.n_seqs; s++) {
        h->seq[s].flushed = mem_zalloc(2 * layers, sizeof *h->seq[s].flushed);
        ok = h->seq[s].flushed != NULL;
        h->seq[s].written = ok ? h->seq[s].flushed + layers : NULL;
    }
    for (size_t l = 0; ok && l < layers; l++)
        h->resident[l] = kv->setup.shape.kv_heads;
    return ok;
}

static int copy_streaming(struct kv *kv, const struct kv_streaming *streaming, struct err *err)
{
    const struct kv_shape *shape = &kv->setup.shape;
    if (!streaming)
        return 0;
    if (streaming->layers != shape->layers || streaming->kv_heads != shape->kv_heads)
        return err_set(
            err,
            "the list of retrieval heads is for %zu layers of %zu KV heads, this cache has %zu of "
            "%zu: it cannot be used with a model that is split",
            streaming->layers, streaming->kv_heads, shape->layers, shape->kv_heads);
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
    size_t all;
    h->stride =
        round_up(round_up(kv->setup.shape.max_rows, TILE_ROWS) * kv_row_bytes(kv), OFFLOAD_BLOCK);
    if (!size_mul(all_heads(kv) + 2 * layer_heads(kv), h->stride, &all) ||
        !size_mul(all, kv->setup.n_seqs, &all) || all > SIZE_MAX / 4)
        return err_set(err, "a reservation of %zu rows is larger than the address space",
                       kv->setup.shape.max_rows);
    return copy_streaming(kv, kv->spec.offload.streaming, err) < 0
               ? -1
               : offload_file_open(&h->offload_file, kv->spec.offload.dir, err);
}

void offload_close(struct kv *kv)
{
    struct offload *h = offload_of(kv);
    if (!h)
        return;
    offload_file_close(h->offload_file);
    for (size_t s = 0; h->seq && s < kv->setup.n_seqs; s++) {
        vm_release(h->seq[s].rows, seq_bytes(kv));
        free(h->seq[s].flushed);
    }
    free(h->seq);
    free(h->resident);
    kv_streaming_release(&h->streaming);
}

int offload_reserve(struct kv *kv, size_t seq, struct err *err)
{
    struct offload_seq *s = &offload_of(kv)->seq[seq];
    if (!s->rows)
        s->rows = vm_reserve(VM_MMAP, seq_bytes(kv));
    return s->rows ? 0
                   : err_no_memory(err, "%zu bytes of address space; use a smaller -c", seq_bytes(kv));
}

void offload_set_error(struct kv *kv, const struct err *err)
{
    struct offload *h = offload_of(kv);
    if (!h->failed)
        h->err = *err;
    h->failed = true;
}

int offload_report(struct kv *kv, struct err *err)
{
    struct offload *h = offload_of(kv);
    if (!h->failed)
        return 0;
    *err = h->err;
    return -1;
}

/* Bytes [from, to) of K and V of heads [head, end) of a layer. */
struct strip {
    size_t layer, head, end, from, to;
};

typedef void strip_act(struct kv *kv, struct offload_seq *s, char *at, size_t offset, size_t bytes);

/* Calls act() for the strip's bytes of each head's K and V; skips streaming heads. */
static void each_strip(struct kv *kv, size_t seq, const struct strip *strip, strip_act *act)
{
    for (size_t v = 0; v < kv_matrices(kv) && strip->from < strip->to; v++)
        for (size_t head = strip->head; head < strip->end; head++) {
            if (offload_is_streaming(kv, strip->layer, head))
                continue;
            act(kv, &offload_of(kv)->seq[seq],
                offload_head(kv, seq, strip->layer, v, head) + strip->from,
                offload_offset(kv, seq, strip->layer, v, head) + strip->from, strip->to - strip->from);
        }
}

static void write_strip(struct kv *kv, struct offload_seq *s, char *at, size_t offset, size_t bytes)
{
    offload_file_write(offload_of(kv)->offload_file, &s->writing, at, offset, bytes);
}

static void read_strip(struct kv *kv, struct offload_seq *s, char *at, size_t offset, size_t bytes)
{
    offload_file_read(offload_of(kv)->offload_file, &s->writing, at, offset, bytes);
}

static void drop_strip(struct kv *kv, struct offload_seq *s, char *at, size_t offset, size_t bytes)
{
    (void)kv;
    (void)s;
    (void)offset;
    madvise(at, bytes, MADV_DONTNEED);
}

/* Releases the pages of bytes [from, to) of a head, streaming or not, or of a buffer. */
static void drop_head(struct kv *kv, size_t seq, size_t layer, size_t head, size_t from, size_t to)
{
    for (size_t v = 0; v < kv_matrices(kv) && from < to; v++)
        madvise(offload_head(kv, seq, layer, v, head) + from, to - from, MADV_DONTNEED);
}

void offload_flush(struct kv *kv, size_t seq, size_t layer, size_t to)
{
    struct offload *h = offload_of(kv);
    struct offload_seq *s = &h->seq[seq];
    const struct strip strip = {layer, h->resident[layer], kv->setup.shape.kv_heads, s->written[layer],
                                to};
    if (strip.head == strip.end || strip.from >= to)
        return;
    each_strip(kv, seq, &strip, write_strip);
    s->written[layer] = to;
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
    for (size_t l = 0; l < kv->setup.shape.layers; l++) {
        const struct strip strip = {l, h->resident[l], kv->setup.shape.kv_heads, s->flushed[l],
                                    s->written[l]};
        if (ok)
            each_strip(kv, seq, &strip, drop_strip);
        s->flushed[l] = s->written[l] = ok ? s->written[l] : s->flushed[l];
    }
}

void offload_reopen_tail(struct kv *kv, size_t seq, size_t rows, bool all)
{
    struct offload *h = offload_of(kv);
    struct offload_seq *s = &h->seq[seq];
    const size_t from = offload_blocks_down(kv, rows), block = offload_blocks_up(kv, rows);
    offload_flush_wait(kv, seq);
    for (size_t l = 0; l < kv->setup.shape.layers; l++) {
        if (s->flushed[l] <= from)
            continue;
        const struct strip strip = {l, h->resident[l], kv->setup.shape.kv_heads, from,
                                    all ? s->flushed[l] : block};
        each_strip(kv, seq, &strip, read_strip);
        s->flushed[l] = s->written[l] = from;
    }
    wait_all(kv, seq);
}

/* Calls act() for bytes [0, to) of the heads that leave memory, those from `resident` on, and for
 * the unwritten blocks before byte `to` of heads that were offloaded earlier. */
static void set_resident_layer(struct kv *kv, size_t seq, size_t layer, size_t resident, size_t to,
                               strip_act *act)
{
    const struct offload *h = offload_of(kv);
    const size_t end = kv->setup.shape.kv_heads;
    const struct strip leaving = {layer, resident, h->resident[layer], 0, to},
                       others = {layer, h->resident[layer], end, h->seq[seq].flushed[layer], to};
    each_strip(kv, seq, &leaving, act);
    each_strip(kv, seq, &others, act);
}

static int set_resident_seq(struct kv *kv, size_t seq, const size_t *resident, struct err *err)
{
    struct offload_seq *s = &offload_of(kv)->seq[seq];
    const size_t to = offload_blocks_down(kv, kv->seq[seq].n);
    offload_reopen_tail(kv, seq, kv->seq[seq].n, false);
    for (size_t l = 0; l < kv->setup.shape.layers; l++)
        set_resident_layer(kv, seq, l, resident[l], to, write_strip);
    if (offload_file_wait(offload_of(kv)->offload_file, &s->writing, err) < 0)
        return -1;
    for (size_t l = 0; l < kv->setup.shape.layers; l++) {
        set_resident_layer(kv, seq, l, resident[l], to, drop_strip);
        s->flushed[l] = s->written[l] = resident[l] < kv->setup.shape.kv_heads ? to : 0;
    }
    return 0;
}

int offload_set_resident(struct kv *kv, const size_t *resident, size_t group, struct err *err)
{
    struct offload *h = offload_of(kv);
    for (size_t s = 0; s < kv->setup.n_seqs; s++)
        if (h->seq[s].rows && set_resident_seq(kv, s, resident, err) < 0) {
            offload_set_error(kv, err);
            return -1;
        }
    memcpy(h->resident, resident, kv->setup.shape.layers * sizeof *resident);
    h->group = group;
    return offload_report(kv, err);
}

void offload_shrink(struct kv *kv, size_t seq, size_t rows)
{
    const struct kv_seq *s = &kv->seq[seq];
    const size_t from = offload_blocks_up(kv, rows), to = offload_blocks_up(kv, s->n + s->pending);
    for (size_t l = 0; l < kv->setup.shape.layers + 2; l++)
        for (size_t head = 0; head < kv->setup.shape.kv_heads; head++)
            drop_head(kv, seq, l, head, from, to);
}

static size_t sink_bytes(const struct kv *kv)
{
    return offload_blocks_up(kv, offload_of(kv)->streaming.sink);
}

size_t offload_gap(const struct kv *kv, size_t seq)
{
    const size_t from = sink_bytes(kv), to = offload_of(kv)->seq[seq].dropped;
    return to - size_min(from, to);
}

size_t offload_gap_of(const struct kv *kv, size_t n)
{
    const size_t from = sink_bytes(kv),
                 to = offload_blocks_down(kv, kv_recent_start(n, offload_of(kv)->streaming.recent));
    return to - size_min(from, to);
}

void offload_drop_unseen(struct kv *kv, size_t seq)
{
    const struct kv_streaming *streaming = &offload_of(kv)->streaming;
    struct offload_seq *s = &offload_of(kv)->seq[seq];
    const size_t from = size_max(s->dropped, sink_bytes(kv));
    const size_t to = offload_blocks_down(kv, kv_recent_start(kv->seq[seq].n, streaming->recent));
    if (!streaming->n || to <= from)
        return;
    for (size_t l = 0; l < streaming->layers; l++)
        for (size_t head = 0; head < streaming->kv_heads; head++)
            if (offload_is_streaming(kv, l, head))
                drop_head(kv, seq, l, head, from, to);
    s->dropped = to;
}

void offload_clear(struct kv *kv, size_t seq)
{
    struct offload_seq *s = &offload_of(kv)->seq[seq];
    wait_all(kv, seq);
    vm_release(s->rows, seq_bytes(kv));
    s->rows = NULL;
    s->dropped = 0;
    memset(s->flushed, 0, 2 * kv->setup.shape.layers * sizeof *s->flushed);
}

/* Copies a strip of one head, all of it in memory or all in the file, from sequence `from` to `to`.
 * If the head is offloaded, blocks before byte `whole` are then written to the file. */
static void copy_strip(struct kv *kv, size_t to, size_t from, const struct strip *strip, size_t whole)
{
    struct offload *h = offload_of(kv);
    const bool offloaded = strip->head >= h->resident[strip->layer];
    const struct strip block = {strip->layer, strip->head, strip->end, strip->from,
                                round_up(strip->to, OFFLOAD_BLOCK)};
    struct offload_seq *t = &h->seq[to];
    for (size_t v = 0; v < kv_matrices(kv); v++) {
        char *at = offload_head(kv, to, strip->layer, v, strip->head) + strip->from;
        if (offloaded && strip->from < h->seq[from].flushed[strip->layer])
            offload_file_read(h->offload_file, &t->writing, at,
                              offload_offset(kv, from, strip->layer, v, strip->head) + strip->from,
                              block.to - block.from);
        else
            kv_copy(kv, at, offload_head(kv, from, strip->layer, v, strip->head) + strip->from,
                    strip->to - strip->from);
    }
    if (!wait_all(kv, to) || !offloaded || strip->from >= whole)
        return;
    each_strip(kv, to, &block, write_strip);
    wait_all(kv, to);
    each_strip(kv, to, &block, drop_strip);
}

static void copy_streaming_head(struct kv *kv, size_t to, size_t from, size_t layer, size_t head,
                                size_t rows)
{
    const size_t bytes = rows * kv_row_bytes(kv), gap = offload_gap(kv, from);
    const size_t first = gap ? sink_bytes(kv) : bytes, next = first + gap;
    for (size_t v = 0; v < kv_matrices(kv); v++) {
        char *at = offload_head(kv, to, layer, v, head);
        kv_copy(kv, at, offload_head(kv, from, layer, v, head), first);
        if (next < bytes)
            kv_copy(kv, at + next, offload_head(kv, from, layer, v, head) + next, bytes - next);
    }
}

static void copy_head(struct kv *kv, size_t to, size_t from, size_t layer, size_t head, size_t rows)
{
    if (offload_is_streaming(kv, layer, head)) {
        copy_streaming_head(kv, to, from, layer, head, rows);
        return;
    }
    const size_t bytes = rows * kv_row_bytes(kv), whole = offload_blocks_down(kv, rows);
    const size_t flushed = offload_of(kv)->seq[from].flushed[layer];
    for (size_t at = 0, end; at < bytes; at = end) {
        end = size_min(at + OFFLOAD_STRIP_BYTES, at < whole ? whole : bytes);
        if (at < flushed)
            end = size_min(end, flushed);
        const struct strip strip = {layer, head, head + 1, at, end};
        copy_strip(kv, to, from, &strip, whole);
    }
}

void offload_copy(struct kv *kv, size_t to, size_t from, size_t rows)
{
    struct offload *h = offload_of(kv);
    offload_flush_wait(kv, from);
    offload_flush_wait(kv, to);
    h->seq[to].dropped = h->seq[from].dropped;
    for (size_t l = 0; l < kv->setup.shape.layers; l++) {
        for (size_t head = 0; head < kv->setup.shape.kv_heads; head++)
            copy_head(kv, to, from, l, head, rows);
        h->seq[to].flushed[l] = h->seq[to].written[l] =
            h->resident[l] < kv->setup.shape.kv_heads ? offload_blocks_down(kv, rows) : 0;
    }
}
