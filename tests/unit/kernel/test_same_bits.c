/* Kernels of all sets compute the same bits (kernel.h): each is compared with the set ref, and what ref is made of
 * with scalar definitions that use fmaf() of libm, which is correctly rounded. Inputs are uniform in [-1, 1), of
 * all magnitudes, or extreme: zeros, denormals, the largest numbers, infinities, NaN. Of NaN only which elements
 * it is counts. test_quant_sets.c does the same for int8 products, test_kv_quant.c for quantised caches. */
#include <math.h>

#include "base/repro_math.h"
#include "kernel/template/vec.h"
#include "tests/unit/check.h"

extern const struct kernels kernels_ref;

static uint64_t state;
static const struct kernels *plain, *tested;

enum inputs { UNIFORM, MAGNITUDES, EXTREME, INPUTS };
static const char *const inputs_name[] = {"uniform", "of all magnitudes", "extreme"};

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float draw(enum inputs inputs)
{
    static const float extreme[] = {
        0,        -0.f,      0x1p-149f, -0x1p-140f, 0x1p-126f, 0x1.fffffep127f, -0x1.fffffep127f,
        INFINITY, -INFINITY, NAN,       -87.4f,     88.4f,     1e-20f,          -1e20f};
    const uint64_t random = check_random(&state) >> 8;
    const float uniform = (float)((double)(random & 0xffffffff) * 0x1p-31 - 1);
    if (inputs == MAGNITUDES)
        return ldexpf(uniform, (int)(random >> 32) % 40 - 20);
    return inputs == EXTREME && random >> 32 & 1 ? extreme[(random >> 33) % ARRAY_LEN(extreme)]
                                                 : uniform;
}

static void fill(float *x, size_t n, enum inputs inputs)
{
    for (size_t i = 0; i < n; i++)
        x[i] = draw(inputs);
}

static bool same(const float *a, const float *b, size_t n)
{
    bool all = true;
    for (size_t i = 0; i < n; i++)
        all &= memcmp(&a[i], &b[i], sizeof *a) == 0 || (isnan(a[i]) && isnan(b[i]));
    return all;
}

/* ---- the set ref against scalar definitions ---- */

static float scalar_exp(float x)
{
    static const float factor[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                                   1.6666665459e-1f, 5.0000001201e-1f};
    if (x < -87.3f)
        return 0;
    x = x > 88.3f ? 88.3f : x;
    const float n = fmaf(x, 1.44269504f, 12582912.f) - 12582912.f;
    const float r = fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, x));
    float p = 1.9875691500e-4f;
    for (size_t i = 0; i < ARRAY_LEN(factor); i++)
        p = fmaf(p, r, factor[i]);
    return ldexpf(fmaf(p, r * r, r) + 1, (int)n);
}

static float scalar_sum16(const float *x, size_t n)
{
    float sum[NR] = {0};
    for (size_t j = 0; j < n / NR * NR; j++)
        sum[j % NR] += x[j];
    for (size_t half = NR / 2; half; half /= 2)
        for (size_t j = 0; j < half; j++)
            sum[j] += sum[j + half];
    for (size_t j = n / NR * NR; j < n; j++)
        sum[0] += x[j];
    return sum[0];
}

/* Random bits, and sums close to a tie between two floats: the product's last bits decide. */
static void test_fma(size_t round)
{
    float x[3][VW], want[VW], got[VW];
    for (size_t l = 0; l < VW; l++) {
        for (size_t i = 0; i < 3; i++)
            x[i][l] = round % 4 ? draw((enum inputs)(round % 4 - 1))
                                : from_bits((uint32_t)(check_random(&state) >> 16));
        if (round % 8 == 7) {
            x[1][l] = ldexpf(1 + ldexpf((float)(check_random(&state) >> 62), -23), -24);
            x[2][l] = x[0][l] * (1 + 0x1p-23f);
        }
        want[l] = fmaf(x[0][l], x[1][l], x[2][l]);
    }
    vf_store(got, vf_fma(vf_load(x[0]), vf_load(x[1]), vf_load(x[2])));
    check(same(want, got, VW), "fma(%a, %a, %a) ..: %a, not %a ..", (double)x[0][0], (double)x[1][0],
          (double)x[2][0], (double)got[0], (double)want[0]);
}

