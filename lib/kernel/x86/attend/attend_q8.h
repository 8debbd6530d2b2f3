/* Attention of one KV head over q8 entries, for kernel sets with registers of 512 bits and an
 * instruction for vi_dot4(). The formulas are those of attend_quant.h, but for blocks of Q8_BLOCK
 * positions, probabilities of 16 bits without sign (p_scale = largest scale of v / 65535), and e^x as a
 * power of 2.
 *
 * Neither K nor V is stored in another layout: 16 bytes of each of 4 entries are loaded into the lanes of
 * a register, and what is left of the transposition stays within lanes (K) or is a shuffle of words and one
 * of bytes (V). Lanes are positions in scores and columns in contexts, so nothing is added across lanes.
 * Probabilities are split into low and high bytes, which are multiplied separately: as many products as
 * for 16-bit integers, but V needs no conversion. */
#ifndef BMC_ATTEND_Q8_H
#define BMC_ATTEND_Q8_H

#include "kernel/x86/attend/attend_q8_scores.h"

/* ---- maxima ---- */

INLINE void store_some(float *to, size_t n, vf x)
{
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << n) - 1), (__m512)x);
}

/* Finds the largest scores of the 8 queries from `query` on in the block, of which n exist: in the
 * first 8 lanes. */
INLINE vf largest_scores(const struct q8_block *b, size_t query, size_t n)
{
    vf x[QUERY_GROUP];
    UNROLL(for (size_t i = 0; i < QUERY_GROUP; i++))
    {
        const float *score = b->softmax.scores + (query + size_min(i, n - 1)) * BLOCK;
        x[i] = vf_max(vf_max(vf_load(score), vf_load(score + VW)),
                      vf_max(vf_load(score + 2 * VW), vf_load(score + 3 * VW)));
    }
    return largest_of_8(x);
}

/* block_maxima() for n <= 8 queries from `query` on that attend to all positions of the block. */
INLINE void group_maxima(const struct q8_block *b, size_t query, size_t n)
{
    const struct block_softmax *s = &b->softmax;
    const vf none = vf_set1(-INFINITY), largest = largest_scores(b, query, n);
    const vf found = vf_select(largest > none, largest, vf_set1(NAN)); /* vf_max() may miss a NaN */
    const vf before = (vf)vu_load_some(s->max + query, n);
    const vf now = vf_select(found <= before, before, found); /* NaN if a score is NaN */
    store_some(s->block_max + query, n, found);
    store_some(s->acc_scale + query, n, vf_select(before < now, vf_exp_fast(before - now), vf_set1(1)));
    store_some(s->block_scale + query, n, vf_exp_fast(found - now));
    store_some(s->max + query, n, now);
}

/* True if scores are used as they are: without soft cap and ALiBi, at all positions of the block. */
static bool all_attended(const struct attend *a, size_t block, struct kv_range queries)
{
    bool all = a->softcap <= 0 && !a->slope;
    for (size_t i = queries.begin; all && i < queries.end; i++) {
        const struct kv_range range = kv_range_of(a, i, block * BLOCK);
        all = range.begin == 0 && range.end == BLOCK;
    }
    return all;
}

/* Finds the queries' largest scores in the block and updates the running maxima. Also touches the pages
 * that are prefetched next, so that misses of the TLB overlap with each other and with latencies here. */
