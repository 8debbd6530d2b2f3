/* Attention without a transposed copy of K, for kernel sets with registers of 512 bits: the sums of attend.h
 * in the same order, so with the same bits, but K is transposed in registers while it is multiplied, and the
 * maxima of 8 queries are found together. */
#ifndef BMC_ATTEND_DIRECT_H
#define BMC_ATTEND_DIRECT_H

#include "kernel/x86/avx512_begin.h"
#include "kernel/template/attend.h"
#include "kernel/x86/attend/lanes.h"

enum {
    DIRECT_ROWS = 8, /* queries multiplied at a time, and the maximum if elements have 16 bits */
    DIRECT_WIDE = 4  /* up to so many queries, the block's tiles of K are multiplied together */
};

/* A block of positions, and constants of the call. */
struct direct_block {
    const struct attend *a;
    struct tile k[BLOCK_TILES], v[BLOCK_TILES]; /* a tile that does not exist repeats the first */
    size_t tiles;
    struct next_block next;
    ptrdiff_t strided[ATTEND_TILE]; /* a row table of contiguous entries */
    bool scattered;                 /* all tiles have row tables */
    float *scores;                  /* [queries][BLOCK], then probabilities */
    float *acc_scale;               /* [queries] */
};

/* Prefetches the next block's tiles that have row tables. */
static void prefetch_scattered(const struct next_block *next)
{
    for (size_t t = 0; t < BLOCK_TILES; t++)
        for (size_t p = 0; next->k[t].row && p < ATTEND_TILE; p++)
            for (size_t at = 0; at < next->row_bytes; at += 64) {
                __builtin_prefetch(next->k[t].base + next->k[t].row[p] + at, 0, 2);
                __builtin_prefetch(next->v[t].base + next->v[t].row[p] + at, 0, 2);
            }
}

/* ---- scores ---- */

/* Converts a word of VW entries to f32: one element, or two of 16 bits. */
INLINE void word_elements(enum dtype type, vu x, vf element[2])
{
    if (type == DTYPE_F16) {
        f16_halves(x, element);
    } else if (type == DTYPE_BF16) {
        element[0] = (vf)(x << 16);
        element[1] = (vf)(x & 0xffff0000u);
    } else {
        element[0] = (vf)x;
    }
}

/* Computes the scores of R queries, from `query` on, at the positions of T tiles, from tile t on. */
INLINE void direct_scores(const int R, const int T, enum dtype type, bool scattered,
                          const struct direct_block *b, size_t t, size_t query)
{
    const int each = type == DTYPE_F32 ? 1 : 2; /* elements of a word */
    const size_t words = b->a->d / (size_t)each, stride = b->a->row_stride;
    const size_t q_stride = b->a->q_stride;
    const float *q = b->a->q + query;
    float *to = b->scores + query * BLOCK + t * ATTEND_TILE;
    vf sum[DIRECT_ROWS][BLOCK_TILES];
    UNROLL(for (int i = 0; i < R; i++))
    UNROLL(for (int g = 0; g < T; g++))
    sum[i][g] = (vf){0};
    ROLLED(for (size_t w = 0; w < words; w += 4))
    {
        vu x[BLOCK_TILES][4];
        UNROLL(for (int g = 0; g < T; g++))
        {
            load_words(true, scattered, b->k[t + (size_t)g], stride, w, 4, x[g]);
            if (query == 0 && !scattered)
                prefetch_lines(b->next.k[t + (size_t)g].base + w * 64, 4);
        }
        UNROLL(for (int j = 0; j < 4; j++))
        {
            vf k[BLOCK_TILES][2];
            UNROLL(for (int g = 0; g < T; g++))
            word_elements(type, x[g][j], k[g]);
            UNROLL(for (int e = 0; e < each; e++))
            {
                UNROLL(for (int i = 0; i < R; i++))
                UNROLL(for (int g = 0; g < T; g++))
                sum[i][g] = vf_fma(vf_set1(q[i]), k[g][e], sum[i][g]);
                q += q_stride;
            }
        }
    }
    UNROLL(for (int i = 0; i < R; i++))
    UNROLL(for (int g = 0; g < T; g++))
    vf_store(to + i * BLOCK + g * ATTEND_TILE, sum[i][g]);
}

