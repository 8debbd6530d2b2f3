/* Template: quantised weights in portable C, the reference for all sets: dequantisation, and
 * products with int8 activation rows. */
#pragma once

#include <float.h>

#include "kernel/template/vec.h"
#include "quant/ternary.h"

/* Returns quant_integer() of output o and input k in a q tile, the packed values of 32 inputs of 16
 * outputs. */
INLINE unsigned qtile_integer(enum dtype type, const unsigned char *qtile, size_t o, size_t k)
{
    const struct quant_types *quant = &quant_types[type];
    const unsigned bits = quant->bits;
    const size_t line = k / 4;
    const unsigned char *at = qtile + o * 4 + k % 4;
    unsigned q = 0;
    if (quant->grid.unit) {
        unsigned char unit[GRID_UNIT_MOST];
        for (size_t j = 0; j < quant->grid.unit; j++)
            unit[j] = qtile[grid_packed_at(&quant->grid, o, j)];
        return grid_integer(&quant->grid, quant->zero_point, unit, k);
    }
    if (quant->ternary)
        return ternary_digit(qtile, o, k);
    if (bits == 8)
        return at[line * PACK_LINE];
    if (bits & 4)
        q = at[line / 2 * PACK_LINE] >> line % 2 * 4 & 15;
    at += (bits & 4) * PACK_LINE;
    if (bits & 2)
        q |= (at[line / 4 * PACK_LINE] >> line % 4 * 2 & 3u) << (bits & 4);
    at += (bits & 2) * PACK_LINE;
    if (bits & 1)
        q |= (*at >> line & 1u) << (bits & 6);
    return quant_integer(type, q);
}

/* Returns scale and min of output o of a weight block at input k, counted from w->k_begin. */
INLINE struct quant_scale quant_scale_at(enum dtype type, const struct panel *w, size_t block, size_t o,
                                         size_t k)
{
    const unsigned char *at[SCALE_KINDS];
    for (size_t p = 0; p < SCALE_KINDS; p++) {
        const struct scale_array scales = quant_types[type].scales[p];
        const size_t i = scales.every ? (w->k_begin + k) / scales.every : 0;
        at[p] = w->scales[p] + block * w->block_bytes + (i * NR + o) * scales.bytes;
    }
    if (quant_types[type].grid.bit7 == GRID_BIT_SCALE)
        at[SCALE_MAIN] =
            qtile_at(type, w, block, k / QK_GROUP * QK_GROUP) +
            grid_packed_at(&quant_types[type].grid, o, grid_signs_at(&quant_types[type].grid));
    return quant_scale(type, at, w->k_begin + k);
}

/* Dequantises the q tile (32 inputs of 16 outputs) at input k of a weight block to f32
 * to[QK_GROUP][NR]. */
INLINE void dequantize_qtile(enum dtype type, float *to, const struct panel *w, size_t block, size_t k)
{
    const unsigned char *qtile = qtile_at(type, w, block, k);
    float scale[2][NR], min[2][NR];
    for (size_t half = 0; half < 2; half++)
        for (size_t o = 0; o < NR; o++) {
            const struct quant_scale v = quant_scale_at(type, w, block, o, k + half * QK_HALF);
            scale[half][o] = v.scale;
            min[half][o] = v.min;
        }
    for (size_t j = 0; j < QK_GROUP; j++)
        for (size_t o = 0; o < NR; o++) {
            const int q = (int)qtile_integer(type, qtile, o, j) - quant_types[type].zero_point;
            to[j * NR + o] = fmaf(scale[j / QK_HALF][o], (float)q, min[j / QK_HALF][o]);
        }
}

static void dequantize_block(float *to, const struct panel *w, size_t block, size_t k, size_t kc)
{
    for (size_t j = 0; j < kc; j += QK_GROUP)
        switch (w->type) {
#define DEQUANTIZE(type) dequantize_qtile(type, to + j * NR, w, block, k + j)
            QUANT_CASES(DEQUANTIZE)
#undef DEQUANTIZE
        }
}

