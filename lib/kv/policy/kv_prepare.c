/* Growth in advance: see kv_prepare.h. */
#include "kv/policy/kv_prepare.h"

#include "base/clock.h"
#include "kv/policy/kv_grow_blocks.h"

static struct kv_prepare *prepare_of(const struct kv *kv, size_t seq)
{
    return &((struct grow_seq *)kv->seq[seq].store)->prepare;
}

/* Blocks are in whole tiles: a growth step below a tile allocates little, and rarely. */
static bool is_enabled(const struct kv *kv)
{
    return kv->policy->growth->ahead && !kv->spec.grow_now && !kv->spec.lockstep &&
           kv->setup.r >= TILE_ROWS;
}

/* Rows at the end of a growth step during which the next one is prepared. */
static size_t window_of(const struct kv *kv) { return div_up(kv->setup.r, 2); }

static size_t next_cap(const struct kv *kv, size_t cap)
{
    return size_min(cap + kv->setup.r, kv->setup.shape.max_rows);
}

/* Rows per head of the blocks after growth to `cap` rows. */
static size_t block_rows(size_t cap) { return round_up(cap, TILE_ROWS); }

/* The first matrix of the layer in progress; there are kv_matrices() of them. */
static size_t matrix_in_progress(const struct kv *kv, const struct kv_prepare *p)
{
    return kv->head[kv->first_head[p->layers]].matrix;
}

static size_t matrices_in_progress(const struct kv *kv, const struct kv_prepare *p)
{
    return kv_matrices(kv_layer_sizes(kv, p->layers));
}

/* Fills rows [from, to) of the larger blocks: copies those before `copied`, zeroes the others. */
static void fill_rows(struct kv *kv, size_t seq, size_t from, size_t to, size_t copied)
{
    struct kv_prepare *p = prepare_of(kv, seq);
    const struct grow_block *old = grow_blocks_of(kv, seq);
    const size_t split = size_max(from, size_min(to, copied)), first = matrix_in_progress(kv, p);
    const double start = clock_ms();
    struct kv_copies copies;
    kv_copies_begin(&copies, kv);
    for (size_t h = kv->first_head[p->layers]; h < kv->first_head[p->layers + 1]; h++) {
        const struct kv_head *head = &kv->head[h];
        const size_t at = from * head->bytes;
        kv_copies_add(&copies, addr_add(grow_head(kv, &p->fresh[head->matrix - first], 0, h), at),
                      addr_add(grow_head(kv, &old[head->matrix], 0, h), at),
                      (split - from) * head->bytes, (to - split) * head->bytes);
    }
    kv_copies_end(&copies);
    kv->stats.copy_ms += clock_ms() - start;
    p->copied += split - from;
}

/* Frees the larger blocks in progress; returns the bytes freed. */
static size_t free_fresh(struct kv *kv, struct kv_prepare *p)
{
    size_t bytes = 0;
    if (p->layers == kv->setup.shape.layers)
        return 0;
    for (size_t i = 0; i < matrices_in_progress(kv, p); i++) {
        bytes += grow_block_free(kv, &p->fresh[i], matrix_in_progress(kv, p) + i);
        p->fresh[i] = (struct grow_block){0};
    }
    return bytes;
}

/* Allocates the larger blocks of the next layer. */
static bool begin_layer(struct kv *kv, size_t seq, size_t rows)
{
    struct kv_prepare *p = prepare_of(kv, seq);
    const size_t first = matrix_in_progress(kv, p), n = matrices_in_progress(kv, p);
    const double start = clock_ms();
    bool all = true;
    for (size_t i = 0; i < n; i++) {
        const size_t bytes = grow_blocks_bytes(kv, first + i, first + i + 1, rows);
        p->fresh[i] = (struct grow_block){kv->memory->alloc(kv->spec.alloc, bytes), rows, false};
        all &= !addr_is_null(p->fresh[i].data);
    }
    kv->stats.alloc_ms += clock_ms() - start;
    if (!all) {
        free_fresh(kv, p);
        return false;
    }
    kv_count_memory(kv, grow_blocks_bytes(kv, first, first + n, rows), 0);
    p->filled = 0;
    p->unchanged = kv->seq[seq].n;
    return true;
}

