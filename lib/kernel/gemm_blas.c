/* Products through OpenBLAS.
 *
 * Each thread takes blocks of output columns: packed weights are spread into a small buffer of its own,
 * then one single-threaded sgemm (sgemv for one row) multiplies the block. The blocks do not depend on
 * the number of threads, so neither does the result. */
#include "kernel/gemm_blas.h"

#include <cblas.h>
#include <math.h>

#include "base/pack.h"
#include "base/threads.h"

/* Block of weights a thread works on: small enough to stay in its L2 cache once widened. */
enum { BLOCK_ELEMENTS = 128 << 10, MAX_BLOCK_OUT = 256 };

static float activate(enum finish_act act, float x)
{
    switch (act) {
    case FINISH_NONE: break;
    case FINISH_RELU: return x > 0 ? x : 0;
    case FINISH_SILU: return x / (1 + expf(-x));
    case FINISH_GELU: return 0.5f * x * (1 + erff(x * 0.70710678f));
    case FINISH_GELU_TANH: return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    }
    return x;
}

void finish_row(float *y, size_t row, size_t y_stride, size_t from, size_t to,
                const struct finish *finish)
{
    float *y_i = y + row * y_stride;
    if (finish->bias)
        for (size_t j = from; j < to; j++)
            y_i[j] += finish->bias[j];
    if (finish->act != FINISH_NONE)
        for (size_t j = from; j < to; j++)
            y_i[j] = activate(finish->act, y_i[j]);
    if (finish->times)
        for (size_t j = from; j < to; j++)
            y_i[j] *= finish->times[row * y_stride + j];
    if (finish->plus)
        for (size_t j = from; j < to; j++)
            y_i[j] += finish->plus[row * y_stride + j];
}

void gemm_blas_nt(float *c, size_t c_stride, const float *a, size_t a_stride, const float *b,
                  size_t b_stride, size_t m, size_t n, size_t k, bool accumulate)
{
    const float beta = accumulate ? 1 : 0;
    if (m == 1)
        cblas_sgemv(CblasRowMajor, CblasNoTrans, (blasint)n, (blasint)k, 1, b, (blasint)b_stride, a, 1,
                    beta, c, 1);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)m, (blasint)n, (blasint)k, 1, a,
                    (blasint)a_stride, b, (blasint)b_stride, beta, c, (blasint)c_stride);
}

void gemm_blas_nn(float *c, size_t c_stride, const float *a, size_t a_stride, const float *b,
                  size_t b_stride, size_t m, size_t n, size_t k, bool accumulate)
{
    const float beta = accumulate ? 1 : 0;
    if (m == 1)
        cblas_sgemv(CblasRowMajor, CblasTrans, (blasint)k, (blasint)n, 1, b, (blasint)b_stride, a, 1,
                    beta, c, 1);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)m, (blasint)n, (blasint)k, 1, a,
                    (blasint)a_stride, b, (blasint)b_stride, beta, c, (blasint)c_stride);
}

/* Inputs [k, k + depth) of 16 packed outputs as wide[depth][stride], f32. k is even; an odd depth of bf16 writes
 * one row more. */
static void widen(float *wide, size_t stride, const struct mat *w, size_t o, size_t k, size_t depth)
{
    const char *data = (const char *)w->data + mat_at(w, o, k) * dtype_size(w->dtype);
    if (w->dtype == DTYPE_F32) {
        for (size_t j = 0; j < depth; j++)
            memcpy(wide + j * stride, data + j * PACK_OUT * sizeof *wide, PACK_OUT * sizeof *wide);
        return;
    }
    for (size_t j = 0; j < depth; j += 2) {
        uint32_t pair[PACK_OUT], even[PACK_OUT], odd[PACK_OUT];
        memcpy(pair, data + j / 2 * sizeof pair, sizeof pair);
        for (size_t i = 0; i < PACK_OUT; i++) {
            even[i] = pair[i] << 16;
            odd[i] = pair[i] & 0xffff0000;
        }
        memcpy(wide + j * stride, even, sizeof even);
        memcpy(wide + (j + 1) * stride, odd, sizeof odd);
    }
}

/* Columns [from, to) of the product, `from` a multiple of 16: the weights go through `wide` in panels of the inner
 * dimension. */
static void run_block(float *y, size_t y_stride, const float *x, size_t x_stride, size_t rows,
                      const struct mat *w, bool accumulate, size_t from, size_t to, float *wide)
{
    const size_t width = round_up(to - from, PACK_OUT);
    const size_t panel = size_min(w->in_padded, BLOCK_ELEMENTS / width / 2 * 2);
    for (size_t k = 0; k < w->in; k += panel) {
        const size_t depth = size_min(panel, w->in - k);
        for (size_t o = 0; o < width; o += PACK_OUT)
            widen(wide + o, width, w, from + o, k, depth);
        gemm_blas_nn(y + from, y_stride, x + k, x_stride, wide, width, rows, to - from, depth,
                     accumulate || k > 0);
    }
}

struct product {
    float *y;
    const float *x;
    size_t y_stride, x_stride, rows, block;
    const struct mat *w;
    bool accumulate;
    const struct finish *finish;
};

static void product_block(void *arg, size_t index)
{
    static _Thread_local float wide[BLOCK_ELEMENTS];
    const struct product *p = arg;
    const size_t from = index * p->block, to = size_min(from + p->block, p->w->out);
    run_block(p->y, p->y_stride, p->x, p->x_stride, p->rows, p->w, p->accumulate, from, to, wide);
    for (size_t i = 0; i < p->rows; i++)
        finish_row(p->y, i, p->y_stride, from, to, p->finish);
}

void gemm_blas_matmul(float *y, size_t y_stride, const float *x, size_t x_stride, size_t rows,
                      const struct mat *w, const struct finish *finish)
{
    const bool residual = finish->plus == y && finish->act == FINISH_NONE && !finish->times;
    const struct finish rest = {finish->bias, finish->act, finish->times,
                                residual ? NULL : finish->plus};
    const size_t most = size_min(BLOCK_ELEMENTS / w->in_padded, MAX_BLOCK_OUT);
    const size_t block = size_max(PACK_OUT, most / PACK_OUT * PACK_OUT);
    struct product product = {y, x, y_stride, x_stride, rows, block, w, residual, &rest};
    threads_each(div_up(w->out, block), rows * w->in * w->out, product_block, &product);
}
