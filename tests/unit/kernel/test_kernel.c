/* Every usable kernel set compared with plain loops in double precision, at odd sizes and with NaN
 * as padding; and each of many rows must equal, bit for bit, the same row computed alone. */
#include <dirent.h>
#include <stdlib.h>

#include "base/mem.h"
#include "quant/pack.h"
#include "base/threads.h"
#include "tests/unit/check.h"
#include "kernel/blas/blas.h"
#include "kernel/gemm.h"

/* The AMX set on emulated tiles, on all machines; those with AMX test the real set, too. */
#define AMX_HEADER  "tests/unit/amx_in_c.h"
#define kernels_amx kernels_amx_in_c
#include "kernel/x86/kernels_amx.c"

static uint64_t state;

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
    float *x = mem_alloc(n, sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = random_float();
    return x;
}

/* ---- products ---- */

/* A random matrix, packed, and its values [out][in]. */
struct matrix {
    struct mat mat;
    float *value;
    void *packed;
};

static struct matrix random_matrix(size_t out, size_t in, enum dtype type)
{
    struct matrix m = {.value = random_floats(out * in)};
    bf16 *narrow = mem_alloc(out * in, sizeof *narrow);
    m.mat = (struct mat){.dtype = type,
                         .layout = LAYOUT_PACKED,
                         .out = out,
                         .in = in,
                         .in_padded = round_up(in, PACK_IN)};
    for (size_t i = 0; i < out * in; i++) {
        narrow[i] = bf16_from_f32(m.value[i]);
        if (type == DTYPE_BF16)
            m.value[i] = bf16_to_f32(narrow[i]);
    }
    m.packed = mem_alloc(round_up(out, PACK_OUT) * m.mat.in_padded, dtype_size(type));
    pack_rows(m.packed, m.mat.in_padded, type == DTYPE_BF16 ? (void *)narrow : (void *)m.value, in, out,
              in, type);
    m.mat.data = m.packed;
    free(narrow);
    return m;
}

static void free_matrix(struct matrix *m)
{
    free(m->value);
    free(m->packed);
}

static double activate(enum epilogue_act act, double x)
{
    switch (act) {
    case EPILOGUE_NONE:
    case EPILOGUE_CLAMPED_SWIGLU: break;
    case EPILOGUE_RELU: return x > 0 ? x : 0;
    case EPILOGUE_SILU: return x / (1 + exp(-x));
    case EPILOGUE_SIGMOID: return 1 / (1 + exp(-x));
    case EPILOGUE_GELU: return x * 0.5 * erfc(-x / sqrt(2));
    case EPILOGUE_GELU_TANH: return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case EPILOGUE_RELU2: return x > 0 ? x * x : 0;
    case EPILOGUE_QUICK_GELU: return x / (1 + exp(-1.702 * x));
    }
    return x;
}

struct shape {
    size_t rows, in, out, pad;
};

struct variant {
    enum precision precision;
    enum dtype type;
    enum epilogue_act act;
    bool gate, residual;
};

/* Converts a row to double, rounded first as the precision rounds activations. */
static void widen(double *to, const float *x, size_t n, bool rounded)
{
    for (size_t k = 0; k < n; k++)
        to[k] = rounded ? bf16_to_f32(bf16_from_f32(x[k])) : x[k];
}

/* Dot product with output o of the matrix; several sums, so that additions do not wait for each
 * other. */
static double dot(const double *x, const struct matrix *m, size_t o)
{
    const float *w = m->value + o * m->mat.in;
    double a = 0, b = 0, c = 0, d = 0;
    size_t k = 0;
    for (; k + 4 <= m->mat.in; k += 4) {
        a += x[k] * w[k];
        b += x[k + 1] * w[k + 1];
        c += x[k + 2] * w[k + 2];
        d += x[k + 3] * w[k + 3];
    }
    for (; k < m->mat.in; k++)
        a += x[k] * w[k];
    return a + b + (c + d);
}

