/* Products of eager attention through OpenBLAS. */
#include "attn/eager_product.h"
#include "kernel/blas/blas.h"

static int multiply_blas(const struct eager_product *p, float *c, const float *a, const float *b,
                         struct err *err)
{
    (void)err;
    (p->transposed ? gemm_blas_nt : gemm_blas_nn)(c, p->c_row, a, p->a_row, b, p->b_row, p->m, p->n,
                                                  p->k, p->accumulate);
    return 0;
}

const struct eager_library eager_blas = {.open = blas_load, .multiply = multiply_blas};
