/* Template: attention of one KV head in one pass over its KV entries.
 *
 * For each block of 32 positions, K is transposed so that lanes are positions, then
 *   score[p] = sum over j = 0, 1 .. d - 1 of q[j] * k[p][j], in that order, in one accumulator;
 *              then soft cap and ALiBi
 *   prob[p] = e^(score[p] - running maximum); sums so far are rescaled when the maximum rises
 *   context[j] = context[j] * acc_scale + sum over p in order of prob[p] * v[p][j]
 * So the result does not depend on the number of queries or on where entries are stored. */
#pragma once

#include "kernel/template/attend_block.h"

enum {
    SCORE_QUERIES = VW == 16 ? 8 : 2, /* queries whose scores fit in registers */
    VALUE_QUERIES = VW == 16 ? 6 : 2,
    VALUE_GROUPS = VW == 16 ? 4 : 2 /* registers of context per query */
};

/* Calls FUNCTION(type, scattered, b) with constants, for K or V of the type `from_type`. */
#define WITH_CONSTANTS(FUNCTION, from_type, b)                                                         \
    switch (from_type) {                                                                               \
        CONSTANT_TYPE(FUNCTION, DTYPE_F32, b)                                                          \
        CONSTANT_TYPE(FUNCTION, DTYPE_BF16, b)                                                         \
        CONSTANT_TYPE(FUNCTION, DTYPE_F16, b)                                                          \
    case DTYPE_QUANTIZED:                                                                              \
    case DTYPE_COUNT: break;                                                                           \
    }
#define CONSTANT_TYPE(FUNCTION, type, b)                                                               \
    case type:                                                                                         \
        if ((b)->scattered)                                                                            \
            FUNCTION(type, true, b);                                                                   \
        else                                                                                           \
            FUNCTION(type, false, b);                                                                  \
        break;

INLINE vf load_row(enum dtype type, const char *row, size_t j)
{
    switch (type) {
    case DTYPE_F32: return vf_load((const float *)(const void *)row + j);
    case DTYPE_BF16: return vf_load_bf16((const bf16 *)(const void *)row + j);
    case DTYPE_F16: return vf_load_f16((const f16 *)(const void *)row + j);
    case DTYPE_QUANTIZED:
    case DTYPE_COUNT: break;
    }
    return (vf){0};
}

/* ---- scores ---- */

/* Transposes K tile t of a block into columns of k_t, from t * ATTEND_TILE on. */
INLINE void transpose_tile(enum dtype type, bool scattered, const struct block_state *b, size_t t)
{
    const struct tile k = b->k[t], next = b->next.k[0];
    const size_t d = b->a->d, stride = b->a->k_stride, size = dtype_size(type);
    const size_t whole = d / VW * VW, at = t * ATTEND_TILE;
    for (size_t p = 0; p < ATTEND_TILE; p += VW) {
        float *to = b->k_t + at + p;
        for (size_t j = 0; j < whole; j += VW) {
            vf x[VW];
            for (size_t i = 0; i < VW; i++) {
                x[i] = load_row(type, row_of(k, scattered, stride, p + i), j);
                /* prefetch with every second load: half of the next block's first tile per tile */
                if (i % 2)
                    prefetch_tile(next,
                                  (t * ATTEND_TILE * d + (p + i) * VW + j * ATTEND_TILE) / 2 * size,
                                  (at + p + i) / 2, j * size);
            }
            vf_transpose(x);
            for (size_t i = 0; i < VW; i++)
                vf_store(to + (j + i) * BLOCK, x[i]);
        }
        for (size_t j = whole; j < d; j++)
            for (size_t i = 0; i < VW; i++)
                to[j * BLOCK + i] = dtype_element(type, row_of(k, scattered, stride, p + i), j);
    }
}

INLINE void transpose_tiles(enum dtype type, bool scattered, const struct block_state *b)
{
    for (size_t t = 0; t < b->tiles; t++)
        transpose_tile(type, scattered, b, t);
}

PHASE void transpose_block(const struct block_state *b)
{
    WITH_CONSTANTS(transpose_tiles, b->a->k_type, b)
    for (size_t at = b->tiles * ATTEND_TILE, j = 0; at < BLOCK && j < b->a->d; j++)
        memset(b->k_t + j * BLOCK + at, 0, (BLOCK - at) * sizeof *b->k_t);
}

/* Computes the scores of R queries, q[d][q_stride], at the positions of a block of transposed K:
 * scores[R][BLOCK]. For each element of d prefetches one cache line of the tile `next`,
 * `step` bytes after the previous one. */
INLINE void score_tile(const int R, float *scores, const float *q, size_t q_stride, const float *k_t,
                       size_t d, struct tile next, size_t step)
{
    vf sum[SCORE_QUERIES][BLOCK_VECS] = {{{0}}};
    for (size_t j = 0; j < d; j++, k_t += BLOCK, q += q_stride) {
        prefetch_tile(next, j * step, j % ATTEND_TILE, j / ATTEND_TILE * step);
        for (int g = 0; g < BLOCK_VECS; g++) {
            const vf k = vf_load(k_t + g * VW);
            for (int i = 0; i < R; i++)
                sum[i][g] = vf_fma(vf_set1(q[i]), k, sum[i][g]);
        }
    }
    for (int i = 0; i < R; i++)
        for (int g = 0; g < BLOCK_VECS; g++)
            vf_store(scores + i * BLOCK + g * VW, sum[i][g]);
}

