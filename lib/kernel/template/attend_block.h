/* Template: the pipeline of all attention kernels, which process one block of positions after the other: tiles of
 * KV entries, masks, online softmax, scratch memory, and prefetching. */
#pragma once

#include "kernel/template/vec.h"
#include "quant/kv_entries.h"

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
#define PHASE static __attribute__((noinline, unused))

/* ---- tiles ---- */

struct tile {
    const char *base;
    /* [ATTEND_TILE]: byte offsets of KV entries; NULL: k_stride or v_stride apart */
    const ptrdiff_t *row;
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
    size_t k_bytes, v_bytes; /* of a tile */
};

/* Prefetches byte `at` of a tile, or byte `in_row` of entry `row` if the tile is scattered. */
INLINE void prefetch_tile(struct tile tile, size_t at, size_t row, size_t in_row)
{
    __builtin_prefetch(tile.base + (tile.row ? tile.row[row] + (ptrdiff_t)in_row : (ptrdiff_t)at), 0,
                       2);
}

/* Prefetches the cache line at `at`, of the next block's K or V, into L1. */
INLINE void prefetch_near(const char *at) { __builtin_prefetch(at, 0, 3); }

/* Returns the tile that is n tiles after `last` in memory; `last` itself if it is scattered. */
INLINE struct tile tile_after(struct tile last, size_t n, size_t bytes)
{
    return last.row ? last : (struct tile){last.base + n * bytes, NULL};
}

/* Returns the tiles to prefetch while `block` is processed: those of the next block. During the
 * last block that is the memory behind it, which mostly holds the positions of the next call. */
static struct next_block find_next(const struct attend *a, size_t block)
{
    struct next_block next = {.k_bytes = ATTEND_TILE * a->k_stride,
                              .v_bytes = ATTEND_TILE * a->v_stride};
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        const size_t wanted = (block + 1) * BLOCK_TILES + t, tile = size_min(wanted, a->tiles - 1);
        next.k[t] = tile_after(k_tile(a, tile), wanted - tile, next.k_bytes);
        next.v[t] = tile_after(v_tile(a, tile), wanted - tile, next.v_bytes);
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

/* Returns the range of queries that the block at position `first` is computed for. Attended ranges ascend
 * from query to query, so only leading and trailing queries can skip the block. */
INLINE struct kv_range active_queries(const struct attend *a, size_t first)
{
    struct kv_range active = {0, a->queries};
    while (first < a->skippable && active.begin < active.end && a->kv_end[active.begin] <= first)
        active.begin++;
    if (a->kv_begin && first < a->skippable)
        while (active.begin < active.end && a->kv_begin[active.end - 1] >= first + BLOCK)
            active.end--;
    return active;
}

/* ---- the pipeline ---- */

/* The softmax of the queries over a block of positions. */
struct block_softmax {
    float *scores; /* [queries][BLOCK]; become unnormalised probabilities */
    /* [queries], rounded up to whole registers: factors for earlier sums; of quantised types also for the block's, and
     * the maximum of all scores so far and of the block's */
    float *acc_scale, *block_scale, *max, *block_max;
};

/* Scales in quantised entries of K or of V. */
struct entry_scales {
    enum dtype type;
    size_t d, stride,
        groups; /* values; bytes from entry to entry; groups per entry: more than 1 for DTYPE_Q4_1 */
    size_t scale_at, min_at; /* offsets in an entry */
};

static inline struct entry_scales entry_scales_of(enum dtype type, size_t d, size_t stride)
{
    const unsigned bits = kv_entry_bits(type);
    const bool q4 = type == DTYPE_Q4_1;
    return (struct entry_scales){
        .type = type,
        .d = d,
        .stride = stride,
        .groups = q4 ? div_up(d, QK_GROUP) : 1,
        .scale_at = bits ? kv_entry_layout(bits, d).scale : quant_row_scales_at(type, d, SCALE_MAIN),
        .min_at = q4 ? quant_row_scales_at(type, d, SCALE_MIN) : 0,
    };
}

/* A block of positions, and constants of the call. */
struct block_state {
    const struct attend *a;
    size_t first;            /* the block's first position */
    struct kv_range queries; /* the queries that it is computed for */
    size_t tiles;            /* number of tiles; k and v repeat the last one */
    struct tile k[BLOCK_TILES], v[BLOCK_TILES];
    bool scattered;                                           /* all of k and v have row tables */
    ptrdiff_t k_strided[ATTEND_TILE], v_strided[ATTEND_TILE]; /* row tables of contiguous entries */
    struct next_block next;
    struct block_softmax softmax;

