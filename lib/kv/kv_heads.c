/* Rows of heads in memory and in a file. */
#include "kv/kv_heads.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/mem.h"

/* ---- where things lie ---- */

static size_t n_matrices(const struct kv *kv)
{
    return 2 * kv->setup.shape.layers * kv->setup.shape.kv_heads;
}

/* Address space of a sequence: its layers, and two buffers as large as a layer. */
static size_t seq_bytes(const struct kv *kv)
{
    return (n_matrices(kv) + 4 * kv->setup.shape.kv_heads) * heads_of(kv)->stride;
}

static size_t place_of(const struct kv *kv, size_t layer, size_t v, size_t head)
{
    return ((2 * layer + v) * kv->setup.shape.kv_heads + head) * heads_of(kv)->stride;
}

char *heads_at(const struct kv *kv, size_t seq, size_t layer, size_t v, size_t head)
{
    return heads_of(kv)->seq[seq].rows + place_of(kv, layer, v, head);
}

size_t heads_offset(const struct kv *kv, size_t seq, size_t layer, size_t v, size_t head)
{
    return seq * n_matrices(kv) * heads_of(kv)->stride + place_of(kv, layer, v, head);
}

size_t heads_whole(const struct kv *kv, size_t rows)
{
    return size_times(rows, kv_row_bytes(kv)) / SPILL_BLOCK * SPILL_BLOCK;
}

size_t heads_begun(const struct kv *kv, size_t rows)
{
    const size_t bytes = size_times(rows, kv_row_bytes(kv));
    return bytes > SIZE_MAX - SPILL_BLOCK ? SIZE_MAX : round_up(bytes, SPILL_BLOCK);
}

/* ---- opening and closing ---- */

static bool open_tables(struct kv *kv, struct heads *h)
{
    const size_t layers = kv->setup.shape.layers;
    h->stay = mem_alloc(layers, sizeof *h->stay);
    h->seq = mem_zalloc(kv->setup.n_seqs, sizeof *h->seq);
    bool ok = h->stay && h->seq;
    for (size_t s = 0; ok && s < kv->setup.n_seqs; s++) {
        h->seq[s].flushed = mem_zalloc(2 * layers, sizeof *h->seq[s].flushed);
        ok = h->seq[s].flushed != NULL;
        h->seq[s].written = ok ? h->seq[s].flushed + layers : NULL;
    }
    for (size_t l = 0; ok && l < layers; l++)
        h->stay[l] = kv->setup.shape.kv_heads;
    return ok;
}

/* Rows are there as long as no more of them have come than a sparse head sees. */
static int take_sparse(struct kv *kv, const struct kv_sparse *sparse, struct err *err)
{
    const struct kv_shape *shape = &kv->setup.shape;
    if (!sparse)
        return 0;
    if (sparse->layers != shape->layers || sparse->kv_heads != shape->kv_heads)
        return err_set(
            err,
            "a list of sparse heads is for %zu layers of %zu KV heads, this cache has %zu of "
            "%zu: a model that is split has none",
            sparse->layers, sparse->kv_heads, shape->layers, shape->kv_heads);
    if (sparse->n)
        kv->setup.cut_rows = sparse->sink + sparse->recent - 1;
    return kv_sparse_copy(&heads_of(kv)->sparse, sparse, err);
}

int heads_open(struct kv *kv, struct err *err)
{
    struct heads *h = kv->store = mem_zalloc(1, sizeof *h);
    if (!h || !open_tables(kv, h))
        return err_set(err, "out of memory for the cache's tables");
    pthread_mutex_init(&h->lock, NULL);
    size_t all;
    h->stride = round_up(round_up(kv->setup.shape.max_rows, TILE_ROWS) * kv_row_bytes(kv), SPILL_BLOCK);
    if (!size_mul(n_matrices(kv) + 4 * kv->setup.shape.kv_heads, h->stride, &all) ||
        !size_mul(all, kv->setup.n_seqs, &all) || all > SIZE_MAX / 4)
        return err_set(err, "a reservation of %zu rows is larger than the address space",
                       kv->setup.shape.max_rows);
    return take_sparse(kv, kv->spec.sparse, err) < 0 ? -1
                                                     : spill_open(&h->spill, kv->spec.spill.dir, err);
}

