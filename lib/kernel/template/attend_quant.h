/* Template: attention of one KV head over quantised KV entries, in one pass.
 *
 * For each block of 32 positions p, with q_query, q_k and q_v the quantised values of query, K, V:
 *   dot[p] = sum over j of q_query[j] * q_k[p][j]                          exact, in int32_t
 *   score[p] = dot * (scale of query * scale of k)                         DTYPE_Q8_CHANNEL
 *   score[p] = scale of query * sum over groups of 32 columns of
 *              (scale of k * dot of group + min of k * sum of q_query)     DTYPE_Q4_1
 *   prob[p] = e^(score[p] - largest of the block)
 * and for each group of columns j that share a scale:
 *   p_i16[p] = round(prob[p] * scale of v[p] / p_scale),  p_scale = largest scale of v / 32767
 *   dot[j] = sum over p of p_i16[p] * (q_v[p][j] - centre)                 exact, below 2^27
 *   context[j] = dot * (p_scale * block_scale)
 *                + (context[j] * acc_scale + block_scale * sum of prob[p] * value of q_v = centre)
 * with block_scale = e^(largest of the block - running maximum), and acc_scale the factor that
 * rescales earlier sums to the new running maximum.
 *
 * The largest scale of v is that of the positions which a query attends to. So the result does not
 * depend on the number of queries or on where entries are stored. The rounding error of p_i16 is
 * at most 2^-16 of the block's largest probability times its largest scale. */
#pragma once

#include "kernel/template/attend_quant_block.h"

enum {
    INT_QUERIES = VW == 16 ? 8 : 2,   /* DTYPE_Q8_CHANNEL: queries whose scores fit in registers */
    GROUP_QUERIES = VW == 16 ? 4 : 1, /* DTYPE_Q4_1: the same, beside f32 sums */
    VALUE_QUERIES = VW == 16 ? 8 : 4, /* queries whose context fits in registers */
    VALUE_VECS = 2,                   /* registers of context per query */
    P_I16_ONE = 32767                 /* p_i16 of probability 1 and the largest scale */
};

/* Covers `rows` rows: runs TILE for rows i to i + R - 1, with R the largest power of two up to MAX
 * that fits. Fewer cases to compile than FOR_TILES. */
#define QUANT_TILES(rows, MAX, TILE)                                                                   \
    {                                                                                                  \
        size_t i = 0;                                                                                  \
        POWER_TILES(rows, 8, MAX, TILE)                                                                \
        POWER_TILES(rows, 4, MAX, TILE)                                                                \
        POWER_TILES(rows, 2, MAX, TILE)                                                                \
        POWER_TILES(rows, 1, MAX, TILE)                                                                \
    }
#define POWER_TILES(rows, N, MAX, TILE)                                                                \
    for (; N <= MAX && i + N <= (rows); i += N) {                                                      \
        enum { R = N <= MAX ? N : 1 };                                                                 \
        TILE;                                                                                          \
    }

/* Prefetches the share of the next block's K that is due when 4-byte word w of the current block's
 * K entries is multiplied. */
INLINE void prefetch_k(const struct block_state *b, size_t w)
{
    for (size_t t = 0; t < BLOCK_TILES; t++)
        prefetch_near(b->next.k[t].base +
                      (b->next.k[t].row ? b->prefetch_at[t][w] : (ptrdiff_t)(b->prefetch_bytes * w)));
}

/* Computes the scores of R queries, from `query` on, at a block's positions: K of type
 * DTYPE_Q8_CHANNEL. */
