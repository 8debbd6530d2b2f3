/* Attention over q8 entries in registers of 512 bits (attend_lanes.h), for kernel sets with an instruction for
 * vi_dot4(): the sums of attend_quant.h in the same order, so with the same bits. */
#pragma once

#include "kernel/x86/vnni_begin.h"
#include "kernel/template/attend_quant.h"
#include "kernel/x86/attend/attend_lanes.h"

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

PHASE void probs_bytes(const struct block_state *b) { probs_q8(store_p_bytes, b); }

static void q8_softmax(struct block_state *b)
{
    q8_maxima(b);
    probs_bytes(b);
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

static void attend_q8(const struct attend *a)
{
    struct block_state b = open_block(a);
    transpose_queries(&b);
    attend_blocks(&b, &(struct attend_phases){q8_score, q8_softmax, q8_value});
    end_softmax(&b);
}
