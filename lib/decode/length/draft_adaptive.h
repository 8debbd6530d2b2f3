/* Adaptive drafting: whether the next step drafts, for how many sequences, and how many tokens. */
#ifndef BMC_DRAFT_ADAPTIVE_H
#define BMC_DRAFT_ADAPTIVE_H

#include "decode/length/draft_gain.h"

/* Every step is the one of most expected tokens per time, of plain decoding and all draft lengths
 * (draft_gain.h), under these rules:
 *
 * Plain steps are timed: the first, one after ADAPTIVE_AGAIN steps, then every ADAPTIVE_RECHECK steps, at first
 * more often, and a quarter as often where drafting clearly pays, unless the time of a pass of about so many
 * tokens is known.
 *
 * In batches of ADAPTIVE_PILOT_FROM sequences and more, only ADAPTIVE_PILOT of them draft, until about
 * ADAPTIVE_PILOT_DRAFTS drafts were verified, or fewer if they promise much: drafts for all of them, and the
 * passes of the draft model over their prompts, cost more than a plain step.
 *
 * The more time drafting has lost, the more it must promise. If it promises nothing, it is tried now and
 * then, for at most ADAPTIVE_LOSS of the time. Once acceptance so far and measured times show that no length
 * can pay, drafting pauses, each time twice as long, or until fewer sequences are left, for which it pays. */
enum {
    ADAPTIVE_RECHECK = 64, /* steps after which a plain one is timed again */
    ADAPTIVE_AGAIN = 4,    /* the same after the first one */
    ADAPTIVE_PILOT_FROM = 4,
    ADAPTIVE_PILOT = 2,
    ADAPTIVE_PILOT_DRAFTS = 6,
    ADAPTIVE_START = 2,   /* first draft length at most */
    ADAPTIVE_PAUSE = 256, /* steps of the first pause */
    ADAPTIVE_PAUSE_MAX = 4096
};
#define ADAPTIVE_LOSS       0.01 /* of the time of plain steps, for drafts that promise nothing */
#define ADAPTIVE_CAUTION    0.15 /* more speedup wanted, per plain step of lost time */
#define ADAPTIVE_PILOT_GAIN 0.8  /* and for the end of a pilot, over the number of its drafts */
#define ADAPTIVE_CLEAR      1.5  /* speedup that makes plain steps a waste */

struct draft_plan {
    size_t sequences; /* at most so many of them draft */
    size_t length;    /* 0: a plain step */
};

struct draft_adaptive {
    struct draft_gain gain;
    bool always;        /* never decode plain steps */
    double lost;        /* net time lost by drafting, in plain steps */
    size_t steps, paid; /* so far; those since the last pause that drafted and were expected to pay */
    size_t resume, next_pause, pauses;
    size_t busy; /* sequences when drafting paused */
};

/* Draft lengths of 1 to `limit`; `cost` is the time per draft token relative to a plain step, as far as it is known. */
void draft_adaptive_begin(struct draft_adaptive *a, bool always, size_t start, size_t limit,
                          double cost);

/* What the next step of `busy` sequences drafts. */
struct draft_plan draft_adaptive_plan(struct draft_adaptive *a, size_t busy);

/* After a step, in which the sequences got `tokens` on average. */
void draft_adaptive_update(struct draft_adaptive *a, const struct draft_step *step, double tokens);

#endif
