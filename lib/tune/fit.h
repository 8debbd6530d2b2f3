/* Least-squares fit of a + b T + c / T to times measured at several T (numbers of allocations). Its
 * minimum is less sensitive to noise than the fastest measurement. */
#pragma once

#include "base/err.h"

enum { FIT_MAX_POINTS = 24, FIT_MAX_ROUNDS = 64 };

struct fit {
    double a, b, c;
    /* T of least time: sqrt(c / b) within [1, max_T]; for a monotonic curve, the better end of the
     * measured range */
    double T;
};

/* Fits n times at 3 or more different T, minimising relative errors. */
int fit_times(struct fit *fit, const double *T, const double *time, size_t n, double max_T,
              struct err *err) MUST_USE;

double fit_at(const struct fit *fit, double T);

/* A ratio of two times with its 90 % interval. */
struct ratio {
    double value, lo, hi;
};

/* Sets *ratio to the median over rounds of time[round * stride + i] / time[round * stride + j], with a
 * bootstrap interval over rounds. rounds >= 3. */
int fit_ratio(struct ratio *ratio, const double *time, size_t stride, size_t rounds, size_t i, size_t j,
              uint64_t seed, struct err *err) MUST_USE;

/* How much slower a chosen T is than the best one, with 90 % intervals. */
struct regret {
    struct fit fit;       /* of the medians over rounds */
    double T_lo, T_hi;    /* interval of fit.T, the best T */
    double ratio, lo, hi; /* fitted time at the chosen T / at fit.T */
    struct ratio raw;     /* measured time at the chosen T / at the fastest T */
    size_t best;          /* index of the fastest measured T */
};

/* Sets *regret for choosing T[used]; time[round * stride + i] is the time at T[i]. Bootstraps over whole
 * rounds, since interference affects all T of a round alike. rounds >= 3. */
int fit_regret(struct regret *regret, const double *T, const double *time, size_t n, size_t stride,
               size_t rounds, size_t used, double max_T, uint64_t seed, struct err *err) MUST_USE;