INLINE void score_q8(const int R, const struct block_state *b, size_t query)
{
    vi sum[INT_QUERIES][BLOCK_VECS] = {{{0}}};
    const int8_t *q = query_q(b->a, query);
    const size_t stride = b->a->q_int8->row_bytes;
    for (size_t w = 0; w < b->words; w++) {
        prefetch_k(b, w);
        for (int g = 0; g < BLOCK_VECS; g++) {
            const vu k = vu_load(b->k_words + w * BLOCK + g * VW);
            for (int i = 0; i < R; i++)
                sum[i][g] = vi_dot4(sum[i][g], k, load_word(q + (size_t)i * stride + w * 4));
        }
    }
    for (int i = 0; i < R; i++) {
        const size_t at = query + (size_t)i;
        const vi zero = vi_set1(b->zero[at]);
        const vf scale = vf_set1(query_scale(b->a, at));
        for (int g = 0; g < BLOCK_VECS; g++)
            vf_store(b->softmax.scores + at * BLOCK + g * VW,
                     vf_of(sum[i][g] - zero) * (scale * vf_load(b->k_scale + g * VW)));
    }
}

/* Computes the scores of R queries, from `query` on, at a block's positions: K of type DTYPE_Q4_1,
 * whose 16 bytes per 32 columns hold two 4-bit values each. */
INLINE void score_q4(const int R, const struct block_state *b, size_t query)
{
    const size_t stride = b->a->q_int8->row_bytes;
    vf score[GROUP_QUERIES][BLOCK_VECS] = {{{0}}};
    for (size_t n = 0; n < b->groups; n++) {
        const int8_t *q = query_q(b->a, query) + n * QK_GROUP;
        const uint32_t *k_t = b->k_words + n * (GROUP_WORDS / 2) * BLOCK;
        vi sum[GROUP_QUERIES][BLOCK_VECS] = {{{0}}};
        for (size_t w = 0; w < GROUP_WORDS / 2; w++) {
            prefetch_k(b, n * (GROUP_WORDS / 2) + w);
            for (int g = 0; g < BLOCK_VECS; g++) {
                const vu k = vu_load(k_t + w * BLOCK + g * VW);
                const vu low = k & 0x0f0f0f0f, high = k >> 4 & 0x0f0f0f0f;
                for (int i = 0; i < R; i++) {
                    const int8_t *q_i = q + (size_t)i * stride;
                    sum[i][g] = vi_dot4(sum[i][g], low, load_word(q_i + w * 4));
                    sum[i][g] = vi_dot4(sum[i][g], high, load_word(q_i + (w + GROUP_WORDS / 2) * 4));
                }
            }
        }
        for (int i = 0; i < R; i++) {
            const int32_t *halves = query_sums(b->a, query + (size_t)i) + 2 * n;
            const vf q_sum = vf_set1((float)(halves[0] + halves[1]));
            for (int g = 0; g < BLOCK_VECS; g++) {
                const size_t at = n * BLOCK + (size_t)(g * VW);
                score[i][g] = vf_fma(vf_load(b->k_scale + at), vf_of(sum[i][g]), score[i][g]);
                score[i][g] = vf_fma(vf_load(b->k_min + at), q_sum, score[i][g]);
            }
        }
    }
    for (int i = 0; i < R; i++)
        for (int g = 0; g < BLOCK_VECS; g++)
            vf_store(b->softmax.scores + (query + (size_t)i) * BLOCK + g * VW,
                     score[i][g] * vf_set1(query_scale(b->a, query + (size_t)i)));
}

PHASE void scores_q8(const struct block_state *b)
{
    const size_t first = b->queries.begin;
    QUANT_TILES(b->queries.end - first, INT_QUERIES, score_q8(R, b, first + i));
}

PHASE void scores_q4(const struct block_state *b)
{
    const size_t first = b->queries.begin;
    QUANT_TILES(b->queries.end - first, GROUP_QUERIES, score_q4(R, b, first + i));
}

static void score_quant_block(struct block_state *b)
{
    find_next_entries(b);
    load_block(b);
    if (b->a->k_type == DTYPE_Q4_1)
        scores_q4(b);
    else
        scores_q8(b);
}

/* Replaces a block's scores by unnormalised probabilities and adds these to the queries' running
 * sums of the softmax. */
