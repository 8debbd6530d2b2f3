/* gemm_run_groups() must equal gemm_run() on each group's rows, bit for bit, in every kernel set, type and
 * precision: groups of few and many rows, rows that occur in several groups, and one row for all. */
#include "base/threads.h"
#include "kernel/gemm.h"
#include "tests/unit/quant_ref.h"

enum { OUT = 37, IN = 300, IN_PADDED = 320, ROWS = 60, GROUPS = 4, TYPES = ARRAY_LEN(quant_refs) + 2 };

static const size_t group_rows[GROUPS] = {1, 7, 50, 2};

static struct group_case {
    struct mat up[GROUPS], gate[GROUPS];
    unsigned char bytes[2 * GROUPS][QUANT_MOST_OUT * IN_PADDED * 4 + 4096] __attribute__((aligned(64)));
} cases[TYPES];

static float x[ROWS * IN], bias[OUT];

static void draw_matrix(struct mat *mat, unsigned char *bytes, enum dtype type)
{
    static struct quant_matrix quant;
    static float value[OUT * IN];
    static bf16 narrow[OUT * IN];
    *mat = (struct mat){type, LAYOUT_PACKED, OUT, IN, IN_PADDED, bytes};
    for (size_t i = 0; i < ARRAY_LEN(quant_refs); i++)
        if (quant_refs[i].type == type) {
            quant_draw(&quant, &quant_refs[i], OUT, IN, DRAW_ANY);
            put_packed(bytes, &quant);
            return;
        }
    for (size_t i = 0; i < ARRAY_LEN(value); i++) {
        value[i] = quant_uniform();
        narrow[i] = bf16_from_f32(value[i]);
    }
    pack_rows(bytes, IN_PADDED, type == DTYPE_BF16 ? (const void *)narrow : value, IN, OUT, IN, type);
}

static void draw(struct group_case *c, enum dtype type)
{
    for (size_t i = 0; i < GROUPS; i++) {
        draw_matrix(&c->up[i], c->bytes[i], type);
        draw_matrix(&c->gate[i], c->bytes[GROUPS + i], type);
    }
}

/* Runs n groups at once; x_row may be NULL. */
static void run_groups(const struct kernels *k, enum precision precision, const struct group_case *c,
                       const size_t *rows, size_t n, const uint32_t *x_row, size_t x_rows, float *y)
{
    struct product product[GROUPS];
    struct gemm *gemm;
    struct err err;
    for (size_t i = 0; i < n; i++)
        product[i] = (struct product){.w = &c->up[i],
                                      .gate = &c->gate[i],
                                      .bias = bias,
                                      .act = EPILOGUE_SILU,
                                      .y = y,
                                      .y_stride = OUT};
    if (!check(gemm_open_groups(&gemm, k, precision, ROWS, IN, GROUPS, &err) == 0, "%s", err.text))
        return;
    const struct product_groups groups = {product, rows, n, x_row};
    gemm_run_groups(gemm, &groups, x, IN, x_rows);
    gemm_close(gemm);
}

/* The same by gemm_run(), group by group, over copies of the rows. */
static void run_alone(const struct kernels *k, enum precision precision, const struct group_case *c,
                      const size_t *rows, size_t n, const uint32_t *x_row, float *y)
{
    static float copy[ROWS * IN];
    struct gemm *gemm;
    struct err err;
    if (!check(gemm_open(&gemm, k, precision, ROWS, IN, &err) == 0, "%s", err.text))
        return;
    for (size_t i = 0, at = 0; i < n; at += rows[i++]) {
        for (size_t r = 0; r < rows[i]; r++)
            memcpy(copy + r * IN, x + (x_row ? x_row[at + r] : at + r) * IN, IN * sizeof *x);
        const struct product product = {.w = &c->up[i],
                                        .gate = &c->gate[i],
                                        .bias = bias,
                                        .act = EPILOGUE_SILU,
                                        .y = y + at * OUT,
                                        .y_stride = OUT};
        gemm_run(gemm, &product, 1, copy, IN, rows[i]);
    }
    gemm_close(gemm);
}

static void test(const struct kernels *k, enum precision precision, const struct group_case *c,
                 const size_t *rows, size_t n, const uint32_t *x_row, size_t x_rows)
{
    static float y[ROWS * OUT], want[ROWS * OUT];
    size_t all = 0, wrong = 0;
    for (size_t i = 0; i < n; i++)
        all += rows[i];
    memset(y, 0, sizeof y);
    run_groups(k, precision, c, rows, n, x_row, x_rows, y);
    run_alone(k, precision, c, rows, n, x_row, want);
    for (size_t i = 0; i < all * OUT; i++)
        wrong += memcmp(&y[i], &want[i], sizeof *y) != 0 || y[i] == 0;
    check(wrong == 0, "%s, %s at %s, %zu rows of %zu: %zu of %zu values differ", k->isa,
          dtype_name(c->up->dtype), precision_name(precision), all, x_rows, wrong, all * OUT);
}

static void test_set(const struct kernels *k)
{
    static const size_t ones[GROUPS] = {1, 1, 1, 1};
    static const enum precision precisions[] = {PRECISION_F32, PRECISION_BF16X2, PRECISION_INT8};
    uint32_t x_row[ROWS];
    for (size_t i = 0; i < ROWS; i++)
        x_row[i] = (uint32_t)(i * 7 % 11);
    for (size_t t = 0; t < TYPES; t++)
        for (size_t p = 0; p < ARRAY_LEN(precisions); p++) {
            static const uint32_t first[GROUPS];
            test(k, precisions[p], &cases[t], group_rows, GROUPS, x_row, 11);
            test(k, precisions[p], &cases[t], group_rows, GROUPS, NULL, ROWS);
            test(k, precisions[p], &cases[t], ones, GROUPS, first, 1);
        }
}

int main(void)
{
    static const enum dtype wide[] = {DTYPE_F32, DTYPE_BF16};
    quant_state = check_state(check_seed(1));
    kernels_setup();
    threads_set(2);
    for (size_t i = 0; i < TYPES; i++)
        draw(&cases[i], i < ARRAY_LEN(wide) ? wide[i] : quant_refs[i - ARRAY_LEN(wide)].type);
    for (size_t i = 0; i < ARRAY_LEN(x); i++)
        x[i] = quant_uniform();
    for (size_t i = 0; i < OUT; i++)
        bias[i] = quant_uniform();
    for (size_t i = 0; kernel_sets[i]; i++)
        if (kernel_sets[i]->usable() && !kernel_sets[i]->load)
            test_set(kernel_sets[i]);
    return check_result();
}