void heads_close(struct kv *kv)
{
    struct heads *h = heads_of(kv);
    if (!h)
        return;
    spill_close(h->spill);
    for (size_t s = 0; h->seq && s < kv->setup.n_seqs; s++) {
        pages_release(h->seq[s].rows, seq_bytes(kv));
        free(h->seq[s].flushed);
    }
    free(h->seq);
    free(h->stay);
    kv_sparse_release(&h->sparse);
    free(h);
}

int heads_reserve(struct kv *kv, size_t seq, struct err *err)
{
    struct heads_seq *s = &heads_of(kv)->seq[seq];
    if (!s->rows)
        s->rows = pages_reserve(PAGES_MMAP, seq_bytes(kv));
    return s->rows
               ? 0
               : err_set(err,
                         "out of memory: %zu bytes of address space cannot be had; use a smaller -c",
                         seq_bytes(kv));
}

/* ---- to the file, and back ---- */

void heads_give_up(struct kv *kv, const struct err *err)
{
    struct heads *h = heads_of(kv);
    if (!h->failed)
        h->err = *err;
    h->failed = true;
}

int heads_say(struct kv *kv, struct err *err)
{
    struct heads *h = heads_of(kv);
    if (!h->failed)
        return 0;
    *err = h->err;
    return -1;
}

/* Bytes [from, to) of K and V of heads [head, end) of a layer, but of sparse ones. */
struct strip {
    size_t layer, head, end, from, to;
};

typedef void strip_act(struct kv *kv, struct heads_seq *s, char *at, size_t offset, size_t bytes);

static void each_strip(struct kv *kv, size_t seq, const struct strip *strip, strip_act *act)
{
    for (size_t v = 0; v < 2 && strip->from < strip->to; v++)
        for (size_t head = strip->head; head < strip->end; head++) {
            if (heads_sparse(kv, strip->layer, head))
                continue;
            act(kv, &heads_of(kv)->seq[seq], heads_at(kv, seq, strip->layer, v, head) + strip->from,
                heads_offset(kv, seq, strip->layer, v, head) + strip->from, strip->to - strip->from);
        }
}

static void write_strip(struct kv *kv, struct heads_seq *s, char *at, size_t offset, size_t bytes)
{
    spill_write(heads_of(kv)->spill, &s->writing, at, offset, bytes);
}

static void read_strip(struct kv *kv, struct heads_seq *s, char *at, size_t offset, size_t bytes)
{
    spill_read(heads_of(kv)->spill, &s->writing, at, offset, bytes);
}

static void drop_strip(struct kv *kv, struct heads_seq *s, char *at, size_t offset, size_t bytes)
{
    (void)kv;
    (void)s;
    (void)offset;
    madvise(at, bytes, MADV_DONTNEED);
}

/* The same of one head, sparse or not, or of a buffer's. */
static void drop_head(struct kv *kv, size_t seq, size_t layer, size_t head, size_t from, size_t to)
{
    for (size_t v = 0; v < 2 && from < to; v++)
        madvise(heads_at(kv, seq, layer, v, head) + from, to - from, MADV_DONTNEED);
}

void heads_flush(struct kv *kv, size_t seq, size_t layer, size_t to)
{
    struct heads *h = heads_of(kv);
    struct heads_seq *s = &h->seq[seq];
    const struct strip strip = {layer, h->stay[layer], kv->setup.shape.kv_heads, s->written[layer], to};
    if (strip.head == strip.end || strip.from >= to)
        return;
    each_strip(kv, seq, &strip, write_strip);
    s->written[layer] = to;
}

static bool wait_all(struct kv *kv, size_t seq)
{
    struct err err;
    if (spill_wait(heads_of(kv)->spill, &heads_of(kv)->seq[seq].writing, &err) == 0)
        return true;
    heads_give_up(kv, &err);
    return false;
}

void heads_finish(struct kv *kv, size_t seq)
{
    struct heads *h = heads_of(kv);
    struct heads_seq *s = &h->seq[seq];
    const bool ok = wait_all(kv, seq);
    for (size_t l = 0; l < kv->setup.shape.layers; l++) {
        const struct strip strip = {l, h->stay[l], kv->setup.shape.kv_heads, s->flushed[l],
                                    s->written[l]};
        if (ok)
            each_strip(kv, seq, &strip, drop_strip);
        s->flushed[l] = s->written[l] = ok ? s->written[l] : s->flushed[l];
    }
}