/* e^x against its definition, and all functions against libm within their errors. */
static void test_functions(void)
{
    double worst[3] = {0};
    for (float x = -100; x < 100; x += 0.0137f) {
        const float e = vf_exp(vf_set1(x))[0], at = x / 16;
        check(e == scalar_exp(x), "exp(%a) is %a", (double)x, (double)e);
        if (fabsf(x) < 87)
            worst[0] = fmax(worst[0], fabs(e / exp((double)x) - 1));
        worst[1] = fmax(worst[1], fabs((double)vf_erf(vf_set1(at))[0] - erf((double)at)));
        worst[2] = fmax(worst[2], fabs((double)vf_tanh(vf_set1(at))[0] - tanh((double)at)));
    }
    check(worst[0] < 0x1p-22 && worst[1] < 0x1p-23 && worst[2] < 0x1p-22,
          "exp, erf, tanh are off by %g, %g, %g", worst[0], worst[1], worst[2]);
    check(vf_erf(vf_set1(-INFINITY))[0] == -1 && isnan(vf_erf(vf_set1(NAN))[0]) &&
              signbit(vf_erf(vf_set1(-0.f))[0]),
          "erf of -infinity, NaN or -0");
}

/* Norms and softmax by their definitions; so ref's sums have the order of sum16. */
static void test_sums(void)
{
    enum { N = 83 };
    float x[N], y[N], zero[N] = {0}, wide[N], sum;
    fill(x, N, MAGNITUDES);
    const float mean = scalar_sum16(x, N) / N;
    float squares[NR] = {0};
    for (size_t j = 0; j < N / NR * NR; j++)
        squares[j % NR] = fmaf(x[j] - mean, x[j] - mean, squares[j % NR]);
    sum = scalar_sum16(squares, NR);
    for (size_t j = N / NR * NR; j < N; j++)
        sum += (x[j] - mean) * (x[j] - mean);
    const float scale = 1 / sqrtf(sum / N + 1e-5f);
    for (size_t j = 0; j < N; j++)
        wide[j] = (x[j] - mean) * scale;
    plain->layernorm(y, x, N, NULL, NULL, 1e-5f);
    check(same(y, wide, N), "layernorm in other order");
    fill(x, N, UNIFORM);
    float most = x[0];
    for (size_t j = 0; j < N; j++)
        most = fmaxf(most, x[j]);
    for (size_t j = 0; j < N; j++)
        wide[j] = scalar_exp(x[j] - most);
    sum = 1 / scalar_sum16(wide, N);
    for (size_t j = 0; j < N; j++)
        wide[j] *= sum;
    plain->softmax(x, N, 1, zero);
    check(same(x, wide, N), "softmax in other order");
}

/* repro_math.h against libm. */
static void test_repro_math(void)
{
    double worst = 0, s, c;
    for (size_t i = 0; i < 20000; i++) {
        const double x = 40 * (double)draw(UNIFORM), turn = 1000 * x, e = exp(x);
        repro_sincos(turn, &s, &c);
        const double off[] = {repro_exp(x) / e - 1,
                              repro_log(e) - x,
                              repro_log1p(e) / log1p(e) - 1,
                              repro_pow(10000, x / 40) / pow(10000, x / 40) - 1,
                              repro_tanh(x / 20) - tanh(x / 20),
                              repro_sigmoid(x) * (1 + exp(-x)) - 1,
                              s - sin(turn),
                              c - cos(turn)};
        for (size_t k = 0; k < ARRAY_LEN(off); k++)
            worst = fabs(off[k]) <= worst ? worst : fabs(off[k]);
    }
    check(worst < 1e-14, "functions of repro_math.h are off by %g", worst);
    check(repro_exp(-INFINITY) == 0 && repro_exp(1000) == INFINITY && isnan(repro_exp(NAN)) &&
              repro_log(0) == -INFINITY && isnan(repro_log(-1)) && repro_log1p(INFINITY) == INFINITY,
          "functions of repro_math.h at their ends");
}

