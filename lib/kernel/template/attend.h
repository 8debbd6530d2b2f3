/* Template: attention of one KV head in one pass over its KV entries.
 *
 * For each block of 32 positions, K is transposed so that lanes are positions, then
 *   score[p] = sum over j = 0, 1 .. d - 1 of q[j] * k[p][j], in that order, in one accumulator;
 *              then soft cap and ALiBi
 *   prob[p] = e^(score[p] - running maximum); sums so far are rescaled when the maximum rises
 *   context[j] = context[j] * acc_scale + sum over p in order of prob[p] * v[p][j]
 * So the result does not depend on the number of queries or on where entries are stored. */
#ifndef BMC_ATTEND_H
#define BMC_ATTEND_H

#include "kernel/template/online_softmax.h"

enum {
    SCORE_QUERIES = VW == 16 ? 8 : 2, /* queries whose scores fit in registers */
    VALUE_QUERIES = VW == 16 ? 6 : 2,
    VALUE_GROUPS = VW == 16 ? 4 : 2 /* registers of context per query */
};

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

/* Transposes K tile t of a block into k_t[d][ATTEND_BLOCK], columns from t * ATTEND_TILE on. */
INLINE void transpose_tile(enum dtype type, bool scattered, float *k_t, size_t t, struct tile k,
                           size_t stride, size_t d, const struct next_block *next)
{
    const size_t whole = d / VW * VW, at = t * ATTEND_TILE, size = dtype_size(type);
    for (size_t p = 0; p < ATTEND_TILE; p += VW) {
        float *to = k_t + at + p;
        for (size_t j = 0; j < whole; j += VW) {
            vf x[VW];
            for (size_t i = 0; i < VW; i++) {
                x[i] = load_row(type, row_of(k, scattered, stride, p + i), j);
                /* prefetch with every second load: half of the next block's first tile per tile */
                if (i % 2)
                    prefetch_tile(next->k[0],
                                  (t * ATTEND_TILE * d + (p + i) * VW + j * ATTEND_TILE) / 2 * size,
                                  (at + p + i) / 2, j * size);
            }
            vf_transpose(x);
            for (size_t i = 0; i < VW; i++)
                vf_store(to + (j + i) * ATTEND_BLOCK, x[i]);
        }
        for (size_t j = whole; j < d; j++)
            for (size_t i = 0; i < VW; i++)
                to[j * ATTEND_BLOCK + i] = dtype_element(type, row_of(k, scattered, stride, p + i), j);
    }
}

PHASE void transpose_block(const struct attend *a, size_t block, float *k_t,
                           const struct next_block *next)
{
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        const size_t tile = block * BLOCK_TILES + t;
        if (tile >= a->tiles) {
            for (size_t j = 0; j < a->d; j++)
                memset(k_t + j * ATTEND_BLOCK + t * ATTEND_TILE, 0, ATTEND_TILE * sizeof *k_t);
            continue;
        }
        const struct tile k = k_tile(a, tile);
#define TRANSPOSE(type)                                                                                \
    if (k.row)                                                                                         \
        transpose_tile(type, true, k_t, t, k, a->row_stride, a->d, next);                              \
    else                                                                                               \
        transpose_tile(type, false, k_t, t, k, a->row_stride, a->d, next);                             \
    break
        switch (a->type) {
        case DTYPE_F32: TRANSPOSE(DTYPE_F32);
        case DTYPE_BF16: TRANSPOSE(DTYPE_BF16);
        case DTYPE_F16: TRANSPOSE(DTYPE_F16);
        case DTYPE_QUANTIZED:
        case DTYPE_COUNT: break;
        }
#undef TRANSPOSE
    }
}

/* Computes the scores of R queries, q[d][q_stride], at the positions of a block of transposed K:
 * scores[R][ATTEND_BLOCK]. For each element of d prefetches one cache line of the tile `next`,
 * `step` bytes after the previous one. */
INLINE void score_tile(const int R, float *scores, const float *q, size_t q_stride, const float *k_t,
                       size_t d, struct tile next, size_t step)
{
    vf sum[SCORE_QUERIES][BLOCK_VECS] = {{{0}}};
    for (size_t j = 0; j < d; j++, k_t += ATTEND_BLOCK, q += q_stride) {
        prefetch_tile(next, j * step, j % ATTEND_TILE, j / ATTEND_TILE * step);
        for (int g = 0; g < BLOCK_VECS; g++) {
            const vf k = vf_load(k_t + g * VW);
            for (int i = 0; i < R; i++)
                sum[i][g] = vf_fma(vf_set1(q[i]), k, sum[i][g]);
        }
    }
    for (int i = 0; i < R; i++)
        for (int g = 0; g < BLOCK_VECS; g++)
            vf_store(scores + i * ATTEND_BLOCK + g * VW, sum[i][g]);
}