void heads_retreat(struct kv *kv, size_t seq, size_t rows, bool all)
{
    struct heads *h = heads_of(kv);
    struct heads_seq *s = &h->seq[seq];
    const size_t from = heads_whole(kv, rows), block = heads_begun(kv, rows);
    heads_finish(kv, seq);
    for (size_t l = 0; l < kv->setup.shape.layers; l++) {
        if (s->flushed[l] <= from)
            continue;
        const struct strip strip = {l, h->stay[l], kv->setup.shape.kv_heads, from,
                                    all ? s->flushed[l] : block};
        each_strip(kv, seq, &strip, read_strip);
        s->flushed[l] = s->written[l] = from;
    }
    wait_all(kv, seq);
}

/* The heads of a layer that stayed, and will not; they come to where the others are. */
static void settle_layer(struct kv *kv, size_t seq, size_t layer, size_t stay, size_t to,
                         strip_act *act)
{
    const struct heads *h = heads_of(kv);
    const size_t end = kv->setup.shape.kv_heads;
    const struct strip leave = {layer, stay, h->stay[layer], 0, to},
                       others = {layer, h->stay[layer], end, h->seq[seq].flushed[layer], to};
    each_strip(kv, seq, &leave, act);
    each_strip(kv, seq, &others, act);
}

static int settle_seq(struct kv *kv, size_t seq, const size_t *stay, struct err *err)
{
    struct heads_seq *s = &heads_of(kv)->seq[seq];
    const size_t to = heads_whole(kv, kv->seq[seq].n);
    heads_retreat(kv, seq, kv->seq[seq].n, false);
    for (size_t l = 0; l < kv->setup.shape.layers; l++)
        settle_layer(kv, seq, l, stay[l], to, write_strip);
    if (spill_wait(heads_of(kv)->spill, &s->writing, err) < 0)
        return -1;
    for (size_t l = 0; l < kv->setup.shape.layers; l++) {
        settle_layer(kv, seq, l, stay[l], to, drop_strip);
        s->flushed[l] = s->written[l] = stay[l] < kv->setup.shape.kv_heads ? to : 0;
    }
    return 0;
}

int heads_settle(struct kv *kv, const size_t *stay, size_t group, struct err *err)
{
    struct heads *h = heads_of(kv);
    for (size_t s = 0; s < kv->setup.n_seqs; s++)
        if (h->seq[s].rows && settle_seq(kv, s, stay, err) < 0) {
            heads_give_up(kv, err);
            return -1;
        }
    memcpy(h->stay, stay, kv->setup.shape.layers * sizeof *stay);
    h->group = group;
    return heads_say(kv, err);
}

void heads_shrink(struct kv *kv, size_t seq, size_t rows)
{
    const struct kv_seq *s = &kv->seq[seq];
    const size_t from = heads_begun(kv, rows), to = heads_begun(kv, s->n + s->pending);
    for (size_t l = 0; l < kv->setup.shape.layers + 2; l++)
        for (size_t head = 0; head < kv->setup.shape.kv_heads; head++)
            drop_head(kv, seq, l, head, from, to);
}

/* ---- sparse heads ---- */

static size_t sink_bytes(const struct kv *kv) { return heads_begun(kv, heads_of(kv)->sparse.sink); }

size_t heads_gap(const struct kv *kv, size_t seq)
{
    const size_t from = sink_bytes(kv), to = heads_of(kv)->seq[seq].thinned;
    return to - size_min(from, to);
}

size_t heads_gap_of(const struct kv *kv, size_t n)
{
    const size_t from = sink_bytes(kv),
                 to = heads_whole(kv, kv_recent_start(n, heads_of(kv)->sparse.recent));
    return to - size_min(from, to);
}

