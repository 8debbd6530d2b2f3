/* Growth in advance: see kv_prepare.h. */
#include "kv/policy/kv_prepare.h"

/* Blocks are in whole tiles: a growth step below a tile allocates little, and rarely. */
static bool is_enabled(const struct kv *kv)
{
    return kv->policy->growth->ahead && !kv->spec.grow_now && !kv->spec.lockstep &&
           kv->setup.r >= TILE_ROWS;
}

/* Rows at the end of a growth step during which the next one is prepared. */
static size_t window_of(const struct kv *kv) { return div_up(kv->setup.r, 2); }

size_t kv_prepare_next(const struct kv *kv, size_t cap)
{
    return size_min(cap + kv->setup.r, kv->setup.shape.max_rows);
}

/* Rows per head of the blocks after growth to `cap` rows. */
static size_t block_rows(size_t cap) { return round_up(cap, TILE_ROWS); }

size_t kv_prepare_due(const struct kv *kv, size_t seq, size_t rows)
{
    const struct kv_seq *s = &kv->seq[seq];
    /* A longer pass, part of a prompt, would soon be followed by one that needs more still. */
    const bool due = is_enabled(kv) && s->cap < kv->setup.shape.max_rows && rows <= kv->setup.r &&
                     s->cap - s->n <= window_of(kv);
    return due ? kv_prepare_next(kv, s->cap) : 0;
}

size_t kv_prepare_share(const struct kv *kv, size_t seq, size_t rows, size_t all, size_t done)
{
    return div_up((all - done) * rows, kv->seq[seq].cap - kv->seq[seq].n);
}

size_t kv_prepare_bytes(const struct kv *kv, size_t rows, bool copies)
{
    const size_t N = kv->setup.shape.max_rows, most = size_min(rows, N), r = kv->setup.r,
                 cap = size_min(round_up(most, r), N), before = most ? (most - 1) / r * r : 0;
    if (!is_enabled(kv))
        return 0;
    const size_t twice = copies ? kv_shape_matrix_bytes(&kv->largest) : 0;
    if (cap == N || cap - most > window_of(kv)) /* while it grew to `cap` */
        return twice * block_rows(before);
    return (block_rows(kv_prepare_next(kv, cap)) - block_rows(cap)) * kv_shape_row_bytes(&kv->largest) +
           twice * block_rows(cap);
}
