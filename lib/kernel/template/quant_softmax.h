/* Template: what kernels for quantised KV entries share: queries in int8, online softmax with a running
 * maximum of several queries at a time, and scratch memory. */
#ifndef BMC_QUANT_SOFTMAX_H
#define BMC_QUANT_SOFTMAX_H

#include "kernel/template/online_softmax.h"

INLINE const int8_t *query_q(const struct attend *a, size_t query)
{
    return a->q_int8->q + query * a->q_int8->row_bytes;
}

INLINE const int32_t *query_sums(const struct attend *a, size_t query)
{
    return (const void *)((const char *)a->q_int8->sum + query * a->q_int8->row_bytes);
}

/* The sum of the query's int8 values. */
static int32_t query_sum(const struct attend *a, size_t query)
{
    const int32_t *halves = query_sums(a, query);
    int32_t sum = 0;
    for (size_t h = 0; h < div_up(a->d, QK_HALF); h++)
        sum += halves[h];
    return sum;
}

INLINE float query_scale(const struct attend *a, size_t query)
{
    float scale;
    memcpy(&scale, (const char *)a->q_int8->scale + query * a->q_int8->row_bytes, sizeof scale);
    return scale;
}

/* Takes the next n floats of the scratch memory and advances *scratch. */
INLINE void *take(float **scratch, size_t n)
{
    float *at = *scratch;
    *scratch += n;
    return at;
}

/* The softmax of the queries over a block of positions. */
struct block_softmax {
    float *scores; /* [queries][BLOCK] */
    /* [queries], rounded up to whole registers: */
    float *max, *block_max;         /* maximum of all scores so far; of the block's */
    float *acc_scale, *block_scale; /* factors for earlier sums; for the block's */
};

/* Takes the buffers from the scratch memory, and continues from the maxima of the call before. */
static void begin_softmax(const struct attend *a, struct block_softmax *s, float **scratch)
{
    const size_t queries = round_up(a->queries, NR);
    s->scores = take(scratch, a->queries * BLOCK);
    s->max = take(scratch, queries);
    s->block_max = take(scratch, queries);
    s->acc_scale = take(scratch, queries);
    s->block_scale = take(scratch, queries);
    for (size_t i = 0; i < queries; i++)
        s->max[i] = i < a->queries ? a->max[i] : -INFINITY;
}

static void end_softmax(const struct attend *a, const struct block_softmax *s)
{
    memcpy(a->max, s->max, a->queries * sizeof *a->max);
}

/* e^x for x <= 0 with a relative error of 2^-22, in fewer instructions than vf_exp(): x = n ln 2 +
 * r; e^r is the polynomial of degree 5 with the least relative error (Remez) that has value and
 * derivative 1 at 0. 0 below -87.3; NaN stays NaN. */
INLINE vf vf_exp_fast(vf x)
{
    const vf magic = vf_set1(MAGIC_FLOAT); /* rounds to an integer, in the lowest bits */
    const vi zero = x < vf_set1(-87.3f);
    x = vf_max(vf_set1(-87.3f), x);
    const vf n = vf_fma(x, vf_set1(1.44269504f), magic);
    const vf r = vf_fma(n - magic, vf_set1(-0.693147181f), x);
    vf p = vf_set1(8.3124776527e-3f);
    p = vf_fma(p, r, vf_set1(4.1890550138e-2f));
    p = vf_fma(p, r, vf_set1(1.6667116315e-1f));
    p = vf_fma(p, r, vf_set1(4.9999228825e-1f));
    p = vf_fma(p, r, vf_set1(1));
    p = vf_fma(p, r, vf_set1(1));
    const vu power = ((vu)n << 23) + (127u << 23);
    return (vf)((vi)(p * (vf)power) & ~zero);
}

#define OWN_LANE(l, s) (l)

/* Loads register g of the scales of a block's positions, with 0 for positions outside `range`. */
INLINE vf scales_in_range(const float *scale, struct kv_range range, int g)
{
    const vi at = (vi){ALL_LANES(OWN_LANE, 0)} + g * VW;
    return vf_select((at >= (int32_t)range.begin) & (at < (int32_t)range.end), vf_load(scale + g * VW),
                     vf_set1(0));
}

/* Updates the queries' running score maxima and computes acc_scale and block_scale, the factors for
 * earlier sums and for this block's; lanes are queries. block_max is -INFINITY for queries that do
 * not attend to the block. */
PHASE void update_max(const struct attend *a, const struct block_softmax *s)
{
    for (size_t i = 0; i < a->queries; i += VW) {
        const vf before = vf_load(s->max + i), found = vf_load(s->block_max + i);
        const vf now = vf_select(found <= before, before, found); /* NaN if a score is NaN */
        const vf none = vf_set1(-INFINITY);
        vf_store(s->acc_scale + i, vf_select(before < now, vf_exp_fast(before - now), vf_set1(1)));
        vf_store(s->block_scale + i, vf_select(found == none, vf_set1(0), vf_exp_fast(found - now)));
        vf_store(s->max + i, now);
    }
}

/* Finds the largest scores of the queries in the block, after soft cap, ALiBi and mask, and updates
 * the running maxima. */
PHASE void block_maxima(const struct attend *a, const struct block_softmax *s, size_t block,
                        struct kv_range queries)
{
    const size_t first = block * BLOCK;
    for (size_t i = 0; i < round_up(a->queries, VW); i++)
        s->block_max[i] = -INFINITY;
    for (size_t i = queries.begin; i < queries.end; i++) {
        const struct kv_range range = kv_range_of(a, i, first);
        if (range.end <= range.begin)
            continue;
        const float max = block_max(a, i, first, range, s->scores + i * BLOCK);
        s->block_max[i] = max > -INFINITY ? max : NAN; /* vf_max() may miss a NaN */
    }
    update_max(a, s);
}

#endif
