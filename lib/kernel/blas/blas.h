/* Matrix products through OpenBLAS on the calling thread, for the kernel set blas and for eager attention. OpenBLAS is
 * loaded with dlopen(), only when needed: its constructor takes time and address space. */
#pragma once

#include "base/err.h"

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

/* Products; blas_load() must have succeeded. */

/* c[m][n] = a[m][k] * b[n][k]^T, or += when `accumulate`. */
void gemm_blas_nt(float *c, size_t c_stride, const float *a, size_t a_stride, const float *b,
                  size_t b_stride, size_t m, size_t n, size_t k, bool accumulate);

/* c[m][n] = a[m][k] * b[k][n], or += when `accumulate`. */
void gemm_blas_nn(float *c, size_t c_stride, const float *a, size_t a_stride, const float *b,
                  size_t b_stride, size_t m, size_t n, size_t k, bool accumulate);
