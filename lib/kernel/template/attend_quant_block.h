/* Template: loads a block of 32 positions of a quantised KV cache in the layouts that
 * attend_quant.h multiplies: K with positions in lanes, V with columns in lanes. */
#ifndef BMC_ATTEND_QUANT_BLOCK_H
#define BMC_ATTEND_QUANT_BLOCK_H

#include "kernel/template/quant_shuffles.h"
#include "kernel/template/quant_softmax.h"

enum { GROUP_WORDS = QK_GROUP / 4 /* 4-byte words that hold the 8-bit values of a group */ };

/* Prefetches the cache line at `at`, of the next block's K or V, into L1. */
INLINE void prefetch_near(const char *at) { __builtin_prefetch(at, 0, 3); }

/* Buffers for one block of positions, and constants of the attend_quant() call. A group is QK_GROUP
 * columns (d for DTYPE_Q8_CHANNEL) that share a scale in each KV entry. */
struct quant_block {
    const struct attend *a;
    struct next_block next;
    size_t prefetch_bytes;               /* bytes of a K tile of `next` to prefetch per word */
    ptrdiff_t *prefetch_at[BLOCK_TILES]; /* [words]: offsets to prefetch in a scattered tile */
    size_t groups, v_groups;             /* groups per entry of K, of V; 1 for DTYPE_Q8_CHANNEL */
    size_t scale_at, min_at;             /* offsets of scales and mins in a KV entry */
    size_t words, v_words;               /* 4-byte words of quantised values per entry of K, of V */
    size_t columns;                      /* columns of V, rounded up to whole registers */

    uint32_t *k_t; /* [words][ATTEND_BLOCK]: quantised values of K, transposed */
    /* [ATTEND_BLOCK / 2][columns]: V. Element [i][j] holds two int16_t: the quantised values of V,
     * less v_centre(), at positions 2 * i and 2 * i + 1 of the block and column j. */
    uint32_t *v_pairs;
    float *k_scale, *k_min;       /* [groups][ATTEND_BLOCK] */
    float *v_scale, *v_min;       /* [groups][ATTEND_BLOCK] */
    struct block_softmax softmax; /* the scores become probabilities */
    float *p_factor;              /* [ATTEND_BLOCK]: p_i16 / probability */
    int16_t *p_i16;               /* [queries][ATTEND_BLOCK]: prob * v_scale, for a group of columns */
    /* All with [queries] elements, rounded up to whole registers: */
    float *p_scale; /* factor from p_i16 * v_pairs to context, for a group */
    float *p_min;   /* added to context, for the mins of V and its v_centre() */
    int32_t *q_sum; /* sum of the query's int8 values */
};

/* Loads the scales and mins of a tile's K or V entries as f32 into ATTEND_TILE columns of the
 * arrays scale and min, [groups][ATTEND_BLOCK] each. */
INLINE void load_kv_scales(const struct quant_block *b, bool scattered, float *scale, float *min,
                           struct tile entries)
{
    const size_t stride = b->a->row_stride;
    const struct tile scales = {entries.base + b->scale_at, entries.row},
                      mins = {entries.base + b->min_at, entries.row};
    if (b->a->type == DTYPE_Q8_CHANNEL) {
        for (size_t p = 0; p < ATTEND_TILE; p++)
            memcpy(scale + p, row_of(scales, scattered, stride, p), sizeof *scale);
        return;
    }
    for (size_t g = 0; g < b->groups; g++) {
        f16 half[2][ATTEND_TILE];
        for (size_t p = 0; p < ATTEND_TILE; p++) {
            memcpy(&half[0][p], row_of(scales, scattered, stride, p) + g * sizeof(f16), sizeof(f16));
            memcpy(&half[1][p], row_of(mins, scattered, stride, p) + g * sizeof(f16), sizeof(f16));
        }
        for (size_t p = 0; p < ATTEND_TILE; p += VW) {
            vf_store(scale + g * ATTEND_BLOCK + p, vf_load_f16(half[0] + p));
            vf_store(min + g * ATTEND_BLOCK + p, vf_load_f16(half[1] + p));
        }
    }
}

/* Transposes 4-byte words [w, w + n) of K entries [p, p + VW) of a tile into columns of
 * k_t[words][ATTEND_BLOCK]; n <= VW. */
INLINE void transpose_words(uint32_t *k_t, size_t n, struct tile k, bool scattered, size_t stride,
                            size_t p, size_t w)
{
    vf x[VW];
    for (size_t i = 0; i < VW; i++) {
        const char *words = row_of(k, scattered, stride, p + i) + w * 4;
        x[i] = (vf)vu_keep(n == VW ? vu_load(words) : vu_load_some(words, n));
    }
    vf_transpose(x);
    for (size_t i = 0; i < VW; i++) /* all indices are constants, so x stays in registers */
        if (i < n)
            vf_store((float *)(void *)(k_t + (w + i) * ATTEND_BLOCK + p), x[i]);
}

