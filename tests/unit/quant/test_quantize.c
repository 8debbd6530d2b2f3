/* Least-squares quantisation compared with the optimum (quant_groups.txt), with rounding to nearest,
 * and with llama.cpp's quantisation to the same type (quant_levels.txt).
 *
 *   test_quantize QUANT_GROUPS.TXT QUANT_LEVELS.TXT */
#include <stdlib.h>
#include <string.h>

#include "quant/quantize.h"
#include "base/mem.h"
#include "tests/unit/check.h"

enum { N = 32, MANY = 2 * 256 + 37 };

static uint64_t state;

static float uniform(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (float)(state >> 40) / (float)(1 << 24);
}

/* A roughly normal value, sometimes an outlier. */
static float value(void)
{
    float sum = -6;
    for (int i = 0; i < 12; i++)
        sum += uniform();
    return 0.02f * sum * (uniform() < 0.03f ? 4 : 1);
}

static double error_of(enum dtype type, const void *row, const float *x, size_t n, const float *weight)
{
    float y[MANY];
    double sum = 0;
    dtype_to_f32(y, type, row, n);
    for (size_t i = 0; i < n; i++)
        sum += (weight ? weight[i] : 1) * ((double)y[i] - x[i]) * ((double)y[i] - x[i]);
    return sum;
}

static double made_error(enum dtype type, const float *x, size_t n, const float *weight)
{
    unsigned char row[8 * MANY + 16];
    check(quantize(row, type, x, n, weight), "%s can be made", dtype_name(type));
    return error_of(type, row, x, n, weight);
}

/* ---- against the best ---- */

static void test_best(const char *path, enum dtype type, double each, double all)
{
    char name[8];
    double least, made_sum = 0, least_sum = 0;
    int n, read = 0;
    FILE *file = fopen(path, "r");
    if (!check(file != NULL, "%s is there", path))
        return;
    while (fscanf(file, "%7s %lf %d", name, &least, &n) == 3 && n == N) {
        float x[N], w[N];
        for (int i = 0; i < N; i++)
            check(fscanf(file, "%f", &x[i]) == 1, "a value");
        const bool weighed = fgetc(file) == ' ';
        for (int i = 0; weighed && i < N; i++)
            check(fscanf(file, "%f", &w[i]) == 1, "a weight");
        if (strcmp(name, dtype_name(type)) != 0)
            continue;
        const double made = made_error(type, x, N, weighed ? w : NULL);
        check(made <= each * least, "%s, group %d: error %g, the least is %g", name, read, made, least);
        check(made >= 0.97 * least, "%s, group %d: error %g is less than the least, %g", name, read,
              made, least);
        made_sum += made;
        least_sum += least;
        read++;
    }
    check(read >= 20, "%s: %d groups", dtype_name(type), read);
    check(made_sum <= all * least_sum, "%s: errors %g, the least is %g", dtype_name(type), made_sum,
          least_sum);
    fclose(file);
}

/* ---- against other rules ---- */

static void fill(float *x, float *w, size_t n)
{
    const float scale = powf(10, -3 + 4 * uniform()), offset = uniform() < 0.3f ? scale * uniform() : 0;
    for (size_t i = 0; i < n; i++) {
        x[i] = value() * scale + 0.02f * offset;
        w[i] = expf(4 * uniform() - 2);
    }
}

/* Turns weights into those of q2_k's measure, in which larger values of a super-block weigh more. */
static void emphasise(float *w, const float *x, size_t n)
{
    for (size_t from = 0; from < n; from += QK_SUPER) {
        const size_t end = size_min(n, from + QK_SUPER);
        double square = 0;
        for (size_t i = from; i < end; i++)
            square += (double)x[i] * x[i] / (double)(end - from);
        for (size_t i = from; i < end; i++)
            w[i] *= (float)sqrt(2 * square + (double)x[i] * x[i]);
    }
}

/* No row has a larger error than with rounding to nearest, and it is much smaller: the mean ratio is at most `all`. Both
 * lose all of a row whose scales are less than the least f16: sums of relative errors would be those of such rows. */
