/* Rows of f32 as rows of few bits, on all threads. */
#ifndef BMC_QUANTISE_H
#define BMC_QUANTISE_H

#include "base/dtype.h"

struct quantise {
    enum dtype type;
    const float *x; /* [rows][n] */
    size_t rows, n;
    const float *weight; /* [n] importance of inputs, or NULL */
    bool simple;         /* as few_narrow() does, in place of least squares */
    void *to;
};

/* False where values are too large for the type. The same bytes whatever the number of threads. */
bool quantise_rows(const struct quantise *job) MUST_USE;

#endif