INLINE void direct_score_block(const int R, enum dtype type, bool scattered,
                               const struct direct_block *b, size_t query)
{
    if (R <= DIRECT_WIDE) {
        direct_scores(R, 2, type, scattered, b, 0, query);
        return;
    }
    for (size_t t = 0; t < b->tiles; t++)
        direct_scores(R, 1, type, scattered, b, t, query);
}

/* ---- values ---- */

/* Adds V to G registers of columns, from `column` on, of the context of R queries from `query` on. */
INLINE void direct_values(const int R, const int G, enum dtype type, bool scattered,
                          const struct direct_block *b, size_t query, size_t column)
{
    const size_t size = dtype_size(type), d_v = b->a->d_v, stride = b->a->row_stride;
    const size_t bytes = (size_t)G * VW * size;
    float *context = b->a->context + query * d_v + column;
    const float *acc_scale = b->acc_scale + query;
    vf sum[DIRECT_ROWS][4];
    UNROLL(for (int i = 0; i < R; i++))
    UNROLL(for (int g = 0; g < G; g++))
    sum[i][g] = vf_load(context + (size_t)i * d_v + g * VW) * vf_set1(acc_scale[i]);
    for (size_t t = 0; t < b->tiles; t++) {
        const struct tile v = b->v[t];
        const float *prob = b->scores + query * BLOCK + t * ATTEND_TILE;
        const char *ahead = b->next.v[t].base + column * ATTEND_TILE * size;
        ROLLED(for (size_t p = 0; p < ATTEND_TILE; p++))
        {
            const char *from = row_of(v, scattered, stride, p);
            vf row[4];
            UNROLL(for (int g = 0; g < G; g++))
            row[g] = load_row(type, from, column + (size_t)g * VW);
            if (query == 0 && !scattered)
                prefetch_lines(ahead + p * bytes, div_up(bytes, 64));
            UNROLL(for (int i = 0; i < R; i++))
            UNROLL(for (int g = 0; g < G; g++))
            sum[i][g] = vf_fma(vf_set1(prob[i * BLOCK + (int)p]), row[g], sum[i][g]);
        }
    }
    UNROLL(for (int i = 0; i < R; i++))
    UNROLL(for (int g = 0; g < G; g++))
    vf_store(context + (size_t)i * d_v + g * VW, sum[i][g]);
}

INLINE void direct_value_block(const int R, enum dtype type, bool scattered,
                               const struct direct_block *b, size_t query)
{
    const int G = R <= DIRECT_WIDE ? 4 : 2;
    size_t column = 0;
    for (; column + (size_t)G * VW <= b->a->d_v; column += (size_t)G * VW)
        direct_values(R, G, type, scattered, b, query, column);
    for (; column < b->a->d_v; column += VW)
        direct_values(R, 1, type, scattered, b, query, column);
}

/* ---- functions for all numbers of queries and types ---- */

typedef void direct_function(const struct direct_block *b, size_t query);
#define DIRECT_FUNCTION(NAME, R, type)                                                                 \
    PHASE void NAME##_##type##_##R(const struct direct_block *b, size_t query)                         \
    {                                                                                                  \
        if (b->scattered)                                                                              \
            direct_##NAME(R, DTYPE_##type, true, b, query);                                            \
        else                                                                                           \
            direct_##NAME(R, DTYPE_##type, false, b, query);                                           \
    }
#define DIRECT_EACH(M, NAME, type)                                                                     \
    M(NAME, 1, type)                                                                                   \
    M(NAME, 2, type)                                                                                   \
    M(NAME, 3, type)                                                                                   \
    M(NAME, 4, type) M(NAME, 5, type) M(NAME, 6, type) M(NAME, 7, type) M(NAME, 8, type)
#define DIRECT_ROW(NAME, type)                                                                         \
    [DTYPE_##type] = {NAME##_##type##_1, NAME##_##type##_2, NAME##_##type##_3, NAME##_##type##_4,      \
                      NAME##_##type##_5, NAME##_##type##_6, NAME##_##type##_7, NAME##_##type##_8}
#define DIRECT_TABLE(NAME)                                                                             \
    DIRECT_EACH(DIRECT_FUNCTION, NAME, F32)                                                            \
    DIRECT_EACH(DIRECT_FUNCTION, NAME, BF16)                                                           \
    DIRECT_EACH(DIRECT_FUNCTION, NAME, F16)                                                            \
    static direct_function *const NAME##s[][DIRECT_ROWS] = {                                           \
        DIRECT_ROW(NAME, F32), DIRECT_ROW(NAME, BF16), DIRECT_ROW(NAME, F16)};
