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

/* Copies an output row's products from `sum` to s[n rounded up to VW]; for activations split into
 * two bf16 terms, adds up the products of both. */
INLINE void gather_sums(float *s, const struct epilogue *f, const float *sum, size_t row)
{
    const float *a = sum + row * (f->split ? 2 : 1) * PANEL_WIDTH;
    for (size_t j = 0; j < f->n; j += VW)
        vf_store(s + j, f->split ? vf_load(a + j) + vf_load(a + PANEL_WIDTH + j) : vf_load(a + j));
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
        float s[PANEL_WIDTH], g[PANEL_WIDTH], *y = f->y + i * f->y_stride;
        if (i + AHEAD < f->rows) {
            prefetch_row(y + AHEAD * f->y_stride, f->n);
            prefetch_row(f->residual ? f->residual + (i + AHEAD) * f->y_stride : NULL, f->n);
        }
        gather_sums(s, f, f->sum, i);
        for (size_t j = 0; f->bias && j < f->n; j++)
            s[j] += f->bias[j];
        if (f->gate) {
            gather_sums(g, f, f->gate, i);
            for (size_t j = 0; f->gate_bias && j < f->n; j++)
                g[j] += f->gate_bias[j];
            for (size_t j = 0; j < f->n; j += VW)
                vf_store(s + j, gated(f, vf_load(g + j), vf_load(s + j)));
        } else if (f->act != EPILOGUE_NONE) {
            for (size_t j = 0; j < f->n; j += VW)
                vf_store(s + j, vf_activate(f->act, vf_load(s + j)));
        }
        if (f->residual)
            for (size_t j = 0; j < f->n; j++)
                s[j] += f->residual[i * f->y_stride + j];
        memcpy(y, s, f->n * sizeof *y);
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
