/* Attention over q8 entries in registers of 512 bits (attend_lanes.h), for kernel sets with an instruction for
 * vi_dot4(). The formulas are those of attend_quant.h, but for blocks of Q8_BLOCK positions, probabilities of 16 bits
 * without sign (p_scale = largest scale of v / 65535), and e^x as a power of 2. */
#pragma once

#include "kernel/x86/vnni_begin.h"
#define BLOCK Q8_BLOCK
#include "kernel/x86/attend/attend_lanes.h"

enum { P_ONE = 65535 }; /* p of probability 1 and the largest scale */
_Static_assert(VW == ATTEND_TILE && BLOCK_TILES == 4, "4 bytes of V are of the block's 4 tiles");

/* ---- scores ---- */

/* Loads the scales of a tile's entries. */
PHASE void tile_scales(const struct block_state *b, float *scale, struct tile tile)
{
    const char *at = tile.base + b->k_scales.scale_at;
    const size_t stride = b->a->k_stride;
    if (b->scattered)
        UNROLL(for (size_t i = 0; i < ATTEND_TILE; i++))
    memcpy(scale + i, at + tile.row[i], sizeof *scale);
    else UNROLL(for (size_t i = 0; i < ATTEND_TILE; i++))
        memcpy(scale + i, at + i * stride, sizeof *scale);
}

INLINE void q8_tile_scores(const int R, enum dtype type, bool scattered, const struct block_state *b,
                           size_t query, size_t t)
{
    lanes_scores(R, 1, type, scattered, b, query, t);
}
LANES_TABLE(q8_tile_scores, Q8_CHANNEL)

static void q8_score(struct block_state *b)
{
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        prefetch_scattered(b, false, t);
        tile_scales(b, b->k_scale + t * ATTEND_TILE, b->k[t]);
        for_queries(q8_tile_scores_Q8_CHANNEL, b, t);
    }
    for (size_t t = 0; t < BLOCK_TILES; t++) /* only now, as they were prefetched last */
        tile_scales(b, b->v_scale + t * ATTEND_TILE, b->v[t]);
}

/* ---- maxima ---- */

/* block_maxima() for n <= 8 queries from `query` on that attend to all positions of the block. */
INLINE void group_maxima(const struct block_state *b, size_t query, size_t n)
{
    const struct block_softmax *s = &b->softmax;
    const vf none = vf_set1(-INFINITY), largest = largest_scores(b, query, n);
    const vf found = vf_select(largest > none, largest, vf_set1(NAN)); /* vf_max() may miss a NaN */
    const vf before = (vf)vu_load_some(s->max + query, n);
    const vf now = vf_select(found <= before, before, found); /* NaN if a score is NaN */
    store_lanes(s->block_max + query, n, found);
    store_lanes(s->acc_scale + query, n,
                vf_select(before < now, vf_exp_fast(before - now), vf_set1(1)));
    store_lanes(s->block_scale + query, n, vf_exp_fast(found - now));
    store_lanes(s->max + query, n, now);
}

/* Finds the queries' largest scores in the block and updates the running maxima. Also touches the pages
 * that are prefetched next, so that misses of the TLB overlap with each other and with latencies here. */
PHASE void q8_maxima(const struct block_state *b)
{
    prefetch_lines(b->next.v[BLOCK_TILES - 1].base + b->next.v_bytes, 1);
    prefetch_lines(b->next.k[BLOCK_TILES - 1].base + 5 * b->next.k_bytes, 1);
    if (!attends_wholly(b)) {
        block_maxima(b);
        return;
    }
    FOR_QUERY_GROUPS(b, group_maxima)
}

/* ---- probabilities ---- */

#define EACH_VEC(statement) UNROLL(for (int g = 0; g < BLOCK_VECS; g++)) statement

/* Replaces x[BLOCK_VECS] <= 0 by e^x, in few multiplications: 2^(n + f) with the polynomial of degree 5
 * with the least relative error (2^-23) that is 1 at 0, and n added to its exponent; rounding x / ln 2 adds
 * an error of |x| 2^-24. About 2^-125 for smaller results; NaN stays NaN if its bits 0 to 8 are 0, as in
 * all that arithmetic makes. The steps of all registers alternate, since their latencies would add up. */
INLINE void exponentiate_vecs(vf x[BLOCK_VECS])
{
    static const float factor[] = {9.67151e-3f, 5.550734e-2f, 2.4022242e-1f, 6.9314698e-1f, 1};
    const vf magic = vf_set1(MAGIC_FLOAT); /* rounds to an integer, in the lowest bits */
    vf n[BLOCK_VECS], p[BLOCK_VECS];
    EACH_VEC(x[g] = vf_max(vf_set1(-125), x[g] * vf_set1(1.44269504f));)
    EACH_VEC(n[g] = x[g] + magic;)
    EACH_VEC(p[g] = n[g] - magic;)
    EACH_VEC(x[g] -= p[g];)
    EACH_VEC(p[g] = vf_set1(1.32647e-3f);)
    UNROLL(for (size_t i = 0; i < ARRAY_LEN(factor); i++))
    EACH_VEC(p[g] = vf_fma(p[g], x[g], vf_set1(factor[i]));)
    EACH_VEC(x[g] = (vf)((vu)p[g] + ((vu)n[g] << 23));)
}

