/* Template: kernels over activation rows: norms, RoPE, softmax, conversions, epilogue. */
#pragma once

#include "kernel/template/vec.h"

/* Sum of (x - mean)^2: in NR partial sums, then the remaining elements in order. */
static float sum_squares(const float *x, size_t n, float mean)
{
    const size_t whole = n / NR * NR;
    vf sum[NR_VECS] = {{0}};
    for (size_t j = 0; j < whole; j += NR)
        for (int g = 0; g < NR_VECS; g++) {
            const vf d = vf_load(x + j + g * VW) - vf_set1(mean);
            sum[g] = vf_fma(d, d, sum[g]);
        }
    float all = vf_sum_nr(sum);
    for (size_t j = whole; j < n; j++)
        all += (x[j] - mean) * (x[j] - mean);
    return all;
}

static float sum_row(const float *x, size_t n)
{
    const size_t whole = n / NR * NR;
    vf sum[NR_VECS] = {{0}};
    for (size_t j = 0; j < whole; j += NR)
        for (int g = 0; g < NR_VECS; g++)
            sum[g] += vf_load(x + j + g * VW);
    float all = vf_sum_nr(sum);
    for (size_t j = whole; j < n; j++)
        all += x[j];
    return all;
}

static void layernorm(float *y, const float *x, size_t n, const float *gain, const float *bias,
                      float eps)
{
    const float mean = sum_row(x, n) / (float)n;
    const float scale = 1 / sqrtf(sum_squares(x, n, mean) / (float)n + eps);
    for (size_t j = 0; j < n; j++)
        y[j] = (x[j] - mean) * scale * (gain ? gain[j] : 1) + (bias ? bias[j] : 0);
}

static void rmsnorm(float *y, const float *x, size_t n, const float *gain, float eps)
{
    const float scale = 1 / sqrtf(sum_squares(x, n, 0) / (float)n + eps);
    for (size_t j = 0; j < n; j++)
        y[j] = x[j] * scale * (gain ? gain[j] : 1);
}

static void rope(float *x, size_t heads, size_t d, size_t n_rot, const float *cosine, const float *sine)
{
    for (size_t h = 0; h < heads; h++) {
        float *restrict low = x + h * d, *restrict high = low + n_rot / 2;
        for (size_t j = 0; j < n_rot / 2; j++) {
            const float a = low[j], b = high[j];
            low[j] = a * cosine[j] - b * sine[j];
            high[j] = b * cosine[j] + a * sine[j];
        }
    }
}

static void softmax(float *x, size_t n, float scale, const float *bias)
{
    const size_t whole = n / NR * NR;
    float max = -INFINITY;
    for (size_t j = 0; j < n; j++) {
        x[j] = x[j] * scale + bias[j];
        max = x[j] > max ? x[j] : max;
    }
    vf sums[NR_VECS] = {{0}};
    for (size_t j = 0; j < whole; j += NR)
        for (int g = 0; g < NR_VECS; g++) {
            const vf e = vf_exp(vf_load(x + j + g * VW) - vf_set1(max));
            vf_store(x + j + g * VW, e);
            sums[g] += e;
        }
    float sum = vf_sum_nr(sums);
    for (size_t j = whole; j < n; j++) {
        x[j] = vf_exp(vf_set1(x[j] - max))[0];
        sum += x[j];
    }
    const float inverse = 1 / sum;
    for (size_t j = 0; j < n; j++)
        x[j] *= inverse;
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

static void split(bf16 *high, bf16 *low, const float *x, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        high[j] = bf16_from_f32(x[j]);
        low[j] = bf16_from_f32(x[j] - bf16_to_f32(high[j]));
    }
}

/* VW products of an output row: of activations split into two bf16 terms, those of both, added up. */
INLINE vf products_at(const struct epilogue *f, const float *sum, size_t row, size_t j)
{
    const float *at = sum + row * (f->split ? 2 : 1) * PANEL_WIDTH + j;
    return f->split ? vf_load(at) + vf_load(at + PANEL_WIDTH) : vf_load(at);
}

/* VW elements, of which `n` exist; the others are 0. */
INLINE vf vf_load_some(const float *x, size_t n)
{
    return n >= VW ? vf_load(x) : (vf)vu_load_some(x, n);
}

/* Prefetches n elements of an output or residual row: rows are far apart, so hardware prefetchers
 * miss the next one. */
INLINE void prefetch_row(const float *row, size_t n)
{
    for (size_t j = 0; row && j < n; j += NR)
        __builtin_prefetch(row + j, 0, 3);
}

/* The gate g's activation times the sum u. */
INLINE vf gated(const struct epilogue *f, vf g, vf u)
{
    if (f->act != EPILOGUE_CLAMPED_SWIGLU)
        return vf_activate(f->act, f->gate_scale != 0 ? vf_set1(f->gate_scale) * g : g) * u;
    const vf one = vf_set1(1), limit = vf_set1(f->limit);
    g = vf_min(limit, g);
    u = vf_min(limit, vf_max(-limit, u));
    return (u + one) * (g / (one + vf_exp(vf_set1(-f->alpha) * g)));
}

static void epilogue(const struct epilogue *f)
{
    enum { AHEAD = 4 };
    for (size_t i = 0; i < f->rows; i++) {
        float *y = f->y + i * f->y_stride;
        const float *residual = f->residual ? f->residual + i * f->y_stride : NULL;
        if (i + AHEAD < f->rows) {
            prefetch_row(y + AHEAD * f->y_stride, f->n);
            prefetch_row(residual ? residual + AHEAD * f->y_stride : NULL, f->n);
        }
        for (size_t j = 0; j < f->n; j += VW) {
            const size_t n = f->n - j;
            vf x = products_at(f, f->sum, i, j);
            if (f->bias)
                x += vf_load_some(f->bias + j, n);
            if (f->gate) {
                vf g = products_at(f, f->gate, i, j);
                if (f->gate_bias)
                    g += vf_load_some(f->gate_bias + j, n);
                x = gated(f, g, x);
            } else if (f->act != EPILOGUE_NONE) {
                x = vf_activate(f->act, x);
            }
            if (residual)
                x += vf_load_some(residual + j, n);
            if (n >= VW)
                vf_store(y + j, x);
            else
                memcpy(y + j, &x, n * sizeof *y);
        }
    }
}

/* A set's attention kernel, which may be one around attend(). */
#ifndef SET_ATTEND
#define SET_ATTEND attend
#endif

/* Initialisers for the functions of struct kernels that panel.h, attend.h and this file define. */
#define SET_SLOTS                                                                                      \
    .panel_f32 = panel_f32, .dequantize_block = dequantize_block, .epilogue = epilogue,                \
    .attend = SET_ATTEND, .layernorm = layernorm, .rmsnorm = rmsnorm, .rope = rope,                    \
    .softmax = softmax, .add = add, .to_bf16 = to_bf16, .to_f32 = to_f32, .split = split