/* Transposes a tile of K entries into ATTEND_TILE columns of k_t[words][ATTEND_BLOCK]. */
INLINE void transpose_tile(uint32_t *k_t, size_t words, struct tile k, bool scattered, size_t stride)
{
    for (size_t p = 0; p < ATTEND_TILE; p += VW) {
        size_t w = 0;
        for (; w + VW <= words; w += VW)
            transpose_words(k_t, VW, k, scattered, stride, p, w);
        if (w < words)
            transpose_words(k_t, words - w, k, scattered, stride, p, w);
    }
}

/* Loads tile `tile` of the KV cache as the block's positions from p on: transposed K, and the
 * scales of K and V. */
INLINE void load_tile(const struct quant_block *b, bool scattered, size_t tile, size_t p)
{
    const struct tile k = k_tile(b->a, tile);
    transpose_tile(b->k_t + p, b->words, k, scattered, b->a->row_stride);
    load_kv_scales(b, scattered, b->k_scale + p, b->k_min + p, k);
    load_kv_scales(b, scattered, b->v_scale + p, b->v_min + p, v_tile(b->a, tile));
}

PHASE void load_block(const struct quant_block *b, size_t block)
{
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        const size_t tile = block * BLOCK_TILES + t, p = t * ATTEND_TILE;
        if (tile < b->a->tiles) {
            if (k_tile(b->a, tile).row)
                load_tile(b, true, tile, p);
            else
                load_tile(b, false, tile, p);
            continue;
        }
        for (size_t w = 0; w < b->words; w++)
            memset(b->k_t + w * ATTEND_BLOCK + p, 0, ATTEND_TILE * sizeof *b->k_t);
        for (size_t g = 0; g < b->groups; g++) {
            memset(b->k_scale + g * ATTEND_BLOCK + p, 0, ATTEND_TILE * sizeof *b->k_scale);
            memset(b->k_min + g * ATTEND_BLOCK + p, 0, ATTEND_TILE * sizeof *b->k_min);
            memset(b->v_scale + g * ATTEND_BLOCK + p, 0, ATTEND_TILE * sizeof *b->v_scale);
            memset(b->v_min + g * ATTEND_BLOCK + p, 0, ATTEND_TILE * sizeof *b->v_min);
        }
    }
}

/* A permutation of words before zip_rows(), after which columns are in order. */
#define DEAL_WORDS(l, s) ((l) % 4 * (VW / 4) + (l) / 4)

/* Returns the number that is subtracted from all quantised values of V, the middle of their range:
 * with values near 0 the rounding of p_i16 has the least effect. */
INLINE int v_centre(enum dtype type) { return type == DTYPE_Q4_1 ? 8 : quant_types[type].zero_point; }

/* Subtracts v_centre() from the quantised values of four V entries, a byte of each per 4-byte lane,
 * and stores them as two rows of int16_t pairs, at `to` and `columns` pairs further on. */
INLINE void store_pairs(enum dtype type, uint32_t *to, size_t columns, vu q)
{
    const vp centre = (uint16_t)v_centre(type) - (vp){0};
    *(vu_any *)to = (vu)((vp)(q & 0x00ff00ff) - centre);
    *(vu_any *)(to + columns) = (vu)(((vp)q >> 8) - centre);
}

/* Converts n 4-byte words of four V entries, row[0] to row[3] from byte `at` on, to two rows of
 * int16_t pairs, as in v_pairs. Stops at byte `bytes` of the entries. */
INLINE void pair_words(enum dtype type, uint32_t *to, size_t columns, const char *const *row, size_t at,
                       size_t n, size_t bytes)
{
    vu x[4];
    for (size_t i = 0; i < 4; i++) {
        const char *q = row[i] + at;
        x[i] = n == VW ? vu_load(q) : vu_load_some(q, n);
        x[i] = __builtin_shufflevector(x[i], x[i], ALL_LANES(DEAL_WORDS, 0));
    }
    zip_rows(x);
#pragma GCC unroll 4
    for (size_t r = 0; r < 4 && at < bytes; r++, at += VW) {
        if (type == DTYPE_Q8_CHANNEL) {
            store_pairs(type, to + at, columns, x[r]);
            continue;
        }
        uint32_t *half = to + at / QK_HALF * QK_GROUP + at % QK_HALF;
        store_pairs(type, half, columns, x[r] & 0x0f0f0f0f);
        store_pairs(type, half + QK_HALF, columns, x[r] >> 4 & 0x0f0f0f0f);
    }
}

