/* Loads OpenBLAS with dlopen(), only when needed: its constructor takes time and address space. */
#ifndef BMC_BLAS_LOAD_H
#define BMC_BLAS_LOAD_H

#include "base/err.h"

/* Values of CBLAS's enumerations. */
enum { BLAS_ROW_MAJOR = 101, BLAS_AS_IS = 111, BLAS_TRANSPOSED = 112 };

/* Functions of OpenBLAS and of its OpenMP library; valid after blas_load(). */
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

/* Loads OpenBLAS on the first call. It must be the OpenMP build: the threads of another build would
 * compete with bmc's for cores. */
int blas_load(struct err *err) MUST_USE;

/* Writes the path of the file that blas_load() tries first, with symbolic links resolved, or the
 * soname if there is no such file. */
void blas_file(char *path, size_t size);

#endif
