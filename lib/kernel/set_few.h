/* Weights of few bits, in plain C: widened for products in f32, and products with rows in int8. Included by a set's file
 * after set_vec.h. */
#include <float.h>

#include "base/pack.h"

/* ---- weights ---- */

/* The code of output o and input k (counted from the range's first, in the cell of 32 that begins at `cell`). */
INLINE unsigned few_code_at(enum dtype type, const unsigned char *cell, size_t o, size_t k)
{
    const size_t byte = o * 4 + k % 4;
    if (few_bits[type].bits == 8)
        return cell[k / 4 * PACK_LINE + byte];
    const unsigned low = cell[k / 8 * PACK_LINE + byte] >> k % 8 / 4 * 4 & 15;
    if (few_bits[type].bits == 4)
        return low;
    return low | (cell[(4 + k / 16) * PACK_LINE + byte] >> k % 16 / 4 * 2 & 3u) << 4;
}

/* Step and base of output o of a block at input k of the range. */
INLINE struct few_values few_values_at(enum dtype type, const struct panel *w, size_t block, size_t o,
                                       size_t k)
{
    const unsigned char *at[FEW_PLANES];
    for (size_t p = 0; p < FEW_PLANES; p++) {
        const struct few_plane plane = few_bits[type].plane[p];
        const size_t i = plane.every ? (w->from + k) / plane.every : 0;
        at[p] = w->plane[p] + block * w->block_bytes + (i * LANES + o) * plane.bytes;
    }
    return few_values(type, at);
}

INLINE const unsigned char *few_cell(enum dtype type, const struct panel *w, size_t block, size_t k)
{
    return (const unsigned char *)w->w + block * w->block_bytes + pack_codes(type, k);
}

/* to[FEW_GROUP][LANES]: inputs k .. k + 31 of a block. */
INLINE void widen_cell(enum dtype type, float *to, const struct panel *w, size_t block, size_t k)
{
    const unsigned char *cell = few_cell(type, w, block, k);
    float step[2][LANES], base[2][LANES];
    for (size_t half = 0; half < 2; half++)
        for (size_t o = 0; o < LANES; o++) {
            const struct few_values v = few_values_at(type, w, block, o, k + half * FEW_HALF);
            step[half][o] = v.step;
            base[half][o] = v.base;
        }
    for (size_t j = 0; j < FEW_GROUP; j++)
        for (size_t o = 0; o < LANES; o++) {
            const int code = (int)few_code_at(type, cell, o, j) - few_bits[type].zero;
            to[j * LANES + o] = fmaf(step[j / FEW_HALF][o], (float)code, base[j / FEW_HALF][o]);
        }
}

/* Inputs [k, k + depth) of a block: to[depth][LANES]. */
static void widen_few(float *to, const struct panel *w, size_t block, size_t k, size_t depth)
{
    for (size_t j = 0; j < depth; j += FEW_GROUP)
        switch (w->type) {
#define WIDEN(type) widen_cell(type, to + j * LANES, w, block, k + j)
            FEW_CASES(WIDEN)
#undef WIDEN
        }
}

/* ---- rows in int8 ---- */

static void to_int8(int8_t *code, float *scale, int32_t *sum, const float *x, size_t n, size_t group)
{
    for (size_t from = 0; from < n; from += group) {
        const size_t many = size_min(group, n - from);
        bool finite = true;
        float most = 0;
        for (size_t i = from; i < from + many; i++) {
            finite &= fabsf(x[i]) <= FLT_MAX;
            most = fmaxf(most, fabsf(x[i]));
        }
        /* Nothing is left of numbers so small that this has no end. */
        const float inverse = 127 / most;
        for (size_t g = from; g < from + many; g += FEW_GROUP)
            scale[g / FEW_GROUP] = finite ? most / 127 : NAN;
        for (size_t i = from; i < from + many; i++)
            code[i] = (int8_t)(finite && inverse <= FLT_MAX ? rintf(x[i] * inverse) : 0);
    }
    for (size_t from = 0; from < n; from += FEW_HALF) {
        sum[from / FEW_HALF] = 0;
        for (size_t i = from; i < size_min(from + FEW_HALF, n); i++)
            sum[from / FEW_HALF] += code[i];
    }
}

/* One row and one block over a cell of 32 inputs. */
INLINE void int8_cell(enum dtype type, float *y, const int8_t *x, const float *scale,
                      const int32_t *sum, const struct panel *w, size_t block, size_t k)
{
    const unsigned char *cell = few_cell(type, w, block, k);
    const size_t group = few_group(type, FEW_GROUP);
    int32_t dot[LANES];
    for (size_t from = 0; from < FEW_GROUP; from += group) {
        const int32_t own = group == FEW_HALF ? sum[from / FEW_HALF] : sum[0] + sum[1];
        memset(dot, 0, sizeof dot);
        for (size_t j = from; j < from + group; j++)
            for (size_t o = 0; o < LANES; o++)
                dot[o] += (int32_t)few_code_at(type, cell, o, j) * x[j];
        for (size_t o = 0; o < LANES; o++) {
            dot[o] -= few_bits[type].zero * own;
            if (type == DTYPE_Q8C) {
                int32_t whole;
                memcpy(&whole, &y[o], sizeof whole);
                whole += dot[o];
                memcpy(&y[o], &whole, sizeof whole);
                continue;
            }
            const struct few_values v = few_values_at(type, w, block, o, k + from);
            y[o] = fmaf(v.step * (float)dot[o], *scale, y[o]);
            if (few_bits[type].plane[FEW_LOW].bytes)
                y[o] = fmaf(v.base, *scale * (float)own, y[o]);
        }
    }
}

/* Whole numbers become sums. */
static void end_whole(float *y, float scale, const struct panel *w, size_t block)
{
    for (size_t o = 0; o < LANES; o++) {
        int32_t whole;
        memcpy(&whole, &y[o], sizeof whole);
        y[o] = (float)whole * (few_values_at(DTYPE_Q8C, w, block, o, 0).step * scale);
    }
}

static void panel_int8(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t b = 0; b < w->blocks; b++) {
            float *y_i = y + i * PANEL_WIDTH + b * LANES;
            const int8_t *code = x->code + i * x->row_bytes;
            const float *scale = (const void *)((const char *)x->scale + i * x->row_bytes);
            const int32_t *sum = (const void *)((const char *)x->sum + i * x->row_bytes);
            if (!w->onward)
                memset(y_i, 0, LANES * sizeof *y_i);
            for (size_t k = 0; k < w->depth; k += FEW_GROUP)
                switch (w->type) {
#define CELL(type) int8_cell(type, y_i, code + k, scale + k / FEW_GROUP, sum + k / FEW_HALF, w, b, k)
                    FEW_CASES(CELL)
#undef CELL
                }
            if (w->type == DTYPE_Q8C && w->last)
                end_whole(y_i, *scale, w, b);
        }
}

#define INT8_SLOTS .panel_int8 = panel_int8, .to_int8 = to_int8
