/* Allocate, copy, zero: shared by iterative, bmc and upfront, which differ only in r. */
#include "kv/kv_grow.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/threads.h"

struct block {
    char *data;
    size_t rows;  /* stored per head */
    bool foreign; /* adopted: the memory is somebody else's */
};

static size_t row_bytes(const struct kv *kv) { return kv->shape.head_dim * dtype_size(kv->shape.type); }

static size_t n_blocks(const struct kv *kv) { return 2 * kv->shape.layers; }

/* Blocks of a sequence: K of layer l is at 2l, V at 2l + 1. */
static struct block *blocks_of(const struct kv *kv, size_t seq) { return kv->seq[seq].store; }

static size_t block_bytes(const struct kv *kv, size_t rows)
{
    return kv->shape.kv_heads * rows * row_bytes(kv);
}

int kv_grow_open(struct kv *kv, struct err *err)
{
    for (size_t s = 0; s < kv->n_seqs; s++) {
        kv->seq[s].store = mem_zalloc(n_blocks(kv), sizeof(struct block));
        if (!kv->seq[s].store)
            return err_set(err, "out of memory for the cache's tables");
    }
    return 0;
}

void kv_grow_close(struct kv *kv)
{
    for (size_t s = 0; s < kv->n_seqs; s++)
        free(kv->seq[s].store);
}

static void count_bytes(struct kv *kv, size_t more, size_t less)
{
    kv->stats.resident_bytes += more;
    kv->stats.peak_bytes = size_max(kv->stats.peak_bytes, kv->stats.resident_bytes);
    kv->stats.resident_bytes -= less;
}

/* The first n rows of every head from `old` to `fresh`, zeros behind them. */
static void copy_head(const struct kv *kv, struct block *fresh, const struct block *old, size_t head,
                      size_t n)
{
    const size_t bytes = row_bytes(kv);
    char *to = fresh->data + head * fresh->rows * bytes;
    if (n)
        memcpy(to, old->data + head * old->rows * bytes, n * bytes);
    memset(to + n * bytes, 0, (fresh->rows - n) * bytes);
}

/* What one call of grow() works on: a few blocks at a time, so that old and new are both there only for
 * those, and all threads have heads to copy. */
struct growth {
    struct block *from, *to; /* the same table, unless the rows go to another sequence */
    struct block fresh[32];
    size_t rows, n;
};

/* Grows `count` blocks beginning at `first`; false when memory cannot be had (nothing is lost then). */
static bool grow_blocks(struct kv *kv, struct growth *g, size_t first, size_t count)
{
    const size_t heads = kv->shape.kv_heads;
    const double start = clock_ms();
    bool failed = false;
    const int team = threads_for(count * block_bytes(kv, g->rows));
#pragma omp parallel for reduction(|| : failed) num_threads(team)
    for (size_t b = 0; b < count; b++) {
        g->fresh[b] = (struct block){mem_alloc(1, block_bytes(kv, g->rows)), g->rows, false};
        failed = failed || !g->fresh[b].data;
    }
    const double allocated = clock_ms();
    kv->stats.alloc_ms += allocated - start;
    if (failed) {
        for (size_t b = 0; b < count; b++)
            free(g->fresh[b].data);
        return false;
    }
#pragma omp parallel for collapse(2) num_threads(team)
    for (size_t b = 0; b < count; b++)
        for (size_t h = 0; h < heads; h++)
            copy_head(kv, &g->fresh[b], &g->from[first + b], h, g->n);
    const double copied = clock_ms();
    kv->stats.copy_ms += copied - allocated;
    size_t freed = 0;
    for (size_t b = 0; b < count; b++) {
        struct block *to = &g->to[first + b];
        if (to->data && !to->foreign)
            freed += block_bytes(kv, to->rows);
        if (!to->foreign)
            free(to->data);
        *to = g->fresh[b];
    }
    count_bytes(kv, count * block_bytes(kv, g->rows), freed);
    kv->stats.alloc_ms += clock_ms() - copied;
    return true;
}

/* Storage of `cap` rows for sequence `to` with the first n rows of `from`: one growth event. */
static int grow(struct kv *kv, size_t to, size_t from, size_t cap, size_t n, struct err *err)
{
    struct growth g = {.from = blocks_of(kv, from), .to = blocks_of(kv, to), .n = n};
    g.rows = round_up(cap, TILE_ROWS);
    size_t bytes;
    if (!size_mul(g.rows, kv->shape.kv_heads * row_bytes(kv), &bytes))
        return err_set(err, "a cache of %zu rows is larger than the address space", cap);
    const size_t group =
        size_min(div_up(4 * (size_t)threads_now(), kv->shape.kv_heads), ARRAY_LEN(g.fresh));
    for (size_t b = 0; b < n_blocks(kv); b += group)
        if (!grow_blocks(kv, &g, b, size_min(group, n_blocks(kv) - b)))
            return err_set(
                err,
                "out of memory: %zu rows of KV cache need %zu bytes; use a smaller -c or -b, or "
                "another --kv",
                cap, bytes * n_blocks(kv));
    kv->seq[to].cap = cap;
    kv->stats.allocations++;
    kv->stats.copied_rows += n;
    kv->stats.copied_bytes += n * n_blocks(kv) * kv->shape.kv_heads * row_bytes(kv);
    return 0;
}

