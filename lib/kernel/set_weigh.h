/* From scores to weights, a block of positions at a time, with a running maximum and sum: what attention over rows of
 * every type does. Included by a set's files before what makes the scores. */
#ifndef BMC_SET_WEIGH_H
#define BMC_SET_WEIGH_H

#include "kernel/set_vec.h"

enum {
    BLOCK_TILES = ATTEND_BLOCK / ATTEND_TILE,
    BLOCK_GROUPS = ATTEND_BLOCK / VW /* registers for a block's positions */
};

/* In functions of their own the phases of a block keep what their loops need in registers. */
#define PHASE static __attribute__((noinline))

/* A tile of K or V. */
struct tile {
    const char *base;
    const ptrdiff_t *row; /* [ATTEND_TILE]: from base to each row; NULL: row_stride apart */
};

INLINE struct tile k_tile(const struct attend *a, size_t t)
{
    return (struct tile){a->k[t], a->k_rows ? a->k_rows[t] : NULL};
}

INLINE struct tile v_tile(const struct attend *a, size_t t)
{
    return (struct tile){a->v[t], a->v_rows ? a->v_rows[t] : NULL};
}

/* Row i of a tile that is scattered or not: a constant where this is called. */
INLINE const char *row_of(struct tile tile, bool scattered, size_t stride, size_t i)
{
    return tile.base + (scattered ? tile.row[i] : (ptrdiff_t)(i * stride));
}

/* The tiles of the next block, prefetched while this block is computed: a quarter in each of its four phases, one cache
 * line at a time, so that loads are always in flight and never too many at once. */
struct next_block {
    struct tile k[BLOCK_TILES], v[BLOCK_TILES];
    size_t row_bytes, bytes; /* of a row and of a tile */
};

/* Byte `at` of a tile, counted through its rows. A scattered one is fetched in another order, which takes no division: byte
 * `in_row` of row `row`. */
INLINE void fetch_line(struct tile tile, size_t at, size_t row, size_t in_row)
{
    __builtin_prefetch(tile.base + (tile.row ? tile.row[row] + (ptrdiff_t)in_row : (ptrdiff_t)at), 0,
                       2);
}

/* The tile that lies behind a block's last one by n tiles; or that one, where it is scattered. */
INLINE struct tile tile_behind(struct tile last, size_t n, size_t bytes)
{
    return last.row ? last : (struct tile){last.base + n * bytes, NULL};
}

/* Behind the last block, prefetch what follows in memory: mostly the positions of the next call. */
static struct next_block find_next(const struct attend *a, size_t block)
{
    struct next_block next = {.row_bytes = a->row_stride, .bytes = ATTEND_TILE * a->row_stride};
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        const size_t wanted = (block + 1) * BLOCK_TILES + t, tile = size_min(wanted, a->tiles - 1);
        next.k[t] = tile_behind(k_tile(a, tile), wanted - tile, next.bytes);
        next.v[t] = tile_behind(v_tile(a, tile), wanted - tile, next.bytes);
    }
    return next;
}

/* What happens to scores before the maximum is sought, in this order. */
PHASE void bend(const struct attend *a, size_t query, size_t first, float *scores)
{
    const vf cap = vf_set1(a->softcap);
    for (int g = 0; a->softcap > 0 && g < BLOCK_GROUPS; g++)
        vf_store(scores + g * VW, cap * vf_tanh(vf_load(scores + g * VW) / cap));
    for (size_t p = 0; a->slope && p < ATTEND_BLOCK; p++)
        scores[p] += a->slope[query] * ((float)(first + p) - a->own[query]);
}

/* The part of a block that a query sees: [from, seen), counted from the block's first position; or of the queries, those
 * that see any of it. */
struct sight {
    size_t from, seen;
};

INLINE struct sight sight_of(const struct attend *a, size_t query, size_t first)
{
    const size_t seen = a->seen[query], from = a->from ? a->from[query] : 0;
    return (struct sight){from > first ? size_min(from - first, ATTEND_BLOCK) : 0,
                          seen > first ? size_min(seen - first, ATTEND_BLOCK) : 0};
}

/* Queries that a block is multiplied for. They come in order of position: those before the first and behind the last of
 * these see nothing of it. */
INLINE struct sight queries_at(const struct attend *a, size_t block)
{
    const size_t first = block * ATTEND_BLOCK;
    struct sight at = {0, a->queries};
    while (block < a->must && at.from < at.seen && a->seen[at.from] <= first)
        at.from++;
    if (a->from && block < a->must)
        while (at.from < at.seen && a->from[at.seen - 1] >= first + ATTEND_BLOCK)
            at.seen--;
    return at;
}

/* Scores of what a query does not see become -INFINITY; returns the largest of the others. */
INLINE float block_max(const struct attend *a, size_t query, size_t first, struct sight sight,
                       float *scores)
{
    if (a->softcap > 0 || a->slope)
        bend(a, query, first, scores);
    for (size_t p = 0; p < sight.from; p++)
        scores[p] = -INFINITY;
    for (size_t p = sight.seen; p < ATTEND_BLOCK; p++)
        scores[p] = -INFINITY;
    vf most = vf_load(scores);
    for (int g = 1; g < BLOCK_GROUPS; g++)
        most = vf_max(most, vf_load(scores + g * VW));
    return vf_fold_max(most);
}

/* The same, of all scores so far. */
INLINE float find_max(const struct attend *a, size_t query, size_t first, struct sight sight,
                      float *scores)
{
    const float before = a->max[query], found = block_max(a, query, first, sight, scores);
    return found <= before ? before : found; /* may be NaN: something was seen */
}

/* Scores become weights; returns what the sums so far are multiplied by. */
INLINE float add_weights(const struct attend *a, size_t query, float max, float *scores)
{
    float *sum = a->sum + query * LANES;
    const float before = a->max[query];
    const float shrink = before < max ? vf_exp(vf_set1(before - max))[0] : 1;
    for (int g = 0; g < BLOCK_GROUPS; g++) {
        const vf e = vf_exp(vf_load(scores + g * VW) - vf_set1(max));
        float *lane = sum + g % GROUP * VW;
        vf_store(scores + g * VW, e);
        vf_store(lane, vf_fma(vf_load(lane), vf_set1(g < GROUP ? shrink : 1), e));
    }
    a->max[query] = max;
    return shrink;
}

#endif
