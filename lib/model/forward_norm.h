/* Norms of the forward pass: the family's kind, over all threads. */
#ifndef BMC_FORWARD_NORM_H
#define BMC_FORWARD_NORM_H

#include "model/forward.h"

/* y = norm(x), each of `rows` rows of `width` elements; y may be x. */
void norm_each(const struct forward *f, float *y, const float *x, size_t rows, size_t width,
               const struct norm_weights *weights);

/* The same for some of a step's rows, as wide as the stream. */
void norm_rows(const struct forward *f, float *y, const float *x, struct rows rows,
               const struct norm_weights *weights);

#endif
