/* Matrix products through OpenBLAS on the calling thread, for the backend blas and for eager
 * attention. Call blas_load() first. */
#ifndef BMC_GEMM_BLAS_H
#define BMC_GEMM_BLAS_H

#include "base/base.h"

/* c[m][n] = a[m][k] * b[n][k]^T, or += when `accumulate`. */
void gemm_blas_nt(float *c, size_t c_stride, const float *a, size_t a_stride, const float *b,
                  size_t b_stride, size_t m, size_t n, size_t k, bool accumulate);

/* c[m][n] = a[m][k] * b[k][n], or += when `accumulate`. */
void gemm_blas_nn(float *c, size_t c_stride, const float *a, size_t a_stride, const float *b,
                  size_t b_stride, size_t m, size_t n, size_t k, bool accumulate);

#endif
