/* Multi-threaded quantisation of rows of a matrix. */
#ifndef BMC_QUANTIZE_MATRIX_H
#define BMC_QUANTIZE_MATRIX_H

#include "quant/dtype.h"

struct quantize_job {
    enum dtype type;
    const float *x; /* [rows][n] */
    size_t rows, n;
    const float *weight; /* [n] imatrix weights, or NULL */
    bool simple;         /* round to nearest instead of least squares */
    void *to;
};

/* Quantises all rows; false if values exceed the type's range. Results do not depend on the number
 * of threads. */
bool quantize_rows(const struct quantize_job *job) MUST_USE;

#endif
