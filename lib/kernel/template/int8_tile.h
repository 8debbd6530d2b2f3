/* Template: what the micro-kernels of gemm_int8.h and int8_matmul.h work on. */
#ifndef BMC_INT8_TILE_H
#define BMC_INT8_TILE_H

#include "kernel/template/kslab.h"

struct int8_tile {
    float *y;
    const char *x; /* interleaved activation rows */
    const struct kslab *kslab;
    size_t block; /* the tile's first weight block */
    bool accumulate;
};

/* DTYPE_Q8_CHANNEL: returns the initial accumulator of activation row i of a tile, which is the
 * zero-point correction for a whole K slab. */
INLINE int32_t channel_start(const int R, const struct int8_tile *tile, int i)
{
    int32_t all = 0;
    for (size_t qtile = 0; qtile < tile->kslab->qtiles; qtile++) {
        int32_t start;
        memcpy(&start, tile->x + qtile * R * INT8_INTERLEAVED_BYTES + INTERLEAVED_START(R, 0, i),
               sizeof start);
        all += start;
    }
    return all;
}

/* Initial sums of tiles that do not accumulate, so that every tile can load its sums. */
static const float zero_sums[ACC_MR * PANEL_WIDTH];

#endif