void heads_thin(struct kv *kv, size_t seq)
{
    const struct kv_sparse *sparse = &heads_of(kv)->sparse;
    struct heads_seq *s = &heads_of(kv)->seq[seq];
    const size_t from = size_max(s->thinned, sink_bytes(kv));
    const size_t to = heads_whole(kv, kv_recent_start(kv->seq[seq].n, sparse->recent));
    if (!sparse->n || to <= from)
        return;
    for (size_t l = 0; l < sparse->layers; l++)
        for (size_t head = 0; head < sparse->kv_heads; head++)
            if (heads_sparse(kv, l, head))
                drop_head(kv, seq, l, head, from, to);
    s->thinned = to;
}

void heads_clear(struct kv *kv, size_t seq)
{
    struct heads_seq *s = &heads_of(kv)->seq[seq];
    wait_all(kv, seq);
    pages_release(s->rows, seq_bytes(kv));
    s->rows = NULL;
    s->thinned = 0;
    memset(s->flushed, 0, 2 * kv->setup.shape.layers * sizeof *s->flushed);
}

/* ---- copies ---- */

/* Bytes [at, at + bytes) of a head, at most as far as they lie in one place. */
static void copy_piece(struct kv *kv, size_t to, size_t from, const struct strip *strip, size_t whole)
{
    struct heads *h = heads_of(kv);
    const bool away = strip->head >= h->stay[strip->layer];
    const struct strip block = {strip->layer, strip->head, strip->end, strip->from,
                                round_up(strip->to, SPILL_BLOCK)};
    struct heads_seq *t = &h->seq[to];
    for (size_t v = 0; v < 2; v++) {
        char *at = heads_at(kv, to, strip->layer, v, strip->head) + strip->from;
        if (away && strip->from < h->seq[from].flushed[strip->layer])
            spill_read(h->spill, &t->writing, at,
                       heads_offset(kv, from, strip->layer, v, strip->head) + strip->from,
                       block.to - block.from);
        else
            kv_copy(kv, at, heads_at(kv, from, strip->layer, v, strip->head) + strip->from,
                    strip->to - strip->from);
    }
    if (!wait_all(kv, to) || !away || strip->from >= whole)
        return;
    each_strip(kv, to, &block, write_strip);
    wait_all(kv, to);
    each_strip(kv, to, &block, drop_strip);
}

/* What there is of a sparse head: the same places in memory. */
static void copy_sparse(struct kv *kv, size_t to, size_t from, size_t layer, size_t head, size_t rows)
{
    const size_t bytes = rows * kv_row_bytes(kv), gap = heads_gap(kv, from);
    const size_t first = gap ? sink_bytes(kv) : bytes, next = first + gap;
    for (size_t v = 0; v < 2; v++) {
        char *at = heads_at(kv, to, layer, v, head);
        kv_copy(kv, at, heads_at(kv, from, layer, v, head), first);
        if (next < bytes)
            kv_copy(kv, at + next, heads_at(kv, from, layer, v, head) + next, bytes - next);
    }
}

static void copy_head(struct kv *kv, size_t to, size_t from, size_t layer, size_t head, size_t rows)
{
    if (heads_sparse(kv, layer, head)) {
        copy_sparse(kv, to, from, layer, head, rows);
        return;
    }
    const size_t bytes = rows * kv_row_bytes(kv), whole = heads_whole(kv, rows);
    const size_t flushed = heads_of(kv)->seq[from].flushed[layer];
    for (size_t at = 0, end; at < bytes; at = end) {
        end = size_min(at + HEADS_STRIP_BYTES, at < whole ? whole : bytes);
        if (at < flushed)
            end = size_min(end, flushed);
        const struct strip strip = {layer, head, head + 1, at, end};
        copy_piece(kv, to, from, &strip, whole);
    }
}

void heads_copy(struct kv *kv, size_t to, size_t from, size_t rows)
{
    struct heads *h = heads_of(kv);
    heads_finish(kv, from);
    heads_finish(kv, to);
    h->seq[to].thinned = h->seq[from].thinned;
    for (size_t l = 0; l < kv->setup.shape.layers; l++) {
        for (size_t head = 0; head < kv->setup.shape.kv_heads; head++)
            copy_head(kv, to, from, l, head, rows);
        h->seq[to].flushed[l] = h->seq[to].written[l] =
            h->stay[l] < kv->setup.shape.kv_heads ? heads_whole(kv, rows) : 0;
    }
}
