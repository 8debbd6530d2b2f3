/* Template: loads a block of positions of a quantised KV cache in the layouts that
 * attend_quant.h multiplies: K with positions in lanes, V with columns in lanes. */
#pragma once

#include "kernel/template/attend_block.h"
#include "kernel/template/quant_shuffles.h"
#include "kernel/template/unpack_entries.h"

/* Loads the scales and mins of a tile's K or V entries as f32 into ATTEND_TILE columns of the
 * arrays scale and min, [groups][BLOCK] each. */
INLINE void load_kv_scales(const struct entry_scales *from, bool scattered, float *scale, float *min,
                           struct tile entries)
{
    const size_t stride = from->stride;
    const struct tile scales = {entries.base + from->scale_at, entries.row},
                      mins = {entries.base + from->min_at, entries.row};
    if (kv_entry_bits(from->type)) {
        for (size_t p = 0; p < ATTEND_TILE; p++) {
            bf16 half;
            memcpy(&half, row_of(scales, scattered, stride, p), sizeof half);
            scale[p] = bf16_to_f32(half);
        }
        return;
    }
    if (from->type == DTYPE_Q8_CHANNEL) {
        for (size_t p = 0; p < ATTEND_TILE; p++)
            memcpy(scale + p, row_of(scales, scattered, stride, p), sizeof *scale);
        return;
    }
    for (size_t g = 0; g < from->groups; g++) {
        f16 half[2][ATTEND_TILE];
        for (size_t p = 0; p < ATTEND_TILE; p++) {
            memcpy(&half[0][p], row_of(scales, scattered, stride, p) + g * sizeof(f16), sizeof(f16));
            memcpy(&half[1][p], row_of(mins, scattered, stride, p) + g * sizeof(f16), sizeof(f16));
        }
        for (size_t p = 0; p < ATTEND_TILE; p += VW) {
            vf_store(scale + g * BLOCK + p, vf_load_f16(half[0] + p));
            vf_store(min + g * BLOCK + p, vf_load_f16(half[1] + p));
        }
    }
}

INLINE void unpack_bits(unsigned bits, char *to, const struct entry_scales *entries, size_t d,
                        struct tile tile)
{
    const struct kv_entry_layout at = kv_entry_layout(bits, entries->d);
    const size_t blocks = div_up(d, KV_BLOCK);
    for (size_t p = 0; p < ATTEND_TILE; p++, to += blocks * KV_BLOCK)
        unpack_entry(bits, to, row_of(tile, tile.row != NULL, entries->stride, p), at, blocks);
}

/* Unpacks the first d values of a tile's entries, in whole blocks, to consecutive entries, *stride bytes apart. */
PHASE struct tile unpack_tile(const struct block_state *b, const struct entry_scales *entries, size_t d,
                              struct tile tile, size_t *stride)
{
    *stride = round_up(d, KV_BLOCK);
    switch (kv_entry_bits(entries->type)) {
    case 4: unpack_bits(4, b->unpacked, entries, d, tile); break;
    case 5: unpack_bits(5, b->unpacked, entries, d, tile); break;
    default: unpack_bits(6, b->unpacked, entries, d, tile); break;
    }
    return (struct tile){b->unpacked, NULL};
}

/* Transposes 4-byte words [w, w + n) of K entries [p, p + VW) of a tile into columns of
 * k_t[words][BLOCK]; n <= VW. */
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
            vf_store((float *)(void *)(k_t + (w + i) * BLOCK + p), x[i]);
}

/* Transposes a tile of K entries into ATTEND_TILE columns of k_t[words][BLOCK]. */
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

/* Loads tile t of a block: transposed K, and the scales of K and V. */
INLINE void load_tile(const struct block_state *b, bool scattered, size_t t)
{
    const size_t p = t * ATTEND_TILE;
    size_t stride = b->a->k_stride;
    if (kv_entry_bits(b->a->k_type)) {
        const struct tile bytes = unpack_tile(b, &b->k_scales, b->a->d, b->k[t], &stride);
        transpose_tile(b->k_words + p, b->words, bytes, false, stride);
    } else {
        transpose_tile(b->k_words + p, b->words, b->k[t], scattered, stride);
    }
    load_kv_scales(&b->k_scales, scattered, b->k_scale + p, b->k_min + p, b->k[t]);
    load_kv_scales(&b->v_scales, scattered, b->v_scale + p, b->v_min + p, b->v[t]);
}

/* Clears a row of an array [rows][BLOCK] from position p on. */
INLINE void clear_positions(void *array, size_t rows, size_t p)
{
    for (size_t i = 0; i < rows; i++)
        memset((float *)array + i * BLOCK + p, 0, (BLOCK - p) * sizeof(float));
}

