/* Every usable kernel set against plain loops in double, at odd sizes and with poisoned surroundings.
 */
#include <stdlib.h>

#include "base/pack.h"
#include "base/threads.h"
#include "check.h"
#include "kernel/gemm_blas.h"

static uint64_t state = 88172645463325252u;

/* Uniform in [-1, 1); xorshift (Marsaglia, 2003). */
static float random_float(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (float)((double)(state >> 11) * 0x1p-52 - 1);
}

static float *random_floats(size_t n)
{
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = random_float();
    return x;
}

static double activate(enum finish_act act, double x)
{
    switch (act) {
    case FINISH_NONE: break;
    case FINISH_RELU: return x > 0 ? x : 0;
    case FINISH_SILU: return x / (1 + exp(-x));
    case FINISH_GELU: return x * 0.5 * erfc(-x / sqrt(2));
    case FINISH_GELU_TANH: return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    }
    return x;
}

struct shape {
    size_t rows, in, out, pad;
};

/* Where bmc-model(5) says that element (o, k) of a packed matrix lies. */
static size_t packed_place(enum dtype type, size_t in, size_t o, size_t k)
{
    const size_t padded = (in + 31) / 32 * 32;
    return type == DTYPE_BF16 ? (o / 16 * (padded / 2) + k / 2) * 32 + o % 16 * 2 + k % 2
                              : (o / 16 * padded + k) * 16 + o % 16;
}

/* A packed copy of rows w[out][in], bf16 ones being rounded; freed through its data. */
static struct mat pack(const float *w, size_t out, size_t in, enum dtype type)
{
    struct mat mat = {
        .dtype = type, .layout = LAYOUT_PACKED, .out = out, .in = in, .in_padded = (in + 31) / 32 * 32};
    char *data = calloc((out + 15) / 16 * 16 * mat.in_padded, dtype_size(type));
    for (size_t o = 0; o < out; o++)
        for (size_t k = 0; k < in; k++) {
            const bf16 narrow = bf16_from_f32(w[o * in + k]);
            memcpy(data + packed_place(type, in, o, k) * dtype_size(type),
                   type == DTYPE_BF16 ? (const void *)&narrow : (const void *)&w[o * in + k],
                   dtype_size(type));
        }
    mat.data = data;
    return mat;
}

static void release(const struct mat *mat) { free((void *)(uintptr_t)mat->data); }

/* The largest difference to the plain loop; columns beyond `out` must stay as they were. */
static double product_error(void (*matmul)(float *, size_t, const float *, size_t, size_t,
                                           const struct mat *, const struct finish *),
                            struct shape s, enum dtype type, enum finish_act act, bool times,
                            bool residual)
{
    const size_t x_stride = s.in + s.pad, y_stride = s.out + s.pad;
    float *x = random_floats(s.rows * x_stride), *w = random_floats(s.out * s.in);
    float *y = random_floats(s.rows * y_stride), *bias = random_floats(s.out);
    float *factor = random_floats(s.rows * y_stride),
          *before = malloc(s.rows * y_stride * sizeof *before);
    for (size_t i = 0; i < s.out * s.in; i++)
        if (type == DTYPE_BF16)
            w[i] = bf16_to_f32(bf16_from_f32(w[i]));
    /* What lies between rows must never be read. */
    for (size_t i = 0; i < s.rows; i++)
        for (size_t j = s.in; j < x_stride; j++)
            x[i * x_stride + j] = NAN;
    for (size_t i = 0; i < s.rows * y_stride; i++)
        before[i] = y[i];
    const struct mat mat = pack(w, s.out, s.in, type);
    const struct finish finish = {bias, act, times ? factor : NULL, residual ? y : NULL};
    matmul(y, y_stride, x, x_stride, s.rows, &mat, &finish);
    double worst = 0;
    for (size_t i = 0; i < s.rows; i++)
        for (size_t o = 0; o < y_stride; o++) {
            double want = before[i * y_stride + o];
            if (o < s.out) {
                double sum = bias[o];
                for (size_t k = 0; k < s.in; k++)
                    sum += (double)x[i * x_stride + k] * w[o * s.in + k];
                sum = activate(act, sum) * (times ? factor[i * y_stride + o] : 1);
                want = sum + (residual ? want : 0);
            }
            const double error = fabs(y[i * y_stride + o] - want);
            worst = error <= worst ? worst : error; /* NaN counts as worst */
        }
    free(x), free(w), free(y), free(bias), free(factor), free(before), release(&mat);
    return worst;
}