/* The standard normal distribution function against published values, and against erfc() of libm. */
static void test_normal(void)
{
    static const struct {
        double x, share;
    } known[] = {{0, 0.5},
                 {1, 0.84134474606854293},
                 {-1, 0.15865525393145707},
                 {2, 0.97724986805182079},
                 {-3, 0.0013498980316300946},
                 {1.6448536269514722, 0.95},
                 {1.959963984540054, 0.975},
                 {2.5758293035489004, 0.995},
                 {-5, 2.8665157187919391e-07}};
    double worst = 0;
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        worst = fmax(worst, fabs(repro_normal(known[i].x) - known[i].share));
    for (int i = -8000; i <= 8000; i++)
        worst = fmax(worst, fabs(repro_normal(i / 1000.) - erfc(-i / 1000. / sqrt(2)) / 2));
    check(worst < 0x1p-48, "repro_normal() is off by %g", worst);
}

/* ---- every set against ref ---- */

/* Runs statements with `k` each of both sets and `y` its output, and compares both outputs. */
#define COMPARE(n, name, ...)                                                                          \
    do {                                                                                               \
        float result_[2][n], *y;                                                                       \
        const struct kernels *k;                                                                       \
        memset(result_, 0, sizeof result_);                                                            \
        for (int side_ = 0; side_ < 2; side_++) {                                                      \
            k = side_ ? tested : plain;                                                                \
            y = result_[side_];                                                                        \
            __VA_ARGS__;                                                                               \
        }                                                                                              \
        check(same(result_[0], result_[1], n), "%s: other bits than ref: %s of numbers %s",            \
              tested->isa, name, inputs_name[inputs]);                                                 \
    } while (0)

static void test_rows(enum inputs inputs, size_t n)
{
    enum { MOST = 100, HEADS = 3 };
    float x[MOST], w[MOST], b[MOST];
    bf16 high[MOST] = {0}, low[MOST] = {0};
    fill(x, n, inputs);
    fill(w, n, inputs);
    fill(b, n, inputs);
    COMPARE(MOST, "layernorm", k->layernorm(y, x, n, w, b, 1e-5f));
    COMPARE(MOST, "rmsnorm", k->rmsnorm(y, x, n, w, 1e-6f));
    COMPARE(MOST, "add", (memcpy(y, w, n * sizeof *w), k->add(y, x, n)));
    COMPARE(MOST, "softmax", (memcpy(y, x, n * sizeof *x), k->softmax(y, n, 0.7f, b)));
    COMPARE(MOST, "rope",
            (memcpy(y, x, n * sizeof *x), k->rope(y, HEADS, n / HEADS, n / HEADS / 2 * 2, w, b)));
    COMPARE(MOST, "to_bf16", (k->to_bf16(high, x, n), k->to_f32(y, high, n)));
    COMPARE(2 * MOST, "split",
            (k->split(high, low, x, n), k->to_f32(y, high, n), k->to_f32(y + MOST, low, n)));
}

static void test_activations(enum inputs inputs, enum epilogue_act act)
{
    enum { N = 61, TAPS = 4, ROWS = 3 };
    float x[TAPS * N], w[TAPS * N], b[2 * N], sum[2 * ROWS * PANEL_WIDTH], gate[2 * ROWS * PANEL_WIDTH];
    const float *const row[TAPS] = {x, x + N, x + 2 * N, x + 3 * N};
    fill(x, ARRAY_LEN(x), inputs);
    fill(w, ARRAY_LEN(w), inputs);
    fill(b, ARRAY_LEN(b), inputs);
    fill(sum, ARRAY_LEN(sum), inputs);
    fill(gate, ARRAY_LEN(gate), inputs);
    COMPARE(N, "gate", k->gate(y, x, w, N, act));
    COMPARE(N, "convolve", k->convolve(y, row, TAPS, w, N, b, N, act));
    for (int how = 0; how < 4; how++) {
        struct epilogue f = {.y_stride = N,
                             .sum = sum,
                             .gate = how & 1 ? gate : NULL,
                             .split = how & 2,
                             .rows = ROWS,
                             .n = N,
                             .bias = b,
                             .gate_bias = b + N,
                             .residual = how & 2 ? w : NULL,
                             .act = act,
                             .limit = 7,
                             .alpha = 1.702f,
                             .gate_scale = how & 2 ? 0.3f : 0};
        COMPARE(ROWS * N, "epilogue", (f.y = y, k->epilogue(&f)));
    }
}