    /* K, transposed: [d][BLOCK] elements, or [words][BLOCK] words of quantised values. Kernels that read K in place
     * leave it out. */
    float *k_t;
    uint32_t *k_words; /* of bf16: [BLOCK / NR][words][NR] */
    size_t words;      /* 4-byte words of elements, or of quantised values, per entry of K */

    /* Quantised types. A group is QK_GROUP columns (d for DTYPE_Q8_CHANNEL) that share a scale in each entry. */
    struct entry_scales k_scales, v_scales;   /* where they are in entries */
    size_t groups, v_groups;                  /* groups per entry of K; of V that are read */
    float *k_scale, *k_min, *v_scale, *v_min; /* [groups][BLOCK] */
    float *q_scale;                           /* [queries] */
    int32_t *zero;                            /* [queries]: product of the query with K's zero point */
    /* [queries / 8][d / 4][8]: the queries, transposed, in groups of q_words_each words */
    int32_t *q_words;
    size_t q_words_each;
    float *p_factor; /* [BLOCK]: 15-bit probability / probability */
    /* [queries][BLOCK]: probabilities times scales of V, for a group of columns; of bf16, in bf16 */
    int16_t *p;
    float *panels; /* bf16: contexts, [d_v / PANEL_WIDTH][panel_rows][PANEL_WIDTH] */
    size_t panel_rows;
    float *p_scale; /* [queries]: factor from sums of p to context, for a group */
    float *p_min;   /* [queries]: added to context, for the mins of V and its v_centre() */
    /* [BLOCK / 2][columns]: V. Element [i][j] holds two int16_t: the quantised values of V, less v_centre(), at
     * positions 2 * i and 2 * i + 1 of the block and column j. */
    uint32_t *v_pairs;
    size_t columns,
        v_words; /* columns of V, rounded up to whole registers; words of values per entry of V */
    /* [BLOCK][d, in whole blocks]: bytes of entries of 4, 5 or 6 bits, of a tile or of all */
    char *unpacked;
    size_t prefetch_bytes;               /* bytes of a K tile of `next` to prefetch per word */
    size_t prefetch_column;              /* bytes of all V tiles of `next` to prefetch per column */
    ptrdiff_t *prefetch_at[BLOCK_TILES]; /* [words]: offsets to prefetch in a scattered tile */
};

/* Finds the tiles of block number `block`; if any has a row table, all get one. */
static void find_block(struct block_state *b, size_t block)
{
    const struct attend *a = b->a;
    b->tiles = size_min(BLOCK_TILES, a->tiles - block * BLOCK_TILES);
    b->scattered = false;
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        const size_t tile = size_min(block * BLOCK_TILES + t, a->tiles - 1);
        b->k[t] = k_tile(a, tile);
        b->v[t] = v_tile(a, tile);
        b->scattered = b->scattered || b->k[t].row;
    }
    for (size_t t = 0; b->scattered && t < BLOCK_TILES; t++) {
        b->k[t].row = b->k[t].row ? b->k[t].row : b->k_strided;
        b->v[t].row = b->v[t].row ? b->v[t].row : b->v_strided;
    }
    b->next = find_next(a, block);
}

/* The phases of a kernel's work on a block. */
struct attend_phases {
    void (*score)(struct block_state *b);   /* loads K and computes softmax.scores */
    void (*softmax)(struct block_state *b); /* turns scores into probabilities, and finds acc_scale */
    void (*value)(struct block_state *b);   /* adds V to the contexts */
};

/* Runs the phases for all blocks that a query attends to. */
INLINE void attend_blocks(struct block_state *b, const struct attend_phases *phases)
{
    const struct attend *a = b->a;
    for (size_t i = 0; i < ATTEND_TILE; i++) {
        b->k_strided[i] = (ptrdiff_t)(i * a->k_stride);
        b->v_strided[i] = (ptrdiff_t)(i * a->v_stride);
    }
    for (size_t block = 0; block < div_up(a->tiles, BLOCK_TILES); block++) {
        b->first = block * BLOCK;
        b->queries = active_queries(a, b->first);
        if (b->queries.begin == b->queries.end)
            continue;
        find_block(b, block);
        phases->score(b);
        phases->softmax(b);
        phases->value(b);
    }
}

/* ---- masks and softmax ---- */