/* Copies rows written in the meantime; the larger blocks then replace the layer's old ones. */
static void end_layer(struct kv *kv, size_t seq)
{
    struct kv_prepare *p = prepare_of(kv, seq);
    struct grow_block *old = grow_blocks_of(kv, seq);
    const size_t first = matrix_in_progress(kv, p);
    if (kv->seq[seq].n > p->unchanged)
        fill_rows(kv, seq, p->unchanged, kv->seq[seq].n, SIZE_MAX);
    const double start = clock_ms();
    for (size_t i = 0; i < matrices_in_progress(kv, p); i++) {
        kv_count_memory(kv, 0, grow_block_free(kv, &old[first + i], first + i));
        old[first + i] = p->fresh[i];
        p->fresh[i] = (struct grow_block){0};
    }
    kv->stats.alloc_ms += clock_ms() - start;
    p->filled = 0;
    p->layers++;
}

/* Fills up to `rows` rows of the layer in progress, from its end; returns how many. */
static size_t fill_layer(struct kv *kv, size_t seq, size_t rows)
{
    struct kv_prepare *p = prepare_of(kv, seq);
    const size_t end = p->fresh[0].rows - p->filled, count = size_min(rows, end);
    if (count)
        fill_rows(kv, seq, end - count, end, p->unchanged);
    p->filled += count;
    if (count == end)
        end_layer(kv, seq);
    return count;
}

size_t kv_prepare_due(const struct kv *kv, size_t seq, size_t rows)
{
    const struct kv_seq *s = &kv->seq[seq];
    /* A longer pass, part of a prompt, would soon be followed by one that needs more still. */
    const bool due = is_enabled(kv) && s->cap < kv->setup.shape.max_rows && rows <= kv->setup.r &&
                     s->cap - s->n <= window_of(kv);
    return due ? next_cap(kv, s->cap) : 0;
}

size_t kv_prepare_share(const struct kv *kv, size_t seq, size_t rows, size_t all, size_t done)
{
    return div_up((all - done) * rows, kv->seq[seq].cap - kv->seq[seq].n);
}

void kv_prepare_advance(struct kv *kv, size_t seq, size_t rows)
{
    const size_t layers = kv->setup.shape.layers, cap = kv_prepare_due(kv, seq, rows);
    if (!cap || kv->seq[seq].attached)
        return;
    struct kv_prepare *p = prepare_of(kv, seq);
    const size_t each = block_rows(cap);
    size_t share = kv_prepare_share(kv, seq, rows, layers * each, p->layers * each + p->filled);
    while (share && p->layers < layers) {
        if (addr_is_null(p->fresh[0].data) && !begin_layer(kv, seq, each))
            return;
        share -= fill_layer(kv, seq, share);
    }
}

size_t kv_prepare_finish(struct kv *kv, size_t seq, size_t cap)
{
    struct kv_prepare *p = prepare_of(kv, seq);
    if (cap != next_cap(kv, kv->seq[seq].cap))
        kv_prepare_reset(kv, seq);
    if (!addr_is_null(p->fresh[0].data))
        fill_layer(kv, seq, SIZE_MAX);
    return p->layers;
}

void kv_prepare_invalidate(struct kv *kv, size_t seq, size_t rows)
{
    struct kv_prepare *p = prepare_of(kv, seq);
    p->unchanged = size_min(p->unchanged, rows);
}

void kv_prepare_reset(struct kv *kv, size_t seq)
{
    struct kv_prepare *p = prepare_of(kv, seq);
    kv->stats.copied_rows += p->copied / kv->setup.shape.layers;
    kv_count_memory(kv, 0, free_fresh(kv, p));
    *p = (struct kv_prepare){0};
}

size_t kv_prepare_bytes(const struct kv *kv, size_t rows, bool copies)
{
    const size_t N = kv->setup.shape.max_rows, most = size_min(rows, N), r = kv->setup.r,
                 cap = size_min(round_up(most, r), N), before = most ? (most - 1) / r * r : 0;
    if (!is_enabled(kv))
        return 0;
    size_t layer = 0; /* bytes of a row in the largest layer, which a policy that copies has twice */
    for (size_t i = 0; copies && i < kv->largest.n_sizes; i++)
        layer = size_max(layer, kv_sizes_bytes(&kv->largest.sizes[i], kv->largest.type));
    if (cap == N || cap - most > window_of(kv)) /* while it grew to `cap` */
        return layer * block_rows(before);
    return (block_rows(next_cap(kv, cap)) - block_rows(cap)) * kv_shape_row_bytes(&kv->largest) +
           layer * block_rows(cap);
}
