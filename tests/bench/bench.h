/* Helpers of the benchmark programs. */
#ifndef BMC_BENCH_H
#define BMC_BENCH_H

#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/err.h"

enum { MAX_ROUNDS = 100 };

static inline void die(const struct err *err)
{
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static inline int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of x[n], n >= 1, which it sorts. */
static inline double median(double *x, size_t n)
{
    qsort(x, n, sizeof *x, compare);
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
}

#endif