static void to_int8(int8_t *q, float *scale, int32_t *sum, const float *x, size_t n, size_t group)
{
    for (size_t from = 0; from < n; from += group) {
        const size_t many = size_min(group, n - from);
        bool finite = true;
        float max = 0;
        for (size_t i = from; i < from + many; i++) {
            finite &= fabsf(x[i]) <= FLT_MAX;
            max = fmaxf(max, fabsf(x[i]));
        }
        const float inverse = 127 / max; /* infinite if max is tiny: all q are 0 then */
        for (size_t g = from; g < from + many; g += QK_GROUP)
            scale[g / QK_GROUP] = finite ? max / 127 : NAN;
        for (size_t i = from; i < from + many; i++)
            q[i] = (int8_t)(finite && inverse <= FLT_MAX ? rintf(x[i] * inverse) : 0);
    }
    for (size_t from = 0; from < n; from += QK_HALF) {
        sum[from / QK_HALF] = 0;
        for (size_t i = from; i < size_min(from + QK_HALF, n); i++)
            sum[from / QK_HALF] += q[i];
    }
}

/* Adds to y[NR] the products of an int8 activation row and the q tile at input k of a weight block,
 * one quant group (inputs that share a scale) at a time. */
INLINE void int8_qtile(enum dtype type, float *y, const struct int8_rows *x, const struct panel *w,
                       size_t block, size_t k)
{
    const unsigned char *qtile = qtile_at(type, w, block, k);
    const size_t group = quant_group(type, QK_GROUP);
    const int32_t *sum = x->sum + k / QK_HALF;
    const float x_scale = x->scale[k / QK_GROUP];
    for (size_t from = 0; from < QK_GROUP; from += group) {
        const int32_t x_sum = group == QK_HALF ? sum[from / QK_HALF] : sum[0] + sum[1];
        int32_t dot[NR] = {0};
        for (size_t j = from; j < from + group; j++)
            for (size_t o = 0; o < NR; o++)
                dot[o] += (int32_t)qtile_integer(type, qtile, o, j) * x->q[k + j];
        for (size_t o = 0; o < NR; o++) {
            dot[o] -= quant_types[type].zero_point * x_sum;
            if (type == DTYPE_Q8_CHANNEL) {
                int32_t total;
                memcpy(&total, &y[o], sizeof total);
                total += dot[o];
                memcpy(&y[o], &total, sizeof total);
                continue;
            }
            const struct quant_scale v = quant_scale_at(type, w, block, o, k + from);
            y[o] = fmaf(v.scale * (float)dot[o], x_scale, y[o]);
            if (quant_has_min(type))
                y[o] = fmaf(v.min, x_scale * (float)x_sum, y[o]);
        }
    }
}

/* DTYPE_Q8_CHANNEL: converts the finished int32_t sums in y[NR] to f32 and scales them. */
static void channel_epilogue(float *y, float x_scale, const struct panel *w, size_t block)
{
    for (size_t o = 0; o < NR; o++) {
        int32_t total;
        memcpy(&total, &y[o], sizeof total);
        y[o] = (float)total * (quant_scale_at(DTYPE_Q8_CHANNEL, w, block, o, 0).scale * x_scale);
    }
}

static void panel_int8(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    for (size_t i = 0; i < rows; i++) {
        const struct int8_rows row = row_at(x, i, 0);
        for (size_t b = 0; b < w->blocks; b++) {
            float *y_i = y + i * PANEL_WIDTH + b * NR;
            if (!w->accumulate)
                memset(y_i, 0, NR * sizeof *y_i);
            for (size_t k = 0; k < w->kc; k += QK_GROUP)
                switch (w->type) {
#define QTILE(type) int8_qtile(type, y_i, &row, w, b, k)
                    QUANT_CASES(QTILE)
#undef QTILE
                }
            if (w->type == DTYPE_Q8_CHANNEL && w->last_k)
                channel_epilogue(y_i, *row.scale, w, b);
        }
    }
}

#define INT8_SLOTS .panel_int8 = panel_int8, .to_int8 = to_int8
