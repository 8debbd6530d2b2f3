/* Verdicts on claims of the papers, from ratios measured in turns and their intervals. */
#ifndef BMC_VERDICT_H
#define BMC_VERDICT_H

#include "base/json.h"

/* What one claim, or a whole entry, comes to. */
enum outcome {
    OUTCOME_HOLDS,
    OUTCOME_IN_PART,   /* the direction holds, the size does not */
    OUTCOME_FAILS,     /* the other direction, or far from the paper's size and not distinct from 1 */
    OUTCOME_UNDECIDED, /* the interval contains 1, or the limit of an equality */
    OUTCOME_NOTHING    /* no claim, or a single round: no interval */
};

/* The median of the samples, and an interval for it from order statistics: the narrowest with a
 * coverage of 95 %, or from the least to the largest sample, whose coverage is given. */
struct ratio {
    double median, lo, hi;
    size_t n;
    int coverage; /* percent; 100 for exact counts */
};

/* How a claim was judged: "claim" objects have the members "name", "samples" (ratios, one per
 * round), and "paper" (the paper's ratio, [least, largest]) or "direction" (1: above 1, -1: below
 * 1, 0: equal to 1 within 10 %) where the paper gives no size; "exact" (true) means counts, which
 * need one round. */
struct judged {
    struct ratio ratio;
    double paper_lo, paper_hi; /* NaN: the paper gives no size */
    enum outcome outcome;
};

/* The coverage in percent of the interval from the k-th least to the k-th largest of n samples. */
double verdict_coverage(size_t n, size_t k);

int verdict_judge(const json_t *claim, struct judged *judged, struct err *err) MUST_USE;

/* The outcome of several claims: all of one kind, or in part. Claims without an interval, and
 * undecided ones beside others, do not count. */
enum outcome verdict_of_all(const struct judged *judged, size_t n);

/* "holds", "holds in part", "does not hold", "undecided", "not measured". */
const char *verdict_name(enum outcome outcome);

#endif