PHASE void q8_maxima(const struct q8_block *b, size_t block, struct kv_range queries)
{
    prefetch_lines(b->next.v[BLOCK_TILES - 1].base + b->next.bytes, 1);
    prefetch_lines(b->next.k[BLOCK_TILES - 1].base + 5 * b->next.bytes, 1);
    if (!all_attended(b->a, block, queries)) {
        block_maxima(b->a, &b->softmax, block, queries);
        return;
    }
    for (size_t i = queries.begin, n; i < queries.end; i += n) {
        n = size_min(QUERY_GROUP - i % QUERY_GROUP, queries.end - i);
        group_maxima(b, i, n);
    }
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
INLINE void exponentiate_block(const struct q8_block *b, size_t i, vf prob[BLOCK_VECS])
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

/* Sets the factors that turn probabilities into 16-bit integers: p_factor[p] = scale of v[p] * P_ONE /
 * largest scale, for positions p in `range`, else 0. Returns p_scale = largest scale / P_ONE; NaN if a
 * scale is not finite or, as only in a damaged cache, negative. */
static float set_p_factor(const struct q8_block *b, struct kv_range range)
{
    const float tiny = 1e-30f; /* smaller scales count as 0 */
    vf max = {0}, bad = {0};
    for (int g = 0; g < BLOCK_VECS; g++) {
        const vf x = scales_in_range(b->v_scale, range, g);
        max = vf_max(max, x);
        bad += vf_select(x >= vf_set1(0), x * vf_set1(0), vf_set1(NAN));
    }
    const float largest = vf_max_lane(max);
    const vf inverse = vf_set1(largest > tiny ? P_ONE / largest : 0);
    for (int g = 0; g < BLOCK_VECS; g++)
        vf_store(b->p_factor + g * VW, scales_in_range(b->v_scale, range, g) * inverse);
    return largest / P_ONE + vf_sum(bad);
}

/* Stores the low and high bytes of p_i16 of a block's positions, p[4], given with any bits above. */
INLINE void store_p_bytes(uint32_t *p_bytes, const vu p[BLOCK_VECS])
{
    const vu even = (p[0] & 0xffff) | p[1] << 16, odd = (p[2] & 0xffff) | p[3] << 16;
    *(vu_any *)p_bytes = (even & 0x00ff00ff) | (odd << 8 & 0xff00ff00);
    *(vu_any *)(p_bytes + BLOCK / 4) = (even >> 8 & 0x00ff00ff) | (odd & 0xff00ff00);
}

/* Computes the queries' probabilities in the block, times the scales of V, as 16-bit integers: p_bytes
 * and p_scale. */
PHASE void block_probs(const struct q8_block *b, size_t block, struct kv_range queries)
{
    float scale_of_range = 0;
    struct kv_range before = {SIZE_MAX, 0};
    for (size_t i = queries.begin; i < queries.end; i++) {
        const struct kv_range range = kv_range_of(b->a, i, block * BLOCK);
        uint32_t *p_bytes = b->p_bytes + i * (BLOCK / 2);
        vf prob[BLOCK_VECS];
        vu rounded[BLOCK_VECS];
        b->p_scale[i] = 0;
        if (b->softmax.block_max[i] == -INFINITY) {
            memset(p_bytes, 0, BLOCK / 2 * sizeof *p_bytes);
            continue;
        }
        /* most queries have the range of the query before */
        if (range.begin != before.begin || range.end != before.end)
            scale_of_range = set_p_factor(b, range);
        before = range;
        exponentiate_block(b, i, prob);
        EACH_VEC(rounded[g] = (vu)vf_fma(prob[g], vf_load(b->p_factor + g * VW), vf_set1(MAGIC_FLOAT));)
        store_p_bytes(p_bytes, rounded);
        b->p_scale[i] = scale_of_range * b->softmax.block_scale[i];
    }
}

/* ---- values ---- */

/* Where zip_lanes() takes lane l from: a word of 4 columns of an entry, then a byte of each entry. */
#define COLUMN_WORD(l, s) ((l) % 4 * 4 + (l) / 4)
#define WORD_BYTES(l, s)  (0x0c080400u + 0x01010101u * ((l) % 4))

/* Interleaves the bytes of 4 entries, of which lane l of x has VW columns: afterwards lane j has the
 * bytes of column j. */
INLINE vu zip_lanes(vu x)
{
    const vu word = {ALL_LANES(COLUMN_WORD, 0)}, byte = {ALL_LANES(WORD_BYTES, 0)};
    return (vu)_mm512_shuffle_epi8(_mm512_permutexvar_epi32((__m512i)word, (__m512i)x), (__m512i)byte);
}

/* Adds a block's V to the context of R queries, from `query` on, in VW columns from `column` on, or
 * only `some` if not `whole`. Prefetches lines from `ahead` on, unless that is NULL. */
INLINE void byte_tile(const int R, bool whole, bool scattered, const struct q8_block *b, size_t query,
                      size_t column, size_t some, const char *ahead)
{
    const uint32_t *p_bytes = b->p_bytes + query * (BLOCK / 2);
    const size_t stride = b->a->row_stride;
    const struct tile tile[4] = {b->v[0], b->v[2], b->v[1], b->v[3]};
    vi sum[QUERY_GROUP][2];
    UNROLL(for (int i = 0; i < R; i++))
    sum[i][0] = sum[i][1] = (vi){0};
    ROLLED(for (size_t n = 0; n < ATTEND_TILE; n++))
    {
        const char *at[4];
        UNROLL(for (int l = 0; l < 4; l++))
        at[l] = row_of(tile[l], scattered, stride, n) + column;
        const vu v = zip_lanes(load_lanes(whole, at, div_up(some, 4)) ^ 0x80808080u);
        if (ahead)
            prefetch_lines(ahead + n * 64, 1);
        UNROLL(for (int i = 0; i < R; i++))
        UNROLL(for (int h = 0; h < 2; h++))
        sum[i][h] = vi_dot4(sum[i][h], (vu)load_word(p_bytes + (2 * i + h) * (BLOCK / 4) + n), (vi)v);
    }
    const float *p_scales = b->p_scale + query, *acc_scales = b->softmax.acc_scale + query;
    const size_t d_v = b->a->d_v;
    float *context = b->a->context + query * d_v + column;
    UNROLL(for (int i = 0; i < R; i++))
    {
        const vf p_scale = vf_set1(p_scales[i]), acc_scale = vf_set1(acc_scales[i]);
        const vf dot = vf_of((sum[i][1] << 8) + sum[i][0]);
        const vf before = whole ? vf_load(context) : (vf)vu_load_some(context, some);
        const vf now = vf_fma(dot, p_scale, before * acc_scale);
        if (whole)
            vf_store(context, now);
        else
            memcpy(context, &now, some * sizeof *context);
        context += d_v;
    }
}

#define BYTE_R(R)                                                                                      \
    PHASE void byte_##R(const struct q8_block *b, size_t query, size_t column, const char *ahead)      \
    {                                                                                                  \
        const size_t some = b->a->d_v - column;                                                        \
        if (b->scattered && some >= VW)                                                                \
            byte_tile(R, true, true, b, query, column, VW, ahead);                                     \
        else if (b->scattered)                                                                         \
            byte_tile(R, false, true, b, query, column, some, ahead);                                  \
        else if (some >= VW)                                                                           \
            byte_tile(R, true, false, b, query, column, VW, ahead);                                    \
        else                                                                                           \
            byte_tile(R, false, false, b, query, column, some, ahead);                                 \
    }
EACH_R(BYTE_R)
static void (*const byte_tiles[8])(const struct q8_block *, size_t, size_t, const char *) = {
    byte_1, byte_2, byte_3, byte_4, byte_5, byte_6, byte_7, byte_8};

static void block_values(const struct q8_block *b, struct kv_range queries)
{
    const size_t d = b->a->d;
    for (size_t j = 0; j < b->a->d_v; j += VW) {
        const size_t t = j * BLOCK_TILES / d;
        const char *ahead =
            b->next.v[t].row ? NULL : b->next.v[t].base + (j * BLOCK_TILES - t * d) / 64 * 1024;
        if (ahead)
            prefetch_lines(ahead + ATTEND_TILE * 64, 2);
        QUERY_TILES(queries, byte_tiles, b, i, j, i == queries.begin ? ahead : NULL)
    }
}

/* Places the buffers in a->scratch, which has attend_quant_space() floats. */
static void place_buffers(struct q8_block *b, size_t queries)
{
    float *scratch = b->a->scratch;
    begin_softmax(b->a, &b->softmax, &scratch);
    b->p_bytes = take(&scratch, b->a->queries * (BLOCK / 2));
    b->k_scale = take(&scratch, BLOCK);
    b->v_scale = take(&scratch, BLOCK);
    b->p_factor = take(&scratch, BLOCK);
    b->p_scale = take(&scratch, queries);
    b->q_scale = take(&scratch, queries);
    b->zero = take(&scratch, queries);
    b->q_words = take(&scratch, round_up(b->a->queries, QUERY_GROUP) * round_up(b->words, VW));
}

static void open_block(struct q8_block *b)
{
    const struct attend *a = b->a;
    const size_t queries = round_up(a->queries, NR);
    place_buffers(b, queries);
    for (size_t i = 0; i < ATTEND_TILE; i++)
        b->strided[i] = (ptrdiff_t)(i * a->row_stride);
    for (size_t i = 0; i < a->queries; i++) {
        const float scale = query_scale(a, i);
        b->q_scale[i] = scale == scale ? scale : NAN;
        b->zero[i] = query_sum(a, i) * quant_types[DTYPE_Q8_CHANNEL].zero_point;
    }
    transpose_queries(b);
}

static void attend_q8(const struct attend *a)
{
    struct q8_block b = {
        .a = a, .words = div_up(a->d, 4), .q_words_each = QUERY_GROUP * round_up(div_up(a->d, 4), VW)};
    open_block(&b);
    for (size_t block = 0; block < div_up(a->tiles, BLOCK_TILES); block++) {
        const struct kv_range queries = active_queries(a, block);
        if (queries.begin == queries.end)
            continue;
        find_block(&b, block);
        block_scores(&b, queries);
        q8_maxima(&b, block, queries);
        block_probs(&b, block, queries);
        block_values(&b, queries);
    }
    end_softmax(a, &b.softmax);
}

#endif
