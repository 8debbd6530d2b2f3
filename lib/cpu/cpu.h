/* The CPU as a backend. */
#ifndef BMC_CPU_H
#define BMC_CPU_H

#include "backend/backend.h"

extern const struct backend cpu_backend;

/* For hooks of products: sum[j] += x[i][j]^2 over `rows` rows of n columns. Sums do not depend on the number of threads or
 * on the batch size: each column is added in order of rows by one thread. */
void cpu_add_squares(double *sum, size_t n, const float *x, size_t x_stride, size_t rows);

#endif
