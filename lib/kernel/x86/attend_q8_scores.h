/* Blocks of a q8 cache and their scores (attend_q8.h). */
#ifndef BMC_ATTEND_Q8_SCORES_H
#define BMC_ATTEND_Q8_SCORES_H

#include "kernel/x86/vnni_begin.h"
#define BLOCK Q8_BLOCK
#include "kernel/template/quant_shuffles.h"
#include "kernel/template/quant_softmax.h"

enum {
    LANE_QUERIES = 2, /* queries whose scores fit in registers */
    BYTE_QUERIES = 3, /* queries whose context fits in registers */
    BYTE_COLUMNS = 4 * VW,
    P_ONE = 65535 /* p_i16 of probability 1 and the largest scale */
};
_Static_assert(VW == ATTEND_TILE && BLOCK_TILES == 4, "4 bytes of V are of the block's 4 tiles");

/* Buffers for one block of positions, and constants of the call. */
struct q8_block {
    const struct attend *a;
    struct tile k[BLOCK_TILES], v[BLOCK_TILES]; /* tiles behind the last one repeat it */
    struct next_block next;
    bool scattered;                 /* all tiles have row tables */
    ptrdiff_t strided[ATTEND_TILE]; /* a row table of contiguous entries */
    size_t words, v_words;          /* 4-byte words of quantised values per entry of K, of V */
    size_t columns;                 /* of V, rounded up to whole registers of bytes */
    float *k_scale, *v_scale;       /* [BLOCK] */
    float *p_factor;                /* [BLOCK]: p_i16 / probability */
    struct block_softmax softmax;   /* scores are integer sums until all words were multiplied */
    /* [queries][2][BLOCK / 4]: low bytes, then high bytes of p_i16 = prob * v_scale. The 4 bytes of word
     * n are of position n of the block's tiles 0, 2, 1 and 3. */
    uint32_t *p_bytes;
    float *context; /* [queries][columns]: a->context in the order of columns of zip_rows() */
    char *q_lanes;  /* [queries][4 * columns]: see spread_queries() */
    /* All with [queries] elements, rounded up to whole registers: */
    float *p_scale; /* factor from sums of p_i16 to context */
    int32_t *zero;  /* product of the query with K's zero point */
};

/* Prefetches the i-th share of a tile of the next block, `share` bytes of all entries, into L1. */
INLINE void prefetch_share(const struct q8_block *b, struct tile next, size_t i, size_t share)
{
    const size_t end = size_min((i + 1) * share, b->next.bytes);
    if (!next.row)
        for (size_t at = i * share; at < end; at += 64)
            __builtin_prefetch(next.base + at, 0, 3);
    else
        for (size_t row = div_up(i * share, b->next.row_bytes); row * b->next.row_bytes < end; row++)
            for (size_t at = 0; at < b->next.row_bytes; at += 64)
                __builtin_prefetch(next.base + next.row[row] + at, 0, 3);
}

/* Loads the scales of a tile's entries. */
INLINE void load_tile_scales(bool scattered, const struct q8_block *b, float *scale, struct tile tile)
{
    const struct tile scales = {tile.base + quant_row_scales_at(DTYPE_Q8_CHANNEL, b->a->d, SCALE_MAIN),
                                tile.row};
    UNROLL(for (size_t i = 0; i < ATTEND_TILE; i++))
    memcpy(scale + i, row_of(scales, scattered, b->a->row_stride, i), sizeof *scale);
}

/* Finds the block's tiles and those to prefetch meanwhile, and loads its scales. */
PHASE void load_block(struct q8_block *b, size_t block)
{
    b->scattered = false;
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        const size_t tile = size_min(block * BLOCK_TILES + t, b->a->tiles - 1);
        b->k[t] = k_tile(b->a, tile);
        b->v[t] = v_tile(b->a, tile);
        b->scattered = b->scattered || b->k[t].row;
    }
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        b->k[t].row = b->k[t].row || !b->scattered ? b->k[t].row : b->strided;
        b->v[t].row = b->v[t].row || !b->scattered ? b->v[t].row : b->strided;
        if (b->scattered) {
            load_tile_scales(true, b, b->k_scale + t * ATTEND_TILE, b->k[t]);
            load_tile_scales(true, b, b->v_scale + t * ATTEND_TILE, b->v[t]);
        } else {
            load_tile_scales(false, b, b->k_scale + t * ATTEND_TILE, b->k[t]);
            load_tile_scales(false, b, b->v_scale + t * ATTEND_TILE, b->v[t]);
        }
    }
    b->next = find_next(b->a, block);
}

/* ---- scores ---- */

/* Words [w, w + VW) of K entries [0, VW) of tile t. Lane l of x[4 * g + i] has word w + 4 * l + i of
 * entries 4 * g to 4 * g + 3. It is multiplied with the query's word of that number; the sums of the
 * lanes are added at the end. */
struct k_words {
    vu x[VW];
    size_t t, w;
};