static void run_product(const struct kernels *k, enum precision precision, const struct product *p,
                        const float *x, size_t x_stride, size_t rows)
{
    struct gemm *gemm;
    struct err err;
    if (gemm_open(&gemm, k, precision, rows, p->w->in, &err) < 0) {
        check(false, "%s", err.text);
        return;
    }
    gemm_run(gemm, p, 1, x, x_stride, rows);
    gemm_close(gemm);
}

/* The largest difference from the plain loop; columns beyond `out` must not change. */
static double product_error(const struct kernels *k, struct shape s, struct variant v)
{
    const size_t x_stride = s.in + s.pad, y_stride = s.out + s.pad;
    struct matrix w = random_matrix(s.out, s.in, v.type), g = random_matrix(s.out, s.in, v.type);
    float *x = random_floats(s.rows * x_stride), *y = random_floats(s.rows * y_stride);
    float *bias = random_floats(2 * s.out), *before = mem_alloc(s.rows * y_stride, sizeof *before);
    /* Values between rows must never be read. */
    for (size_t i = 0; i < s.rows; i++)
        for (size_t j = s.in; j < x_stride; j++)
            x[i * x_stride + j] = NAN;
    memcpy(before, y, s.rows * y_stride * sizeof *y);
    const struct product p = {.w = &w.mat,
                              .gate = v.gate ? &g.mat : NULL,
                              .bias = bias,
                              .gate_bias = v.gate ? bias + s.out : NULL,
                              .act = v.act,
                              .residual = v.residual ? y : NULL,
                              .y = y,
                              .y_stride = y_stride};
    run_product(k, v.precision, &p, x, x_stride, s.rows);
    double worst = 0, *wide = malloc(s.in * sizeof *wide);
    for (size_t i = 0; i < s.rows; i++) {
        widen(wide, x + i * x_stride, s.in, v.precision == PRECISION_BF16);
        for (size_t o = 0; o < y_stride; o++) {
            double want = before[i * y_stride + o];
            if (o < s.out) {
                double sum = dot(wide, &w, o) + bias[o];
                if (v.gate)
                    sum *= activate(v.act, dot(wide, &g, o) + bias[s.out + o]);
                else
                    sum = activate(v.act, sum);
                want = sum + (v.residual ? want : 0);
            }
            const double error = fabs(y[i * y_stride + o] - want) / (1 + fabs(want));
            worst = error <= worst ? worst : error; /* NaN counts as worst */
        }
    }
    free_matrix(&w), free_matrix(&g);
    free(x), free(y), free(bias), free(before), free(wide);
    return worst;
}

static void write_zeros(float *y, const float *x, size_t x_stride, size_t rows, const struct panel *w)
{
    (void)x, (void)x_stride, (void)w;
    memset(y, 0, rows * PANEL_WIDTH * sizeof *y);
}

static const enum precision precisions[] = {PRECISION_F32, PRECISION_BF16, PRECISION_BF16X2};

static void test_products(const struct kernels *k)
{
    static const struct shape shapes[] = {{1, 1, 1, 0},     {1, 17, 33, 3},   {2, 64, 64, 0},
                                          {3, 100, 257, 5}, {7, 1000, 31, 1}, {33, 129, 213, 0},
                                          {5, 3000, 40, 2}, {101, 64, 130, 7}};
    /* Every 5th or 7th variant has every value of each of its members; over the shapes all variants occur. */
    const int by = (int)check_size(check_every(5), 7);
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (int n = (int)i % by; n < 3 * 2 * 8 * 2; n += by) {
            const struct variant v = {precisions[n % 3], (enum dtype)(n / 3 % 2),
                                      (enum epilogue_act)(n / 6 % 8), n / 48, n % 2};
            const double error = product_error(k, shapes[i], v);
            /* Two bf16 terms of 8 bits each represent an activation to 2^-17. */
            const double rest = v.precision == PRECISION_BF16X2 ? 4e-4 : 2e-5;
            const double slope = v.act == EPILOGUE_RELU2 ? 16 : 1; /* of the square */
            check(error < slope * (rest + 1e-6 * (double)shapes[i].in),
                  "%s: product %zux%zux%zu %s, %s, act %d, gate %d: off by %g", k->isa, shapes[i].rows,
                  shapes[i].in, shapes[i].out, dtype_name(v.type), precision_name(v.precision), v.act,
                  v.gate, error);
        }
    struct kernels broken = *k;
    broken.panel_f32 = write_zeros;
    check(product_error(&broken, shapes[3], (struct variant){0}) > 0.1,
          "the checker accepts a kernel that writes zeros");
}

