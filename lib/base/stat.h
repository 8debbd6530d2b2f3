/* Small statistics over a list of measurements. The list is sorted in place where that helps; n >= 1. */
#ifndef BMC_STAT_H
#define BMC_STAT_H

#include "base/base.h"

double stat_mean(const double *x, size_t n);
double stat_sd(const double *x, size_t n); /* of a sample: n - 1; 0 for n = 1 */

/* The value below which a share p of the list lies, by linear interpolation: 0.5 is the median. Sorts x. */
double stat_quantile(double *x, size_t n, double p);

#endif