INLINE void load_words(bool whole, bool scattered, struct k_words *k, const struct q8_block *b)
{
    UNROLL(for (size_t i = 0; i < VW; i++))
    {
        const char *row = row_of(b->k[k->t], scattered, b->a->row_stride, i) + k->w * 4;
        k->x[i] = whole ? vu_load(row) : vu_load_some(row, b->words - k->w);
    }
    UNROLL(for (int g = 0; g < VW; g += 4))
    transpose_lanes(k->x + g);
}

/* Which words two registers a and b are joined from. SAME: word s of each lane, four times. */
#define SAME(l, s)  ((l) / 4 * 4 + (s))
#define JOIN(l, s)  ((l) < 8 ? (l) : (l) + 16)         /* lanes 0 and 1 of a, 2 and 3 of b */
#define CROSS(l, s) ((l) + 8)                          /* lanes 2 and 3 of a, 0 and 1 of b */
#define WEAVE(l, s) ((l) / 4 % 2 ? (l) + 16 : (l))     /* lanes 0 and 2 of a, 1 and 3 of b */
#define TURN(l, s)  ((l) / 4 % 2 ? (l) + 12 : (l) + 4) /* lanes 1 and 3 of a, 0 and 2 of b */
#define ADD_LANES(a, b, F, G)                                                                          \
    (__builtin_shufflevector(a, b, ALL_LANES(F, 0)) + __builtin_shufflevector(a, b, ALL_LANES(G, 0)))

/* Copies the queries to q_lanes, every word four times as struct k_words requires. */
static void spread_queries(const struct q8_block *b)
{
    for (size_t i = 0; i < b->a->queries; i++)
        for (size_t w = 0; w < b->words; w += VW) {
            char *to = b->q_lanes + i * 4 * b->columns + w * 16;
            const char *from = (const char *)query_q(b->a, i) + w * 4;
            const vu q = b->words - w >= VW ? vu_load(from) : vu_load_some(from, b->words - w);
            *(vu_any *)to = __builtin_shufflevector(q, q, ALL_LANES(SAME, 0));
            *(vu_any *)(to + 64) = __builtin_shufflevector(q, q, ALL_LANES(SAME, 1));
            *(vu_any *)(to + 128) = __builtin_shufflevector(q, q, ALL_LANES(SAME, 2));
            *(vu_any *)(to + 192) = __builtin_shufflevector(q, q, ALL_LANES(SAME, 3));
        }
}

/* Adds the products of VW words to the scores of R queries, from `query` on. */
INLINE void score_lanes(const int R, const struct q8_block *b, const struct k_words *k, size_t query)
{
    const bool last = k->w + VW >= b->words;
    const vf k_scale = vf_load(b->k_scale + k->t * ATTEND_TILE);
    const char *q = b->q_lanes + query * 4 * b->columns + k->w * 16;
    float *to = b->softmax.scores + query * BLOCK + k->t * ATTEND_TILE;
    vi sum[LANE_QUERIES][4];
    UNROLL(for (int i = 0; i < R; i++))
    UNROLL(for (int g = 0; g < 4; g++))
    sum[i][g] = (vi){0};
    UNROLL(for (int w = 0; w < 4; w++))
    UNROLL(for (int i = 0; i < R; i++))
    {
        const vi word = (vi)vu_load(q + (size_t)i * 4 * b->columns + w * 64);
        UNROLL(for (int g = 0; g < 4; g++))
        sum[i][g] = vi_dot4(sum[i][g], k->x[4 * g + w], word);
    }
    UNROLL(for (int i = 0; i < R; i++))
    {
        const size_t at = query + (size_t)i;
        const vi even = ADD_LANES(sum[i][0], sum[i][2], JOIN, CROSS);
        const vi odd = ADD_LANES(sum[i][1], sum[i][3], JOIN, CROSS);
        const vi dot =
            ADD_LANES(even, odd, WEAVE, TURN) + (k->w ? (vi)vf_load(to) : vi_set1(-b->zero[at]));
        vf_store(to, last ? vf_of(dot) * (vf_set1(query_scale(b->a, at)) * k_scale) : (vf)dot);
        to += BLOCK;
    }
}
/* Multiplies words of K with a range of queries. */
INLINE void score_words(bool whole, const struct q8_block *b, struct k_words *k,
                        struct kv_range queries)
{
    const size_t n = queries.end - queries.begin;
    const size_t share = round_up(div_up(b->next.bytes, div_up(n, LANE_QUERIES)), 64);
    size_t turn = 0;
    if (b->scattered)
        load_words(whole, true, k, b);
    else
        load_words(whole, false, k, b);
    FOR_TILES(n, LANE_QUERIES, {
        if (k->w == 0 && k->t < BLOCK_TILES - 1)
            prefetch_share(b, b->next.k[k->t], turn++, share);
        score_lanes(R, b, k, queries.begin + i);
    })
}

/* Computes the scores of a range of queries at a block's positions. */
PHASE void block_scores(const struct q8_block *b, struct kv_range queries)
{
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        struct k_words k = {.t = t};
        for (; k.w + VW <= b->words; k.w += VW)
            score_words(true, b, &k, queries);
        if (k.w < b->words)
            score_words(false, b, &k, queries);
    }
}

#endif