/* A row of many, with many threads, must equal the same row alone with one thread. */
static void test_rows_alone(const struct kernels *k, enum precision precision, enum dtype type)
{
    enum { ROWS = 103 };
    const size_t IN = check_size(300, 150), OUT = check_size(301, 77);
    struct matrix w = random_matrix(OUT, IN, type), g = random_matrix(OUT, IN, type);
    float *x = random_floats(ROWS * IN);
    float *alone = mem_alloc(ROWS * OUT, sizeof *alone), *among = mem_alloc(ROWS * OUT, sizeof *among);
    struct product p = {.w = &w.mat, .gate = &g.mat, .act = EPILOGUE_SILU, .y_stride = OUT};
    threads_set(1);
    for (size_t i = 0; i < ROWS; i++) {
        p.y = alone + i * OUT;
        run_product(k, precision, &p, x + i * IN, IN, 1);
    }
    threads_set(4);
    for (size_t rows = 2; rows <= ROWS; rows += rows < 20 ? 1 : 83) {
        p.y = among;
        run_product(k, precision, &p, x, IN, rows);
        check(memcmp(alone, among, rows * OUT * sizeof *alone) == 0,
              "%s, %s, %s: rows among %zu differ from rows alone", k->isa, precision_name(precision),
              dtype_name(type), rows);
    }
    free_matrix(&w), free_matrix(&g);
    free(x), free(alone), free(among);
}

/* ---- attention ---- */

struct attention {
    size_t d, d_v, positions, queries;
    enum dtype type;
    float *q, *k, *v; /* values: [d][queries], [positions][d]; of V, d_v columns are used */
    void *k_stored, *v_stored;
    bool rounded;   /* queries, whose values are bf16, and probabilities are rounded */
    bool scattered; /* row p is stored at scatter(p, is_k), elsewhere for K than for V */
    size_t window;  /* 0: none */
    float softcap;
    const float *slope; /* [queries] or NULL */
};

/* The first position that a query with `seen` visible positions attends to (sliding window). */
static size_t window_start(const struct attention *a, size_t seen)
{
    return a->window && seen > a->window ? seen - a->window : 0;
}

static void *store(float *value, size_t n, enum dtype type)
{
    void *stored = mem_alloc(n, dtype_size(type));
    for (size_t i = 0; i < n; i++)
        if (type == DTYPE_BF16) {
            ((bf16 *)stored)[i] = bf16_from_f32(value[i]);
            value[i] = bf16_to_f32(((bf16 *)stored)[i]);
        } else {
            ((float *)stored)[i] = value[i];
        }
    return stored;
}

enum { STORED = 192 };

static size_t scatter(size_t row, bool is_k) { return row * (is_k ? 35 : 77) % STORED; }

/* Returns a copy of the rows in scattered order. */
static void *scatter_rows(const void *rows, size_t bytes, bool is_k)
{
    char *stored = mem_alloc(STORED, bytes);
    for (size_t i = 0; i < STORED; i++)
        memcpy(stored + scatter(i, is_k) * bytes, (const char *)rows + i * bytes, bytes);
    return stored;
}

/* Computes context[queries][d_v] of queries [from, from + n) over the first `positions` rows, `run`
 * rows per call. */
