/* Weights of quantisation errors per input column, from an importance matrix. */
#pragma once

#include "format/imatrix.h"

struct imatrix_weights {
    struct imatrix file; /* head == NULL: no file was given */
    const char *path;
    float *weight; /* weights of all matrices, each with a mean of about 1 */
};

/* Opens an importance matrix; `path` NULL: none, all errors weigh the same. */
int imatrix_weights_open(struct imatrix_weights *imatrix_weights, const char *path,
                         struct err *err) MUST_USE;
void imatrix_weights_close(struct imatrix_weights *imatrix_weights);

/* Sets *weight to the weights [n] of the input columns of matrix `name`; NULL: unweighted. Fails if
 * the file lacks the matrix or has another number of inputs. */
int imatrix_weights_find(const struct imatrix_weights *imatrix_weights, const char *name, size_t n,
                         const float **weight, struct err *err) MUST_USE;