int kv_grow_room(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    const struct kv_seq *s = &kv->seq[seq];
    const size_t need = s->n + rows;
    if (need <= s->cap)
        return 0;
    return grow(kv, seq, seq, size_min(round_up(need, kv->r), kv->shape.max_rows), s->n, err);
}

/* One row of one head into place, in the cache's type. */
static void store_row(const struct kv *kv, char *to, const float *from)
{
    if (kv->shape.type == DTYPE_F32)
        memcpy(to, from, row_bytes(kv));
    else
        for (size_t j = 0; j < kv->shape.head_dim; j++)
            ((bf16 *)(void *)to)[j] = bf16_from_f32(from[j]);
}

void kv_grow_append(struct kv *kv, size_t seq, size_t layer, size_t first, size_t rows, const float *k,
                    const float *v, size_t stride)
{
    const struct block *k_l = &blocks_of(kv, seq)[2 * layer], *v_l = k_l + 1;
    const size_t bytes = row_bytes(kv), d = kv->shape.head_dim, heads = kv->shape.kv_heads;
    const size_t at = kv->seq[seq].n + first;
#pragma omp parallel for num_threads(threads_for(rows *heads *d))
    for (size_t h = 0; h < heads; h++)
        for (size_t i = 0; i < rows; i++) {
            store_row(kv, k_l->data + (h * k_l->rows + at + i) * bytes, k + i * stride + h * d);
            store_row(kv, v_l->data + (h * v_l->rows + at + i) * bytes, v + i * stride + h * d);
        }
}

int kv_grow_view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                 struct kv_view *view, struct err *err)
{
    (void)heads;
    (void)err;
    const struct block *k_l = &blocks_of(kv, seq)[2 * layer], *v_l = k_l + 1;
    const size_t bytes = row_bytes(kv);
    view->layout = LAYOUT_ROWS;
    view->n_spans = 1;
    view->span = view->few;
    view->few[0] = (struct kv_span){
        .k = k_l->data + head * k_l->rows * bytes,
        .v = v_l->data + head * v_l->rows * bytes,
        .head_stride = k_l->rows * bytes,
        .row_stride = bytes,
        .rows = kv->rows == KV_ROWS_CAP ? kv->seq[seq].cap : valid,
        .valid = valid,
    };
    return 0;
}

static void release_blocks(struct kv *kv, size_t seq)
{
    struct block *blocks = blocks_of(kv, seq);
    for (size_t b = 0; b < n_blocks(kv); b++) {
        if (blocks[b].data && !blocks[b].foreign) {
            count_bytes(kv, 0, block_bytes(kv, blocks[b].rows));
            free(blocks[b].data);
        }
        blocks[b] = (struct block){0};
    }
    kv->seq[seq].cap = 0;
}

void kv_grow_keep(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra)
{
    struct block *blocks = blocks_of(kv, seq);
    const size_t bytes = row_bytes(kv), heads = kv->shape.kv_heads;
    if (rows + n_extra == 0) {
        release_blocks(kv, seq);
        return;
    }
    for (size_t b = 0; b < n_blocks(kv); b++)
        for (size_t h = 0; h < heads; h++) {
            char *rows_h = blocks[b].data + h * blocks[b].rows * bytes;
            for (size_t i = 0; i < n_extra; i++)
                if (extra[i] != rows + i)
                    memcpy(rows_h + (rows + i) * bytes, rows_h + extra[i] * bytes, bytes);
        }
}

int kv_grow_fork(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    return grow(kv, to, from, size_min(round_up(rows, kv->r), kv->shape.max_rows), rows, err);
}

int kv_grow_adopt(struct kv *kv, size_t seq, const struct kv_rows_in *layer, size_t rows, size_t stored,
                  struct err *err)
{
    (void)rows;
    (void)err;
    struct block *blocks = blocks_of(kv, seq);
    for (size_t l = 0; l < kv->shape.layers; l++) {
        blocks[2 * l] = (struct block){layer[l].k, stored, true};
        blocks[2 * l + 1] = (struct block){layer[l].v, stored, true};
    }
    kv->seq[seq].cap = size_min(stored, kv->shape.max_rows);
    return 0;
}