static void attend_runs(const struct kernels *kernels, const struct attention *a, const size_t *seen,
                        size_t from, size_t n, size_t positions, size_t run, float *context)
{
    const size_t row = a->d * dtype_size(a->type);
    float *max = mem_alloc(n, sizeof *max), *sum = mem_zalloc(n, NR * sizeof *sum);
    const bool own = a->rounded && kernels->attend_bf16;
    const size_t stride = round_up(a->d, 32);
    float *space = mem_alloc(own ? attend_bf16_space(n, a->d) : attend_space(n, a->d), sizeof *space);
    bf16 *q = mem_zalloc((n + PANEL_PADDED_ROWS) * stride, sizeof *q);
    size_t *left = mem_alloc(n, sizeof *left), *first = mem_alloc(n, sizeof *first);
    float *position = mem_alloc(n, sizeof *position);
    const char *k[64], *v[64];
    ptrdiff_t table[2][STORED];
    const ptrdiff_t *k_rows[64], *v_rows[64];
    memset(context, 0, n * a->d_v * sizeof *context);
    for (size_t i = 0; i < n * a->d; i++)
        q[i / a->d * stride + i % a->d] = bf16_from_f32(a->q[i % a->d * a->queries + from + i / a->d]);
    for (size_t i = 0; i < n; i++)
        max[i] = -INFINITY;
    for (size_t at = 0; at < positions; at += run) {
        const size_t tiles = div_up(size_min(run, positions - at), ATTEND_TILE);
        for (size_t t = 0; t < tiles; t++) {
            k[t] = (char *)a->k_stored + (at + t * ATTEND_TILE) * row;
            v[t] = (char *)a->v_stored + (at + t * ATTEND_TILE) * row;
            k_rows[t] = v_rows[t] = NULL;
            if (!a->scattered)
                continue;
            k[t] = a->k_stored;
            v[t] = a->v_stored;
            k_rows[t] = table[0] + t * ATTEND_TILE;
            v_rows[t] = table[1] + t * ATTEND_TILE;
            for (size_t i = t * ATTEND_TILE; i < (t + 1) * ATTEND_TILE; i++) {
                table[0][i] = (ptrdiff_t)(scatter(at + i, true) * row);
                table[1][i] = (ptrdiff_t)(scatter(at + i, false) * row);
            }
        }
        for (size_t i = 0; i < n; i++) {
            const size_t start = window_start(a, seen[from + i]);
            left[i] = seen[from + i] > at ? seen[from + i] - at : 0;
            first[i] = start > at ? start - at : 0;
            position[i] = (float)seen[from + i] - 1 - (float)at;
        }
        const struct attend attend = {
            .d = a->d,
            .d_v = a->d_v,
            .k_type = a->type,
            .v_type = a->type,
            .k_stride = row,
            .v_stride = row,
            .tiles = tiles,
            .k = k,
            .v = v,
            .k_rows = a->scattered ? k_rows : NULL,
            .v_rows = a->scattered ? v_rows : NULL,
            .skippable = at ? 0 : SIZE_MAX,
            .queries = n,
            .q = a->q + from,
            .q_bf16 = q,
            .q_stride = own ? stride : a->queries,
            .rounded = a->rounded,
            .kv_begin = a->window ? first : NULL,
            .kv_end = left,
            .softcap = a->softcap,
            .slope = a->slope ? a->slope + from : NULL,
            .position = position,
            .max = max,
            .sum = sum,
            .context = context,
            .scratch = space,
        };
        (own ? kernels->attend_bf16 : kernels->attend)(&attend);
    }
    for (size_t i = 0; i < n; i++) {
        double all = 0;
        for (size_t l = 0; l < NR; l++)
            all += sum[i * NR + l];
        for (size_t j = 0; j < a->d_v; j++)
            context[i * a->d_v + j] = (float)(context[i * a->d_v + j] / all);
    }
    free(max), free(sum), free(space), free(left), free(first), free(position), free(q);
}

