/* Template: vectorised dequantisation of weights. */
#pragma once

#include "kernel/template/quant_lines.h"

/* Dequantises the q tile (32 inputs of 16 outputs) at input k of a weight block to f32
 * to[QK_GROUP][NR]. */
INLINE void dequantize_qtile(enum dtype type, float *to, const struct panel *w, size_t block, size_t k)
{
    for (int g = 0; g < NR_VECS; g++) {
        vu line[QTILE_LINES];
        load_lines(type, line, qtile_at(type, w, block, k), g);
        for (int half = 0; half < 2; half++) {
            const struct qscale_vec v = load_qscale(type, w, block, k + half * QK_HALF, g);
            for (int j = half * QK_HALF; j < (half + 1) * QK_HALF; j++) {
                const vi q = (vi)(line[j / 4] >> j % 4 * 8 & 255) - quant_types[type].zero_point;
                vf_store(to + j * NR + g * VW, vf_fma(v.scale, vf_of(q), v.min));
            }
        }
    }
}

#define DEQUANTIZE(type)                                                                               \
    for (size_t j = 0; j < kc; j += QK_GROUP)                                                          \
    dequantize_qtile(type, to + j * NR, w, block, k + j)

static void dequantize_block(float *to, const struct panel *w, size_t block, size_t k, size_t kc)
{
    switch (w->type) {
        QUANT_CASES(DEQUANTIZE)
    }
}
#undef DEQUANTIZE
