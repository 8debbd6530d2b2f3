/* Products through OpenBLAS. */
#include "kernel/gemm_blas.h"

#include <cblas.h>

void gemm_blas_nt(float *c, size_t c_stride, const float *a, size_t a_stride, const float *b,
                  size_t b_stride, size_t m, size_t n, size_t k, bool accumulate)
{
    const float beta = accumulate ? 1 : 0;
    if (m == 1)
        cblas_sgemv(CblasRowMajor, CblasNoTrans, (blasint)n, (blasint)k, 1, b, (blasint)b_stride, a, 1,
                    beta, c, 1);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)m, (blasint)n, (blasint)k, 1, a,
                    (blasint)a_stride, b, (blasint)b_stride, beta, c, (blasint)c_stride);
}

void gemm_blas_nn(float *c, size_t c_stride, const float *a, size_t a_stride, const float *b,
                  size_t b_stride, size_t m, size_t n, size_t k, bool accumulate)
{
    const float beta = accumulate ? 1 : 0;
    if (m == 1)
        cblas_sgemv(CblasRowMajor, CblasTrans, (blasint)k, (blasint)n, 1, b, (blasint)b_stride, a, 1,
                    beta, c, 1);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)m, (blasint)n, (blasint)k, 1, a,
                    (blasint)a_stride, b, (blasint)b_stride, beta, c, (blasint)c_stride);
}
