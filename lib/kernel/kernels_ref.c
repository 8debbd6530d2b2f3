/* The reference set: plain C that any CPU runs, with OpenBLAS for the products. Clear before fast; the
 * other sets are checked against it. */
#include <math.h>

#include "base/pack.h"
#include "kernel/gemm_blas.h"
#include "kernel/kernel.h"

static bool always(void) { return true; }

static void fetch_row(float *y, const struct mat *w, size_t row)
{
    for (size_t j = 0; j < w->in; j++) {
        const size_t at = mat_at(w, row, j);
        y[j] = w->dtype == DTYPE_F32 ? ((const float *)w->data)[at]
                                     : bf16_to_f32(((const bf16 *)w->data)[at]);
    }
}

static void layernorm(float *y, const float *x, size_t n, const float *gain, const float *bias,
                      float eps)
{
    double sum = 0, squares = 0;
    for (size_t j = 0; j < n; j++)
        sum += x[j];
    const float mean = (float)(sum / (double)n);
    for (size_t j = 0; j < n; j++)
        squares += (double)(x[j] - mean) * (x[j] - mean);
    const float scale = 1 / sqrtf((float)(squares / (double)n) + eps);
    for (size_t j = 0; j < n; j++)
        y[j] = (x[j] - mean) * scale * (gain ? gain[j] : 1) + (bias ? bias[j] : 0);
}

static void rmsnorm(float *y, const float *x, size_t n, const float *gain, float eps)
{
    double squares = 0;
    for (size_t j = 0; j < n; j++)
        squares += (double)x[j] * x[j];
    const float scale = 1 / sqrtf((float)(squares / (double)n) + eps);
    for (size_t j = 0; j < n; j++)
        y[j] = x[j] * scale * gain[j];
}

static void rope(float *x, size_t heads, size_t d, const float *cosine, const float *sine)
{
    for (size_t h = 0; h < heads; h++) {
        float *low = x + h * d, *high = low + d / 2;
        for (size_t j = 0; j < d / 2; j++) {
            const float a = low[j], b = high[j];
            low[j] = a * cosine[j] - b * sine[j];
            high[j] = b * cosine[j] + a * sine[j];
        }
    }
}

static void softmax(float *x, size_t n, float scale, const float *bias)
{
    float max = -INFINITY, sum = 0;
    for (size_t j = 0; j < n; j++) {
        x[j] = x[j] * scale + bias[j];
        max = x[j] > max ? x[j] : max;
    }
    for (size_t j = 0; j < n; j++) {
        x[j] = expf(x[j] - max);
        sum += x[j];
    }
    const float share = 1 / sum;
    for (size_t j = 0; j < n; j++)
        x[j] *= share;
}

static void add(float *y, const float *x, size_t n)
{
    for (size_t j = 0; j < n; j++)
        y[j] += x[j];
}

static void to_bf16(bf16 *y, const float *x, size_t n)
{
    for (size_t j = 0; j < n; j++)
        y[j] = bf16_from_f32(x[j]);
}

static void to_f32(float *y, const bf16 *x, size_t n)
{
    for (size_t j = 0; j < n; j++)
        y[j] = bf16_to_f32(x[j]);
}

const struct kernels kernels_ref = {
    .isa = "ref",
    .summary = "plain C, products through OpenBLAS",
    .usable = always,
    .matmul = gemm_blas_matmul,
    .fetch_row = fetch_row,
    .layernorm = layernorm,
    .rmsnorm = rmsnorm,
    .rope = rope,
    .softmax = softmax,
    .add = add,
    .to_bf16 = to_bf16,
    .to_f32 = to_f32,
};