PHASE void score_block(const struct attend *a, struct kv_range queries, float *scores, const float *k_t,
                       const struct next_block *next)
{
#define TILE                                                                                           \
    score_tile(R, scores + (queries.begin + i) * ATTEND_BLOCK, a->q + queries.begin + i, a->q_stride,  \
               k_t, a->d, next->k[1], i ? 0 : next->bytes / a->d)
    FOR_TILES(queries.end - queries.begin, SCORE_QUERIES, TILE);
#undef TILE
}

/* Replaces a query's scores in the block at position `first` by unnormalised probabilities, all 0
 * if it does not attend to the block. Returns acc_scale, which rescales its context so far. */
static float online_softmax(const struct attend *a, size_t query, size_t first, float *scores)
{
    const struct kv_range range = kv_range_of(a, query, first);
    if (range.end <= range.begin) {
        memset(scores, 0, ATTEND_BLOCK * sizeof *scores);
        return 1;
    }
    return exponentiate(a, query, running_max(a, query, first, range, scores), scores);
}

/* The V entries of a block of positions: one or two tiles. */
struct value_rows {
    struct tile tile[BLOCK_TILES];
    size_t tiles, stride;
    const struct tile *next; /* tile to prefetch, or NULL */
};

/* Adds a block's V to columns [j, j + G * VW) of the attention output of R queries, after rescaling
 * it: context = acc_scale * context + prob[R][ATTEND_BLOCK] * V. `context` begins at column j. */
INLINE void value_tile(const int R, const int G, enum dtype type, bool scattered, float *context,
                       size_t d, const float *acc_scale, const float *prob, const struct value_rows *v,
                       size_t j)
{
    const size_t size = dtype_size(type);
    const size_t bytes = (size_t)G * VW * size / BLOCK_TILES; /* bytes to prefetch per KV entry */
    vf sum[VALUE_QUERIES][VALUE_GROUPS];
    for (int i = 0; i < R; i++)
        for (int g = 0; g < G; g++)
            sum[i][g] = vf_load(context + (size_t)i * d + g * VW) * vf_set1(acc_scale[i]);
    for (size_t t = 0; t < v->tiles; t++)
        for (size_t p = 0; p < ATTEND_TILE; p++) {
            const char *from = row_of(v->tile[t], scattered, v->stride, p);
            vf row[VALUE_GROUPS];
            for (int g = 0; g < G; g++)
                row[g] = load_row(type, from, j + (size_t)g * VW);
            for (size_t line = 0; v->next && line < bytes; line += 64)
                prefetch_tile(*v->next, j * ATTEND_TILE * size + (t * ATTEND_TILE + p) * bytes + line,
                              (t * ATTEND_TILE + p) / 2, j * size + p % 2 * bytes + line);
            for (int i = 0; i < R; i++) {
                const vf weight = vf_set1(prob[(size_t)i * ATTEND_BLOCK + t * ATTEND_TILE + p]);
                for (int g = 0; g < G; g++)
                    sum[i][g] = vf_fma(weight, row[g], sum[i][g]);
            }
        }
    for (int i = 0; i < R; i++)
        for (int g = 0; g < G; g++)
            vf_store(context + (size_t)i * d + g * VW, sum[i][g]);
}

/* Adds a block's V, weighted by probabilities, to the attention output context[R][d] of R queries,
 * which is first rescaled by acc_scale[R]. */
INLINE void value_queries(const int R, enum dtype type, bool scattered, float *context, size_t d,
                          const float *acc_scale, const float *prob, const struct value_rows *v)
{
    size_t j = 0;
    for (; j + VALUE_GROUPS * VW <= d; j += VALUE_GROUPS * VW)
        value_tile(R, VALUE_GROUPS, type, scattered, context + j, d, acc_scale, prob, v, j);
    for (; j + VW <= d; j += VW)
        value_tile(R, 1, type, scattered, context + j, d, acc_scale, prob, v, j);
    for (; j < d; j++)
        for (int i = 0; i < R; i++) {
            float sum = context[(size_t)i * d + j] * acc_scale[i];
            for (size_t p = 0; p < v->tiles * ATTEND_TILE; p++) {
                const struct tile tile = v->tile[p / ATTEND_TILE];
                const char *from = row_of(tile, scattered, v->stride, p % ATTEND_TILE);
                sum += prob[(size_t)i * ATTEND_BLOCK + p] * dtype_element(type, from, j);
            }
            context[(size_t)i * d + j] = sum;
        }
}

