/* Blocks of a q8 cache and their scores (attend_q8.h). */
#ifndef BMC_ATTEND_Q8_SCORES_H
#define BMC_ATTEND_Q8_SCORES_H

#include "kernel/x86/vnni_begin.h"
#define BLOCK Q8_BLOCK
#include "kernel/template/quant_softmax.h"
#include "kernel/x86/attend/lanes.h"

enum {
    QUERY_GROUP = 8, /* queries whose scores, or VW columns of whose context, fit in registers */
    P_ONE = 65535    /* p_i16 of probability 1 and the largest scale */
};
_Static_assert(VW == ATTEND_TILE && BLOCK_TILES == 4, "4 bytes of V are of the block's 4 tiles");

/* Buffers for one block of positions, and constants of the call. */
struct q8_block {
    const struct attend *a;
    struct tile k[BLOCK_TILES], v[BLOCK_TILES]; /* tiles behind the last one repeat it */
    struct next_block next;
    bool scattered;                 /* all tiles have row tables */
    ptrdiff_t strided[ATTEND_TILE]; /* a row table of contiguous entries */
    size_t words;                   /* 4-byte words of quantised values per entry of K */
    float *k_scale, *v_scale;       /* [BLOCK] */
    float *p_factor;                /* [BLOCK]: p_i16 / probability */
    struct block_softmax softmax;
    /* [queries][2][BLOCK / 4]: low bytes, then high bytes of p_i16 = prob * v_scale. The 4 bytes of word
     * n are of position n of the block's tiles 0, 2, 1 and 3. */
    uint32_t *p_bytes;
    /* [queries / QUERY_GROUP][words][QUERY_GROUP]: the queries, transposed, in groups of q_words_each words */
    int32_t *q_words;
    size_t q_words_each;
    /* All with [queries] elements, rounded up to whole registers: */
    float *q_scale;
    float *p_scale; /* factor from sums of p_i16 to context */
    int32_t *zero;  /* product of the query with K's zero point */
};

/* Calls a function of a table for tiles of `queries`, within groups of 8: FN[R - 1](b, .., i) for queries
 * i to i + R - 1. */
#define QUERY_TILES(queries, FN, ...)                                                                  \
    for (size_t i = (queries).begin, n_; i < (queries).end; i += n_) {                                 \
        n_ = size_min(QUERY_GROUP - i % QUERY_GROUP, (queries).end - i);                               \
        FN[n_ - 1](__VA_ARGS__);                                                                       \
    }
#define EACH_R(M) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8)

/* Prefetches all entries of a scattered tile. */
static void prefetch_rows(const struct q8_block *b, struct tile next)
{
    for (size_t i = 0; i < ATTEND_TILE; i++)
        for (size_t at = 0; at < b->next.row_bytes; at += 64)
            __builtin_prefetch(next.base + next.row[i] + at, 0, 2);
}

/* Finds the block's tiles and those to prefetch meanwhile. */
static void find_block(struct q8_block *b, size_t block)
{
    b->scattered = find_tiles(b->a, block, b->strided, b->k, b->v);
    b->next = find_next(b->a, block);
}

/* ---- scores ---- */

INLINE int32_t *group_words(const struct q8_block *b, size_t query)
{
    return b->q_words + query / QUERY_GROUP * b->q_words_each;
}

/* The low and high half of a register. */
struct two_groups {
    __m256 low, high;
};
INLINE struct two_groups split_groups(vf x)
{
    return (struct two_groups){_mm512_castps512_ps256((__m512)x), _mm512_extractf32x8_ps((__m512)x, 1)};
}

/* Stores the queries transposed, as q_words. */
static void transpose_queries(const struct q8_block *b)
{
    const size_t n = b->a->queries;
    for (size_t i = 0; i < n; i += VW)
        for (size_t w = 0; w < b->words; w += VW) {
            int32_t *to = group_words(b, i) + w * QUERY_GROUP;
            vf x[VW];
            UNROLL(for (size_t r = 0; r < VW; r++))
            {
                const int8_t *q = query_q(b->a, size_min(i + r, n - 1)) + w * 4;
                x[r] = (vf)(b->words - w >= VW ? vu_load(q) : vu_load_some(q, b->words - w));
            }
            vf_transpose(x);
            UNROLL(for (size_t r = 0; r < VW; r++))
            {
                const struct two_groups two = split_groups(x[r]);
                memcpy(to + r * QUERY_GROUP, &two.low, sizeof two.low);
                if (n - i > QUERY_GROUP)
                    memcpy(to + (b->q_words_each + r * QUERY_GROUP), &two.high, sizeof two.high);
            }
        }
}

