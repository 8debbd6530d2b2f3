/* Template: attention of one KV head over K and V in bf16, in one pass, with the products of a
 * set's panel_bf16().
 *
 * For each block of 64 positions, pairs of elements of K, and of positions of V, become the words of packed weights:
 *   score[p] = product of q, which is bf16, and k[p]; then soft cap and ALiBi
 *   prob[p] = e^(score[p] - running maximum), rounded to bf16; sums so far are rescaled when the maximum rises
 *   context[j] = context[j] * acc_scale, to which the product of prob and column j of V is added
 * Sums of probabilities are of the rounded ones. A product adds in one order, whatever the number of rows, so the
 * result does not depend on the number of queries or on where entries are stored. */
#pragma once

#include "kernel/kernel.h"
#define BLOCK QUANT_BLOCK
#include "kernel/template/attend_block.h"

enum { V_PAIRS = BLOCK / 2 /* pairs of positions */ };

typedef void panel_bf16_function(float *y, const bf16 *x, size_t x_stride, size_t rows,
                                 const struct panel *w);

struct bf16_block {
    struct block_state state;
    panel_bf16_function *panel; /* the set's panel_bf16() */
};

INLINE panel_bf16_function *panel_of(const struct block_state *b)
{
    return ((const struct bf16_block *)(const void *)b)->panel;
}

/* ---- K and V as packed weights ---- */

/* Prefetches the cache line of the next block's tile that corresponds to the one at `in_row` of entry `row`. */
INLINE void prefetch_same(struct tile next, size_t stride, size_t row, size_t in_row)
{
    if (in_row % 64 == 0)
        prefetch_tile(next, row * stride + in_row, row, in_row);
}

/* Transposes tile t of K, a block of weights: word [j][p] has elements 2 j and 2 j + 1 of entry p. */
INLINE void pair_k(bool scattered, const struct block_state *b, size_t t)
{
    const struct tile k = b->k[t], next = b->next.k[t];
    const size_t d = b->a->d, stride = b->a->k_stride, whole = d / 2 / VW * VW;
    uint32_t *to = b->k_words + t * b->words * NR;
    for (size_t p = 0; p < ATTEND_TILE; p += VW) {
        for (size_t j = 0; j < whole; j += VW) {
            vf x[VW];
            for (size_t i = 0; i < VW; i++) {
                x[i] = (vf)vu_load(row_of(k, scattered, stride, p + i) + 4 * j);
                prefetch_same(next, stride, p + i, 4 * j);
            }
            vf_transpose(x);
            for (size_t i = 0; i < VW; i++)
                vu_store(to + (j + i) * NR + p, (vu)x[i]);
        }
        for (size_t j = whole; 2 * j < d; j++)
            for (size_t i = 0; i < VW; i++) {
                uint32_t word = 0;
                memcpy(&word, row_of(k, scattered, stride, p + i) + 4 * j,
                       size_min(4, 2 * (d - 2 * j)));
                to[j * NR + p + i] = word;
            }
    }
}

/* Interleaves columns [column, column + n) of V, n <= PANEL_WIDTH: word [c / NR][p / 2][c % NR] has those of column c at
 * positions p and p + 1. */
INLINE void pair_v(bool scattered, const struct block_state *b, size_t column, size_t n)
{
    const size_t stride = b->a->v_stride;
    for (size_t p = 0; p < b->tiles * ATTEND_TILE; p += 2) {
        const size_t t = p / ATTEND_TILE, row = p % ATTEND_TILE;
        const char *low = row_of(b->v[t], scattered, stride, row) + 2 * column;
        const char *high = row_of(b->v[t], scattered, stride, row + 1) + 2 * column;
        uint32_t *to = b->v_pairs + p / 2 * NR;
        size_t j = 0;
        for (; j + NR <= n; j += NR, to += V_PAIRS * NR)
            for (size_t g = 0; g < NR; g += VW) {
                const vu x = vu_load_u16(low + 2 * (j + g)), y = vu_load_u16(high + 2 * (j + g));
                vu_store(to + g, x | y << 16);
            }
        for (size_t i = 0; j + i < n; i++) {
            bf16 x, y;
            memcpy(&x, low + 2 * (j + i), sizeof x);
            memcpy(&y, high + 2 * (j + i), sizeof y);
            to[i] = x | (uint32_t)y << 16;
        }
        for (size_t at = 0; at < 2 * n; at += 64) {
            prefetch_same(b->next.v[t], stride, row, 2 * column + at);
            prefetch_same(b->next.v[t], stride, row + 1, 2 * column + at);
        }
    }
}

