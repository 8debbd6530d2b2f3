/* Least-squares choice of grid points (quant/grids.h) for the values of a quant group. */
#pragma once

#include "quant/quantize_fit.h"

/* Sums and error of a group whose scale is `scale`, for the nearest points. */
struct fit_sums grid_measure(const struct fit_range *range, float scale);

/* Stores the nearest points for a scale, with signs or deltas, as input `at` and following of a row, which must be 0
 * there before. Bits of the group's scale are not stored. */
void grid_store(unsigned char *row, enum dtype type, const struct fit_range *range, float scale,
                size_t at);

/* The greatest integer that stands for a value of the type. */
float grid_highest(enum dtype type);

/* Prepares the search of a type's points; thread-safe, and fast after the first call. */
void grid_prepare(enum dtype type);
