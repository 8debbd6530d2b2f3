/* OpenBLAS for the products, the rest portable C: a yardstick, and a check on the others. */
#include "kernel/blas_load.h"
#include "kernel/gemm_blas.h"
#include "kernel/kernel.h"

extern const struct kernels kernels_ref;

static bool usable(void) { return true; }

/* Output o of a block at input k. */
static float weight_at(enum dtype type, const char *block, size_t k, size_t o)
{
    switch (type) {
    case DTYPE_F32: return ((const float *)(const void *)block)[k * LANES + o];
    case DTYPE_BF16:
        return bf16_to_f32(((const bf16 *)(const void *)block)[k / 2 * 2 * LANES + o * 2 + k % 2]);
    case DTYPE_COUNT: break;
    }
    return 0;
}

/* wide[depth][width] of a panel's inputs [from, from + depth). */
static void widen(float *wide, size_t width, const struct panel *w, size_t from, size_t depth)
{
    for (size_t b = 0; b < w->blocks; b++) {
        const char *block = w->w + b * w->block_bytes + from * panel_row_bytes(w);
        for (size_t k = 0; k < depth; k++)
            for (size_t o = 0; o < LANES; o++)
                wide[k * width + b * LANES + o] = weight_at(w->type, block, k, o);
    }
}

static void panel_f32(float *y, const float *x, size_t x_stride, size_t rows, const struct panel *w)
{
    enum { DEPTH = 1024 };
    static _Thread_local float wide[DEPTH * PANEL_WIDTH];
    const size_t width = w->blocks * LANES;
    for (size_t k = 0, depth; k < w->depth; k += depth) {
        depth = size_min(DEPTH, w->depth - k);
        widen(wide, width, w, k, depth);
        gemm_blas_nn(y, PANEL_WIDTH, x + k, x_stride, wide, width, rows, width, depth,
                     w->onward || k > 0);
    }
}

const struct kernels kernels_blas = {
    .isa = "blas",
    .summary = "OpenBLAS products, portable C for the rest",
    .usable = usable,
    .load = blas_load,
    .base = &kernels_ref,
    .panel_f32 = panel_f32,
};
