/* Matrix products through OpenBLAS. */
#include "kernel/blas/gemm_blas.h"

#include "kernel/blas/blas_load.h"

/* Sets OpenMP's thread count to 1, so that products run on the calling thread. Returns the previous
 * count; callers restore it for the host program. */
static int single_thread(void)
{
    const int before = blas.omp_threads();
    blas.omp_set_threads(1);
    return before;
}

void gemm_blas_nt(float *c, size_t c_stride, const float *a, size_t a_stride, const float *b,
                  size_t b_stride, size_t m, size_t n, size_t k, bool accumulate)
{
    const float beta = accumulate ? 1 : 0;
    const int before = single_thread();
    if (m == 1)
        blas.sgemv(BLAS_ROW_MAJOR, BLAS_AS_IS, (int)n, (int)k, 1, b, (int)b_stride, a, 1, beta, c, 1);
    else
        blas.sgemm(BLAS_ROW_MAJOR, BLAS_AS_IS, BLAS_TRANSPOSED, (int)m, (int)n, (int)k, 1, a,
                   (int)a_stride, b, (int)b_stride, beta, c, (int)c_stride);
    blas.omp_set_threads(before);
}

void gemm_blas_nn(float *c, size_t c_stride, const float *a, size_t a_stride, const float *b,
                  size_t b_stride, size_t m, size_t n, size_t k, bool accumulate)
{
    const float beta = accumulate ? 1 : 0;
    const int before = single_thread();
    if (m == 1)
        blas.sgemv(BLAS_ROW_MAJOR, BLAS_TRANSPOSED, (int)k, (int)n, 1, b, (int)b_stride, a, 1, beta, c,
                   1);
    else
        blas.sgemm(BLAS_ROW_MAJOR, BLAS_AS_IS, BLAS_AS_IS, (int)m, (int)n, (int)k, 1, a, (int)a_stride,
                   b, (int)b_stride, beta, c, (int)c_stride);
    blas.omp_set_threads(before);
}