static void test_recurrence(enum inputs inputs, size_t keys, bool delta, bool by_row)
{
    enum { KEYS = 70, W = RECUR_WIDTH };
    float before[KEYS * W], key[KEYS], q[KEYS], v[W], decays[KEYS];
    fill(before, ARRAY_LEN(before), inputs);
    fill(key, KEYS, inputs);
    fill(q, KEYS, inputs);
    fill(v, W, inputs);
    fill(decays, KEYS, inputs);
    COMPARE((KEYS + 1) * W, "recur", {
        const struct recur step = {y,    before, keys,  key,         q, v, by_row ? decays : NULL,
                                   0.8f, 0.3f,   delta, y + keys * W};
        k->recur(&step);
    });
}

/* Products of rows with weights of a type, the inputs in two calls. */
static void test_products(enum inputs inputs, enum dtype type, size_t rows)
{
    enum { ROWS = 16, IN = 96, BLOCKS = 3 };
    static char packed[BLOCKS * NR * IN * sizeof(float)] __attribute__((aligned(64)));
    float x[ROWS * IN], w[BLOCKS * NR * IN];
    uint16_t narrow[BLOCKS * NR * IN];
    fill(x, ARRAY_LEN(x), inputs);
    fill(w, ARRAY_LEN(w), inputs);
    for (size_t i = 0; i < ARRAY_LEN(w); i++)
        narrow[i] = type == DTYPE_BF16 ? bf16_from_f32(w[i]) : f16_from_f32(w[i]);
    pack_rows(packed, IN, type == DTYPE_F32 ? (const void *)w : narrow, IN, BLOCKS * NR, IN, type);
    const size_t row_bytes = NR * dtype_size(type);
    struct panel first = {.w = packed,
                          .type = type,
                          .block_bytes = IN * row_bytes,
                          .blocks = BLOCKS,
                          .kc = 32},
                 last = first;
    last.w += 32 * row_bytes;
    last.k_begin = 32;
    last.kc = IN - 32;
    last.accumulate = last.last_k = true;
    COMPARE(ROWS * PANEL_WIDTH, "panel_f32",
            (k->panel_f32(y, x, IN, rows, &first), k->panel_f32(y, x + 32, IN, rows, &last)));
}

struct attend_case {
    size_t d, d_v, queries;
    enum dtype type;
    bool scattered, masked, rounded;
    float softcap;
    bool slopes;
};