static double attention_error(const struct attention *a, const size_t *seen, const float *context)
{
    double worst = 0;
    double *want = malloc(a->d * sizeof *want);
    for (size_t i = 0; i < a->queries; i++) {
        double sum = 0;
        memset(want, 0, a->d * sizeof *want);
        for (size_t p = window_start(a, seen[i]); p < seen[i]; p++) {
            double score = 0;
            for (size_t j = 0; j < a->d; j++)
                score += (double)a->q[j * a->queries + i] * a->k[p * a->d + j];
            if (a->softcap > 0)
                score = a->softcap * tanh(score / a->softcap);
            if (a->slope)
                score -= a->slope[i] * (double)(seen[i] - 1 - p);
            sum += exp(score);
            for (size_t j = 0; j < a->d_v; j++)
                want[j] += exp(score) * a->v[p * a->d + j];
        }
        for (size_t j = 0; j < a->d_v; j++) {
            const double error = fabs(context[i * a->d_v + j] - want[j] / sum);
            worst = error <= worst ? worst : error;
        }
    }
    free(want);
    return worst;
}

/* What is applied to scores: nothing, a window, a window and a softcap, or ALiBi slopes. */
enum softcap_alibis { STRAIGHT, WINDOW, WINDOW_CAP, SLOPES, BENDS };

static void test_attention(const struct kernels *k, size_t d, size_t d_v, enum dtype type, bool rounded,
                           enum softcap_alibis softcap_alibis)
{
    enum { POSITIONS = 160, QUERIES = 19 };
    struct attention a = {.d = d,
                          .d_v = d_v,
                          .positions = POSITIONS,
                          .queries = QUERIES,
                          .type = type,
                          .rounded = rounded,
                          .q = random_floats(QUERIES * d),
                          .k = random_floats(STORED * d),
                          .v = random_floats(STORED * d),
                          .window = softcap_alibis == WINDOW || softcap_alibis == WINDOW_CAP ? 37 : 0,
                          .softcap = softcap_alibis == WINDOW_CAP ? 0.7f : 0};
    size_t seen[QUERIES];
    float slope[QUERIES];
    a.slope = softcap_alibis == SLOPES ? slope : NULL;
    if (rounded)
        free(store(a.q, QUERIES * d, type));
    a.k_stored = store(a.k, STORED * d, type);
    a.v_stored = store(a.v, STORED * d, type);
    for (size_t i = 0; i < QUERIES; i++)
        slope[i] = 0.5f / (float)(i + 1);
    for (size_t i = 0; i < QUERIES; i++)
        seen[i] = 1 + i * (POSITIONS - 1) / (QUERIES - 1);
    const size_t bytes = QUERIES * d_v * sizeof(float);
    float *whole = mem_alloc(1, bytes), *cut = mem_alloc(1, bytes);
    attend_runs(k, &a, seen, 0, QUERIES, POSITIONS, POSITIONS, whole);
    const double error = attention_error(&a, seen, whole);
    /* rounding to 8 bits changes a probability, and the sum of all, by up to 2^-9 */
    check(error < (rounded ? 1.0 / 256 : 1e-5), "%s: attention, d %zu, %s%s, bends %d: off by %g",
          k->isa, d, dtype_name(type), rounded ? " rounded" : "", softcap_alibis, error);
    const size_t block = rounded ? QUANT_BLOCK : ATTEND_BLOCK;
    for (size_t run = block; run <= STORED; run += block) {
        attend_runs(k, &a, seen, 0, QUERIES, STORED, run, cut); /* with padding behind */
        check(memcmp(whole, cut, bytes) == 0, "%s: attention in runs of %zu differs, d %zu", k->isa,
              run, d);
    }
    for (size_t i = 0; i < QUERIES; i++)
        attend_runs(k, &a, seen, i, 1, round_up(seen[i], ATTEND_TILE), STORED, cut + i * d_v);
    check(memcmp(whole, cut, bytes) == 0, "%s: a query among others differs from itself alone, d %zu",
          k->isa, d);
    for (size_t i = 0, n = 8; i < QUERIES; i += n, n = size_min(n - 1, QUERIES - i))
        attend_runs(k, &a, seen, i, n, round_up(seen[i + n - 1], ATTEND_TILE), STORED, cut + i * d_v);
    check(memcmp(whole, cut, bytes) == 0, "%s: few queries differ from all, d %zu", k->isa, d);
    struct attention scattered = a;
    scattered.scattered = true;
    scattered.k_stored = scatter_rows(a.k_stored, d * dtype_size(type), true);
    scattered.v_stored = scatter_rows(a.v_stored, d * dtype_size(type), false);
    for (size_t run = block; run <= STORED; run += 2 * block) {
        attend_runs(k, &scattered, seen, 0, QUERIES, POSITIONS, run, cut);
        check(memcmp(whole, cut, bytes) == 0, "%s: attention over scattered rows differs, d %zu, %s",
              k->isa, d, dtype_name(type));
    }
    free(scattered.k_stored), free(scattered.v_stored);
    if (type == DTYPE_F32 && softcap_alibis == STRAIGHT) {
        ((float *)a.k_stored)[3 * d] = NAN;
        attend_runs(k, &a, seen, 0, QUERIES, POSITIONS, POSITIONS, cut);
        check(isnan(cut[(QUERIES - 1) * d_v]), "%s: attention hides NaN, d %zu", k->isa, d);
    }
    free(a.q), free(a.k), free(a.v), free(a.k_stored), free(a.v_stored), free(whole), free(cut);
}

