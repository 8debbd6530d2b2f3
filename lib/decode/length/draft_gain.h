/* The speedup over plain decoding that draft lengths promise, by measured acceptance rates and times.
 *
 * The acceptance rate at each depth is learnt from all sequences, recent steps counting more. The time of
 * a step is that of a target pass, which depends on its number of tokens, those of all sequences, and
 * that of drafting, which depends on the draft length (time_curve.h). */
#ifndef BMC_DRAFT_GAIN_H
#define BMC_DRAFT_GAIN_H

#include "decode/length/time_curve.h"
#include "decode/spec/tree.h"

struct draft_gain {
    double reached[TREE_NODES], accepted[TREE_NODES]; /* by depth: decayed counts of draft tokens */
    struct time_curve pass, draft; /* by tokens of a target pass; by draft length, for all sequences */
    size_t busy;                   /* of the steps in `draft` */
    double cost;                   /* time per draft token / that of a plain step */
    size_t start, limit;           /* of draft lengths, at least 1 */
    size_t steps;
};

/* A step of `busy` sequences, `drafting` of which have drafts; the longest has `drafted` tokens. `rows` are the tokens
 * of its target pass; the times of drafting, below 0 if unknown, and of all else. */
struct draft_step {
    size_t busy, drafting, drafted, rows;
    double draft_ms, pass_ms;
};

/* After a step of a sequence that drafted a chain of `offered` tokens and accepted `accepted`. */
void draft_gain_accepted(struct draft_gain *gain, size_t offered, size_t accepted);

void draft_gain_timed(struct draft_gain *gain, const struct draft_step *step);

/* After a pass over `rows` tokens of prompts: tells what a token more costs in a target pass, until one with drafts was
 * measured. */
void draft_gain_prefill(struct draft_gain *gain, size_t rows, double ms);

/* Forgets most of the acceptance so far, which may have changed. */
void draft_gain_forget(struct draft_gain *gain);

/* The draft length of most expected tokens per time in a step of `busy` sequences. At most twice the longest
 * length that was measured is tried, or `start` at first; in batches one token more, since each costs many rows
 * there. Every so often it is a neighbouring length. */
size_t draft_gain_length(const struct draft_gain *gain, size_t busy);

/* Expected tokens per time of the best of these lengths, relative to plain decoding; `most`: with
 * acceptance rates as high as the drafts so far allow. 0 if no time was measured. */
double draft_gain_speedup(const struct draft_gain *gain, size_t busy, bool most);

#endif
