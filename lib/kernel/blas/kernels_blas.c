/* The backend blas, a baseline and test reference: OpenBLAS products, portable C for the rest. */
#include "quant/pack.h"
#include "kernel/blas/blas.h"
#include "kernel/kernel.h"

extern const struct kernels kernels_ref;

static bool blas_usable(void) { return true; }

static inline __attribute__((always_inline)) void
convert_as(enum dtype type, float *wide, size_t width, const struct panel *w, size_t from, size_t kc)
{
    const struct mat block = {.dtype = type, .layout = LAYOUT_PACKED, .in_padded = w->kc};
    for (size_t b = 0; b < w->blocks; b++) {
        const char *at = w->w + b * w->block_bytes + from * panel_row_bytes(w);
        for (size_t k = 0; k < kc; k++)
            for (size_t o = 0; o < NR; o++)
                wide[k * width + b * NR + o] = dtype_element(type, at, mat_at(&block, o, k));
    }
}

static void dequantize_quant(float *wide, size_t width, const struct panel *w, size_t from, size_t kc)
{
    float qtile[QK_GROUP][NR];
    for (size_t b = 0; b < w->blocks; b++)
        for (size_t k = 0; k < kc; k += QK_GROUP) {
            kernels_ref.dequantize_block(*qtile, w, b, from + k, QK_GROUP);
            for (size_t j = 0; j < QK_GROUP; j++)
                memcpy(wide + (k + j) * width + b * NR, qtile[j], sizeof qtile[j]);
        }
}

/* Converts the weights of inputs [from, from + kc) of a panel to f32 wide[kc][width]. */
static void to_f32_panel(float *wide, size_t width, const struct panel *w, size_t from, size_t kc)
{
    switch (w->type) {
    case DTYPE_F32: convert_as(DTYPE_F32, wide, width, w, from, kc); break;
    case DTYPE_BF16: convert_as(DTYPE_BF16, wide, width, w, from, kc); break;
    case DTYPE_F16: convert_as(DTYPE_F16, wide, width, w, from, kc); break;
    case DTYPE_QUANTIZED: dequantize_quant(wide, width, w, from, kc); break;
    case DTYPE_COUNT: break;
    }
}

static void panel_f32(float *y, const float *x, size_t x_stride, size_t rows, const struct panel *w)
{
    enum { KC = 1024 };
    float wide[KC * PANEL_WIDTH] __attribute__((aligned(PACK_LINE)));
    const size_t width = w->blocks * NR;
    for (size_t k = 0, kc; k < w->kc; k += kc) {
        kc = size_min(KC, w->kc - k);
        to_f32_panel(wide, width, w, k, kc);
        gemm_blas_nn(y, PANEL_WIDTH, x + k, x_stride, wide, width, rows, width, kc,
                     w->accumulate || k > 0);
    }
}

const struct kernels kernels_blas = {
    .isa = "blas",
    .summary = "OpenBLAS products, portable C for the rest",
    .usable = blas_usable,
    .load = blas_load,
    .base = &kernels_ref,
    .foreign_sums = true,
    .panel_f32 = panel_f32,
};