/* ---- scores ---- */

/* The tiles of the block that are computed: those that a query attends to, and those behind a->skippable. */
INLINE size_t computed_tiles(const struct block_state *b)
{
    const size_t end = b->a->kv_end[b->queries.end - 1] - b->first;
    return b->first + BLOCK <= b->a->skippable ? size_min(b->tiles, div_up(end, ATTEND_TILE))
                                               : b->tiles;
}

PHASE void pair_keys(const struct block_state *b)
{
    for (size_t t = 0; t < b->tiles; t++)
        if (b->scattered)
            pair_k(true, b, t);
        else
            pair_k(false, b, t);
}

static void score_bf16(struct block_state *b)
{
    const struct attend *a = b->a;
    b->tiles = computed_tiles(b);
    pair_keys(b);
    panel_of(b)(b->softmax.scores + b->queries.begin * BLOCK,
                a->q_bf16 + b->queries.begin * a->q_stride, a->q_stride,
                b->queries.end - b->queries.begin,
                &(struct panel){
                    .w = (const char *)b->k_words,
                    .type = DTYPE_BF16,
                    .block_bytes = b->words * NR * sizeof *b->k_words,
                    .blocks = b->tiles,
                    .kc = 2 * b->words,
                    .last_k = true,
                });
}
_Static_assert((int)BLOCK == (int)PANEL_WIDTH && (int)ATTEND_TILE == (int)NR,
               "a panel has a block of positions");

/* ---- softmax ---- */

/* The context of query i, of PANEL_WIDTH columns from column `panel` * PANEL_WIDTH on. */
INLINE float *context_panel(const struct block_state *b, size_t panel, size_t i)
{
    return b->panels + (panel * b->panel_rows + i) * PANEL_WIDTH;
}

static inline void rescale_context(const struct block_state *b, size_t i, float factor)
{
    for (size_t panel = 0; panel * PANEL_WIDTH < b->a->d_v; panel++)
        for (size_t j = 0; j < PANEL_WIDTH; j += VW) {
            float *at = context_panel(b, panel, i) + j;
            vf_store(at, vf_load(at) * vf_set1(factor));
        }
}

/* Computes a query's probabilities in the block, all 0 if it does not attend to it, adds them to its running sum, and
 * rescales its context. */
static inline void softmax_query(const struct block_state *b, size_t i)
{
    const struct attend *a = b->a;
    const struct kv_range range = kv_range_of(a, i, b->first);
    float *scores = b->softmax.scores + i * BLOCK, *sum = a->sum + i * NR;
    int16_t *prob = b->p + i * BLOCK;
    if (range.end <= range.begin) {
        memset(prob, 0, BLOCK * sizeof *prob);
        return;
    }
    const float before = a->max[i], found = block_max(a, i, b->first, range, scores);
    const float max = found <= before ? before : found; /* NaN if a score is NaN */
    const float factor = before < max ? vf_exp_fast(vf_set1(before - max))[0] : 1;
    a->max[i] = max;
    for (int g = 0; g < BLOCK_VECS; g++) {
        const vf e = vf_round_bf16(vf_exp_fast(vf_load(scores + g * VW) - vf_set1(max)));
        float *lane = sum + g % NR_VECS * VW;
        vu_store_u16(prob + g * VW, (vu)e >> 16);
        vf_store(lane, vf_fma(vf_load(lane), vf_set1(g < NR_VECS ? factor : 1), e));
    }
    if (factor != 1)
        rescale_context(b, i, factor);
}

