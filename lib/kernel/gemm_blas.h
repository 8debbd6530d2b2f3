/* Products through OpenBLAS, for the kernel sets that have none of their own and for eager attention.
 */
#ifndef BMC_GEMM_BLAS_H
#define BMC_GEMM_BLAS_H

#include "kernel/kernel.h"

/* The contract of struct kernels' matmul. */
void gemm_blas_matmul(float *y, size_t y_stride, const float *x, size_t x_stride, size_t rows,
                      const struct mat *w, const struct finish *finish);

/* c[m][n] = a[m][k] * b[n][k]^T, or += when `accumulate`. On the calling thread alone when that is
 * inside a parallel region. */
void gemm_blas_nt(float *c, size_t c_stride, const float *a, size_t a_stride, const float *b,
                  size_t b_stride, size_t m, size_t n, size_t k, bool accumulate);

/* c[m][n] = a[m][k] * b[k][n], or += when `accumulate`. */
void gemm_blas_nn(float *c, size_t c_stride, const float *a, size_t a_stride, const float *b,
                  size_t b_stride, size_t m, size_t n, size_t k, bool accumulate);

/* y[j] for one row's columns [from, to): bias, activation, times, plus. Plain C, shared by the sets. */
void finish_row(float *y, size_t row, size_t y_stride, size_t from, size_t to,
                const struct finish *finish);

#endif
