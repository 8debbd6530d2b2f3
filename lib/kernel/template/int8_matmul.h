/* Template: the micro-kernel of gemm_int8.h for instructions that multiply matrices of bytes, 2 x 8 by
 * 8 x 2. A begin header that defines INT8_MATMUL has registers of 4 lanes and defines
 *
 *   vi_matmul(sum, w, x)    adds to `sum` the products of two outputs' weights w, 8 unsigned bytes
 *                           each, and two rows' activations x, 8 signed bytes each: lanes are output 0
 *                           times row 0, output 0 times row 1, output 1 times row 0, output 1 times row 1
 *
 * Sums stay in this order of lanes, "paired", from the first to the last input of a K slab. The lines of
 * a K slab are stored in pairs (kslab_store()), and so are interleaved activations (INTERLEAVED_Q). */
#pragma once

#include "kernel/template/kslab.h"

#ifdef INT8_MATMUL
_Static_assert(VW == 4 && INT8_MR % 2 == 0 && CHANNEL_MR % 2 == 0, "pairs of outputs and of rows");

/* Sums of rows 2p and 2p + 1 and the 4 outputs of register v: [p][v][0] of the first two outputs. */
typedef vf paired_sums[ACC_MR / 2][ACC_VECS][2];

INLINE vf pair_low(vf a, vf b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
INLINE vf pair_high(vf a, vf b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
INLINE vf unpair_even(vf low, vf high) { return __builtin_shufflevector(low, high, 0, 2, 4, 6); }
INLINE vf unpair_odd(vf low, vf high) { return __builtin_shufflevector(low, high, 1, 3, 5, 7); }

/* Loads a value of each of two rows, alternating. */
INLINE vf load_two(const char *at)
{
    uint64_t both;
    memcpy(&both, at, sizeof both);
    typedef uint64_t wide __attribute__((vector_size(16)));
    return (vf)(both - (wide){0});
}

#define FOR_PAIRED(DO)                                                                                 \
    UNROLL(for (int p = 0; p < R / 2; p++))                                                            \
    UNROLL(for (int v = 0; v < V; v++))                                                                \
    UNROLL(for (int h = 0; h < 2; h++))                                                                \
    DO

/* Keeps the compiler from moving loads: it would run out of registers. */
#define MATMUL_BARRIER __asm__("" ::: "memory")

/* dot += the products of lines `line` and line + 1, for the outputs of registers [v0, v0 + V). */
INLINE void matmul_lines(const int R, const int V, const int v0, vf (*dot)[ACC_VECS][2],
                         const unsigned char *w, const char *x, const int line)
{
    vi rows[ACC_MR / 2];
    MATMUL_BARRIER;
    UNROLL(for (int p = 0; p < R / 2; p++))
    rows[p] = (vi)vu_load(x + INTERLEAVED_Q(R, line, 2 * p));
    UNROLL(for (int h = 0; h < 2; h++))
    UNROLL(for (int v = 0; v < V; v += 2))
    {
        const unsigned char *at = w + (line + h) * PACK_LINE + (v0 + v) * VW * 4;
        const vu weights[2] = {vu_load(at), vu_load(at + VW * 4)};
        MATMUL_BARRIER;
        UNROLL(for (int i = 0; i < 2; i++))
        UNROLL(for (int p = 0; p < R / 2; p++))
        dot[p][v + i][h] = (vf)vi_matmul((vi)dot[p][v + i][h], weights[i], rows[p]);
    }
}

/* dot += the products of quant group n. */
INLINE void matmul_group(const int R, const int V, const int v0, enum dtype type,
                         vf (*dot)[ACC_VECS][2], const unsigned char *w, const char *x, const int n)
{
    const int lines = QTILE_LINES / qtile_groups(type);
    __asm__("" : "+r"(w), "+r"(x)); /* all offsets from these are constants */
    UNROLL(for (int line = n * lines; line < (n + 1) * lines; line += 2))
    matmul_lines(R, V, v0, dot, w, x, line);
}

/* The scale, and the min, of two outputs each, for two rows. */
struct paired_scale {
    vf scale[2], magic[2], min[2];
};

INLINE struct paired_scale load_paired(enum dtype type, const struct kslab *kslab, size_t group,
                                       size_t block, size_t at)
{
    const vf scale = vf_load(&kslab->scale[group][block][at]);
    const vf magic = vf_load(&kslab->magic[group][block][at]);
    const vf min = quant_has_min(type) ? vf_load(&kslab->min[group][block][at]) : (vf){0};
    return (struct paired_scale){
        .scale = {pair_low(scale, scale), pair_high(scale, scale)},
        .magic = {pair_low(magic, magic), pair_high(magic, magic)},
        .min = {pair_low(min, min), pair_high(min, min)},
    };
}

/* Adds the scaled products of one q tile (32 inputs) to the sums of registers [v0, v0 + V). */
INLINE void matmul_scaled(const int R, const int V, const int v0, enum dtype type, paired_sums sum,
                          const struct int8_tile *tile, const char *x, size_t qtile)
{
    const unsigned char *w = tile->kslab->q[tile->block] + qtile * QTILE_BYTES;
    const int groups = qtile_groups(type);
    for (int n = 0; n < groups; n++) {
        paired_sums dot;
        FOR_PAIRED(dot[p][v][h] = load_two(x + INTERLEAVED_START(R, n, 2 * p)));
        matmul_group(R, V, v0, type, dot, w, x, n);
        UNROLL(for (int v = 0; v < V; v++))
        {
            const struct paired_scale s =
                load_paired(type, tile->kslab, qtile * groups + n, tile->block, (v0 + v) * VW);
            UNROLL(for (int p = 0; p < R / 2; p++))
            UNROLL(for (int h = 0; h < 2; h++))
            {
                const vf scaled = scale_magic_int((vi)dot[p][v][h], s.scale[h], s.magic[h]);
                vf *to = &sum[p][v][h];
                *to = vf_fma(scaled, load_two(x + INTERLEAVED_SCALE(R, 2 * p)), *to);
                if (quant_has_min(type))
                    *to = vf_fma(s.min[h], load_two(x + INTERLEAVED_SUM(R, n, 2 * p)), *to);
            }
        }
    }
}

/* Multiplies R rows by the outputs of registers [v0, v0 + V) of a weight block, over a K slab. */
INLINE void matmul_columns(const int R, const int V, const int v0, enum dtype type,
                           const struct int8_tile *tile)
{
    const float *from = tile->accumulate ? tile->y : zero_sums;
    paired_sums sum;
#define PAIRED_SUM_AT(y, row) ((y) + (row)*PANEL_WIDTH + tile->block * NR + (v0 + v) * VW)
    UNROLL(for (int p = 0; p < R / 2; p++))
    UNROLL(for (int v = 0; v < V; v++))
    {
        const vf a = vf_load(PAIRED_SUM_AT(from, 2 * p)), b = vf_load(PAIRED_SUM_AT(from, 2 * p + 1));
        sum[p][v][0] = pair_low(a, b);
        sum[p][v][1] = pair_high(a, b);
    }
    UNROLL(for (int p = 0; p < R / 2; p++))
    {
        if (type != DTYPE_Q8_CHANNEL)
            break;
        const vi start = {channel_start(R, tile, 2 * p), channel_start(R, tile, 2 * p + 1)};
        const vi both = __builtin_shufflevector(start, start, 0, 1, 0, 1);
        UNROLL(for (int v = 0; v < V; v++))
        UNROLL(for (int h = 0; h < 2; h++))
        sum[p][v][h] = (vf)((vi)sum[p][v][h] + both);
    }
    const char *x = tile->x;
    for (size_t qtile = 0; qtile < tile->kslab->qtiles; qtile++, x += R * INT8_INTERLEAVED_BYTES) {
        if (type == DTYPE_Q8_CHANNEL)
            matmul_group(R, V, v0, type, sum, tile->kslab->q[tile->block] + qtile * QTILE_BYTES, x, 0);
        else
            matmul_scaled(R, V, v0, type, sum, tile, x, qtile);
        FOR_PAIRED(__asm__(""
                           : "+" VECTOR_REGISTER(sum[p][v][h]))); /* in place: gcc 12 would copy some */
    }
    UNROLL(for (int p = 0; p < R / 2; p++))
    UNROLL(for (int v = 0; v < V; v++))
    {
        vf_store(PAIRED_SUM_AT(tile->y, 2 * p), unpair_even(sum[p][v][0], sum[p][v][1]));
        vf_store(PAIRED_SUM_AT(tile->y, 2 * p + 1), unpair_odd(sum[p][v][0], sum[p][v][1]));
    }
#undef PAIRED_SUM_AT
}

/* The same as in gemm_int8.h. Of types with scales half a block at a time, so that f32 sums and integer
 * sums both fit in registers. */
INLINE void int8_tile(const int R, const int C, enum dtype type, const struct int8_tile *given)
{
    const struct int8_tile tile = *given;
    _Static_assert(INT8_BLOCKS == 1 && CHANNEL_BLOCKS == 1, "a tile is one weight block wide");
    (void)C;
    if (type == DTYPE_Q8_CHANNEL) {
        matmul_columns(R, NR_VECS, 0, type, &tile);
        return;
    }
    matmul_columns(R, NR_VECS / 2, 0, type, &tile);
    matmul_columns(R, NR_VECS / 2, NR_VECS / 2, type, &tile);
}

#endif
