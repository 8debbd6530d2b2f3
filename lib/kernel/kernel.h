/* Arithmetic on raw rows: the contract of a kernel set, and the table that picks one.
 *
 * A set is complete: it starts as the reference and overrides what it does better. Its functions are
 * typed pointers, filled once at start; nothing here allocates while running or fails.
 *
 * Rules for every kernel
 *   - Rows are f32 and contiguous; strides are given in elements. Any size >= 1 works; no alignment is
 * assumed.
 *   - Outputs never overlap inputs unless a comment says "in place".
 *   - What one row of a product comes to does not depend on how many threads run.
 *   - A padded row is either never read, or is finite and meets a weight that is exactly 0. */
#ifndef BMC_KERNEL_H
#define BMC_KERNEL_H

#include "base/dtype.h"
#include "base/err.h"

/* What happens to a product's sums before they are stored, in this order:
 *   y = act(sum + bias) * times + plus
 * Folding it in saves passes over memory. `times` is never y; `plus` may be y (a residual) where there
 * is neither act nor times. */
enum finish_act { FINISH_NONE, FINISH_RELU, FINISH_SILU, FINISH_GELU, FINISH_GELU_TANH };

struct finish {
    const float *bias; /* [out] or NULL */
    enum finish_act act;
    const float *times; /* rows like y with y's stride, or NULL */
    const float *plus;  /* rows like y with y's stride, or NULL */
};

struct kernels {
    const char *isa; /* what BMC_ISA and --isa call it */
    const char *summary;
    bool (*usable)(void); /* this CPU can run it */

    /* y[i][o] = finish(sum over k of x[i][k] * w[o][k]) for i < rows, o < w->out; w is packed. Uses all
     * threads. */
    void (*matmul)(float *y, size_t y_stride, const float *x, size_t x_stride, size_t rows,
                   const struct mat *w, const struct finish *finish);

    /* Row `row` of a table in any layout, widened to f32: y[w->in]. */
    void (*fetch_row)(float *y, const struct mat *w, size_t row);

    /* y = (x - mean) / sqrt(variance + eps) * gain + bias; gain and bias may be NULL; y may be x. */
    void (*layernorm)(float *y, const float *x, size_t n, const float *gain, const float *bias,
                      float eps);

    /* y = x / sqrt(mean of squares + eps) * gain; y may be x. */
    void (*rmsnorm)(float *y, const float *x, size_t n, const float *gain, float eps);

    /* Rotates `heads` heads of size d in place: element j with element j + d/2 by the angle whose
     * cosine and sine are cosine[j], sine[j], j < d/2. */
    void (*rope)(float *x, size_t heads, size_t d, const float *cosine, const float *sine);

    /* In place: x[j] = exp(x[j] * scale + bias[j] - max) / sum. With bias[j] far below the rest, x[j]
     * is exactly 0. */
    void (*softmax)(float *x, size_t n, float scale, const float *bias);

    /* y[j] += x[j] */
    void (*add)(float *y, const float *x, size_t n);

    /* Conversions of n elements. */
    void (*to_bf16)(bf16 *y, const float *x, size_t n);
    void (*to_f32)(float *y, const bf16 *x, size_t n);
};

extern const struct kernels kernels_ref;

/* The sets of this build, plainest first, ended by NULL. To add one: a file with its table, a line
 * here. */
extern const struct kernels *const kernel_sets[];

/* The set called `isa`, or the best usable one when it is NULL or "". An unknown or unusable name is an
 * error that lists the usable ones. */
const struct kernels *kernels_select(const char *isa, struct err *err) MUST_USE;

/* Once, before anything else here: checks that the BLAS in use is the OpenMP build (another would fight
 * our threads over the cores). base/threads.h says how it is kept on one thread. */
int kernels_setup(struct err *err) MUST_USE;

/* One line about the BLAS build: version, core, threading. */
const char *kernels_blas_info(void);

#endif
