/* Rows of few bits made with care: codes and scales whose values are nearest to those given, by least squares. For
 * weights, which are made once; few_narrow() is for rows that are made while somebody waits. */
#ifndef BMC_FEW_MAKE_H
#define BMC_FEW_MAKE_H

#include "base/few_bits.h"

/* A row of x[n], all finite, of a type of one level. weight[i] >= 0 says how much the square of input i's error counts;
 * NULL: all the same. The error of every group is at most that of few_narrow(). False where values are too large for the
 * type's scales. */
bool few_make(void *row, enum dtype type, const float *x, size_t n, const float *weight) MUST_USE;

#endif
