/* Template: products of f32 activation rows with a panel of packed weights, MR rows at a time.
 * Registers hold PANEL_SUMS accumulators of NR lanes.
 *
 * Every sum runs over the inputs in order, k = 0, 1, 2 ..., in one accumulator. */
#pragma once

#ifdef DEQUANTIZE_IN_C
#include "kernel/template/dequantize.h"
#else
#include "kernel/template/dequantize_lines.h"
#endif

/* Number of weight blocks that a tile of R activation rows is multiplied by at a time. */
#define PANEL_COLUMNS(R) (4 * (R) <= PANEL_SUMS ? 4 : 2 * (R) <= PANEL_SUMS ? 2 : 1)

/* Adds the products of one input of R activation rows with the weights of NR outputs to sum[i][c],
 * i the row and c the weight block. */
INLINE void add_products(const int R, vf (*sum)[PANEL_BLOCKS][NR_VECS], const int c, const vf *weights,
                         const float *x, size_t x_stride)
{
    for (int i = 0; i < R; i++) {
        const vf x_i = vf_set1(x[i * x_stride]);
        for (int g = 0; g < NR_VECS; g++)
            sum[i][c][g] = vf_fma(x_i, weights[g], sum[i][c][g]);
    }
}

/* Loads the weights of NR outputs for two neighbouring inputs from address `at`, as f32: even[] for
 * the first input, odd[] for the second. */
INLINE void load_weights(enum dtype type, vf *even, vf *odd, const char *at)
{
    const size_t row = NR * dtype_size(type);
    for (int g = 0; g < NR_VECS; g++) {
        const vu bits = type == DTYPE_F16 ? (vu){0} : vu_load(at + g * VW * 4);
        switch (type) {
        case DTYPE_F32:
            even[g] = (vf)bits;
            odd[g] = (vf)vu_load(at + row + g * VW * 4);
            break;
        case DTYPE_BF16:
            even[g] = (vf)(bits << 16);
            odd[g] = (vf)(bits & 0xffff0000u);
            break;
        case DTYPE_F16:
            even[g] = vf_load_f16((const f16 *)(const void *)at + g * VW);
            odd[g] = vf_load_f16((const f16 *)(const void *)(at + row) + g * VW);
            break;
        case DTYPE_QUANTIZED:
        case DTYPE_COUNT: break;
        }
    }
}

/* The micro-kernel: y[R][C * NR] = R activation rows times C weight blocks from `block` on. */
INLINE void panel_tile(const int R, const int C, enum dtype type, float *y, const float *x,
                       size_t x_stride, const struct panel *panel, size_t block,
                       struct panel_prefetch prefetch)
{
    const size_t row = NR * dtype_size(type);
    const char *w = panel->w + block * panel->block_bytes;
    vf sum[MR][PANEL_BLOCKS][NR_VECS] = {{{{0}}}};
    if (panel->accumulate)
        for (int i = 0; i < R; i++)
            for (int c = 0; c < C; c++)
                for (int g = 0; g < NR_VECS; g++)
                    sum[i][c][g] = vf_load(y + i * PANEL_WIDTH + c * NR + g * VW);
    for (size_t k = 0; k < panel->kc; k += 2) {
        prefetch_next(&prefetch, k * row, 2 * row);
        for (int c = 0; c < C; c++) {
            vf even[NR_VECS], odd[NR_VECS];
            load_weights(type, even, odd, w + c * panel->block_bytes + k * row);
            add_products(R, sum, c, even, x + k, x_stride);
            add_products(R, sum, c, odd, x + k + 1, x_stride);
        }
    }
    for (int i = 0; i < R; i++)
        for (int c = 0; c < C; c++)
            for (int g = 0; g < NR_VECS; g++)
                vf_store(y + i * PANEL_WIDTH + c * NR + g * VW, sum[i][c][g]);
}

/* Multiplies R activation rows by all blocks of a panel. */
INLINE void panel_row(const int R, enum dtype type, float *y, const float *x, size_t x_stride,
                      const struct panel *w, struct panel_prefetch prefetch)
{
    size_t c = 0;
    for (; c + PANEL_COLUMNS(R) <= w->blocks; c += PANEL_COLUMNS(R))
        panel_tile(R, PANEL_COLUMNS(R), type, y + c * NR, x, x_stride, w, c,
                   c ? (struct panel_prefetch){{0}} : prefetch);
    for (; PANEL_COLUMNS(R) > 1 && c < w->blocks; c++)
        panel_tile(R, 1, type, y + c * NR, x, x_stride, w, c, (struct panel_prefetch){{0}});
}

/* panel_f32() for quantised weights: dequantises and multiplies 128 inputs at a time. */
static void panel_quant(float *y, const float *x, size_t x_stride, size_t rows, const struct panel *w);

static void panel_f32(float *y, const float *x, size_t x_stride, size_t rows, const struct panel *w)
{
    const size_t tiles = div_up(rows, MR);
    size_t tile = 0;
    if (dtype_is_quantized(w->type)) {
        panel_quant(y, x, x_stride, rows, w);
        return;
    }
#define TILE                                                                                           \
    const struct panel_prefetch prefetch = panel_prefetch_of(w, tile++, tiles);                        \
    switch (w->type) {                                                                                 \
    case DTYPE_F32:                                                                                    \
        panel_row(R, DTYPE_F32, y + i * PANEL_WIDTH, x + i * x_stride, x_stride, w, prefetch);         \
        break;                                                                                         \
    case DTYPE_BF16:                                                                                   \
        panel_row(R, DTYPE_BF16, y + i * PANEL_WIDTH, x + i * x_stride, x_stride, w, prefetch);        \
        break;                                                                                         \
    case DTYPE_F16:                                                                                    \
        panel_row(R, DTYPE_F16, y + i * PANEL_WIDTH, x + i * x_stride, x_stride, w, prefetch);         \
        break;                                                                                         \
    case DTYPE_QUANTIZED:                                                                              \
    case DTYPE_COUNT: break;                                                                           \
    }
    FOR_TILES(rows, MR, TILE);
#undef TILE
}

static void panel_quant(float *y, const float *x, size_t x_stride, size_t rows, const struct panel *w)
{
    enum { KSLAB_INPUTS = 128 };
    float wide[PANEL_BLOCKS * KSLAB_INPUTS * NR] __attribute__((aligned(PACK_LINE)));
    struct panel kslab = *w;
    kslab.type = DTYPE_F32;
    kslab.w = (const char *)wide;
    kslab.next = NULL;
    for (size_t k = 0; k < w->kc; k += KSLAB_INPUTS) {
        kslab.kc = size_min(KSLAB_INPUTS, w->kc - k);
        kslab.block_bytes = kslab.kc * NR * sizeof *wide;
        for (size_t b = 0; b < w->blocks; b++)
            dequantize_block(wide + b * kslab.kc * NR, w, b, k, kslab.kc);
        panel_f32(y, x + k, x_stride, rows, &kslab);
        kslab.accumulate = true;
    }
}
