/* Products of activations with packed weights, with their epilogue:
 *
 *   y = act(x W^T + bias) + residual, or
 *   y = act(x G^T + gate_bias) * (x W^T + bias) + residual             with a gate G
 *
 * The epilogue runs while the sums are in the cache (segment paper 3.1: the operations of a layer
 * that are worth fusing). */
#pragma once

#include "kernel/kernel.h"
#include "quant/cache_types.h"

/* Precision of activations in products with bf16 weights. If a gemm_run() has f32 weights too, its
 * bf16 weights count as f32. For f32 weights, PRECISION_BF16 rounds activations to bf16; with the
 * others they stay f32. */
enum precision {
    PRECISION_F32,    /* bf16 weights are converted to f32 */
    PRECISION_BF16,   /* activations are rounded to bf16 */
    PRECISION_BF16X2, /* activations are split into a sum of two bf16 terms; both are multiplied */
    /* Activations are quantised to int8 for products with quantised weights: with a scale per 32
     * inputs, or per row for DTYPE_Q8_CHANNEL (BASS paper A.1). Other weights use the default. */
    PRECISION_INT8
};

/* Names of the precisions, in enum order, ended by NULL. */
extern const char *const precision_names[];
const char *precision_name(enum precision precision);

/* Weights by their default precision; of several classes in a model the last one counts. */
enum weights_class { WEIGHTS_F32, WEIGHTS_BF16, WEIGHTS_QUANTISED, WEIGHTS_CLASSES };
enum weights_class weights_class_of(enum dtype type);

/* Returns the default precision: int8 if weights or the KV cache are quantised; bf16 for bf16 weights if the kernel set
 * has bf16 products, which adds less than 1e-4 of divergence (tests/bench/quality.md); else f32. `caches` may be NULL. */
enum precision precision_default(const struct kernels *kernels, enum weights_class weights,
                                 const struct cache_types *caches);

/* The name of the kernel set where its products have bits of their own: those of a library, or of instructions for bf16
 * at a precision that uses them. "" where all sets have the same bits. */
const char *precision_kernels(const struct kernels *kernels, enum precision precision);

/* Parses the name of a precision; NULL or "" gives precision_default(). The error for an unknown
 * name lists the known ones. */
int precision_parse(enum precision *precision, const char *name, const struct kernels *kernels,
                    enum weights_class weights, const struct cache_types *caches,
                    struct err *err) MUST_USE;

struct product {
    const struct mat *w;           /* [out][in], packed */
    const struct mat *gate;        /* gate matrix, shaped like w; or NULL */
    const float *bias, *gate_bias; /* [out], or NULL: no bias */
    enum epilogue_act act;
    /* of EPILOGUE_CLAMPED_SWIGLU; with another activation and a gate, y is min(act(gate), limit) times the product limited
     * to +-limit; 0: there is no limit */
    float limit, alpha;
    float gate_scale;      /* factor of gates before other activations; 0: none */
    const float *residual; /* laid out like y, may be y itself; or NULL */
    float *y;
    size_t y_stride;
    bool f32; /* activations stay f32 whatever the precision */
};

/* The epilogue of a kernel set, and what sets do not have: limits of gated products with other activations than
 * EPILOGUE_CLAMPED_SWIGLU, which exclude a residual and gate_scale. */
void gemm_epilogue(const struct kernels *kernels, const struct epilogue *epilogue);

struct gemm;

/* Products of one shape, each of its own range of rows: those of product i follow those of product
 * i - 1, in y and, if x_row is NULL, in x. */
struct product_groups {
    const struct product *product; /* [n] */
    const size_t *rows;            /* [n], each at least 1 */
    size_t n;
    const uint32_t *x_row; /* the row of x that each row multiplies; or NULL */
};

/* Allocates buffers for products of up to max_rows activation rows of up to max_in inputs each, on
 * threads_max() threads. */
int gemm_open(struct gemm **gemm, const struct kernels *kernels, enum precision precision,
              size_t max_rows, size_t max_in, struct err *err) MUST_USE;
/* gemm_open() for gemm_run_groups() with up to max_groups products of max_rows rows in all. */
int gemm_open_groups(struct gemm **gemm, const struct kernels *kernels, enum precision precision,
                     size_t max_rows, size_t max_in, size_t max_groups, struct err *err) MUST_USE;
void gemm_close(struct gemm *gemm); /* NULL is accepted */

/* Multiplies x[rows][in] by the weights of `n` >= 1 products, on all threads. Consecutive products
 * that need x in the same format share its conversion. */
void gemm_run(struct gemm *gemm, const struct product *product, size_t n, const float *x,
              size_t x_stride, size_t rows);

/* Runs products of different rows of x at once, on all threads. A row's results are those that gemm_run()
 * computes. With x_row, x has x_rows rows, else as many as the products. */
void gemm_run_groups(struct gemm *gemm, const struct product_groups *groups, const float *x,
                     size_t x_stride, size_t x_rows);

/* Time spent so far on converting activations to the formats that kernels read. */
double gemm_convert_ms(const struct gemm *gemm); /* NULL is accepted: 0 */