PHASE void exponentiate_block(const struct block_state *b)
{
    const struct kv_range queries = b->queries;
    const float *max = b->softmax.block_max, *block_scale = b->softmax.block_scale,
                *acc_scale = b->softmax.acc_scale;
    float *score = b->softmax.scores + queries.begin * BLOCK, *sum = b->a->sum + queries.begin * NR;
    for (size_t i = queries.begin; i < queries.end; i++, score += BLOCK, sum += NR) {
        vf lane[NR_VECS];
        if (max[i] == -INFINITY) {
            memset(score, 0, BLOCK * sizeof *score);
            continue;
        }
        for (int g = 0; g < NR_VECS; g++)
            lane[g] = vf_load(sum + g * VW) * vf_set1(acc_scale[i]);
        for (int g = 0; g < BLOCK_VECS; g++) {
            const vf e = vf_exp_fast(vf_load(score + g * VW) - vf_set1(max[i]));
            vf_store(score + g * VW, e);
            lane[g % NR_VECS] = vf_fma(e, vf_set1(block_scale[i]), lane[g % NR_VECS]);
        }
        for (int g = 0; g < NR_VECS; g++)
            vf_store(sum + g * VW, lane[g]);
    }
}

static void softmax_quant_block(struct block_state *b)
{
    block_maxima(b);
    exponentiate_block(b);
}

/* ---- values ---- */

/* Computes for register g of positions the V value that the quantised value v_centre() stands for:
 * v_centre() * scale + min. */
INLINE vf centre_value(const float *scale, const float *min, int g)
{
    const vf centre = vf_set1((float)v_centre(DTYPE_Q4_1));
    return vf_fma(vf_load(scale + g * VW), centre, vf_load(min + g * VW));
}

/* Stores the 16-bit probabilities of a block's positions, given with any bits above. */
typedef void store_probs(void *to, const vu p[BLOCK_VECS]);

INLINE void store_p_i16(void *to, const vu p[BLOCK_VECS])
{
    for (int g = 0; g < BLOCK_VECS; g++) {
        const vh x = __builtin_convertvector(p[g], vh);
        memcpy((int16_t *)to + g * VW, &x, sizeof x);
    }
}

/* Quantises the queries' probabilities, times the scales of V, to 16 bits, for a group of V columns
 * that share scales: computes p, p_scale and p_min. */
INLINE void quantize_probs(bool has_min, store_probs *store, const struct block_state *b, size_t group)
{
    const float *scale = b->v_scale + group * BLOCK, *min = b->v_min + group * BLOCK;
    const float *factor = b->p_factor, *block_scale = b->softmax.block_scale;
    const float *prob = b->softmax.scores + b->queries.begin * BLOCK;
    int16_t *p_i16 = b->p + b->queries.begin * BLOCK;
    float *p_scale = b->p_scale, *p_min = b->p_min, scale_of_range = 0;
    struct kv_range before = {SIZE_MAX, 0};
    for (size_t i = b->queries.begin; i < b->queries.end; i++, prob += BLOCK, p_i16 += BLOCK) {
        const struct kv_range range = kv_range_of(b->a, i, b->first);
        vf min_sum = {0};
        vu rounded[BLOCK_VECS];
        /* most queries have the range of the query before */
        if (range.begin != before.begin || range.end != before.end)
            scale_of_range = set_p_factor(b, scale, range, P_I16_ONE, true);
        before = range;
        UNROLL(for (int g = 0; g < BLOCK_VECS; g++))
        {
            const vf p = vf_load(prob + g * VW);
            rounded[g] = (vu)vf_fma(p, vf_load(factor + g * VW), vf_set1(MAGIC_FLOAT));
            if (has_min)
                min_sum = vf_fma(p, centre_value(scale, min, g), min_sum);
        }
        store(p_i16, rounded);
        p_scale[i] = scale_of_range * block_scale[i];
        p_min[i] = has_min ? vf_sum(min_sum) * block_scale[i] : 0;
    }
}