DIRECT_TABLE(score_block)
DIRECT_TABLE(value_block)

/* Calls a function for all of the queries. */
static void for_queries(direct_function *const function[DIRECT_ROWS], const struct direct_block *b,
                        struct kv_range queries)
{
    for (size_t i = queries.begin, n; i < queries.end; i += n) {
        n = size_min(DIRECT_ROWS, queries.end - i);
        function[n - 1](b, i);
    }
}

/* ---- softmax ---- */

/* True if scores are used as they are: without soft cap and ALiBi, at all positions of the block. */
static bool attends_wholly(const struct attend *a, size_t first, struct kv_range queries)
{
    bool all = a->softcap <= 0 && !a->slope;
    for (size_t i = queries.begin; all && i < queries.end; i++) {
        const struct kv_range range = kv_range_of(a, i, first);
        all = range.begin == 0 && range.end == BLOCK;
    }
    return all;
}

INLINE void store_lanes(float *to, size_t n, vf x)
{
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << n) - 1), (__m512)x);
}

/* Replaces the scores of n <= 8 queries, from `query` on, by probabilities. */
static void direct_softmax(const struct direct_block *b, size_t query, size_t n)
{
    float *max = b->a->max + query, *scores = b->scores + query * BLOCK;
    float *sum = b->a->sum + query * NR;
    vf x[DIRECT_ROWS];
    UNROLL(for (size_t i = 0; i < DIRECT_ROWS; i++))
    {
        const float *score = scores + size_min(i, n - 1) * BLOCK;
        x[i] = vf_max(vf_load(score), vf_load(score + VW));
    }
    const vf found = largest_of_8(x), before = (vf)vu_load_some(max, n);
    const vf now = vf_select(found <= before, before, found);
    const vf scale = vf_select(before < now, vf_exp(before - now), vf_set1(1));
    store_lanes(max, n, now);
    store_lanes(b->acc_scale + query, n, scale);
    for (size_t i = 0; i < n; i++, scores += BLOCK, sum += NR) {
        const vf largest = vf_set1(max[i]);
        const vf e0 = vf_exp(vf_load(scores) - largest), e1 = vf_exp(vf_load(scores + VW) - largest);
        vf_store(scores, e0);
        vf_store(scores + VW, e1);
        vf_store(sum, vf_fma(vf_load(sum), vf_set1(b->acc_scale[query + i]), e0) + e1);
    }
}

/* ---- blocks ---- */

static void find_direct_block(struct direct_block *b, size_t block)
{
    b->tiles = size_min(BLOCK_TILES, b->a->tiles - block * BLOCK_TILES);
    b->scattered = find_tiles(b->a, block, b->strided, b->k, b->v);
    b->next = find_next(b->a, block);
    prefetch_scattered(&b->next);
}

/* True if attend_direct() can compute this (entries are whole groups of 16 bytes, contexts whole registers)
 * and is faster: it converts 16-bit elements again for every DIRECT_ROWS queries. */
static bool is_direct(const struct attend *a)
{
    return a->d * dtype_size(a->type) % 16 == 0 && a->d_v % VW == 0 &&
           (a->type == DTYPE_F32 || a->queries <= DIRECT_ROWS);
}

static void attend_direct(const struct attend *a)
{
    struct direct_block b = {.a = a, .scores = a->scratch};
    b.acc_scale = b.scores + a->queries * BLOCK;
    for (size_t i = 0; i < ATTEND_TILE; i++)
        b.strided[i] = (ptrdiff_t)(i * a->row_stride);
    for (size_t block = 0; block < div_up(a->tiles, BLOCK_TILES); block++) {
        const size_t first = block * BLOCK;
        const struct kv_range queries = active_queries(a, block);
        if (queries.begin == queries.end)
            continue;
        find_direct_block(&b, block);
        for_queries(score_blocks[a->type], &b, queries);
        if (attends_wholly(a, first, queries))
            for (size_t i = queries.begin; i < queries.end; i += DIRECT_ROWS)
                direct_softmax(&b, i, size_min(DIRECT_ROWS, queries.end - i));
        else
            for (size_t i = queries.begin; i < queries.end; i++)
                b.acc_scale[i] = online_softmax(a, i, first, b.scores + i * BLOCK);
        for_queries(value_blocks[a->type], &b, queries);
    }
}

#endif
