/* attend_bf16.h for few queries: K and V are multiplied in the registers in which they
 * are transposed and interleaved, by the same instructions in the same order, and every load of an entry prefetches
 * the same line of the next block's. */
#pragma once

#include "kernel/x86/avx512_begin.h"
#include "kernel/template/attend_bf16.h"

enum {
    FEW_ROWS = 8,
    FEW_WIDE = 6 /* up to so many queries, four registers of columns at a time, else two */
};

INLINE __m512bh pair_set1(const bf16 *x)
{
    int32_t pair;
    memcpy(&pair, x, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
}

/* True if so many queries, and entries of these sizes, are multiplied here. */
static inline bool few_rows(const struct attend *a)
{
    return a->queries <= FEW_ROWS && a->d % (2 * VW) == 0 && a->d_v % PANEL_WIDTH == 0;
}

/* Computes the scores of R queries, from the block's first on, at the positions of tile t. */
INLINE void few_score(const int R, bool scattered, const struct block_state *b, size_t t)
{
    const struct tile k = b->k[t], next = b->next.k[t];
    const size_t stride = b->a->k_stride, first = b->queries.begin;
    const bf16 *q = b->a->q_bf16 + first * b->a->q_stride;
    __m512 sum[FEW_ROWS];
    UNROLL(for (int r = 0; r < R; r++))
    sum[r] = _mm512_setzero_ps();
    ROLLED(for (size_t j = 0; j < b->words; j += VW))
    {
        vf x[VW];
        UNROLL(for (size_t i = 0; i < VW; i++))
        {
            x[i] = (vf)vu_load(row_of(k, scattered, stride, i) + 4 * j);
            prefetch_same(next, stride, i, 4 * j);
        }
        vf_transpose(x);
        UNROLL(for (size_t i = 0; i < VW; i++))
        UNROLL(for (int r = 0; r < R; r++))
        sum[r] = _mm512_dpbf16_ps(sum[r], pair_set1(q + (size_t)r * b->a->q_stride + 2 * (j + i)),
                                  (__m512bh)x[i]);
    }
    UNROLL(for (size_t r = 0; r < (size_t)R; r++))
    _mm512_storeu_ps(b->softmax.scores + (first + r) * BLOCK + t * ATTEND_TILE, sum[r]);
}

/* Interleaves 32 columns of V at two positions: word [c] of x[0] has those of column c, of x[1] of column 16 + c. */
INLINE void zip_columns(const char *low, const char *high, __m512bh x[2])
{
#define ZIPPED(l, s) (uint32_t)((l) + 16 * (s)) | (uint32_t)(32 + (l) + 16 * (s)) << 16
    const vu first = {ALL_LANES(ZIPPED, 0)}, second = {ALL_LANES(ZIPPED, 1)};
    const __m512i a = _mm512_loadu_si512(low), c = _mm512_loadu_si512(high);
    x[0] = (__m512bh)_mm512_permutex2var_epi16(a, (__m512i)first, c);
    x[1] = (__m512bh)_mm512_permutex2var_epi16(a, (__m512i)second, c);
}

/* Adds a block's V to G registers of columns, from `column` on, of the contexts of R queries, from the block's first on. */
INLINE void few_value(const int R, const int G, bool scattered, const struct block_state *b,
                      size_t column)
{
    const size_t stride = b->a->v_stride, first = b->queries.begin, at = 2 * column;
    const bf16 *prob = (const bf16 *)b->p + first * BLOCK;
    float *context = context_panel(b, column / PANEL_WIDTH, first) + column % PANEL_WIDTH;
    __m512 sum[FEW_ROWS][PANEL_BLOCKS];
    UNROLL(for (int r = 0; r < R; r++))
    UNROLL(for (int g = 0; g < G; g++))
    sum[r][g] = _mm512_loadu_ps(context + r * PANEL_WIDTH + g * NR);
    for (size_t t = 0; t < b->tiles; t++, prob += ATTEND_TILE)
        ROLLED(for (size_t p = 0; p < ATTEND_TILE; p += 2))
        {
            const char *low = row_of(b->v[t], scattered, stride, p) + at;
            const char *high = row_of(b->v[t], scattered, stride, p + 1) + at;
            __m512bh x[PANEL_BLOCKS];
            UNROLL(for (int g = 0; g < G; g += 2))
            {
                zip_columns(low + g * 32, high + g * 32, x + g);
                prefetch_same(b->next.v[t], stride, p, at + (size_t)g * 32);
                prefetch_same(b->next.v[t], stride, p + 1, at + (size_t)g * 32);
            }
            UNROLL(for (int r = 0; r < R; r++))
            {
                const __m512bh pair = pair_set1(prob + r * BLOCK + (int)p);
                UNROLL(for (int g = 0; g < G; g++))
                sum[r][g] = _mm512_dpbf16_ps(sum[r][g], pair, x[g]);
            }
        }
    UNROLL(for (int r = 0; r < R; r++))
    UNROLL(for (int g = 0; g < G; g++))
    _mm512_storeu_ps(context + r * PANEL_WIDTH + g * NR, sum[r][g]);
}

PHASE void few_scores(const struct block_state *b)
{
#define TILE                                                                                           \
    for (size_t t = i; t < b->tiles; t++)                                                              \
        if (b->scattered)                                                                              \
            few_score(R, true, b, t);                                                                  \
        else                                                                                           \
            few_score(R, false, b, t);
    FOR_TILES(b->queries.end - b->queries.begin, FEW_ROWS, TILE)
#undef TILE
}

static void score_few(struct block_state *b)
{
    b->tiles = computed_tiles(b);
    few_scores(b);
}

static void value_few(struct block_state *b)
{
#define TILE                                                                                           \
    enum { G = (int)R <= (int)FEW_WIDE ? 4 : 2 };                                                      \
    for (size_t j = i; j < b->a->d_v; j += G * NR)                                                     \
        if (b->scattered)                                                                              \
            few_value(R, G, true, b, j);                                                               \
        else                                                                                           \
            few_value(R, G, false, b, j);
    FOR_TILES(b->queries.end - b->queries.begin, FEW_ROWS, TILE)
#undef TILE
}
