/* Products of activations with packed weights: rows in, finished rows out.
 *
 *   y = act(x W^T + bias) + plus, or
 *   y = act(x G^T + gate_bias) * (x W^T + bias) + plus                 with a gate G
 *
 * The end of the product happens while its sums are in the cache (segment paper 3.1: the
 * operations of a layer that are worth fusing). */
#ifndef BMC_GEMM_H
#define BMC_GEMM_H

#include "kernel/kernel.h"

/* How activations meet bf16 weights; products with f32 weights keep f32 activations, but for
 * PRECISION_BF16, which rounds those too. bf16 weights that share a run with f32 ones are treated like those. */
enum precision {
    PRECISION_F32,    /* weights are widened */
    PRECISION_BF16,   /* activations are rounded to bf16 once */
    PRECISION_BF16X2, /* every activation is the sum of two bf16 terms, both are multiplied */
    PRECISION_INT8 /* activations of few-bit weights are rounded to int8, once: in groups of 32 with a scale each, or,
                       * for q8c, with one scale for the row (BASS paper A.1); other weights as precision_default() */
};

extern const char *const precision_names[]; /* in the same order, ended by NULL */
const char *precision_name(enum precision precision);

/* What a set does best without losing digits: bf16x2 where it has bf16 products, else f32; int8 where weights or rows of a
 * cache are of few bits. */
enum precision precision_default(const struct kernels *kernels, bool few);

/* NULL or "" gives the default; an unknown name is an error that lists the known ones. */
int precision_parse(enum precision *precision, const char *name, const struct kernels *kernels,
                    bool few, struct err *err) MUST_USE;

struct product {
    const struct mat *w;           /* [out][in], packed */
    const struct mat *gate;        /* like w, or NULL */
    const float *bias, *gate_bias; /* [out] or NULL */
    enum finish_act act;
    const float *plus; /* rows like y; may be y; or NULL */
    float *y;
    size_t y_stride;
};

struct gemm;

/* Room for products of up to `max_rows` rows of up to `max_in` inputs, on teams no larger than was asked for last
 * (threads_most()). */
int gemm_open(struct gemm **gemm, const struct kernels *kernels, enum precision precision,
              size_t max_rows, size_t max_in, struct err *err) MUST_USE;
void gemm_close(struct gemm *gemm); /* NULL is accepted */

/* Sees every product before it is run, as gemm_run() is given it; NULL: nobody does. */
typedef void gemm_watcher(void *arg, const struct product *product, size_t n, const float *x,
                          size_t x_stride, size_t rows);
void gemm_watch(struct gemm *gemm, gemm_watcher *watcher, void *arg);

/* Runs `n` >= 1 products of the same x[rows][in] over all threads; those whose neighbours want x in the same form in one
 * go. */
void gemm_run(struct gemm *gemm, const struct product *product, size_t n, const float *x,
              size_t x_stride, size_t rows);

#endif
