/* Statistics of n >= 1 measurements. */
#pragma once

#include "base/base.h"

double stat_mean(const double *x, size_t n);
double stat_sd(const double *x, size_t n); /* sample standard deviation; 0 if n = 1 */

/* The p-quantile (0.5: median) by linear interpolation. Sorts x in place. */
double stat_quantile(double *x, size_t n, double p);
