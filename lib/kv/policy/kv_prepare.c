/* Growth in advance: see kv_prepare.h. */
#include "kv/policy/kv_prepare.h"

#include "base/clock.h"
#include "base/threads.h"
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

/* Rows [from, to) of the matrices of the layer in progress, in every head. */
struct filling {
    struct kv *kv;
    const struct kv_prepare *prepare;
    const struct grow_block *old; /* K, then V if it is stored */
    size_t from, to;
    size_t copied; /* rows before this one are copied, others zeroed */
};

static void fill_head(void *arg, size_t index)
{
    const struct filling *f = arg;
    const size_t heads = f->kv->setup.shape.kv_heads, bytes = kv_row_bytes(f->kv);
    const size_t matrix = index / heads, head = index % heads;
    const size_t split = size_max(f->from, size_min(f->to, f->copied));
    char *to = grow_head(f->kv, &f->prepare->fresh[matrix], 0, head);
    if (split > f->from)
        kv_copy(f->kv, to + f->from * bytes,
                grow_head(f->kv, &f->old[matrix], 0, head) + f->from * bytes,
                (split - f->from) * bytes);
    memset(to + split * bytes, 0, (f->to - split) * bytes);
}

static void fill_rows(struct kv *kv, size_t seq, size_t from, size_t to, size_t copied)
{
    struct kv_prepare *p = prepare_of(kv, seq);
    struct filling f = {kv, p, &grow_blocks_of(kv, seq)[kv_k_matrix(kv, p->layers)], from, to, copied};
    const size_t heads = kv_matrices(kv) * kv->setup.shape.kv_heads;
    const double start = clock_ms();
    parallel_for(heads, heads * (to - from) * kv_row_bytes(kv), fill_head, &f);
    kv->stats.copy_ms += clock_ms() - start;
    p->copied += size_min(to, size_max(copied, from)) - from;
}

/* Allocates the larger blocks of the next layer. */
static bool begin_layer(struct kv *kv, size_t seq, size_t rows)
{
    struct kv_prepare *p = prepare_of(kv, seq);
    const size_t bytes = grow_block_bytes(kv, rows);
    const double start = clock_ms();
    const size_t n = kv_matrices(kv);
    bool all = true;
    for (size_t i = 0; i < n; i++) {
        p->fresh[i] = (struct grow_block){vm_get(kv->spec.alloc, bytes), rows, false};
        all &= p->fresh[i].data != NULL;
    }
    kv->stats.alloc_ms += clock_ms() - start;
    if (!all) {
        for (size_t i = 0; i < n; i++) {
            grow_block_free(kv, &p->fresh[i]);
            p->fresh[i] = (struct grow_block){0};
        }
        return false;
    }
    kv_count_memory(kv, n * bytes, 0);
    p->filled = 0;
    p->unchanged = kv->seq[seq].n;
    return true;
}

/* Copies rows written in the meantime; the larger blocks then replace the layer's old ones. */
static void end_layer(struct kv *kv, size_t seq)
{
    struct kv_prepare *p = prepare_of(kv, seq);
    struct grow_block *old = &grow_blocks_of(kv, seq)[kv_k_matrix(kv, p->layers)];
    if (kv->seq[seq].n > p->unchanged)
        fill_rows(kv, seq, p->unchanged, kv->seq[seq].n, SIZE_MAX);
    const double start = clock_ms();
    for (size_t i = 0; i < kv_matrices(kv); i++) {
        kv_count_memory(kv, 0, grow_block_free(kv, &old[i]));
        old[i] = p->fresh[i];
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
        if (!p->fresh[0].data && !begin_layer(kv, seq, each))
            return;
        share -= fill_layer(kv, seq, share);
    }
}

size_t kv_prepare_finish(struct kv *kv, size_t seq, size_t cap)
{
    struct kv_prepare *p = prepare_of(kv, seq);
    if (cap != next_cap(kv, kv->seq[seq].cap))
        kv_prepare_reset(kv, seq);
    if (p->fresh[0].data)
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
    for (size_t i = 0; i < kv_matrices(kv); i++)
        kv_count_memory(kv, 0, grow_block_free(kv, &p->fresh[i]));
    *p = (struct kv_prepare){0};
}

size_t kv_prepare_bytes(const struct kv *kv, size_t rows, bool copies)
{
    const size_t N = kv->setup.shape.max_rows, most = size_min(rows, N), r = kv->setup.r,
                 cap = size_min(round_up(most, r), N), before = most ? (most - 1) / r * r : 0;
    if (!is_enabled(kv))
        return 0;
    if (cap == N || cap - most > window_of(kv)) /* while it grew to `cap` */
        return copies ? kv_matrices(kv) * grow_block_bytes(kv, block_rows(before)) : 0;
    return (block_rows(next_cap(kv, cap)) - block_rows(cap)) * kv_shape_row_bytes(&kv->setup.shape) +
           (copies ? kv_matrices(kv) * grow_block_bytes(kv, block_rows(cap)) : 0);
}