/* Computes a query's unnormalised probabilities in the block, prob[BLOCK_VECS], and adds these to its
 * running sum of the softmax. */
INLINE void exponentiate_block(const struct block_state *b, size_t i, vf prob[BLOCK_VECS])
{
    const vf max = vf_set1(b->softmax.block_max[i]);
    const float *score = b->softmax.scores + i * BLOCK;
    float *sum = b->a->sum + i * NR;
    EACH_VEC(prob[g] = vf_load(score + g * VW) - max;)
    exponentiate_vecs(prob);
    const vf all = (prob[0] + prob[1]) + (prob[2] + prob[3]);
    vf_store(sum, vf_fma(all, vf_set1(b->softmax.block_scale[i]),
                         vf_load(sum) * vf_set1(b->softmax.acc_scale[i])));
}

/* Computes the queries' probabilities in the block, times the scales of V, as 16-bit integers: p and p_scale. */
PHASE void q8_probs(const struct block_state *b)
{
    float scale_of_range = 0;
    struct kv_range before = {SIZE_MAX, 0};
    for (size_t i = b->queries.begin; i < b->queries.end; i++) {
        const struct kv_range range = kv_range_of(b->a, i, b->first);
        int16_t *p = b->p + i * BLOCK;
        vf prob[BLOCK_VECS];
        vu rounded[BLOCK_VECS];
        b->p_scale[i] = 0;
        if (b->softmax.block_max[i] == -INFINITY) {
            memset(p, 0, BLOCK * sizeof *p);
            continue;
        }
        /* most queries have the range of the query before */
        if (range.begin != before.begin || range.end != before.end)
            scale_of_range = set_p_factor(b, b->v_scale, range, P_ONE, false);
        before = range;
        exponentiate_block(b, i, prob);
        EACH_VEC(rounded[g] = (vu)vf_fma(prob[g], vf_load(b->p_factor + g * VW), vf_set1(MAGIC_FLOAT));)
        store_p_bytes(p, rounded);
        b->p_scale[i] = scale_of_range * b->softmax.block_scale[i];
    }
}

static void q8_softmax(struct block_state *b)
{
    q8_maxima(b);
    q8_probs(b);
}

/* ---- values ---- */

/* Adds V to the context of R queries, from `query` on, in up to VW columns from `column` on. */
INLINE void q8_values(const int R, enum dtype type, bool scattered, const struct block_state *b,
                      size_t query, size_t column)
{
    const size_t some = b->a->d_v - column;
    if (some >= VW)
        byte_values(R, 1, type, true, scattered, b, query, column, VW);
    else
        byte_values(R, 1, type, false, scattered, b, query, column, some);
}
LANES_TABLE(q8_values, Q8_CHANNEL)

static void q8_value(struct block_state *b)
{
    for (size_t column = 0; column < b->a->d_v; column += VW)
        for_queries(q8_values_Q8_CHANNEL, b, column);
}

/* Places the buffers in a->scratch, which has attend_quant_space() floats. */
static void place_buffers(struct block_state *b)
{
    const size_t queries = round_up(b->a->queries, NR);
    float *scratch = b->a->scratch;
    begin_softmax(b, &scratch);
    b->p = take(&scratch, b->a->queries * (BLOCK / 2));
    b->k_scale = take(&scratch, BLOCK);
    b->v_scale = take(&scratch, BLOCK);
    b->p_factor = take(&scratch, BLOCK);
    b->p_scale = take(&scratch, queries);
    b->q_scale = take(&scratch, queries);
    b->zero = take(&scratch, queries);
    b->q_words = take(&scratch, round_up(b->a->queries, LANES_QUERIES) * round_up(b->words, VW));
}

static void attend_q8(const struct attend *a)
{
    struct block_state b = {.a = a,
                            .words = div_up(a->d, 4),
                            .k_scales = entry_scales_of(DTYPE_Q8_CHANNEL, a->d, a->k_stride)};
    place_buffers(&b);
    zero_points(&b);
    for (size_t i = 0; i < a->queries; i++) {
        const float scale = query_scale(a, i);
        b.q_scale[i] = scale == scale ? scale : NAN;
    }
    transpose_queries(&b);
    attend_blocks(&b, &(struct attend_phases){q8_score, q8_softmax, q8_value});
    end_softmax(&b);
}
