/* Template: attention of one KV head over quantised KV entries, in one pass.
 *
 * All kernel sets compute these formulas with the same bits. For each block of QUANT_BLOCK positions p, with q_query,
 * q_k and q_v the quantised values of query, K, V:
 *   dot[p] = sum over j of q_query[j] * q_k[p][j]                          exact, in int32_t
 *   score[p] = dot * (scale of query * scale of k)                         all types but
 *   score[p] = scale of query * sum over groups of 32 columns of
 *              (scale of k * dot of group + min of k * sum of q_query)     DTYPE_Q4_1
 *   prob[p] = e^(score[p] - largest of the block)
 *   sum[l] = sum[l] * acc_scale
 *            + ((prob[l] + prob[l + 16]) + (prob[l + 32] + prob[l + 48])) * block_scale   for NR lanes l
 * and for each group of columns j that share a scale:
 *   p_i16[p] = round(prob[p] * scale of v[p] / p_scale),  p_scale = largest scale of v / 32767
 *   dot[j] = sum over p of p_i16[p] * (q_v[p][j] - centre)                 exact, up to 2^28
 *   context[j] = dot * (p_scale * block_scale)
 *                + (context[j] * acc_scale + block_scale * sum of prob[p] * value of q_v = centre)
 * with block_scale = e^(largest of the block - running maximum), and acc_scale the factor that
 * rescales earlier sums to the new running maximum. Sums of prob[p] are added up in NR lanes.
 *
 * The largest scale of v is that of the positions which a query attends to. So the result does not
 * depend on the number of queries or on where entries are stored. The rounding error of p_i16 is
 * at most 2^-16 of the block's largest probability times its largest scale. It has no sign, so that sets multiply its
 * bytes with those of v, or it as a 16-bit integer. */
#pragma once

#include "kernel/kernel.h"
#define BLOCK QUANT_BLOCK
#include "kernel/template/attend_quant_block.h"