PHASE void quantize_probs_q8(const struct block_state *b) { quantize_probs(false, store_p_i16, b, 0); }

PHASE void quantize_probs_q4(const struct block_state *b, size_t group)
{
    quantize_probs(true, store_p_i16, b, group);
}

/* Adds a block's V to the context of R queries, from `query` on: to G registers of columns from j
 * on, but only to n lanes of the last register. */
INLINE void value_tile(const int R, const int G, const struct block_state *b, size_t query, size_t j,
                       size_t n)
{
    vi sum[VALUE_QUERIES][VALUE_VECS];
    for (int i = 0; i < R; i++)
        for (int g = 0; g < G; g++)
            sum[i][g] = (vi){0};
    const int16_t *p_i16 = b->p + query * BLOCK;
    const uint32_t *pairs = b->v_pairs + j;
    const struct tile next = b->next.v[j / (VALUE_VECS * VW) % BLOCK_TILES];
    for (size_t p = 0; p < BLOCK; p += 2, pairs += b->columns) {
        vu v[VALUE_VECS];
        prefetch_near(next.base + (next.row ? next.row[p / 2] : (ptrdiff_t)(p / 2 * b->a->v_stride)));
        for (int g = 0; g < G; g++)
            v[g] = vu_load(pairs + g * VW);
        for (int i = 0; i < R; i++) {
            const vi w = load_word(p_i16 + (size_t)i * BLOCK + p);
            for (int g = 0; g < G; g++)
                sum[i][g] = vi_dot2(sum[i][g], v[g], w);
        }
    }
    const float *p_scale = b->p_scale + query, *acc_scale = b->softmax.acc_scale + query;
    const float *p_min = b->p_min + query;
    const size_t d_v = b->a->d_v;
    float *context = b->a->context + query * d_v + j;
    UNROLL(for (int i = 0; i < R; i++, context += d_v))
    for (int g = 0; g < G; g++) {
        const size_t some = g + 1 < G ? VW : n;
        float *to = context + g * VW;
        const vf before = some == VW ? vf_load(to) : (vf)vu_load_some(to, some);
        const vf now = vf_fma(vf_of(sum[i][g]), vf_set1(p_scale[i]),
                              vf_fma(before, vf_set1(acc_scale[i]), vf_set1(p_min[i])));
        if (some == VW)
            vf_store(to, now);
        else
            memcpy(to, &now, some * sizeof *to);
    }
}

/* Adds a block's V to columns [j, end) of the queries' context. V entries have one scale for these
 * columns. */
PHASE void value_columns(const struct block_state *b, size_t j, size_t end)
{
    const size_t first = b->queries.begin, n = b->queries.end - first;
    for (; j + VALUE_VECS * VW <= end; j += VALUE_VECS * VW)
        QUANT_TILES(n, VALUE_QUERIES, value_tile(R, VALUE_VECS, b, first + i, j, VW));
    for (; j < end; j += VW)
        for (size_t i = first; i < first + n; i++)
            value_tile(1, 1, b, i, j, size_min(VW, end - j));
}

static void value_quant_block(struct block_state *b)
{
    pair_block(b);
    if (b->a->v_type == DTYPE_Q8_CHANNEL) {
        quantize_probs_q8(b);
        value_columns(b, 0, b->a->d_v);
        return;
    }
    for (size_t g = 0; g < b->v_groups; g++) {
        quantize_probs_q4(b, g);
        value_columns(b, g * QK_GROUP, size_min((g + 1) * QK_GROUP, b->a->d_v));
    }
}

static void attend_quant(const struct attend *a)
{
    struct block_state b = open_block(a);
    attend_blocks(&b,
                  &(struct attend_phases){score_quant_block, softmax_quant_block, value_quant_block});
    end_softmax(&b);
}