PHASE void load_block(const struct block_state *b)
{
    const size_t end = b->tiles * ATTEND_TILE;
    for (size_t t = 0; t < b->tiles; t++)
        if (b->scattered)
            load_tile(b, true, t);
        else
            load_tile(b, false, t);
    if (b->tiles == BLOCK_TILES)
        return;
    clear_positions(b->k_words, b->words, end);
    clear_positions(b->k_scale, b->groups, end);
    clear_positions(b->k_min, b->groups, end);
    clear_positions(b->v_scale, b->v_scales.groups, end);
    clear_positions(b->v_min, b->v_scales.groups, end);
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

/* Interleaves the V entries of adjacent positions of tile t into v_pairs. */
INLINE void pair_tile(enum dtype type, bool scattered, const struct block_state *b, size_t t)
{
    const bool packed = kv_entry_bits(b->a->v_type) != 0;
    const size_t columns = b->columns, words = b->v_words, bytes = quant_row_q_bytes(type, b->a->d_v);
    size_t stride = b->a->v_stride;
    const struct tile v = packed ? unpack_tile(b, &b->v_scales, b->a->d_v, b->v[t], &stride) : b->v[t];
    uint32_t *to = b->v_pairs + t * (ATTEND_TILE / 2) * columns;
    for (size_t p = 0; p < ATTEND_TILE; p += 4) {
        const char *row[4];
        size_t w = 0;
        for (size_t i = 0; i < 4; i++)
            row[i] = row_of(v, scattered, stride, p + i);
        for (; w + VW <= words && w * 4 + 4 * VW <= bytes; w += VW)
            pair_words(type, to, columns, row, w * 4, VW, SIZE_MAX);
        if (w < words)
            pair_words(type, to, columns, row, w * 4, words - w, bytes);
        to += 2 * columns;
    }
}

PHASE void pair_block(const struct block_state *b)
{
    const bool q8 = b->a->v_type != DTYPE_Q4_1;
    const bool scattered = b->scattered && !kv_entry_bits(b->a->v_type);
    const size_t end = b->tiles * ATTEND_TILE;
    for (size_t t = 0; t < b->tiles; t++)
        if (q8 && scattered)
            pair_tile(DTYPE_Q8_CHANNEL, true, b, t);
        else if (q8)
            pair_tile(DTYPE_Q8_CHANNEL, false, b, t);
        else if (scattered)
            pair_tile(DTYPE_Q4_1, true, b, t);
        else
            pair_tile(DTYPE_Q4_1, false, b, t);
    memset(b->v_pairs + end / 2 * b->columns, 0, (BLOCK - end) / 2 * b->columns * sizeof *b->v_pairs);
}

/* In the next block's scattered K tiles finds, for each 4-byte word w, the entry that byte prefetch_bytes * w belongs
 * to. */
static void find_next_entries(const struct block_state *b)
{
    const size_t stride = b->a->k_stride;
    for (size_t t = 0; t < BLOCK_TILES; t++)
        for (size_t w = 0; b->next.k[t].row && w < b->words; w++)
            b->prefetch_at[t][w] = b->next.k[t].row[b->prefetch_bytes * w / stride] +
                                   (ptrdiff_t)(b->prefetch_bytes * w % stride);
}

/* Places the buffers in a->scratch, which has attend_quant_space() floats. */
INLINE void place_buffers(struct block_state *b, size_t groups)
{
    float *scratch = b->a->scratch;
    const size_t queries = round_up(b->a->queries, NR), group_floats = groups * BLOCK;
    b->k_words = take(&scratch, GROUP_WORDS * group_floats);
    b->v_pairs = take(&scratch, BLOCK / 2 * b->columns);
    b->k_scale = take(&scratch, group_floats);
    b->k_min = take(&scratch, group_floats);
    b->v_scale = take(&scratch, group_floats);
    b->v_min = take(&scratch, group_floats);
    begin_softmax(b, &scratch);
    b->p_factor = take(&scratch, BLOCK);
    b->p = take(&scratch, b->a->queries * BLOCK / 2);
    b->p_scale = take(&scratch, queries);
    b->p_min = take(&scratch, queries);
    b->q_scale = take(&scratch, queries);
    b->zero = take(&scratch, queries);
    b->q_words = take(&scratch, round_up(b->a->queries, 8) * round_up(div_up(b->a->d, 4), 16));
    b->unpacked = take(&scratch, BLOCK * round_up(b->a->d, KV_BLOCK) / sizeof(float));
    for (size_t t = 0; t < BLOCK_TILES; t++)
        b->prefetch_at[t] = take(&scratch, b->words * (sizeof(ptrdiff_t) / sizeof(float)));
}

static struct block_state open_block(const struct attend *a)
{
    const size_t groups = div_up(a->d, QK_GROUP), v_groups = div_up(a->d_v, QK_GROUP);
    const bool k_q4 = a->k_type == DTYPE_Q4_1, v_q4 = a->v_type == DTYPE_Q4_1;
    struct block_state b = {
        .a = a,
        .k_scales = entry_scales_of(a->k_type, a->d, a->k_stride),
        .v_scales = entry_scales_of(a->v_type, a->d, a->v_stride),
        .groups = k_q4 ? groups : 1,
        .v_groups = v_q4 ? v_groups : 1,
        .words = k_q4 ? groups * (GROUP_WORDS / 2) : div_up(a->d, 4),
        .v_words = v_q4 ? v_groups * (GROUP_WORDS / 2) : div_up(a->d_v, 4),
        .columns = round_up(a->d_v, (v_q4 ? 8 : 4) * VW),
    };
    b.prefetch_bytes = ATTEND_TILE * a->k_stride / b.words;
    b.prefetch_column = BLOCK * a->v_stride / a->d_v;
    place_buffers(&b, groups);
    query_constants(&b);
    return b;
}
