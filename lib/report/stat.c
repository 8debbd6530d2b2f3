/* Statistics of measurements. */
#include "report/stat.h"

double stat_mean(const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    return sum / (double)n;
}

double stat_sd(const double *x, size_t n)
{
    const double mean = stat_mean(x, n);
    double squares = 0;
    for (size_t i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    return n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double stat_quantile(double *x, size_t n, double p)
{
    qsort(x, n, sizeof *x, by_value);
    const double at = p * (double)(n - 1);
    const size_t low = (size_t)at;
    return low + 1 < n ? x[low] + (at - (double)low) * (x[low + 1] - x[low]) : x[n - 1];
}
