/* Quantisation by rounding to nearest, for rows that are quantised at run time and for random
 * weights; quantize() is slower and more accurate. */
#ifndef BMC_QUANTIZE_NEAREST_H
#define BMC_QUANTIZE_NEAREST_H

#include "quant/quant_types.h"

/* Quantises x[n] to a row of `type` by rounding to nearest, with scales that cover each group's
 * largest value. In types of two levels, all values must be finite. Types with a grid are only for
 * measurements: they get any points of the grid. */
void quantize_nearest(void *row, enum dtype type, const float *x, size_t n);

#endif