static void test_simple(enum dtype type, double all)
{
    const bool levels = quant_types[type].scales[SCALE_D].bytes;
    float x[MANY], w[MANY];
    unsigned char row[8 * MANY + 16];
    double ratios = 0;
    size_t rows = 0;
    for (int i = 0; i < 200; i++) {
        const size_t n = i % 2 ? N : 1 + (size_t)(uniform() * (levels ? MANY - 1.f : 100.f));
        const float *weight = i % 4 >= 2 ? w : NULL;
        fill(x, w, n);
        check(quantize(row, type, x, n, weight), "%s can be made", dtype_name(type));
        if (type == DTYPE_Q2_K)
            emphasise(w, x, n);
        const double made = error_of(type, row, x, n, weight);
        dtype_from_f32(row, type, x, n);
        const double simple = error_of(type, row, x, n, weight);
        check(made <= simple * (1 + 1e-5) + 1e-20, "%s, %zu values: error %g, the simple rule's %g",
              dtype_name(type), n, made, simple);
        if (n < N)
            continue;
        ratios += (made + 1e-30) / (simple + 1e-30);
        rows++;
    }
    check(ratios <= all * (double)rows, "%s: %g of the simple rule's errors, on average",
          dtype_name(type), ratios / (double)rows);
}

/* Error of Q4_0 as llama.cpp quantises: the value of largest magnitude gets the code -8. */
static double q4_0_error(const float *x)
{
    float most = 0;
    double sum = 0;
    for (int i = 0; i < N; i++)
        if (fabsf(x[i]) > fabsf(most))
            most = x[i];
    const float step = most / -8, inverse = step != 0 ? 1 / step : 0,
                stored = f16_to_f32(f16_from_f32(step));
    for (int i = 0; i < N; i++) {
        const int code = (int)(x[i] * inverse + 8.5f);
        const double off = x[i] - stored * (float)((code > 15 ? 15 : code) - 8);
        sum += off * off;
    }
    return sum;
}

static void test_q4_0(enum dtype type, double all)
{
    float x[N];
    double made_sum = 0, theirs_sum = 0;
    for (int i = 0; i < 200; i++) {
        for (int k = 0; k < N; k++)
            x[k] = value();
        made_sum += made_error(type, x, N, NULL);
        theirs_sum += q4_0_error(x);
    }
    check(made_sum <= all * theirs_sum, "%s: errors %g, those of Q4_0 %g", dtype_name(type), made_sum,
          theirs_sum);
}

/* The values of make_quant_levels.py. */
static void draw_levels(float *x, float *w, size_t n)
{
    uint64_t word = 1;
    for (size_t i = 0; i < n; i++) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        int sum = -4 * 32768;
        for (int k = 0; k < 4; k++)
            sum += (int)(word >> 16 * k & 0xffff);
        x[i] = (float)sum * (i % 61 == 60 ? 0x1p-18f : 0x1p-20f);
        w[i] = 1 + (float)(word & 0xff) / 16;
    }
}

/* Bounds of the sum of errors relative to that of llama.cpp's quantiser, with weights: what the
 * search reaches, so that one that has become worse is noticed. */
static const struct {
    enum dtype type;
    double ratio;
} bounds[] = {
    {DTYPE_Q5_0, 0.981},    {DTYPE_Q5_1, 0.957},    {DTYPE_IQ4_NL, 0.967}, {DTYPE_Q2_K, 0.902},
    {DTYPE_Q3_K, 0.962},    {DTYPE_Q4_K, 0.945},    {DTYPE_Q5_K, 0.888},   {DTYPE_Q6_K, 0.923},
    {DTYPE_IQ4_XS, 0.952},  {DTYPE_MXFP4, 0.966},   {DTYPE_TQ1_0, 0.348},  {DTYPE_TQ2_0, 0.348},
    {DTYPE_IQ3_S, 0.836},   {DTYPE_IQ3_XXS, 0.891}, {DTYPE_IQ2_S, 0.833},  {DTYPE_IQ2_XS, 0.82},
    {DTYPE_IQ2_XXS, 0.802}, {DTYPE_IQ1_M, 0.793},   {DTYPE_IQ1_S, 0.762},
};

static double bound_of(enum dtype type)
{
    for (size_t i = 0; i < ARRAY_LEN(bounds); i++)
        if (bounds[i].type == type)
            return bounds[i].ratio;
    return 0;
}