INLINE void pair_tile(enum dtype type, bool scattered, const struct quant_block *b, uint32_t *to,
                      struct tile v)
{
    const size_t columns = b->columns, words = b->v_words;
    const size_t bytes = quant_row_q_bytes(type, b->a->d_v);
    for (size_t p = 0; p < ATTEND_TILE; p += 4) {
        const char *row[4];
        size_t w = 0;
        for (size_t i = 0; i < 4; i++)
            row[i] = row_of(v, scattered, b->a->row_stride, p + i);
        for (; w + VW <= words && w * 4 + 4 * VW <= bytes; w += VW)
            pair_words(type, to, columns, row, w * 4, VW, SIZE_MAX);
        if (w < words)
            pair_words(type, to, columns, row, w * 4, words - w, bytes);
        to += 2 * columns;
    }
}

/* Interleaves the V entries of adjacent positions of a block into v_pairs. */
PHASE void pair_block(const struct quant_block *b, size_t block)
{
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        const size_t tile = block * BLOCK_TILES + t;
        uint32_t *to = b->v_pairs + t * (ATTEND_TILE / 2) * b->columns;
        if (tile >= b->a->tiles) {
            memset(to, 0, ATTEND_TILE / 2 * b->columns * sizeof *to);
            continue;
        }
        const struct tile v = v_tile(b->a, tile);
        if (b->a->type == DTYPE_Q8_CHANNEL && v.row)
            pair_tile(DTYPE_Q8_CHANNEL, true, b, to, v);
        else if (b->a->type == DTYPE_Q8_CHANNEL)
            pair_tile(DTYPE_Q8_CHANNEL, false, b, to, v);
        else if (v.row)
            pair_tile(DTYPE_Q4_1, true, b, to, v);
        else
            pair_tile(DTYPE_Q4_1, false, b, to, v);
    }
}

/* Finds the tiles to prefetch while `block` is processed. In scattered K tiles also finds, for each
 * 4-byte word w, the entry that byte prefetch_bytes * w belongs to. */
static void find_next_entries(struct quant_block *b, size_t block)
{
    const size_t stride = b->a->row_stride;
    b->next = find_next(b->a, block);
    for (size_t t = 0; t < BLOCK_TILES; t++)
        for (size_t w = 0; b->next.k[t].row && w < b->words; w++)
            b->prefetch_at[t][w] = b->next.k[t].row[b->prefetch_bytes * w / stride] +
                                   (ptrdiff_t)(b->prefetch_bytes * w % stride);
}

/* Places the buffers of struct quant_block in a->scratch, which has attend_quant_space() floats. */
INLINE void place_buffers(struct quant_block *b, size_t queries, size_t groups)
{
    float *scratch = b->a->scratch;
    const size_t block_floats = b->a->queries * ATTEND_BLOCK, group_floats = groups * ATTEND_BLOCK;
    b->k_t = take(&scratch, GROUP_WORDS * group_floats);
    b->v_pairs = take(&scratch, ATTEND_BLOCK / 2 * b->columns);
    b->k_scale = take(&scratch, group_floats);
    b->k_min = take(&scratch, group_floats);
    b->v_scale = take(&scratch, group_floats);
    b->v_min = take(&scratch, group_floats);
    begin_softmax(b->a, &b->softmax, &scratch);
    b->p_factor = take(&scratch, ATTEND_BLOCK);
    b->p_i16 = take(&scratch, block_floats / 2);
    b->p_scale = take(&scratch, queries);
    b->p_min = take(&scratch, queries);
    b->q_sum = take(&scratch, queries);
    for (size_t t = 0; t < BLOCK_TILES; t++)
        b->prefetch_at[t] = take(&scratch, b->words * (sizeof(ptrdiff_t) / sizeof(float)));
}

static struct quant_block open_block(const struct attend *a)
{
    const size_t groups = div_up(a->d, QK_GROUP), queries = round_up(a->queries, NR);
    const size_t v_groups = div_up(a->d_v, QK_GROUP);
    const bool q4 = a->type == DTYPE_Q4_1;
    struct quant_block b = {
        .a = a,
        .groups = q4 ? groups : 1,
        .v_groups = q4 ? v_groups : 1,
        .words = q4 ? groups * (GROUP_WORDS / 2) : div_up(a->d, 4),
        .v_words = q4 ? v_groups * (GROUP_WORDS / 2) : div_up(a->d_v, 4),
        .columns = round_up(a->d_v, (q4 ? 8 : 4) * VW),
        .scale_at = quant_row_scales_at(a->type, a->d, SCALE_MAIN),
        .min_at = quant_row_scales_at(a->type, a->d, SCALE_MIN),
    };
    b.prefetch_bytes = ATTEND_TILE * a->row_stride / b.words;
    place_buffers(&b, queries, groups);
    for (size_t i = 0; i < a->queries; i++)
        b.q_sum[i] = query_sum(a, i);
    return b;
}

#endif
