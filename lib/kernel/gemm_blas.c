/* Products through OpenBLAS.
 *
 * Each thread takes blocks of output columns: bf16 weights are widened into a small buffer of its own,
 * then one single-threaded sgemm (sgemv for one row) multiplies the block. The blocks do not depend on
 * the number of threads, so neither does the result. */
#include "kernel/gemm_blas.h"

#include <cblas.h>
#include <math.h>

#include "base/threads.h"

/* Block of weights a thread works on: small enough to stay in its L2 cache once widened. */
enum { BLOCK_ELEMENTS = 128 << 10, MIN_BLOCK_OUT = 16, MAX_BLOCK_OUT = 256 };

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

/* Columns [from, to) of the product. bf16 weights go through `wide` in panels of the inner dimension.
 */
static void run_block(float *y, size_t y_stride, const float *x, size_t x_stride, size_t rows,
                      const struct mat *w, bool accumulate, size_t from, size_t to, float *wide)
{
    const size_t n = to - from;
    if (w->dtype == DTYPE_F32) {
        const float *w_from = (const float *)w->data + from * w->row_stride;
        gemm_blas_nt(y + from, y_stride, x, x_stride, w_from, w->row_stride, rows, n, w->in,
                     accumulate);
        return;
    }
    const size_t panel = size_min(w->in, BLOCK_ELEMENTS / n);
    for (size_t k = 0; k < w->in; k += panel) {
        const size_t depth = size_min(panel, w->in - k);
        for (size_t o = 0; o < n; o++) {
            const bf16 *w_o = (const bf16 *)w->data + (from + o) * w->row_stride + k;
            for (size_t j = 0; j < depth; j++)
                wide[o * depth + j] = bf16_to_f32(w_o[j]);
        }
        gemm_blas_nt(y + from, y_stride, x + k, x_stride, wide, depth, rows, n, depth,
                     accumulate || k > 0);
    }
}

void gemm_blas_matmul(float *y, size_t y_stride, const float *x, size_t x_stride, size_t rows,
                      const struct mat *w, const struct finish *finish)
{
    static _Thread_local float wide[BLOCK_ELEMENTS];
    const bool residual = finish->plus == y && finish->act == FINISH_NONE && !finish->times;
    const struct finish rest = {finish->bias, finish->act, finish->times,
                                residual ? NULL : finish->plus};
    const size_t block = size_max(MIN_BLOCK_OUT, size_min(BLOCK_ELEMENTS / w->in, MAX_BLOCK_OUT));
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads_for(rows * w->in * w->out))
    for (size_t from = 0; from < w->out; from += block) {
        const size_t to = size_min(from + block, w->out);
        run_block(y, y_stride, x, x_stride, rows, w, residual, from, to, wide);
        for (size_t i = 0; i < rows; i++)
            finish_row(y, i, y_stride, from, to, &rest);
    }
}
