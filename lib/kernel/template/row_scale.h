/* Template: final scaling of int8 products for weights with one scale per output
 * (DTYPE_Q8_CHANNEL), which are summed in int32_t over all inputs. */
#pragma once

#include "kernel/template/quant_lines.h"

/* DTYPE_Q8_CHANNEL: replaces the int32_t sums in y by f32 sum * (scale_w * scale_x). */
static void channel_epilogue(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    for (size_t b = 0; b < w->blocks; b++)
        for (int g = 0; g < NR_VECS; g++) {
            const vf scale = load_qscale(DTYPE_Q8_CHANNEL, w, b, 0, g).scale;
            for (size_t i = 0; i < rows; i++) {
                float *at = y + i * PANEL_WIDTH + b * NR + g * VW;
                vf_store(at, vf_of((vi)vf_load(at)) * (scale * vf_set1(*row_at(x, i, 0).scale)));
            }
        }
}
