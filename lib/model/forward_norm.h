/* The norms of the forward pass (RMSNorm or LayerNorm, as the configuration says), multi-threaded, and
 * factors of activations. */
#ifndef BMC_FORWARD_NORM_H
#define BMC_FORWARD_NORM_H

#include "model/forward.h"

/* y = norm(x) for x [rows][width]; y may be x. */
void norm_each(const struct forward *f, float *y, const float *x, size_t rows, size_t width,
               const struct norm_weights *weights);

/* y = norm(x) for x [rows][heads][width], with gains (and biases) [heads][width], from head `first` of
 * the weights on; y may be x. */
void norm_heads(const struct forward *f, float *y, const float *x, size_t rows, size_t heads,
                size_t width, const struct norm_weights *weights, size_t first);

/* norm_each() for a range of rows of activations [rows][hidden]. */
void norm_rows(const struct forward *f, float *y, const float *x, struct row_range rows,
               const struct norm_weights *weights);

/* x *= factor for a range of rows of x [][width]; 0 means 1. */
void scale_rows(float *x, struct row_range rows, size_t width, double factor);

#endif