static void write_zeros(float *y, size_t y_stride, const float *x, size_t x_stride, size_t rows,
                        const struct mat *w, const struct finish *finish)
{
    (void)x, (void)x_stride, (void)finish;
    for (size_t i = 0; i < rows; i++)
        for (size_t o = 0; o < w->out; o++)
            y[i * y_stride + o] = 0;
}

static void test_products(const struct kernels *k)
{
    static const struct shape shapes[] = {{1, 1, 1, 0},     {1, 17, 33, 3},   {2, 64, 64, 0},
                                          {3, 100, 257, 5}, {7, 1000, 31, 1}, {33, 129, 513, 0},
                                          {5, 9000, 40, 2}, {65, 64, 1030, 7}};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (int type = 0; type < DTYPE_COUNT; type++)
            for (int act = 0; act <= FINISH_GELU_TANH; act++) {
                const bool plain = act == FINISH_NONE;
                const double error = product_error(k->matmul, shapes[i], (enum dtype)type,
                                                   (enum finish_act)act, !plain, plain);
                check(error < 2e-6 * (double)shapes[i].in + 1e-4,
                      "%s: product %zux%zux%zu %s, act %d: off by %g", k->isa, shapes[i].rows,
                      shapes[i].in, shapes[i].out, dtype_name((enum dtype)type), act, error);
            }
    check(product_error(write_zeros, shapes[3], DTYPE_F32, FINISH_NONE, false, false) > 0.1,
          "the checker accepts a kernel that writes zeros");
}

/* What a product comes to does not depend on the threads. */
static void test_threads(const struct kernels *k)
{
    enum { ROWS = 9, IN = 300, OUT = 1111 };
    float *x = random_floats(ROWS * IN), *w = random_floats(OUT * IN);
    float *one = malloc(ROWS * OUT * sizeof *one), *many = malloc(ROWS * OUT * sizeof *many);
    const struct mat mat = pack(w, OUT, IN, DTYPE_F32);
    threads_set(1);
    k->matmul(one, OUT, x, IN, ROWS, &mat, &(struct finish){0});
    threads_set(4);
    k->matmul(many, OUT, x, IN, ROWS, &mat, &(struct finish){0});
    check(memcmp(one, many, ROWS * OUT * sizeof *one) == 0, "%s: 1 and 4 threads differ", k->isa);
    free(x), free(w), free(one), free(many), release(&mat);
}

/* pack_rows() against the formula: every element at its place, zeros elsewhere, nothing beyond the blocks. */
static void test_pack(void)
{
    static const size_t sizes[][3] = {{1, 1, 0},   {16, 32, 0},   {15, 31, 3},
                                      {17, 33, 1}, {100, 257, 5}, {300, 64, 0}};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        for (int type = 0; type < DTYPE_COUNT; type++) {
            const size_t out = sizes[i][0], in = sizes[i][1], stride = in + sizes[i][2];
            const size_t size = dtype_size((enum dtype)type), padded = (in + 31) / 32 * 32;
            const size_t bytes = (out + 15) / 16 * 16 * padded * size;
            unsigned char *rows = malloc(out * stride * size), *want = calloc(1, bytes + 64);
            unsigned char *got = malloc(bytes + 64);
            for (size_t j = 0; j < out * stride * size; j++)
                rows[j] = (unsigned char)(1 + j % 251); /* never 0 */
            for (size_t o = 0; o < out; o++)
                for (size_t k = 0; k < in; k++)
                    memcpy(want + packed_place((enum dtype)type, in, o, k) * size,
                           rows + (o * stride + k) * size, size);
            memset(want + bytes, 0x55, 64);
            memset(got, 0x55, bytes + 64);
            pack_rows(got, padded, rows, stride, out, in, (enum dtype)type);
            check(memcmp(got, want, bytes + 64) == 0, "%zux%zu %s packed", out, in,
                  dtype_name((enum dtype)type));
            free(rows), free(want), free(got);
        }
}

