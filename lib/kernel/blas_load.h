/* OpenBLAS, loaded when somebody asks for it and not before main(): its constructor takes time and address space
 * that most runs have no use for. */
#ifndef BMC_BLAS_LOAD_H
#define BMC_BLAS_LOAD_H

#include "base/err.h"

/* What CBLAS calls its enumerations' values. */
enum { BLAS_ROW_MAJOR = 101, BLAS_AS_IS = 111, BLAS_TRANSPOSED = 112 };

/* The functions that are taken from it, and from the OpenMP library that comes with it. Valid after blas_load(). */
struct blas {
    void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a,
                  int a_stride, const float *b, int b_stride, float beta, float *c, int c_stride);
    void (*sgemv)(int order, int trans, int m, int n, float alpha, const float *a, int a_stride,
                  const float *x, int x_step, float beta, float *y, int y_step);
    int (*parallel)(void);
    char *(*config)(void);
    int (*omp_threads)(void);
    void (*omp_set_threads)(int n);
};

extern struct blas blas;

/* Loads OpenBLAS on the first call. It must be the OpenMP build: another would fight our threads over the cores. */
int blas_load(struct err *err) MUST_USE;

/* The file that blas_load() tries first, links resolved, or its plain name where the system has to find it. Loads
 * nothing. */
void blas_file(char *path, size_t size);

#endif