/* Adds the products of R queries with a word of K to their sums. */
INLINE void add_word(const int R, vi sum[QUERY_GROUP], vu k, const int32_t *q)
{
    UNROLL(for (int i = 0; i < R; i++))
    sum[i] = vi_dot4(sum[i], k, load_word(q + i));
}

/* Computes the scores of R queries, from `query` on, at the positions of tile t. */
INLINE void score_tile(const int R, bool scattered, const struct q8_block *b, size_t t, size_t query)
{
    const size_t words = b->words, stride = b->a->row_stride;
    const int32_t *q = group_words(b, query) + query % QUERY_GROUP;
    const struct tile next = b->next.k[t], k = b->k[t];
    const char *ahead = query == 0 && !next.row ? next.base : NULL;
    float *to = b->softmax.scores + query * BLOCK + t * ATTEND_TILE;
    vi sum[QUERY_GROUP];
    vu x[4];
    size_t w = 0;
    UNROLL(for (int i = 0; i < R; i++))
    sum[i] = vi_set1(-b->zero[query + (size_t)i]);
    ROLLED(for (; w + 4 <= words; w += 4, q += 4 * QUERY_GROUP))
    {
        load_words(true, scattered, k, stride, w, 4, x);
        if (ahead)
            prefetch_lines(ahead + w * 64, 4);
        UNROLL(for (size_t j = 0; j < 4; j++))
        add_word(R, sum, x[j], q + j * QUERY_GROUP);
    }
    if (w < words) {
        load_words(false, scattered, k, stride, w, words - w, x);
        for (size_t j = 0; w < words; j++, w++, q += QUERY_GROUP)
            add_word(R, sum, x[j], q);
    }
    if (ahead)
        prefetch_lines(ahead + w * 64, 2);
    const vf stored = vf_load(b->k_scale + t * ATTEND_TILE);
    const vf k_scale = vf_select(stored == stored, stored, vf_set1(NAN)); /* see exponentiate_vecs() */
    const float *q_scale = b->q_scale + query;
    UNROLL(for (int i = 0; i < R; i++))
    vf_store(to + i * BLOCK, vf_of(sum[i]) * (vf_set1(q_scale[i]) * k_scale));
}

#define SCORE_R(R)                                                                                     \
    PHASE void score_##R(const struct q8_block *b, size_t t, size_t query)                             \
    {                                                                                                  \
        if (b->scattered)                                                                              \
            score_tile(R, true, b, t, query);                                                          \
        else                                                                                           \
            score_tile(R, false, b, t, query);                                                         \
    }
EACH_R(SCORE_R)
static void (*const score_tiles[8])(const struct q8_block *, size_t, size_t) = {
    score_1, score_2, score_3, score_4, score_5, score_6, score_7, score_8};

/* Loads the scales of a tile's entries. */
PHASE void tile_scales(const struct q8_block *b, float *scale, struct tile tile)
{
    const char *at = tile.base + quant_row_scales_at(DTYPE_Q8_CHANNEL, b->a->d, SCALE_MAIN);
    const size_t stride = b->a->row_stride;
    if (b->scattered)
        UNROLL(for (size_t i = 0; i < ATTEND_TILE; i++))
    memcpy(scale + i, at + tile.row[i], sizeof *scale);
    else UNROLL(for (size_t i = 0; i < ATTEND_TILE; i++))
        memcpy(scale + i, at + i * stride, sizeof *scale);
}

/* Loads the block's scales and computes the scores of a range of queries at its positions. */
static void block_scores(const struct q8_block *b, struct kv_range queries)
{
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        if (b->next.k[t].row) {
            prefetch_rows(b, b->next.k[t]);
            prefetch_rows(b, b->next.v[t]);
        }
        tile_scales(b, b->k_scale + t * ATTEND_TILE, b->k[t]);
        QUERY_TILES(queries, score_tiles, b, t, i)
    }
    for (size_t t = 0; t < BLOCK_TILES; t++) /* only now, as they were prefetched last */
        tile_scales(b, b->v_scale + t * ATTEND_TILE, b->v[t]);
}

#endif
