/* Two measurements of the same thing: their ratio, how sure it is, and what that means. Pure arithmetic. */
#ifndef BMC_COMPARE_H
#define BMC_COMPARE_H

#include "base/base.h"

enum { COMPARE_ROUNDS = 64 }; /* rounds of one measurement at most */

/* b / a. */
struct change {
    bool there; /* false where a round is 0: there is nothing to divide */
    double value;
    bool bounded; /* false where there are too few rounds for an interval */
    double lo, hi;
};

/* Ratio of the medians, and the distribution-free 95 % interval of the ratio that belongs to Wilcoxon's rank sum test
 * (Moses; Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3rd edition, 4.3), on the pairwise ratios in
 * place of differences. No chance is in it. 1 <= n <= COMPARE_ROUNDS. */
struct change change_of(const double *a, size_t n_a, const double *b, size_t n_b);

/* Of n_a * n_b sorted pairwise values the interval takes the k-th from both ends; 0: even the whole range is less sure
 * than 95 %. Exact up to 400 pairs, by the normal approximation beyond. */
size_t change_rank(size_t n_a, size_t n_b);

/* The same of pairs, a[i] and b[i]: the median of the geometric means of any two of the ratios b[i] / a[i], and the interval
 * that belongs to Wilcoxon's signed rank test (Tukey; Hollander, Wolfe and Chicken, 3.2 and 3.3). What both of a pair
 * met alike is not in it. 1 <= n <= COMPARE_ROUNDS. */
struct change change_of_pairs(const double *a, const double *b, size_t n);

/* The interval takes the k-th of those means from both ends; 0: fewer than 6 pairs. */
size_t change_pair_rank(size_t n);

enum verdict { VERDICT_SAME, VERDICT_BETTER, VERDICT_WORSE, VERDICT_UNCLEAR, VERDICT_NONE };

/* Better or worse only where the whole interval is beyond the tolerance (0.05: 5 %), the same only where it is within. A
 * rate, where more is better, is judged by its inverse, the time. */
enum verdict change_verdict(const struct change *change, bool less_is_better, double tolerance);

const char *verdict_name(enum verdict verdict);

/* Where more or less is better: times end in _ms, rates begin with tok_s. False for other names. */
bool figure_direction(const char *name, bool *less_is_better);

#endif