PHASE void score_tiles(const struct block_state *b)
{
    const struct attend *a = b->a;
    const size_t first = b->queries.begin;
#define TILE                                                                                           \
    score_tile(R, b->softmax.scores + (first + i) * BLOCK, a->q + first + i, a->q_stride, b->k_t,      \
               a->d, b->next.k[1], i ? 0 : b->next.k_bytes / a->d)
    FOR_TILES(b->queries.end - first, SCORE_QUERIES, TILE);
#undef TILE
}

static void score_block(struct block_state *b)
{
    transpose_block(b);
    score_tiles(b);
}

/* ---- softmax ---- */

/* Prefetches the i-th of n equal shares of the next block's first V tile. */
INLINE void prefetch_v(const struct next_block *next, size_t i, size_t n)
{
    const size_t part = round_up(div_up(next->v_bytes, n), 64);
    if (!next->v[0].row)
        for (size_t line = 0; line < part; line += 64)
            prefetch_tile(next->v[0], i * part + line, 0, 0);
    else
        for (size_t row = i; row < ATTEND_TILE; row += n)
            for (size_t line = 0; line < next->v_bytes / ATTEND_TILE; line += 64)
                prefetch_tile(next->v[0], 0, row, line);
}

static void softmax_block(struct block_state *b)
{
    const struct kv_range queries = b->queries;
    for (size_t i = queries.begin; i < queries.end; i++) {
        prefetch_v(&b->next, i - queries.begin, queries.end - queries.begin);
        b->softmax.acc_scale[i] = online_softmax(b, i);
    }
}

/* ---- values ---- */

/* Adds a block's V to columns [j, j + G * VW) of the contexts of R queries, from `query` on, after rescaling them:
 * context = acc_scale * context + prob * V. Prefetches the tile `next`, unless it is NULL. */
INLINE void value_tile(const int R, const int G, enum dtype type, bool scattered,
                       const struct block_state *b, size_t query, size_t j, const struct tile *next)
{
    const size_t size = dtype_size(type), d = b->a->d_v, tiles = b->tiles, stride = b->a->v_stride;
    const size_t bytes = (size_t)G * VW * size / BLOCK_TILES; /* bytes to prefetch per KV entry */
    const float *acc_scale = b->softmax.acc_scale + query, *prob = b->softmax.scores + query * BLOCK;
    float *context = b->a->context + query * d + j;
    vf sum[VALUE_QUERIES][VALUE_GROUPS];
    for (int i = 0; i < R; i++)
        for (int g = 0; g < G; g++)
            sum[i][g] = vf_load(context + (size_t)i * d + g * VW) * vf_set1(acc_scale[i]);
    for (size_t t = 0; t < tiles; t++)
        for (size_t p = 0; p < ATTEND_TILE; p++) {
            const char *from = row_of(b->v[t], scattered, stride, p);
            vf row[VALUE_GROUPS];
            for (int g = 0; g < G; g++)
                row[g] = load_row(type, from, j + (size_t)g * VW);
            for (size_t line = 0; next && line < bytes; line += 64)
                prefetch_tile(*next, j * ATTEND_TILE * size + (t * ATTEND_TILE + p) * bytes + line,
                              (t * ATTEND_TILE + p) / 2, j * size + p % 2 * bytes + line);
            for (int i = 0; i < R; i++) {
                const vf weight = vf_set1(prob[(size_t)i * BLOCK + t * ATTEND_TILE + p]);
                for (int g = 0; g < G; g++)
                    sum[i][g] = vf_fma(weight, row[g], sum[i][g]);
            }
        }
    for (int i = 0; i < R; i++)
        for (int g = 0; g < G; g++)
            vf_store(context + (size_t)i * d + g * VW, sum[i][g]);
}

/* Adds element j of a block's V to the context of a query, as lanes of value_tile() do. */
INLINE void value_element(enum dtype type, bool scattered, const struct block_state *b, size_t query,
                          size_t j)
{
    float *context = b->a->context + query * b->a->d_v + j;
    vf sum = vf_set1(*context * b->softmax.acc_scale[query]);
    for (size_t p = 0; p < b->tiles * ATTEND_TILE; p++) {
        const char *from = row_of(b->v[p / ATTEND_TILE], scattered, b->a->v_stride, p % ATTEND_TILE);
        sum = vf_fma(vf_set1(b->softmax.scores[query * BLOCK + p]),
                     vf_set1(dtype_element(type, from, j)), sum);
    }
    *context = sum[0];
}

INLINE void value_queries(const int R, enum dtype type, bool scattered, const struct block_state *b,
                          size_t query)
{
    const struct tile *next = query == b->queries.begin ? &b->next.v[1] : NULL;
    size_t j = 0;
    for (; j + VALUE_GROUPS * VW <= b->a->d_v; j += VALUE_GROUPS * VW)
        value_tile(R, VALUE_GROUPS, type, scattered, b, query, j, next);
    for (; j + VW <= b->a->d_v; j += VW)
        value_tile(R, 1, type, scattered, b, query, j, next);
    for (; j < b->a->d_v; j++)
        for (int i = 0; i < R; i++)
            value_element(type, scattered, b, query + (size_t)i, j);
}

INLINE void value_tiles(enum dtype type, bool scattered, const struct block_state *b)
{
    const size_t first = b->queries.begin;
    FOR_TILES(b->queries.end - first, VALUE_QUERIES, value_queries(R, type, scattered, b, first + i));
}

static void value_block(struct block_state *b) { WITH_CONSTANTS(value_tiles, b->a->v_type, b) }

static void attend(const struct attend *a)
{
    struct block_state b = {.a = a, .k_t = a->scratch, .softmax.scores = a->scratch + BLOCK * a->d};
    b.softmax.acc_scale = b.softmax.scores + BLOCK * a->queries;
    attend_blocks(&b, &(struct attend_phases){score_block, softmax_block, value_block});
}