PHASE void softcap_alibi(const struct attend *a, size_t query, size_t first, float *scores)
{
    const vf cap = vf_set1(a->softcap);
    for (int g = 0; a->softcap > 0 && g < BLOCK_VECS; g++)
        vf_store(scores + g * VW, cap * vf_tanh(vf_load(scores + g * VW) / cap));
    for (size_t p = 0; a->slope && p < BLOCK; p++)
        scores[p] -= a->slope[query] * fabsf((float)(first + p) - a->position[query]);
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

/* A probability as it is multiplied with V. */
INLINE vf multiplied_prob(const struct attend *a, vf e) { return a->rounded ? vf_round_bf16(e) : e; }

/* Replaces a query's scores in a block by unnormalised probabilities e^(score - running maximum), all
 * 0 if it does not attend to the block, and adds these to its running sum. Returns acc_scale = e^(old maximum - new one), the
 * factor for all earlier sums. */
static inline float online_softmax(const struct block_state *b, size_t query)
{
    const struct attend *a = b->a;
    const struct kv_range range = kv_range_of(a, query, b->first);
    float *scores = b->softmax.scores + query * BLOCK, *sum = a->sum + query * NR;
    if (range.end <= range.begin) {
        memset(scores, 0, BLOCK * sizeof *scores);
        return 1;
    }
    const float before = a->max[query], found = block_max(a, query, b->first, range, scores);
    const float max = found <= before ? before : found; /* NaN if a score is NaN */
    const float acc_scale = before < max ? vf_exp(vf_set1(before - max))[0] : 1;
    for (int g = 0; g < BLOCK_VECS; g++) {
        const vf e = multiplied_prob(a, vf_exp(vf_load(scores + g * VW) - vf_set1(max)));
        float *lane = sum + g % NR_VECS * VW;
        vf_store(scores + g * VW, e);
        vf_store(lane, vf_fma(vf_load(lane), vf_set1(g < NR_VECS ? acc_scale : 1), e));
    }
    a->max[query] = max;
    return acc_scale;
}

/* ---- quantised types: queries in int8, softmax with a running maximum of several queries at a time ---- */

enum { GROUP_WORDS = QK_GROUP / 4 /* 4-byte words that hold the 8-bit values of a group */ };

INLINE const int8_t *query_q(const struct attend *a, size_t query)
{
    return a->q_int8->q + query * a->q_int8->row_bytes;
}

INLINE const int32_t *query_sums(const struct attend *a, size_t query)
{
    return (const void *)((const char *)a->q_int8->sum + query * a->q_int8->row_bytes);
}

/* The sum of the query's int8 values. */
static inline int32_t query_sum(const struct attend *a, size_t query)
{
    const int32_t *halves = query_sums(a, query);
    int32_t sum = 0;
    for (size_t h = 0; h < div_up(a->d, QK_HALF); h++)
        sum += halves[h];
    return sum;
}

INLINE float query_scale(const struct attend *a, size_t query)
{
    float scale;
    memcpy(&scale, (const char *)a->q_int8->scale + query * a->q_int8->row_bytes, sizeof scale);
    return scale;
}

/* Sets the queries' constants: q_scale, zero, and p_min for V without a min. */
static inline void query_constants(const struct block_state *b)
{
    for (size_t i = 0; i < b->a->queries; i++) {
        const float scale = query_scale(b->a, i);
        b->q_scale[i] = scale == scale ? scale : NAN;
        b->zero[i] = query_sum(b->a, i) * quant_types[DTYPE_Q8_CHANNEL].zero_point;
        b->p_min[i] = 0;
    }
}

/* Scales as they are stored, but with the one NaN that exponentiate_vecs() keeps. */
INLINE vf canonical_nan(vf stored) { return vf_select(stored == stored, stored, vf_set1(NAN)); }

/* Takes the next n floats of the scratch memory and advances *scratch. */
INLINE void *take(float **scratch, size_t n)
{
    float *at = *scratch;
    *scratch += n;
    return at;
}

/* Takes the buffers from the scratch memory, and continues from the maxima of the call before. */
static inline void begin_softmax(struct block_state *b, float **scratch)
{
    const struct attend *a = b->a;
    struct block_softmax *s = &b->softmax;
    const size_t queries = round_up(a->queries, NR);
    s->scores = take(scratch, a->queries * BLOCK);
    s->max = take(scratch, queries);
    s->block_max = take(scratch, queries);
    s->acc_scale = take(scratch, queries);
    s->block_scale = take(scratch, queries);
    for (size_t i = 0; i < queries; i++)
        s->max[i] = i < a->queries ? a->max[i] : -INFINITY;
}

static inline void end_softmax(const struct block_state *b)
{
    memcpy(b->a->max, b->softmax.max, b->a->queries * sizeof *b->a->max);
}

/* e^x for x <= 0 with a relative error of 2^-22, in fewer instructions than vf_exp(): x = n ln 2 +
 * r; e^r is the polynomial of degree 5 with the least relative error (Remez) that has value and
 * derivative 1 at 0. 0 below -87.3; NaN stays NaN. */
INLINE vf vf_exp_fast(vf x)
{
    const vf magic = vf_set1(MAGIC_FLOAT); /* rounds to an integer, in the lowest bits */
    const vi zero = x < vf_set1(-87.3f);
    x = vf_max(vf_set1(-87.3f), x);
    const vf n = vf_fma(x, vf_set1(1.44269504f), magic);
    const vf r = vf_fma(n - magic, vf_set1(-0.693147181f), x);
    vf p = vf_set1(8.3124776527e-3f);
    p = vf_fma(p, r, vf_set1(4.1890550138e-2f));
    p = vf_fma(p, r, vf_set1(1.6667116315e-1f));
    p = vf_fma(p, r, vf_set1(4.9999228825e-1f));
    p = vf_fma(p, r, vf_set1(1));
    p = vf_fma(p, r, vf_set1(1));
    const vu power = ((vu)n << 23) + (127u << 23);
    return (vf)((vi)(p * (vf)power) & ~zero);
}

#define OWN_LANE(l, s) (l)

/* Loads register g of the scales of a block's positions, with 0 for positions outside `range`. */
INLINE vf scales_in_range(const float *scale, struct kv_range range, int g)
{
    const vi at = (vi){ALL_LANES(OWN_LANE, 0)} + g * VW;
    return vf_select((at >= (int32_t)range.begin) & (at < (int32_t)range.end), vf_load(scale + g * VW),
                     vf_set1(0));
}

/* Sets the factors that turn probabilities into 15-bit integers: p_factor[p] = scale[p] * one / largest scale, for
 * positions p in `range`, else 0. Returns p_scale = largest scale / one; NaN if a scale is negative or not finite,
 * as only in a damaged cache. */
INLINE float set_p_factor(const struct block_state *b, const float *scale, struct kv_range range)
{
    const float one = 32767, tiny = 1e-30f; /* smaller scales count as 0 */
    vf max = {0}, bad = {0};
    for (int g = 0; g < BLOCK_VECS; g++) {
        const vf x = scales_in_range(scale, range, g);
        max = vf_max(max, x);
        bad += vf_select(x >= vf_set1(0), x * vf_set1(0), vf_set1(NAN));
    }
    const float largest = vf_max_lane(max);
    const vf inverse = vf_set1(largest > tiny ? one / largest : 0);
    for (int g = 0; g < BLOCK_VECS; g++)
        vf_store(b->p_factor + g * VW, scales_in_range(scale, range, g) * inverse);
    return largest / one + vf_sum(bad);
}

/* Updates the queries' running score maxima and computes acc_scale and block_scale, the factors for
 * earlier sums and for this block's; lanes are queries. block_max is -INFINITY for queries that do
 * not attend to the block. */
PHASE void update_max(const struct block_state *b)
{
    const struct block_softmax *s = &b->softmax;
    for (size_t i = 0; i < b->a->queries; i += VW) {
        const vf before = vf_load(s->max + i), found = vf_load(s->block_max + i);
        const vf now = vf_select(found <= before, before, found); /* NaN if a score is NaN */
        const vf none = vf_set1(-INFINITY);
        vf_store(s->acc_scale + i, vf_select(before < now, vf_exp_fast(before - now), vf_set1(1)));
        vf_store(s->block_scale + i, vf_select(found == none, vf_set1(0), vf_exp_fast(found - now)));
        vf_store(s->max + i, now);
    }
}

/* Finds the largest scores of the queries in the block, after soft cap, ALiBi and mask, and updates
 * the running maxima. */
PHASE void block_maxima(const struct block_state *b)
{
    const struct block_softmax *s = &b->softmax;
    for (size_t i = 0; i < round_up(b->a->queries, VW); i++)
        s->block_max[i] = -INFINITY;
    for (size_t i = b->queries.begin; i < b->queries.end; i++) {
        const struct kv_range range = kv_range_of(b->a, i, b->first);
        if (range.end <= range.begin)
            continue;
        const float max = block_max(b->a, i, b->first, range, s->scores + i * BLOCK);
        s->block_max[i] = max > -INFINITY ? max : NAN; /* vf_max() may miss a NaN */
    }
    update_max(b);
}