/* By hand: e^-1 = 0.36788 rounds to 0.3671875 in bf16, whose neighbours are 2^-9 apart there. */
static void test_rounded_probability(const struct kernels *k)
{
    float q = 1, keys[STORED] = {0, -1}, values[STORED] = {0, 1}, context;
    struct attention a = {.d = 1, .d_v = 1, .queries = 1, .type = DTYPE_BF16, .rounded = true, .q = &q};
    const size_t seen = 2;
    a.k_stored = store(keys, STORED, DTYPE_BF16);
    a.v_stored = store(values, STORED, DTYPE_BF16);
    attend_runs(k, &a, &seen, 0, 1, ATTEND_TILE, ATTEND_TILE, &context);
    check(near(context, 0.3671875 / 1.3671875, 1e-6), "%s: a probability of %g", k->isa, context);
    a.rounded = false;
    attend_runs(k, &a, &seen, 0, 1, ATTEND_TILE, ATTEND_TILE, &context);
    check(near(context, 0.2689414, 1e-6), "%s: a probability of %g, not rounded", k->isa, context);
    free(a.k_stored), free(a.v_stored);
}

/* ---- rows ---- */

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
    k->rmsnorm(y, x, 4, NULL, 0);
    check(near(y[0], 0.3651484, 1e-6) && near(y[3], 1.4605935, 1e-6), "%s: rmsnorm without gains",
          k->isa);
    /* exp(0.5 * (1, 2, 3)) / sum; the masked entries must be exactly 0. */
    const float mask[6] = {0, 0, 0, -1e30f, -1e30f, -INFINITY};
    k->softmax(p, 6, 0.5f, mask);
    check(near(p[0], 0.1863237, 1e-6) && near(p[1], 0.3071959, 1e-6) && near(p[2], 0.5064804, 1e-6),
          "%s: softmax", k->isa);
    check(p[3] == 0 && p[4] == 0 && p[5] == 0, "%s: masked weights are not exactly 0", k->isa);
    /* NaN must stay visible. */
    float nan[4] = {1, NAN, 2, 3};
    k->softmax(nan, 4, 1, (const float[4]){0});
    check(isnan(nan[0]) && isnan(nan[3]), "%s: softmax hides NaN", k->isa);
    /* A quarter turn: (a, b) -> (-b, a). */
    float r[4] = {1, 2, 3, 4};
    k->rope(r, 1, 4, 4, (const float[]){0, 1}, (const float[]){1, 0});
    check(r[0] == -3 && r[1] == 2 && r[2] == 1 && r[3] == 4, "%s: rope", k->isa);
    const float exact[3] = {1, -2.5f, 0x1p-120f}, ties[2] = {1.00390625f, 1.01171875f};
    bf16 b[3], low[2];
    float back[3];
    k->to_bf16(b, exact, 3);
    k->to_f32(back, b, 3);
    check(back[0] == 1 && back[1] == -2.5f && back[2] == 0x1p-120f, "%s: bf16 of exact values", k->isa);
    k->to_bf16(b, ties, 2);
    k->to_f32(back, b, 2);
    check(back[0] == 1 && back[1] == 1.015625f, "%s: bf16 ties go to even", k->isa);
    k->split(b, low, ties, 2);
    check(bf16_to_f32(b[0]) + bf16_to_f32(low[0]) == ties[0] &&
              bf16_to_f32(b[1]) + bf16_to_f32(low[1]) == ties[1],
          "%s: two bf16 terms", k->isa);
    check(isnan(bf16_to_f32(bf16_from_f32(NAN))) && isinf(bf16_to_f32(bf16_from_f32(3.4e38f))),
          "bf16 of NaN, overflow");
}