static void test_attention(enum inputs inputs, const struct attend_case *c)
{
    enum { D = 80, TILES = 5, ENTRIES = TILES * ATTEND_TILE, QUERIES = 11 };
    static float q[D * QUERIES], x[2 * ENTRIES * D], scratch[4096] __attribute__((aligned(64)));
    static char stored[2][ENTRIES * D * sizeof(float)];
    const size_t bytes = c->d * dtype_size(c->type);
    const char *tile[2][TILES];
    ptrdiff_t entry[ENTRIES];
    const ptrdiff_t *rows[TILES];
    size_t begin[QUERIES], end[QUERIES];
    float slope[QUERIES], position[QUERIES];
    fill(q, ARRAY_LEN(q), inputs == EXTREME ? MAGNITUDES : inputs);
    fill(x, ARRAY_LEN(x), inputs);
    for (size_t i = 0; i < ENTRIES * c->d; i++)
        for (size_t v = 0; v < 2; v++) {
            const float value = x[v * ENTRIES * D + i];
            const uint16_t half = c->type == DTYPE_BF16 ? bf16_from_f32(value) : f16_from_f32(value);
            memcpy(stored[v] + i * dtype_size(c->type),
                   c->type == DTYPE_F32 ? (const void *)&value : &half, dtype_size(c->type));
        }
    for (size_t i = 0; i < ENTRIES; i++)
        entry[i] = (ptrdiff_t)((i * 37 % ENTRIES) * bytes);
    for (size_t t = 0; t < TILES; t++) {
        tile[0][t] = stored[0] + (c->scattered ? 0 : t * ATTEND_TILE * bytes);
        tile[1][t] = stored[1] + (c->scattered ? 0 : t * ATTEND_TILE * bytes);
        rows[t] = entry + t * ATTEND_TILE;
    }
    for (size_t i = 0; i < QUERIES; i++) {
        end[i] = c->masked ? ENTRIES - 5 * (QUERIES - i) : ENTRIES;
        begin[i] = 3 * i;
        slope[i] = 0.03f * (float)i;
        position[i] = (float)end[i] - 1;
    }
    COMPARE(QUERIES * D, "attend", {
        float max[QUERIES], sum[QUERIES * NR] = {0};
        for (size_t i = 0; i < QUERIES; i++)
            max[i] = -INFINITY;
        k->attend(&(struct attend){.d = c->d,
                                   .d_v = c->d_v,
                                   .k_type = c->type,
                                   .v_type = c->type,
                                   .k_stride = bytes,
                                   .v_stride = bytes,
                                   .tiles = TILES,
                                   .k = tile[0],
                                   .v = tile[1],
                                   .k_rows = c->scattered ? rows : NULL,
                                   .v_rows = c->scattered ? rows : NULL,
                                   .queries = c->queries,
                                   .q = q,
                                   .q_stride = QUERIES,
                                   .rounded = c->rounded,
                                   .kv_begin = c->masked ? begin : NULL,
                                   .kv_end = end,
                                   .softcap = c->softcap,
                                   .slope = c->slopes ? slope : NULL,
                                   .position = position,
                                   .max = max,
                                   .sum = sum,
                                   .context = y,
                                   .scratch = scratch});
        /* Where a score is NaN, sets differ in which of maximum, sums and context are. */
        for (size_t i = 0; i < c->queries * c->d_v; i++)
            y[i] /= scalar_sum16(sum + i / c->d_v * NR, NR);
    });
}

static void test_set(enum inputs inputs)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (size_t n = 3; n <= 99; n += 8)
        test_rows(inputs, n);
    for (int act = EPILOGUE_NONE; act <= EPILOGUE_CLAMPED_SWIGLU; act++)
        test_activations(inputs, (enum epilogue_act)act);
    for (size_t keys = 5; keys <= 70; keys += 13) {
        test_recurrence(inputs, keys, false, false);
        test_recurrence(inputs, keys, true, false);
        test_recurrence(inputs, keys, true, true);
    }
    for (size_t n = 0; n < 48; n++)
        test_products(inputs, types[n % 3], 1 + n / 3);
    for (size_t n = 0; n < 96; n++)
        test_attention(inputs,
                       &(struct attend_case){.d = (const size_t[]){7, 16, 64, 80}[n % 4],
                                             .d_v = (const size_t[]){5, 16, 64, 72}[n % 4],
                                             .queries = (const size_t[]){1, 3, 8, 11}[n / 4 % 4],
                                             .type = types[n % 3],
                                             .scattered = n / 2 % 2,
                                             .masked = n / 16 % 2,
                                             .rounded = n % 3 == 1 && n / 3 % 2,
                                             .softcap = n / 32 == 1 ? 3 : 0,
                                             .slopes = n / 32 == 2});
}

int main(void)
{
    kernels_setup();
    state = check_state(check_seed(1));
    for (size_t i = 0; kernel_sets[i]; i++)
        if (strcmp(kernel_sets[i]->isa, "ref") == 0)
            plain = kernel_sets[i];
    for (size_t round = 0; round < 40000; round++)
        test_fma(round);
    test_functions();
    test_sums();
    test_repro_math();
    test_normal();
    for (size_t i = 0; kernel_sets[i]; i++) {
        tested = kernel_sets[i];
        for (int inputs = UNIFORM;
             tested->usable() && tested != plain && !tested->load && inputs < INPUTS; inputs++)
            test_set((enum inputs)inputs);
    }
    tested = &kernels_ref; /* without the FMA instruction, where the set ref has it */
    for (int inputs = UNIFORM; inputs < INPUTS; inputs++)
        test_set((enum inputs)inputs);
    return check_result();
}
