/* Attention of one KV head over q8 entries, for kernel sets with registers of 512 bits and an
 * instruction for vi_dot4(). The formulas are those of attend_quant.h, but for blocks of Q8_BLOCK
 * positions and probabilities of 16 bits without sign: p_scale = largest scale of v / 65535.
 *
 * Neither K nor V is stored in another layout. Of K, only words within 16-byte lanes are transposed, in
 * registers. Probabilities are split into low and high bytes, which are multiplied separately: as many
 * products as for 16-bit integers, but V needs no conversion. */
#ifndef BMC_ATTEND_Q8_H
#define BMC_ATTEND_Q8_H

#include "kernel/x86/attend_q8_scores.h"

/* ---- probabilities ---- */

/* Computes a query's unnormalised probabilities in the block, prob[BLOCK_VECS], and adds these to its
 * running sum of the softmax. */
INLINE void exponentiate_block(const struct q8_block *b, size_t i, vf prob[BLOCK_VECS])
{
    const vf max = vf_set1(b->softmax.block_max[i]);
    const float *score = b->softmax.scores + i * BLOCK;
    float *sum = b->a->sum + i * NR;
    vf lane[NR_VECS] = {{0}};
    UNROLL(for (int g = 0; g < BLOCK_VECS; g++))
    {
        prob[g] = vf_exp_fast(vf_load(score + g * VW) - max);
        lane[g % NR_VECS] += prob[g];
    }
    UNROLL(for (int g = 0; g < NR_VECS; g++))
    vf_store(sum + g * VW, vf_fma(lane[g], vf_set1(b->softmax.block_scale[i]),
                                  vf_load(sum + g * VW) * vf_set1(b->softmax.acc_scale[i])));
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
 * and p_scale. Prefetches are spread over the whole block, since AMD's cores have few line fill buffers:
 * here the last tile of K and the first of V. */
PHASE void block_probs(const struct q8_block *b, size_t block, struct kv_range queries)
{
    const size_t share = round_up(div_up(b->next.bytes, queries.end - queries.begin), 64);
    float scale_of_range = 0;
    struct kv_range before = {SIZE_MAX, 0};
    for (size_t i = queries.begin; i < queries.end; i++) {
        const struct kv_range range = kv_range_of(b->a, i, block * BLOCK);
        prefetch_share(b, b->next.k[BLOCK_TILES - 1], i - queries.begin, share);
        prefetch_share(b, b->next.v[0], i - queries.begin, share);
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
        UNROLL(for (int g = 0; g < BLOCK_VECS; g++))
        rounded[g] = (vu)vf_fma(prob[g], vf_load(b->p_factor + g * VW), vf_set1(MAGIC_FLOAT));
        store_p_bytes(p_bytes, rounded);
        b->p_scale[i] = scale_of_range * b->softmax.block_scale[i];
    }
}

/* ---- values ---- */

/* Prefetches share n of ATTEND_TILE of those tiles of the next block's V, except the first, that tile
 * number `turn` of `turns` of queries is responsible for. */
INLINE void prefetch_turn(const struct q8_block *b, size_t n, size_t turn, size_t turns)
{
    const size_t share = round_up(b->next.bytes / ATTEND_TILE, 64);
    for (size_t t = 1 + turn; t < BLOCK_TILES; t += turns)
        prefetch_share(b, b->next.v[t], n, share);
}

/* Adds a block's V to the context of R queries, from `query` on, in columns from `column` on, of which
 * entries have BYTE_COLUMNS, or `some` words; tile number `turn` of those that cover all `queries`. */
INLINE void byte_tile(const int R, bool whole, bool scattered, const struct q8_block *b, size_t query,
                      size_t column, size_t some, size_t queries, size_t turn)
{
    const uint32_t *p_bytes = b->p_bytes + query * (BLOCK / 2);
    const size_t stride = b->a->row_stride, turns = div_up(queries, BYTE_QUERIES);
    vi sum[BYTE_QUERIES][2][4];
    UNROLL(for (int i = 0; i < R; i++))
    UNROLL(for (int g = 0; g < 4; g++))
    sum[i][0][g] = sum[i][1][g] = (vi){0};
    ROLLED(for (size_t n = 0; n < ATTEND_TILE; n++))
    {
        vu v[4];
        UNROLL(for (int t = 0; t < 4; t++))
        {
            const char *at = row_of(b->v[t], scattered, stride, n) + column;
            v[t] = (whole ? vu_load(at) : vu_load_some(at, some)) ^ 0x80808080u;
        }
        zip_rows(v);
        if (column == 0)
            prefetch_turn(b, n, turn, turns);
        UNROLL(for (int i = 0; i < R; i++))
        UNROLL(for (int h = 0; h < 2; h++))
        {
            const vu p = (vu)load_word(p_bytes + (2 * i + h) * (BLOCK / 4) + n);
            UNROLL(for (int g = 0; g < 4; g++))
            sum[i][h][g] = vi_dot4(sum[i][h][g], p, (vi)v[g]);
        }
    }
    float *context = b->context + query * b->columns + column;
    UNROLL(for (int i = 0; i < R; i++))
    {
        const vf p_scale = vf_set1(b->p_scale[query + (size_t)i]);
        const vf acc_scale = vf_set1(b->softmax.acc_scale[query + (size_t)i]);
        UNROLL(for (int g = 0; g < 4; g++))
        {
            const vf dot = vf_of((sum[i][1][g] << 8) + sum[i][0][g]);
            vf_store(context + g * VW, vf_fma(dot, p_scale, vf_load(context + g * VW) * acc_scale));
        }
        context += b->columns;
    }
}

INLINE void byte_queries(bool scattered, const struct q8_block *b, struct kv_range queries)
{
    const size_t n = queries.end - queries.begin;
    for (size_t w = 0; w < b->v_words; w += VW) {
        const size_t some = b->v_words - w;
        size_t turn = 0;
        if (some >= VW)
            FOR_TILES(n, BYTE_QUERIES,
                      byte_tile(R, true, scattered, b, queries.begin + i, w * 4, some, n, turn++))
        else
            FOR_TILES(n, BYTE_QUERIES,
                      byte_tile(R, false, scattered, b, queries.begin + i, w * 4, some, n, turn++))
    }
}

PHASE void block_values(const struct q8_block *b, struct kv_range queries)
{
    if (b->scattered)
        byte_queries(true, b, queries);
    else
        byte_queries(false, b, queries);
}

/* Column of a context in the order of columns of zip_rows() that 4 columns from j on have. */
INLINE size_t byte_column(size_t j)
{
    const size_t in = j % BYTE_COLUMNS;
    return j - in + in % 16 / 4 * VW + in / 16 * 4;
}

/* Copies the queries' contexts into the order of zip_rows(), or back. */
static void reorder_context(const struct q8_block *b, bool back)
{
    const size_t d_v = b->a->d_v;
    for (size_t i = 0; i < b->a->queries; i++) {
        float *own = b->context + i * b->columns, *to = b->a->context + i * d_v;
        size_t j = 0;
        for (; j + 4 <= d_v; j += 4)
            if (back)
                memcpy(to + j, own + byte_column(j), 4 * sizeof *to);
            else
                memcpy(own + byte_column(j), to + j, 4 * sizeof *to);
        if (j < d_v && back)
            memcpy(to + j, own + byte_column(j), (d_v - j) * sizeof *to);
        else if (j < d_v)
            memcpy(own + byte_column(j), to + j, (d_v - j) * sizeof *to);
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
    b->context = take(&scratch, b->a->queries * b->columns);
    b->q_lanes = take(&scratch, b->a->queries * b->columns);
    b->p_scale = take(&scratch, queries);
    b->zero = take(&scratch, queries);
}

static void open_block(struct q8_block *b)
{
    const struct attend *a = b->a;
    const size_t queries = round_up(a->queries, NR);
    place_buffers(b, queries);
    for (size_t i = 0; i < ATTEND_TILE; i++)
        b->strided[i] = (ptrdiff_t)(i * a->row_stride);
    for (size_t i = 0; i < a->queries; i++)
        b->zero[i] = query_sum(a, i) * quant_types[DTYPE_Q8_CHANNEL].zero_point;
    spread_queries(b);
    reorder_context(b, false);
}

static void attend_q8(const struct attend *a)
{
    struct q8_block b = {.a = a,
                         .words = div_up(a->d, 4),
                         .v_words = div_up(a->d_v, 4),
                         .columns = round_up(a->d, BYTE_COLUMNS)};
    open_block(&b);
    for (size_t block = 0; block < div_up(a->tiles, BLOCK_TILES); block++) {
        const struct kv_range queries = active_queries(a, block);
        if (queries.begin == queries.end)
            continue;
        load_block(&b, block);
        block_scores(&b, queries);
        block_maxima(a, &b.softmax, block, queries);
        block_probs(&b, block, queries);
        block_values(&b, queries);
    }
    reorder_context(&b, true);
    end_softmax(a, &b.softmax);
}

#endif
