/* OpenBLAS for the products, the rest portable C: a yardstick, and a check on the others. */
#include "base/pack.h"
#include "kernel/blas_load.h"
#include "kernel/gemm_blas.h"
#include "kernel/kernel.h"

extern const struct kernels kernels_ref;

static bool usable(void) { return true; }

static inline __attribute__((always_inline)) void
widen_as(enum dtype type, float *wide, size_t width, const struct panel *w, size_t from, size_t depth)
{
    const struct mat block = {.dtype = type, .layout = LAYOUT_PACKED, .in_padded = w->depth};
    for (size_t b = 0; b < w->blocks; b++) {
        const char *at = w->w + b * w->block_bytes + from * panel_row_bytes(w);
        for (size_t k = 0; k < depth; k++)
            for (size_t o = 0; o < LANES; o++)
                wide[k * width + b * LANES + o] = dtype_element(type, at, mat_at(&block, o, k));
    }
}

static void widen_codes(float *wide, size_t width, const struct panel *w, size_t from, size_t depth)
{
    float cell[FEW_GROUP][LANES];
    for (size_t b = 0; b < w->blocks; b++)
        for (size_t k = 0; k < depth; k += FEW_GROUP) {
            kernels_ref.widen_few(*cell, w, b, from + k, FEW_GROUP);
            for (size_t j = 0; j < FEW_GROUP; j++)
                memcpy(wide + (k + j) * width + b * LANES, cell[j], sizeof cell[j]);
        }
}

/* wide[depth][width] of a panel's inputs [from, from + depth). */
static void widen(float *wide, size_t width, const struct panel *w, size_t from, size_t depth)
{
    switch (w->type) {
    case DTYPE_F32: widen_as(DTYPE_F32, wide, width, w, from, depth); break;
    case DTYPE_BF16: widen_as(DTYPE_BF16, wide, width, w, from, depth); break;
    case DTYPE_F16: widen_as(DTYPE_F16, wide, width, w, from, depth); break;
    case DTYPE_FEW_BITS: widen_codes(wide, width, w, from, depth); break;
    case DTYPE_COUNT: break;
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