enum {
    SCORE_VECS = 32 / VW,             /* registers of positions that are multiplied at a time */
    INT_QUERIES = VW == 16 ? 8 : 2,   /* DTYPE_Q8_CHANNEL: queries whose scores fit in registers */
    GROUP_QUERIES = VW == 16 ? 4 : 1, /* DTYPE_Q4_1: the same, beside f32 sums */
    VALUE_QUERIES = VW == 16 ? 8 : 4, /* queries whose context fits in registers */
    VALUE_VECS = 2                    /* registers of context per query */
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
 * K entries is multiplied, of SCORE_VECS registers of positions from register v on. */
INLINE void prefetch_k(const struct block_state *b, size_t w, size_t v)
{
    for (size_t t = v * VW / ATTEND_TILE; t < (v + SCORE_VECS) * VW / ATTEND_TILE; t++)
        prefetch_near(b->next.k[t].base +
                      (b->next.k[t].row ? b->prefetch_at[t][w] : (ptrdiff_t)(b->prefetch_bytes * w)));
}

/* Computes the scores of R queries, from `query` on, at SCORE_VECS registers of positions, from register v on: K of
 * type DTYPE_Q8_CHANNEL. */
INLINE void score_q8(const int R, const struct block_state *b, size_t query, size_t v)
{
    vi sum[INT_QUERIES][SCORE_VECS] = {{{0}}};
    const int8_t *q = query_q(b->a, query);
    const size_t stride = b->a->q_int8->row_bytes, at = v * VW;
    for (size_t w = 0; w < b->words; w++) {
        prefetch_k(b, w, v);
        for (int g = 0; g < SCORE_VECS; g++) {
            const vu k = vu_load(b->k_words + w * BLOCK + at + g * VW);
            for (int i = 0; i < R; i++)
                sum[i][g] = vi_dot4(sum[i][g], k, load_word(q + (size_t)i * stride + w * 4));
        }
    }
    for (int i = 0; i < R; i++) {
        const vi zero = vi_set1(b->zero[query + (size_t)i]);
        const vf scale = vf_set1(b->q_scale[query + (size_t)i]);
        float *to = b->softmax.scores + (query + (size_t)i) * BLOCK + at;
        for (int g = 0; g < SCORE_VECS; g++)
            vf_store(to + g * VW, vf_of(sum[i][g] - zero) *
                                      (scale * canonical_nan(vf_load(b->k_scale + at + g * VW))));
    }
}

/* The same for K of type DTYPE_Q4_1, whose 16 bytes per 32 columns hold two 4-bit values each. */
INLINE void score_q4(const int R, const struct block_state *b, size_t query, size_t v)
{
    const size_t stride = b->a->q_int8->row_bytes;
    vf score[GROUP_QUERIES][SCORE_VECS] = {{{0}}};
    for (size_t n = 0; n < b->groups; n++) {
        const int8_t *q = query_q(b->a, query) + n * QK_GROUP;
        const uint32_t *k_t = b->k_words + n * (GROUP_WORDS / 2) * BLOCK + v * VW;
        vi sum[GROUP_QUERIES][SCORE_VECS] = {{{0}}};
        for (size_t w = 0; w < GROUP_WORDS / 2; w++) {
            prefetch_k(b, n * (GROUP_WORDS / 2) + w, v);
            for (int g = 0; g < SCORE_VECS; g++) {
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
            for (int g = 0; g < SCORE_VECS; g++) {
                const size_t at = n * BLOCK + (v + (size_t)g) * VW;
                score[i][g] = vf_fma(vf_load(b->k_scale + at), vf_of(sum[i][g]), score[i][g]);
                score[i][g] = vf_fma(vf_load(b->k_min + at), q_sum, score[i][g]);
            }
        }
    }
    for (int i = 0; i < R; i++)
        for (int g = 0; g < SCORE_VECS; g++)
            vf_store(b->softmax.scores + (query + (size_t)i) * BLOCK + (v + (size_t)g) * VW,
                     score[i][g] * vf_set1(b->q_scale[query + (size_t)i]));
}

PHASE void scores_q8(const struct block_state *b)
{
    const size_t first = b->queries.begin;
    for (size_t v = 0; v < BLOCK_VECS; v += SCORE_VECS)
        QUANT_TILES(b->queries.end - first, INT_QUERIES, score_q8(R, b, first + i, v));
}

PHASE void scores_q4(const struct block_state *b)
{
    const size_t first = b->queries.begin;
    for (size_t v = 0; v < BLOCK_VECS; v += SCORE_VECS)
        QUANT_TILES(b->queries.end - first, GROUP_QUERIES, score_q4(R, b, first + i, v));
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

/* ---- softmax ---- */

/* Replaces x[4] <= 0 by e^x, in few multiplications: 2^(n + f) with the polynomial of degree 5
 * with the least relative error (2^-23) that is 1 at 0, and n added to its exponent; rounding x / ln 2 adds
 * an error of |x| 2^-24. About 2^-125 for smaller results; NaN stays NaN if its bits 0 to 8 are 0, as in
 * all that arithmetic makes. The steps of all registers alternate, since their latencies would add up. */
#define EACH_OF_4(statement) UNROLL(for (int g = 0; g < 4; g++)) statement
INLINE void exponentiate_vecs(vf x[4])
{
    static const float factor[] = {9.67151e-3f, 5.550734e-2f, 2.4022242e-1f, 6.9314698e-1f, 1};
    const vf magic = vf_set1(MAGIC_FLOAT); /* rounds to an integer, in the lowest bits */
    vf n[4], p[4];
    EACH_OF_4(x[g] = vf_max(vf_set1(-125), x[g] * vf_set1(1.44269504f));)
    EACH_OF_4(n[g] = x[g] + magic;)
    EACH_OF_4(p[g] = n[g] - magic;)
    EACH_OF_4(x[g] -= p[g];)
    EACH_OF_4(p[g] = vf_set1(1.32647e-3f);)
    UNROLL(for (size_t i = 0; i < ARRAY_LEN(factor); i++))
    EACH_OF_4(p[g] = vf_fma(p[g], x[g], vf_set1(factor[i]));)
    EACH_OF_4(x[g] = (vf)((vu)p[g] + ((vu)n[g] << 23));)
}

/* Computes query i's unnormalised probabilities in the block, prob[BLOCK_VECS], and adds these to its
 * running sum of the softmax. */
INLINE void exponentiate_query(const struct block_state *b, size_t i, vf prob[BLOCK_VECS])
{
    const vf max = vf_set1(b->softmax.block_max[i]);
    const float *score = b->softmax.scores + i * BLOCK;
    float *sum = b->a->sum + i * NR;
    UNROLL(for (int v = 0; v < NR_VECS; v++))
    {
        vf x[4]; /* lanes [v * VW, (v + 1) * VW) of NR */
        EACH_OF_4(x[g] = vf_load(score + (v + g * NR_VECS) * VW) - max;)
        exponentiate_vecs(x);
        EACH_OF_4(prob[v + g * NR_VECS] = x[g];)
        const vf all = (x[0] + x[1]) + (x[2] + x[3]);
        vf_store(sum + v * VW, vf_fma(all, vf_set1(b->softmax.block_scale[i]),
                                      vf_load(sum + v * VW) * vf_set1(b->softmax.acc_scale[i])));
    }
}
_Static_assert(BLOCK == 4 * NR, "a lane of sums has 4 positions of a block");

/* Stores the 15-bit probabilities of a block's positions, given with any bits above 16. */
typedef void store_probs(void *to, const vu p[BLOCK_VECS]);

INLINE void store_p_i16(void *to, const vu p[BLOCK_VECS])
{
    for (int g = 0; g < BLOCK_VECS; g++)
        vu_store_u16((int16_t *)to + g * VW, p[g]);
}

/* Computes the queries' probabilities in the block, times the scales of V, of which entries have one: p and
 * p_scale. */
INLINE void probs_q8(store_probs *store, const struct block_state *b)
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
            scale_of_range = set_p_factor(b, b->v_scale, range);
        before = range;
        exponentiate_query(b, i, prob);
        UNROLL(for (int g = 0; g < BLOCK_VECS; g++))
        rounded[g] = (vu)vf_fma(prob[g], vf_load(b->p_factor + g * VW), vf_set1(MAGIC_FLOAT));
        store(p, rounded);
        b->p_scale[i] = scale_of_range * b->softmax.block_scale[i];
    }
}

/* Replaces the queries' scores by unnormalised probabilities, 0 where they do not attend. */
PHASE void exponentiate_block(const struct block_state *b)
{
    for (size_t i = b->queries.begin; i < b->queries.end; i++) {
        float *score = b->softmax.scores + i * BLOCK;
        vf prob[BLOCK_VECS];
        if (b->softmax.block_max[i] == -INFINITY) {
            memset(score, 0, BLOCK * sizeof *score);
            continue;
        }
        exponentiate_query(b, i, prob);
        UNROLL(for (int g = 0; g < BLOCK_VECS; g++))
        vf_store(score + g * VW,
                 vf_select(vf_load(score + g * VW) == vf_set1(-INFINITY), vf_set1(0), prob[g]));
    }
}

PHASE void probs_i16(const struct block_state *b) { probs_q8(store_p_i16, b); }

static void softmax_quant_block(struct block_state *b)
{
    block_maxima(b);
    if (b->a->v_type == DTYPE_Q4_1)
        exponentiate_block(b);
    else
        probs_i16(b);
}

/* ---- values ---- */

/* Computes for register g of positions the V value that the quantised value v_centre() stands for:
 * v_centre() * scale + min. */
INLINE vf centre_value(const float *scale, const float *min, int g)
{
    const vf centre = vf_set1((float)v_centre(DTYPE_Q4_1));
    return vf_fma(vf_load(scale + g * VW), centre, vf_load(min + g * VW));
}

/* DTYPE_Q4_1: quantises the queries' probabilities, times the scales of V, for a group of V columns
 * that share scales: computes p, p_scale and p_min. */
INLINE void probs_q4(store_probs *store, const struct block_state *b, size_t group)
{
    const float *scale = b->v_scale + group * BLOCK, *min = b->v_min + group * BLOCK;
    const float *factor = b->p_factor, *block_scale = b->softmax.block_scale;
    const float *prob = b->softmax.scores + b->queries.begin * BLOCK;
    int16_t *p_i16 = b->p + b->queries.begin * BLOCK;
    float scale_of_range = 0;
    struct kv_range before = {SIZE_MAX, 0};
    for (size_t i = b->queries.begin; i < b->queries.end; i++, prob += BLOCK, p_i16 += BLOCK) {
        const struct kv_range range = kv_range_of(b->a, i, b->first);
        vf min_sum[NR_VECS] = {{0}};
        vu rounded[BLOCK_VECS];
        if (range.begin != before.begin || range.end != before.end)
            scale_of_range = set_p_factor(b, scale, range);
        before = range;
        UNROLL(for (int g = 0; g < BLOCK_VECS; g++))
        {
            const vf p = vf_load(prob + g * VW);
            rounded[g] = (vu)vf_fma(p, vf_load(factor + g * VW), vf_set1(MAGIC_FLOAT));
            min_sum[g % NR_VECS] = vf_fma(p, centre_value(scale, min, g), min_sum[g % NR_VECS]);
        }
        store(p_i16, rounded);
        b->p_scale[i] = scale_of_range * block_scale[i];
        b->p_min[i] = vf_sum_nr(min_sum) * block_scale[i];
    }
}

PHASE void probs_q4_i16(const struct block_state *b, size_t group) { probs_q4(store_p_i16, b, group); }

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
    const size_t due = j * b->prefetch_column, bytes = b->next.v_bytes; /* of the next block's V */
    const size_t tile = (due >= bytes) + (due >= 2 * bytes) + (due >= 3 * bytes);
    const struct tile next = b->next.v[tile];
    const char *ahead = next.base + due - tile * bytes;
    const size_t each = VALUE_VECS * VW * b->prefetch_column / (BLOCK / 2);
    for (size_t p = 0; p < BLOCK; p += 2, pairs += b->columns) {
        vu v[VALUE_VECS];
        prefetch_near(next.row ? next.base + next.row[p / BLOCK_TILES] : ahead + p / 2 * each);
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
    if (b->a->v_type != DTYPE_Q4_1) {
        value_columns(b, 0, b->a->d_v);
        return;
    }
    for (size_t g = 0; g < b->v_groups; g++) {
        probs_q4_i16(b, g);
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
