/* Quantisation by least squares, for weights; quantize_nearest() is faster and less accurate, for
 * rows that are quantised at run time. */
#ifndef BMC_QUANTIZE_H
#define BMC_QUANTIZE_H

#include "quant/quant_types.h"

/* Quantises x[n], all finite, to a row of `type`, which has one level of scales (quant_types.h).
 * weight[i] >= 0 weights the squared error of input i (an importance matrix); NULL: all equal. The
 * error of every group is at most that of quantize_nearest(). Returns false if values are too large
 * for the type's scales. */
bool quantize(void *row, enum dtype type, const float *x, size_t n, const float *weight) MUST_USE;

#endif
