/* Attention over unquantised KV entries in registers of 512 bits (attend_lanes.h): the sums of attend.h in the same
 * order, so with the same bits, but K is transposed while it is multiplied, and the maxima of 8 queries are found
 * together. */
#pragma once

#include "kernel/x86/avx512_begin.h"
#include "kernel/template/attend.h"
#include "kernel/x86/attend/attend_lanes.h"

/* Adds V to G registers of columns, from `column` on, of the context of R queries from `query` on. */
INLINE void direct_values(const int R, const int G, enum dtype type, bool scattered,
                          const struct block_state *b, size_t query, size_t column)
{
    const size_t size = dtype_size(type), d_v = b->a->d_v, stride = b->a->v_stride;
    const size_t bytes = (size_t)G * VW * size;
    float *context = b->a->context + query * d_v + column;
    const float *acc_scale = b->softmax.acc_scale + query;
    vf sum[LANES_QUERIES][4];
    UNROLL(for (int i = 0; i < R; i++))
    UNROLL(for (int g = 0; g < G; g++))
    sum[i][g] = vf_load(context + (size_t)i * d_v + g * VW) * vf_set1(acc_scale[i]);
    for (size_t t = 0; t < b->tiles; t++) {
        const struct tile v = b->v[t];
        const float *prob = b->softmax.scores + query * BLOCK + t * ATTEND_TILE;
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
                               const struct block_state *b, size_t query, size_t unused)
{
    const int G = R <= LANES_WIDE ? 4 : 2;
    size_t column = 0;
    (void)unused;
    for (; column + (size_t)G * VW <= b->a->d_v; column += (size_t)G * VW)
        direct_values(R, G, type, scattered, b, query, column);
    for (; column < b->a->d_v; column += VW)
        direct_values(R, 1, type, scattered, b, query, column);
}

/* Replaces the scores of n <= 8 queries, from `query` on, by probabilities. */
static void softmax_group(const struct block_state *b, size_t query, size_t n)
{
    float *max = b->a->max + query, *scores = b->softmax.scores + query * BLOCK;
    float *acc_scale = b->softmax.acc_scale + query, *sum = b->a->sum + query * NR;
    const vf found = largest_scores(b, query, n), before = (vf)vu_load_some(max, n);
    const vf now = vf_select(found <= before, before, found);
    store_lanes(max, n, now);
    store_lanes(acc_scale, n, vf_select(before < now, vf_exp(before - now), vf_set1(1)));
    for (size_t i = 0; i < n; i++, scores += BLOCK, sum += NR) {
        const vf largest = vf_set1(max[i]);
        const vf e0 = multiplied_prob(b->a, vf_exp(vf_load(scores) - largest));
        const vf e1 = multiplied_prob(b->a, vf_exp(vf_load(scores + VW) - largest));
        vf_store(scores, e0);
        vf_store(scores + VW, e1);
        vf_store(sum, vf_fma(vf_load(sum), vf_set1(acc_scale[i]), e0) + e1);
    }
}

#define DIRECT_TABLES(type)                                                                            \
    LANES_TABLE(lanes_score_block, type)                                                               \
    LANES_TABLE(direct_value_block, type)
DIRECT_TABLES(F32)
DIRECT_TABLES(BF16)
DIRECT_TABLES(F16)
#define DIRECT_OF(NAME, b)                                                                             \
    ((b)->a->k_type == DTYPE_F32 ? NAME##_F32 : (b)->a->k_type == DTYPE_BF16 ? NAME##_BF16 : NAME##_F16)

static void direct_score(struct block_state *b)
{
    for (size_t t = 0; t < BLOCK_TILES; t++)
        prefetch_scattered(b, false, t);
    for_queries(DIRECT_OF(lanes_score_block, b), b, 0);
}

static void direct_softmax(struct block_state *b)
{
    if (attends_wholly(b)) {
        FOR_QUERY_GROUPS(b, softmax_group)
        return;
    }
    for (size_t i = b->queries.begin; i < b->queries.end; i++)
        b->softmax.acc_scale[i] = online_softmax(b, i);
}

static void direct_value(struct block_state *b) { for_queries(DIRECT_OF(direct_value_block, b), b, 0); }

/* True if attend_direct() can compute this (K and V have one type, entries are whole groups of 16 bytes, contexts whole registers)
 * and is faster: it converts 16-bit elements again for every LANES_QUERIES queries. */
static bool is_direct(const struct attend *a)
{
    return a->k_type == a->v_type && a->d * dtype_size(a->k_type) % 16 == 0 && a->d_v % VW == 0 &&
           (a->k_type == DTYPE_F32 || a->queries <= LANES_QUERIES);
}

static void attend_direct(const struct attend *a)
{
    struct block_state b = {
        .a = a, .words = a->d * dtype_size(a->k_type) / 4, .softmax.scores = a->scratch};
    b.softmax.acc_scale = b.softmax.scores + a->queries * BLOCK;
    attend_blocks(&b, &(struct attend_phases){direct_score, direct_softmax, direct_value});
}