static void test_fetch_row(const struct kernels *k)
{
    enum { OUT = 37, IN = 65, STRIDE = 70 };
    float *w = random_floats(OUT * IN), rows[OUT * STRIDE], y[IN + 1];
    for (int type = 0; type < DTYPE_COUNT; type++) {
        bool same = true, kept = true;
        for (size_t i = 0; i < OUT * IN; i++) {
            w[i] = type == DTYPE_BF16 ? bf16_to_f32(bf16_from_f32(w[i])) : w[i];
            const size_t at = i / IN * STRIDE + i % IN;
            if (type == DTYPE_BF16)
                ((bf16 *)rows)[at] = bf16_from_f32(w[i]);
            else
                rows[at] = w[i];
        }
        struct mat mats[2] = {pack(w, OUT, IN, (enum dtype)type),
                              {.out = OUT, .in = IN, .in_padded = STRIDE}};
        mats[1].dtype = (enum dtype)type;
        mats[1].data = rows;
        for (int i = 0; i < 2; i++)
            for (size_t o = 0; o < OUT; o++) {
                y[IN] = 7;
                k->fetch_row(y, &mats[i], o);
                same = same && memcmp(y, w + o * IN, IN * sizeof *y) == 0;
                kept = kept && y[IN] == 7;
            }
        check(same && kept, "%s: rows of a %s table", k->isa, dtype_name((enum dtype)type));
        release(&mats[0]);
    }
    free(w);
}

static void test_vectors(const struct kernels *k)
{
    /* By hand: mean 2.5, variance 1.25; mean of squares 7.5. */
    const float x[4] = {1, 2, 3, 4}, gain[4] = {1, 2, 1, 2}, bias[4] = {0, 0, 1, 1};
    float y[4], p[6] = {1, 2, 3, 1, 9, 9};
    k->layernorm(y, x, 4, gain, bias, 0);
    check(near(y[0], -1.3416408, 1e-6) && near(y[1], -0.8944272, 1e-6) && near(y[2], 1.4472136, 1e-6) &&
              near(y[3], 3.6832816, 1e-6),
          "%s: layernorm", k->isa);
    k->layernorm(y, x, 4, NULL, NULL, 0);
    check(near(y[3], 1.3416408, 1e-6), "%s: layernorm without gain", k->isa);
    k->rmsnorm(y, x, 4, gain, 0);
    check(near(y[0], 0.3651484, 1e-6) && near(y[3], 2.9211870, 1e-6), "%s: rmsnorm", k->isa);
    /* exp(0.5 * (1, 2, 3)) / sum; the masked entries must be exactly 0. */
    const float mask[6] = {0, 0, 0, -1e30f, -1e30f, -INFINITY};
    k->softmax(p, 6, 0.5f, mask);
    check(near(p[0], 0.1863237, 1e-6) && near(p[1], 0.3071959, 1e-6) && near(p[2], 0.5064804, 1e-6),
          "%s: softmax", k->isa);
    check(p[3] == 0 && p[4] == 0 && p[5] == 0, "%s: masked weights are not exactly 0", k->isa);
    /* A quarter turn: (a, b) -> (-b, a). */
    float r[4] = {1, 2, 3, 4};
    k->rope(r, 1, 4, (const float[]){0, 1}, (const float[]){1, 0});
    check(r[0] == -3 && r[1] == 2 && r[2] == 1 && r[3] == 4, "%s: rope", k->isa);
    const float exact[3] = {1, -2.5f, 0x1p-130f}, ties[2] = {1.00390625f, 1.01171875f};
    bf16 b[3];
    float back[3];
    k->to_bf16(b, exact, 3);
    k->to_f32(back, b, 3);
    check(back[0] == 1 && back[1] == -2.5f && back[2] == 0x1p-130f, "%s: bf16 of exact values", k->isa);
    k->to_bf16(b, ties, 2);
    k->to_f32(back, b, 2);
    check(back[0] == 1 && back[1] == 1.015625f, "%s: bf16 ties go to even", k->isa);
    check(isnan(bf16_to_f32(bf16_from_f32(NAN))) && isinf(bf16_to_f32(bf16_from_f32(3.4e38f))),
          "bf16 of NaN, overflow");
}

int main(void)
{
    struct err err;
    if (kernels_setup(&err) < 0)
        return printf("not ok - %s\n", err.text), 1;
    test_pack();
    for (size_t i = 0; kernel_sets[i]; i++) {
        if (!kernel_sets[i]->usable())
            continue;
        test_products(kernel_sets[i]);
        test_threads(kernel_sets[i]);
        test_fetch_row(kernel_sets[i]);
        test_vectors(kernel_sets[i]);
    }
    return check_result();
}
