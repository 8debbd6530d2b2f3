/* The curve a + b T + c / T through measured times: its minimum moves less with noise than the least of the points. */
#ifndef BMC_FIT_H
#define BMC_FIT_H

#include "base/err.h"

enum { FIT_MAX_POINTS = 24, FIT_MAX_ROUNDS = 64 };

struct fit {
    double a, b, c;
    double
        T; /* sqrt(c / b), within [1, max_T]; an end of what was measured where the curve only rises or falls */
};

/* Least squares of relative errors; n >= 3 different T. */
int fit_times(struct fit *fit, const double *T, const double *time, size_t n, double max_T,
              struct err *err) MUST_USE;

double fit_at(const struct fit *fit, double T);

/* A ratio of two times, and its 90 % interval. */
struct ratio {
    double value, lo, hi;
};

/* Of columns i and j of time[round * n + column]: the median over rounds of the ratio within a round. rounds >= 3. */
int fit_ratio(struct ratio *ratio, const double *time, size_t n, size_t rounds, size_t i, size_t j,
              uint64_t seed, struct err *err) MUST_USE;

/* What a T costs beyond the best one, as a ratio, with its 90 % interval. */
struct regret {
    struct fit fit;       /* of the medians over rounds */
    double T_lo, T_hi;    /* interval of fit.T */
    double ratio, lo, hi; /* fit(used) / fit(T) */
    struct ratio raw;     /* time(used) / time(the T that measured least) */
    size_t best;          /* index of the T that measured least */
};

/* time[round * n + i] is the time at T[i]; `used` is an index. Intervals by drawing rounds anew: rounds stay together,
 * since what slows the machine meets all T of a round. rounds >= 3. */
int fit_regret(struct regret *regret, const double *T, const double *time, size_t n, size_t rounds,
               size_t used, double max_T, uint64_t seed, struct err *err) MUST_USE;

#endif