/* A block's attention probabilities for a range of queries, and the factors that rescale the sums
 * over earlier blocks in their context. */
struct block_probs {
    struct kv_range queries;
    const float *prob, *acc_scale; /* from the first query of the range on */
};

INLINE void value_block_as(enum dtype type, bool scattered, const struct attend *a,
                           const struct block_probs *probs, struct value_rows v)
{
    const size_t first = probs->queries.begin;
#define TILE                                                                                           \
    value_queries(R, type, scattered, a->context + (first + i) * a->d_v, a->d_v, probs->acc_scale + i, \
                  probs->prob + i * ATTEND_BLOCK, &v);                                                 \
    v.next = NULL
    FOR_TILES(probs->queries.end - first, VALUE_QUERIES, TILE);
#undef TILE
}

/* Adds a block's V, weighted by probs, to the attention outputs of a range of queries. If only one
 * of the block's two tiles is scattered, the other one is given a table of entry offsets, too. */
INLINE void value_block(enum dtype type, const struct attend *a, size_t block,
                        const struct block_probs *probs, const struct tile *next)
{
    const size_t first = block * BLOCK_TILES;
    struct value_rows v = {
        .tiles = size_min(BLOCK_TILES, a->tiles - first), .stride = a->row_stride, .next = next};
    ptrdiff_t strided[ATTEND_TILE];
    bool scattered = false;
    for (size_t t = 0; t < v.tiles; t++) {
        v.tile[t] = v_tile(a, first + t);
        scattered = scattered || v.tile[t].row;
    }
    if (!scattered) {
        value_block_as(type, false, a, probs, v);
        return;
    }
    for (size_t i = 0; i < ATTEND_TILE; i++)
        strided[i] = (ptrdiff_t)(i * a->row_stride);
    for (size_t t = 0; t < v.tiles; t++)
        v.tile[t].row = v.tile[t].row ? v.tile[t].row : strided;
    value_block_as(type, true, a, probs, v);
}

/* Prefetches the i-th of n equal shares of the next block's first V tile; called once for each of
 * n queries. */
INLINE void prefetch_v(const struct next_block *next, size_t i, size_t n)
{
    const size_t part = round_up(div_up(next->bytes, n), 64);
    if (!next->v[0].row)
        for (size_t line = 0; line < part; line += 64)
            prefetch_tile(next->v[0], i * part + line, 0, 0);
    else
        for (size_t row = i; row < ATTEND_TILE; row += n)
            for (size_t line = 0; line < next->row_bytes; line += 64)
                prefetch_tile(next->v[0], 0, row, line);
}

static void attend(const struct attend *a)
{
    float *k_t = a->scratch, *scores = k_t + ATTEND_BLOCK * a->d;
    float *acc_scale = scores + ATTEND_BLOCK * a->queries;
    const size_t blocks = div_up(a->tiles, BLOCK_TILES);
    for (size_t block = 0; block < blocks; block++) {
        const size_t first = block * ATTEND_BLOCK;
        const struct next_block next = find_next(a, block);
        const struct kv_range queries = active_queries(a, block);
        const size_t n = queries.end - queries.begin;
        if (n == 0)
            continue;
        transpose_block(a, block, k_t, &next);
        score_block(a, queries, scores, k_t, &next);
        for (size_t i = queries.begin; i < queries.end; i++) {
            prefetch_v(&next, i - queries.begin, n);
            acc_scale[i] = online_softmax(a, i, first, scores + i * ATTEND_BLOCK);
        }
        const struct block_probs probs = {queries, scores + queries.begin * ATTEND_BLOCK,
                                          acc_scale + queries.begin};
        switch (a->type) {
        case DTYPE_F32: value_block(DTYPE_F32, a, block, &probs, &next.v[1]); break;
        case DTYPE_BF16: value_block(DTYPE_BF16, a, block, &probs, &next.v[1]); break;
        case DTYPE_F16: value_block(DTYPE_F16, a, block, &probs, &next.v[1]); break;
        case DTYPE_QUANTIZED:
        case DTYPE_COUNT: break;
        }
    }
}

#endif
