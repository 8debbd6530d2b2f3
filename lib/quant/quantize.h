/* Quantisation by least squares, for weights; and by rounding to nearest, which is faster and less accurate, for rows
 * that are quantised at run time and for random weights. */
#pragma once

#include "quant/quant_types.h"

/* Quantises x[n], all finite, to a row of `type`, any but q8_2l. weight[i] >= 0 weights the squared
 * error of input i (an importance matrix); NULL: all equal. In types of two levels and 2 bits, larger values
 * have more of the weight. The error of every group, or of every 256 inputs in types of two levels, is at most
 * that of quantize_nearest(). Returns false if values are too large for the type's scales. */
bool quantize(void *row, enum dtype type, const float *x, size_t n, const float *weight) MUST_USE;

/* Quantises x[n] to a row of `type` by rounding to nearest, with scales that cover each group's
 * largest value. In types of two levels, all values must be finite. Types with a grid are only for
 * measurements: they get any points of the grid. */
void quantize_nearest(void *row, enum dtype type, const float *x, size_t n);