static void softmax_bf16(struct block_state *b)
{
    for (size_t i = b->queries.begin; i < b->queries.end; i++)
        softmax_query(b, i);
    /* products may write rows behind the last one, so that none of a later query follows it */
    memset(b->p + b->queries.end * BLOCK, 0, (b->a->queries - b->queries.end) * BLOCK * sizeof *b->p);
}

/* ---- values ---- */

PHASE void pair_values(const struct block_state *b, size_t column, size_t n)
{
    if (b->scattered)
        pair_v(true, b, column, n);
    else
        pair_v(false, b, column, n);
    for (size_t c = 0; b->tiles % 2 && c < n; c += NR) /* products have an even number of tiles */
        memset(b->v_pairs + c * V_PAIRS + b->tiles * ATTEND_TILE / 2 * NR, 0,
               ATTEND_TILE / 2 * NR * sizeof *b->v_pairs);
}

static void value_bf16(struct block_state *b)
{
    for (size_t panel = 0, j = 0; j < b->a->d_v; panel++, j += PANEL_WIDTH) {
        const size_t n = size_min(PANEL_WIDTH, b->a->d_v - j), first = b->queries.begin;
        pair_values(b, j, n);
        panel_of(b)(context_panel(b, panel, first), (const bf16 *)b->p + first * BLOCK, BLOCK,
                    b->a->queries - first,
                    &(struct panel){
                        .w = (const char *)b->v_pairs,
                        .type = DTYPE_BF16,
                        .block_bytes = V_PAIRS * NR * sizeof *b->v_pairs,
                        .blocks = div_up(n, NR),
                        .kc = round_up(b->tiles, 2) * ATTEND_TILE,
                        .accumulate = true,
                        .last_k = true,
                    });
    }
}

/* Copies the contexts between a->context and panels, in whole registers where there are some. */
INLINE void move_contexts(const struct block_state *b, bool in)
{
    const size_t d_v = b->a->d_v, whole = d_v / VW * VW;
    for (size_t i = 0; i < b->a->queries; i++) {
        float *context = b->a->context + i * d_v;
        for (size_t j = 0; j < whole; j += VW) {
            float *at = context_panel(b, j / PANEL_WIDTH, i) + j % PANEL_WIDTH;
            vf_store(in ? at : context + j, vf_load(in ? context + j : at));
        }
        for (size_t j = whole; j < d_v; j++) {
            float *at = context_panel(b, j / PANEL_WIDTH, i) + j % PANEL_WIDTH;
            *(in ? at : context + j) = *(in ? context + j : at);
        }
    }
}

/* The kernel, with the set's panel_bf16() and the phases of this file, or others that compute the same. */
static void attend_in_bf16(const struct attend *a, panel_bf16_function *panel,
                           const struct attend_phases *phases)
{
    float *scratch = a->scratch;
    const size_t rows = a->queries + PANEL_PADDED_ROWS, panels = div_up(a->d_v, PANEL_WIDTH);
    struct bf16_block block = {.state = {.a = a, .words = round_up(a->d, 32) / 2, .panel_rows = rows},
                               .panel = panel};
    struct block_state *b = &block.state;
    b->k_words = take(&scratch, b->words * BLOCK);
    b->v_pairs = take(&scratch, V_PAIRS * PANEL_WIDTH);
    b->softmax.scores = take(&scratch, rows * BLOCK);
    b->p = take(&scratch, rows * BLOCK / 2);
    b->panels = take(&scratch, panels * rows * PANEL_WIDTH);
    if (a->d % 32 || a->d_v % PANEL_WIDTH) /* padding */
        memset(a->scratch, 0, (size_t)((char *)scratch - (char *)a->scratch));
    move_contexts(b, true);
    attend_blocks(b, phases);
    move_contexts(b, false);
}

static const struct attend_phases bf16_phases = {score_bf16, softmax_bf16, value_bf16};
