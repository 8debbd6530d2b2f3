/* Compares two measurements: ratio, its confidence interval, and verdict. Pure functions. */
#pragma once

#include "base/base.h"

enum { COMPARE_ROUNDS = 64 }; /* maximum number of rounds (repeats) of a measurement */

/* The ratio b / a of two measurements with its 95 % confidence interval. */
struct change {
    bool there; /* false: a round measured 0, so there is no ratio */
    double value;
    bool bounded; /* false: too few rounds for an interval */
    double lo, hi;
};

/* Ratio of the medians of b and a, with the distribution-free 95 % interval of Wilcoxon's rank sum
 * test (Moses; Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3rd edition, 4.3)
 * applied to pairwise ratios instead of differences. Deterministic. n_a and n_b: at most
 * COMPARE_ROUNDS. */
struct change change_of(const double *a, size_t n_a, const double *b, size_t n_b);

/* Returns k such that the interval of change_of() runs from the k-th smallest to the k-th largest
 * of all n_a * n_b ratios; 0: too few rounds for 95 % confidence. Approximate above 400 ratios. */
size_t change_rank(size_t n_a, size_t n_b);

/* The ratio for paired measurements a[i], b[i], in which effects common to a pair cancel: the
 * median of the geometric means of any two ratios b[i] / a[i], with the interval of Wilcoxon's
 * signed rank test (Tukey; Hollander, Wolfe and Chicken, 3.2 and 3.3). 1 <= n <= COMPARE_ROUNDS. */
struct change change_of_pairs(const double *a, const double *b, size_t n);

/* Returns k such that the interval of change_of_pairs() runs from the k-th smallest to the k-th
 * largest of its geometric means; 0: fewer than 6 pairs. */
size_t change_pair_rank(size_t n);

enum verdict { VERDICT_SAME, VERDICT_BETTER, VERDICT_WORSE, VERDICT_UNCLEAR, VERDICT_NONE };

/* Judges the change from a to b: better or worse if the whole interval is beyond the tolerance
 * (0.05: 5 %), the same if the whole interval is within it, else unclear. Where more is better
 * (tokens/s), the inverse ratio counts. */
enum verdict change_verdict(const struct change *change, bool less_is_better, double tolerance);

const char *verdict_name(enum verdict verdict);

/* Sets *less_is_better: true for figures whose name ends in _ms, false for those that begin with
 * tok_s. Returns false for other names. */
bool figure_direction(const char *name, bool *less_is_better);
