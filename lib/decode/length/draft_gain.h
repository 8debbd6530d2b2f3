/* Draft lengths by measured gain: of all lengths, the one that promises the most tokens per time.
 *
 * The acceptance rate at each depth is learnt from all sequences, recent steps counting more. The
 * time of a step is measured for each number of draft tokens that was tried: it is a staircase,
 * since kernels compute several tokens at a time. Between measured lengths it is interpolated;
 * beyond the longest it is extrapolated, but at most twice that length is tried, in batches one token
 * more, since each costs many rows there. Plain steps leave the length as it is. */
#ifndef BMC_DRAFT_GAIN_H
#define BMC_DRAFT_GAIN_H

#include "decode/spec/tree.h"

/* Of steps by the draft tokens of their longest draft: mean time, 0 if unknown, number of measurements,
 * and the step of the last one. */
struct draft_time {
    double ms;
    size_t n, at;
};

struct draft_gain {
    double reached[TREE_NODES], accepted[TREE_NODES]; /* by depth: decayed counts of draft tokens */
    struct draft_time time[TREE_NODES];               /* [draft tokens] */
    size_t steps, busy;
};

/* After a step of a sequence that drafted a chain of `offered` tokens and accepted `accepted`. */
void draft_gain_accepted(struct draft_gain *gain, size_t offered, size_t accepted);

/* After a step of `busy` sequences, the longest draft of which had `drafted` tokens. Times of
 * another number of sequences are forgotten. */
void draft_gain_timed(struct draft_gain *gain, size_t busy, size_t drafted, double ms);

/* The draft length of the next step, 1 to `limit`, which is at least 1; `now` is the present one. */
size_t draft_gain_length(const struct draft_gain *gain, size_t now, size_t limit);

/* The most tokens per ms that any length of 1 to `limit` may give, with acceptance rates as high as the
 * drafts so far allow. */
double draft_gain_most(const struct draft_gain *gain, size_t limit);

#endif