static void test_llama(const char *path)
{
    enum { ROWS = 16, COLUMNS = 256 };
    static float x[ROWS * COLUMNS], w[ROWS * COLUMNS];
    char name[8];
    double theirs;
    int weighted, read = 0;
    FILE *file = fopen(path, "r");
    if (!check(file != NULL, "%s is there", path))
        return;
    draw_levels(x, w, ROWS * COLUMNS);
    while (fscanf(file, "%7s %d %lf", name, &weighted, &theirs) == 3) {
        enum dtype type;
        double made = 0;
        if (!check(dtype_parse(name, &type), "%s is a type", name))
            continue;
        for (size_t i = 0; i < ROWS; i++)
            made += made_error(type, x + i * COLUMNS, COLUMNS, weighted ? w : NULL);
        check(made <= bound_of(type) * theirs && made >= theirs / 4,
              "%s, %d: errors %g, llama.cpp's %g", name, weighted, made, theirs);
        read++;
    }
    check(read == 33, "%d lines", read);
    fclose(file);
}

/* ---- what is odd ---- */

static void test_odd(enum dtype type)
{
    float x[N] = {0}, w[N] = {0}, y[N];
    unsigned char row[8 * N + 16];
    check(made_error(type, x, N, NULL) == 0, "%s: zeros", dtype_name(type));
    for (int i = 0; i < N; i++)
        x[i] = 0.25f;
    check(made_error(type, x, N, NULL) < (quant_has_grid(type) ? 0.1 : 1e-6), "%s: all the same",
          dtype_name(type));
    x[3] = -1;
    check(quantize(row, type, x, N, w), "%s: no input counts", dtype_name(type));
    dtype_to_f32(y, type, row, N);
    check(fabsf(y[3] + 1) < 0.2f || quant_has_grid(type), "%s: and yet it is %g", dtype_name(type),
          y[3]);
    x[5] = 1e-42f;
    x[6] = 0x1p-140f;
    check(quantize(row, type, x + 4, 3, NULL), "%s: tiny ones", dtype_name(type));
    for (int i = 0; i < N; i++)
        x[i] = i % 2 ? 3e8f : -3e8f;
    check(quantize(row, type, x, N, NULL) == (type == DTYPE_Q8_CHANNEL || type == DTYPE_MXFP4),
          "%s: beyond an f16", dtype_name(type));
}

int main(int argc, char **argv)
{
    static const enum dtype types[] = {DTYPE_Q8_0,   DTYPE_Q8_CHANNEL, DTYPE_Q4_1,  DTYPE_Q4_0,
                                       DTYPE_Q5_0,   DTYPE_Q5_1,       DTYPE_Q6_K,  DTYPE_Q5_K,
                                       DTYPE_Q4_K,   DTYPE_Q3_K,       DTYPE_Q2_K,  DTYPE_IQ4_NL,
                                       DTYPE_IQ4_XS, DTYPE_MXFP4,      DTYPE_TQ1_0, DTYPE_TQ2_0};
    if (argc != 3)
        return 2;
    state = check_state(check_seed(1));
    test_best(argv[1], DTYPE_Q4_1, 1.1, 1.02);
    test_best(argv[1], DTYPE_Q4_0, 1.4, 1.02);
    test_best(argv[1], DTYPE_Q8_0, 2, 1.25);
    test_simple(DTYPE_Q4_1, 0.85);
    test_simple(DTYPE_Q4_0, 0.85);
    test_simple(DTYPE_Q8_0, 0.95);
    test_simple(DTYPE_Q8_CHANNEL, 0.9);
    for (size_t i = 4; i < ARRAY_LEN(types); i++)
        test_simple(types[i], types[i] == DTYPE_MXFP4 ? 0.95 : 0.85);
    test_llama(argv[2]);
    test_q4_0(DTYPE_Q4_0, 0.95);
    test_q4_0(DTYPE_Q4_1, 0.85);
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        test_odd(types[i]);
    for (size_t i = 0; i < DTYPE_COUNT; i++)
        if (quant_has_grid((enum dtype)i))
            test_odd((enum dtype)i);
    return check_result();
}
