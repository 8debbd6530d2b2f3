/* Template: online softmax, which turns attention scores into probabilities one block of positions
 * at a time; and access to the tiles of KV entries that attention kernels read. */
#ifndef BMC_ONLINE_SOFTMAX_H
#define BMC_ONLINE_SOFTMAX_H

#include "kernel/template/vec.h"

/* Positions that the including template processes at a time. */
#ifndef BLOCK
#define BLOCK ATTEND_BLOCK
#endif

enum {
    BLOCK_TILES = BLOCK / ATTEND_TILE,
    BLOCK_VECS = BLOCK / VW /* registers that hold one f32 per position */
};

/* Marks a phase of the work on a block of positions: a function of its own, so that its loops have
 * all registers. */
#define PHASE static __attribute__((noinline))

struct tile {
    const char *base;
    const ptrdiff_t *row; /* [ATTEND_TILE]: byte offsets of KV entries; NULL: row_stride apart */
};

INLINE struct tile k_tile(const struct attend *a, size_t t)
{
    return (struct tile){a->k[t], a->k_rows ? a->k_rows[t] : NULL};
}

INLINE struct tile v_tile(const struct attend *a, size_t t)
{
    return (struct tile){a->v[t], a->v_rows ? a->v_rows[t] : NULL};
}

/* Returns the address of KV entry i of a tile; callers pass `scattered` as a constant. */
INLINE const char *row_of(struct tile tile, bool scattered, size_t stride, size_t i)
{
    return tile.base + (scattered ? tile.row[i] : (ptrdiff_t)(i * stride));
}

/* The tiles of the next block of positions, which are prefetched while the current one is
 * processed: a quarter in each of its four phases, a cache line at a time, so that loads are always
 * in flight and never too many. */
struct next_block {
    struct tile k[BLOCK_TILES], v[BLOCK_TILES];
    size_t row_bytes, bytes; /* bytes of a KV entry and of a tile */
};

/* Prefetches byte `at` of a tile, or byte `in_row` of entry `row` if the tile is scattered. */
INLINE void prefetch_tile(struct tile tile, size_t at, size_t row, size_t in_row)
{
    __builtin_prefetch(tile.base + (tile.row ? tile.row[row] + (ptrdiff_t)in_row : (ptrdiff_t)at), 0,
                       2);
}

/* Returns the tile that is n tiles after `last` in memory; `last` itself if it is scattered. */
INLINE struct tile tile_after(struct tile last, size_t n, size_t bytes)
{
    return last.row ? last : (struct tile){last.base + n * bytes, NULL};
}

/* Returns the tiles to prefetch while `block` is processed: those of the next block. During the
 * last block that is the memory behind it, which mostly holds the positions of the next call. */
static struct next_block find_next(const struct attend *a, size_t block)
{
    struct next_block next = {.row_bytes = a->row_stride, .bytes = ATTEND_TILE * a->row_stride};
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        const size_t wanted = (block + 1) * BLOCK_TILES + t, tile = size_min(wanted, a->tiles - 1);
        next.k[t] = tile_after(k_tile(a, tile), wanted - tile, next.bytes);
        next.v[t] = tile_after(v_tile(a, tile), wanted - tile, next.bytes);
    }
    return next;
}

/* A range [begin, end) of positions, counted from a block's first, or of queries of a call. */
struct kv_range {
    size_t begin, end;
};

/* Returns the positions that a query attends to in the block that begins at position `first`. */
INLINE struct kv_range kv_range_of(const struct attend *a, size_t query, size_t first)
{
    const size_t end = a->kv_end[query], begin = a->kv_begin ? a->kv_begin[query] : 0;
    return (struct kv_range){begin > first ? size_min(begin - first, BLOCK) : 0,
                             end > first ? size_min(end - first, BLOCK) : 0};
}

/* Returns the range of queries that a block of positions is computed for. Attended ranges ascend
 * from query to query, so only leading and trailing queries can skip the block. */
INLINE struct kv_range active_queries(const struct attend *a, size_t block)
{
    const size_t first = block * BLOCK;
    struct kv_range active = {0, a->queries};
    while (first < a->skippable && active.begin < active.end && a->kv_end[active.begin] <= first)
        active.begin++;
    if (a->kv_begin && first < a->skippable)
        while (active.begin < active.end && a->kv_begin[active.end - 1] >= first + BLOCK)
            active.end--;
    return active;
}

PHASE void softcap_alibi(const struct attend *a, size_t query, size_t first, float *scores)
{
    const vf cap = vf_set1(a->softcap);
    for (int g = 0; a->softcap > 0 && g < BLOCK_VECS; g++)
        vf_store(scores + g * VW, cap * vf_tanh(vf_load(scores + g * VW) / cap));
    for (size_t p = 0; a->slope && p < BLOCK; p++)
        scores[p] += a->slope[query] * ((float)(first + p) - a->position[query]);
}

/* Applies soft cap, ALiBi and mask to a query's scores in a block; returns their maximum. */
INLINE float block_max(const struct attend *a, size_t query, size_t first, struct kv_range range,
                       float *scores)
{
    if (a->softcap > 0 || a->slope)
        softcap_alibi(a, query, first, scores);
    for (size_t p = 0; p < range.begin; p++)
        scores[p] = -INFINITY;
    for (size_t p = range.end; p < BLOCK; p++)
        scores[p] = -INFINITY;
    vf max = vf_load(scores);
    for (int g = 1; g < BLOCK_VECS; g++)
        max = vf_max(max, vf_load(scores + g * VW));
    return vf_max_lane(max);
}

/* Masks a query's scores like block_max() and returns the running maximum of the softmax including
 * this block; NaN if a score is NaN. */
INLINE float running_max(const struct attend *a, size_t query, size_t first, struct kv_range range,
                         float *scores)
{
    const float before = a->max[query], found = block_max(a, query, first, range, scores);
    return found <= before ? before : found;
}

/* Replaces a query's scores in a block by p = e^(score - max) and adds these to its running sum.
 * Returns acc_scale = e^(old max - max), the factor for all earlier sums. */
INLINE float exponentiate(const struct attend *a, size_t query, float max, float *scores)
{
    float *sum = a->sum + query * NR;
    const float before = a->max[query];
    const float acc_scale = before < max ? vf_exp(vf_set1(before - max))[0] : 1;
    for (int g = 0; g < BLOCK_VECS; g++) {
        const vf e = vf_exp(vf_load(scores + g * VW) - vf_set1(max));
        float *lane = sum + g % NR_VECS * VW;
        vf_store(scores + g * VW, e);
        vf_store(lane, vf_fma(vf_load(lane), vf_set1(g < NR_VECS ? acc_scale : 1), e));
    }
    a->max[query] = max;
    return acc_scale;
}

#endif