/* Long rows against sums in double. */
static void test_norms(const struct kernels *k)
{
    enum { N = 4099 };
    float *x = random_floats(N), *gain = random_floats(N), *y = mem_alloc(N, sizeof *y);
    double sum = 0, squares = 0, worst = 0;
    for (size_t j = 0; j < N; j++)
        sum += x[j] += 3;
    for (size_t j = 0; j < N; j++)
        squares += (x[j] - sum / N) * (x[j] - sum / N);
    k->layernorm(y, x, N, gain, NULL, 1e-5f);
    for (size_t j = 0; j < N; j++)
        worst = fmax(worst, fabs(y[j] - (x[j] - sum / N) / sqrt(squares / N + 1e-5) * gain[j]));
    check(worst < 1e-5, "%s: layernorm of %d: off by %g", k->isa, N, worst);
    free(x), free(gain), free(y);
}

static void test_set(const struct kernels *k)
{
    printf("# %s\n", k->isa);
    /* Other sets multiply with the bits of ref: test_same_bits.c. */
    if (k->load || k->panel_bf16 || strcmp(k->isa, "ref") == 0)
        test_products(k);
    for (int n = 0; n < 6 && strcmp(k->isa, "blas") != 0; n++)
        test_rows_alone(k, precisions[n / 2], (enum dtype)(n % 2));
    for (int n = 0; n < 8 * BENDS; n += n < 8 ? 1 : 3) {
        const size_t d = (const size_t[]){7, 16, 64, 200}[n / 2 % 4];
        for (int r = 0; r <= n % 2; r++)
            test_attention(k, d, n % 5 == 2 ? div_up(2 * d, 3) : d, (enum dtype)(n % 2), r,
                           (enum softcap_alibis)(n / 8));
    }
    test_rounded_probability(k);
    test_vectors(k);
    test_norms(k);
}

static int count_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int threads = 0;
    for (const struct dirent *entry; tasks && (entry = readdir(tasks));)
        threads += entry->d_name[0] != '.';
    if (tasks)
        closedir(tasks);
    return threads;
}

/* OpenBLAS uses only the calling thread, and does not change a host program's OpenMP settings. */
static void test_blas_alone(void)
{
    enum { N = 256 };
    struct err err;
    if (!check(blas_load(&err) == 0, "%s", err.text))
        return;
    float *a = random_floats(N * N), *c = mem_zalloc(N * N, sizeof *c);
    const int before = count_threads();
    blas.omp_set_threads(5);
    gemm_blas_nn(c, N, a, N, a, N, N, N, N, false);
    check(blas.omp_threads() == 5, "OpenMP has %d threads after a product", blas.omp_threads());
    check(count_threads() == before, "%d threads, %d before a product", count_threads(), before);
    free(a), free(c);
}

int main(void)
{
    kernels_setup();
    state = check_state(check_seed(1));
    test_blas_alone();
    struct kernels in_c = *kernel_sets[0];
    for (size_t i = 0; kernel_sets[i]; i++)
        if (kernel_sets[i]->usable()) {
            test_set(kernel_sets[i]);
            in_c = *kernel_sets[i];
        }
    in_c.isa = "amx in C";
    in_c.panel_bf16 = kernels_amx_in_c.panel_bf16;
    in_c.attend_bf16 = kernels_amx_in_c.attend_bf16;
    test_set(&in_c);
    return check_result();
}
