/* Converts activation rows for products. */
#include "kernel/gemm_rows.h"

#include <string.h>

#include "base/threads.h"

static void *term_row(const struct a_format *a, char *row, size_t t) { return row + t * a->stride; }

static void convert_bf16(const struct kernels *k, const struct a_format *a, char *row, const float *x,
                         size_t in)
{
    for (size_t t = 0; t < a->terms; t++)
        memset((bf16 *)term_row(a, row, t) + in, 0, (a->k - in) * sizeof(bf16));
    if (a->terms == 2)
        k->split(term_row(a, row, 0), term_row(a, row, 1), x, in);
    else
        k->to_bf16(term_row(a, row, 0), x, in);
}

/* Prepares an activation row for panel_f32(): as the format requires, copies it, rounds it to bf16
 * or splits it into two bf16 terms; stores f32 in each case. */
static void convert_f32(const struct kernels *k, const struct a_format *a, char *row, const float *x,
                        size_t in)
{
    enum { STEP = 256 };
    bf16 high[STEP], low[STEP];
    float *to = term_row(a, row, 0), *rest = term_row(a, row, a->terms - 1);
    memset(to + in, 0, (a->k - in) * sizeof *to);
    memset(rest + in, 0, (a->k - in) * sizeof *rest);
    if (a->terms == 1 && !a->rounded)
        memcpy(to, x, in * sizeof *to);
    else
        for (size_t j = 0, n; j < in; j += n) {
            n = size_min(STEP, in - j);
            if (a->terms == 2) {
                k->split(high, low, x + j, n);
                k->to_f32(rest + j, low, n);
            } else {
                k->to_bf16(high, x + j, n);
            }
            k->to_f32(to + j, high, n);
        }
}

/* Quantises an activation row to int8, with scales and sums; q and sums of its padding are 0. */
static void convert_int8(const struct kernels *k, const struct a_format *a, char *row, const float *x,
                         size_t in)
{
    float *scale = (void *)(row + a->scale);
    int32_t *sum = (void *)(row + a->sum);
    memset(row + in, 0, a->k - in);
    memset(sum, 0, a->k / QK_HALF * sizeof *sum);
    k->to_int8((int8_t *)row, scale, sum, x, in, a->group);
}

void gemm_rows_convert_row(const struct gemm_rows *job, size_t i)
{
    static void (*const make[])(const struct kernels *, const struct a_format *, char *, const float *,
                                size_t) = {
        [KIND_F32] = convert_f32, [KIND_BF16] = convert_bf16, [KIND_INT8] = convert_int8};
    const struct a_format *a = &job->a;
    make[a->kind](job->kernels, a, job->rows + i * a->terms * a->stride,
                  job->x + (job->x_row ? job->x_row[i] : i) * job->x_stride, job->in);
}

static void convert_row(void *arg, size_t i) { gemm_rows_convert_row(arg, i); }

void gemm_rows_convert(const struct gemm_rows *rows, size_t n)
{
    parallel_for(n, 4 * n * rows->in, convert_row, (void *)(uintptr_t)rows);
}
