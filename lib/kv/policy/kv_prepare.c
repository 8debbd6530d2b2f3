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

/* Capacity of a sequence of `rows` rows. */
static size_t cap_of(const struct kv *kv, size_t rows)
{
    const size_t N = kv->setup.shape.max_rows;
    return size_min(round_up(size_min(rows, N), kv->setup.r), N);
}

/* Rows of the present growth step, of a sequence of `rows` rows, at which a part of the next one was prepared. */
static size_t prepared_rows(const struct kv *kv, size_t rows)
{
    const size_t cap = cap_of(kv, rows), begun = cap - size_min(window_of(kv), cap);
    return is_enabled(kv) && cap < kv->setup.shape.max_rows && rows > begun ? rows - begun : 0;
}

size_t kv_prepare_bytes(const struct kv *kv, size_t rows, bool copies)
{
    const size_t cap = cap_of(kv, rows), passes = prepared_rows(kv, rows),
                 next = block_rows(kv_prepare_next(kv, cap)),
                 parts = copies ? size_times(kv->n_matrices, next) : kv->n_heads,
                 all = size_times(next - block_rows(cap), kv_shape_row_bytes(&kv->largest));
    const double part = (double)all / (double)parts,
                 done = (double)(passes * div_up(parts, window_of(kv)));
    const size_t begun =
        copies ? div_up(all, kv->n_matrices) : 0; /* a matrix is allocated as a whole */
    return passes ? size_min(all, size_plus((size_t)(part * done), begun)) : 0;
}

size_t kv_prepare_copied_bytes(const struct kv *kv, size_t rows)
{
    const size_t cap = cap_of(kv, rows), before = cap ? (cap - 1) / kv->setup.r * kv->setup.r : 0;
    return is_enabled(kv) ? block_rows(prepared_rows(kv, rows) ? cap : before) *
                                kv_shape_matrix_bytes(&kv->largest)
                          : 0;
}
