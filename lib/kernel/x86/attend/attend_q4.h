/* Attention over q4 entries in registers of 512 bits (attend_lanes.h), for kernel sets with vpdpbusd: the sums of
 * attend_quant.h in the same order, so with the same bits. */
#pragma once

#include "kernel/x86/vnni_begin.h"
#include "kernel/template/attend_quant.h"
#include "kernel/x86/attend/attend_lanes.h"

/* For more queries, one transposition as in attend_quant.h takes less time. */
enum { Q4_QUERIES = 16 };

/* Loads the scales and mins of a tile's entries, as load_kv_scales() does; mins are behind the scales. */
INLINE void q4_scales(const struct block_state *b, bool scattered, float *scale, float *min,
                      struct tile entries)
{
    const size_t groups = b->groups;
    const struct tile scales = {entries.base + b->k_scales.scale_at, entries.row};
    for (size_t w = 0; w < groups; w += 4) {
        vu x[4];
        load_words(false, scattered, scales, b->a->k_stride, w, size_min(4, groups - w), x);
        for (size_t i = 0; i < 4 && w + i < groups; i++) {
            vf pair[2];
            f16_halves(x[i], pair);
            UNROLL(for (size_t e = 0; e < 2; e++))
            {
                const size_t at = 2 * (w + i) + e;
                if (at < groups)
                    vf_store(scale + at * BLOCK, pair[e]);
                else if (at < 2 * groups)
                    vf_store(min + (at - groups) * BLOCK, pair[e]);
            }
        }
    }
}

INLINE void q4_block_scales(const struct block_state *b, bool scattered)
{
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        const size_t p = t * ATTEND_TILE;
        prefetch_scattered(b, true, t);
        q4_scales(b, scattered, b->k_scale + p, b->k_min + p, b->k[t]);
        q4_scales(b, scattered, b->v_scale + p, b->v_min + p, b->v[t]);
    }
}

/* Adds V to the context of R queries, from `query` on, in the columns of a group. */
INLINE void q4_value_group(const int R, enum dtype type, bool scattered, const struct block_state *b,
                           size_t query, size_t group)
{
    const size_t column = group * QK_GROUP;
    if (R <= LANES_WIDE) {
        byte_values(R, 2, type, true, scattered, b, query, column, 2 * VW);
        return;
    }
    byte_values(R, 1, type, true, scattered, b, query, column, VW);
    byte_values(R, 1, type, true, scattered, b, query, column + VW, VW);
}

LANES_TABLE(lanes_score_block, Q4_1)
LANES_TABLE(q4_value_group, Q4_1)

PHASE void load_q4_scales(const struct block_state *b)
{
    if (b->scattered)
        q4_block_scales(b, true);
    else
        q4_block_scales(b, false);
}

static void q4_score(struct block_state *b)
{
    load_q4_scales(b);
    for_queries(lanes_score_block_Q4_1, b, 0);
}

PHASE void probs_q4_bytes(const struct block_state *b, size_t group)
{
    probs_q4(store_p_bytes, b, group);
}

static void q4_value(struct block_state *b)
{
    for (size_t g = 0; g < b->v_groups; g++) {
        probs_q4_bytes(b, g);
        for_queries(q4_value_group_Q4_1, b, g);
    }
}

/* True if attend_q4() can compute this and is faster. */
static bool is_q4(const struct attend *a)
{
    return a->k_type == DTYPE_Q4_1 && a->v_type == DTYPE_Q4_1 && a->queries <= Q4_QUERIES &&
           a->d % QK_GROUP == 0 && a->d_v % QK_GROUP == 0 &&
           quant_row_scales_at(DTYPE_Q4_1, a->d, SCALE_MIN) ==
               quant_row_scales_at(DTYPE_Q4_1, a->d, SCALE_MAIN) + a->d / QK_GROUP * sizeof(f16);
}

static void attend_q4(const struct attend *a)
{
    struct block_state b = open_block(a);
    transpose_queries(&b);
    attend_blocks(&b, &(struct attend_phases){q4_score, softmax_quant_block, q4_value});
    end_softmax(&b);
}
