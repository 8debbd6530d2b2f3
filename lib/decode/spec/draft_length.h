/* The number of draft tokens: initial lengths and limits, adaptation by measured gain or by algorithm 1 of the BASS
 * paper, and pauses while drafting is slower than plain decoding. */
#pragma once

#include "kernel/gemm.h"
#include "base/base.h"
#include "decode/spec/tree.h"

/* Draft lengths by measured gain (below), or by algorithm 1 of the BASS paper (3.2). */
struct draft_length {
    size_t increment, modulus, limit; /* l_incre, l_mod, l_limit of the paper */
    size_t now;                       /* l_draft */
    bool fixed;                       /* `now` never changes */
    bool measured;                    /* by measured gain */
    bool planned; /* that of each draft, by its drafter's probabilities: length_plan.h */
    bool shrank;  /* s of the paper: the last update reduced `now` */
};

/* First and largest length of drafts whose length adapts, unless options say otherwise. */
#define DRAFT_LENGTH_START 7
#define DRAFT_LENGTH_LIMIT 32

/* Settings that the draft lengths of a run follow from. */
struct draft_length_params {
    bool fixed;                /* always `k` draft tokens */
    bool bass;                 /* adapt by algorithm 1, not by measured gain */
    bool planned;              /* the drafter has probabilities, and drafting may pause */
    bool tree;                 /* the drafts are trees: no length is chosen by measured gain */
    size_t k;                  /* with `fixed` */
    size_t start, limit;       /* first and largest length otherwise */
    size_t increment, modulus; /* of algorithm 1; 0: 2 and 10 */
    size_t batch;              /* number of sequences */
    size_t knee;               /* the batch knee */
    bool knee_measured;        /* it limits the drafts of a single sequence, too */
    bool knee_fixed;           /* and those of measured gain, which may else exceed it */
    size_t context;            /* of the target or the draft model, whichever is shorter */
};

/* The draft length to begin with, and its limits. */
struct draft_length draft_length_choose(const struct draft_length_params *params);

/* Updates the draft length after a step by algorithm 1 of the BASS paper, given the tokens of its
 * longest draft (`offered`) and the most tokens accepted of a draft. The length grows only if a draft
 * of the full length `now` was accepted as a whole. It does not change if all of a shorter draft was
 * accepted, whose length free KV entries or the end of the request had limited. */
void draft_length_update(struct draft_length *length, size_t offered, size_t accepted);

/* The largest draft length, at least 1, with which a pass verifies at most `free_rows` tokens: for
 * each of `batch` sequences its newest token and its draft. */
size_t draft_length_limit(size_t free_rows, size_t batch);

/* Lengths that follow from measured times are limited to so many times the batch knee, for memory's
 * sake. */
enum { DRAFT_KNEE_FACTOR = 4 };

/* The batch knee where it was not measured: the batch size for which computing takes as long as reading
 * the weights, larger with bf16 products and AMX tiles (tests/bench/speculation.md). */
size_t draft_default_knee(const struct kernels *kernels, enum precision precision);

/* Positions in the draft model's context that must be left besides those of the draft tokens. */
enum { DRAFT_WINDOW_REST = 2 };

/* ---- pauses drafting while it is slower than plain decoding ---- */

/* Throttling compares the time of speculative steps with the time of plain steps for the same
 * number of tokens.
 *
 * A run starts with THROTTLE_PLAIN_AGAIN plain steps, more if they still get faster, since memory is
 * cold at first; the time of a plain step is the minimum of the last THROTTLE_PLAIN. Drafting is then
 * tried, with few draft tokens where they are expensive, doubled while no time is lost. If it is not
 * THROTTLE_CLEAR times as fast as plain decoding, more plain steps are timed, at least THROTTLE_PLAIN
 * in all. Drafting pauses when no length can pay, when a window of THROTTLE_STEPS steps has lost time, or as soon
 * as it has lost the time of THROTTLE_LOSS plain steps. Each pause is twice as long as the one before, until a
 * window gains time. Plain steps are timed again every THROTTLE_RECHECK windows, and whenever the number of
 * sequences changes. */
enum {
    THROTTLE_PLAIN = 4,       /* plain steps timed before drafting continues whose gain is unclear */
    THROTTLE_PLAIN_AGAIN = 2, /* plain steps at first, and to time again */
    THROTTLE_FIRST = 1,       /* draft tokens in the first step of a trial after a pause */
    THROTTLE_RAMP = 4,        /* last limit on draft tokens in a trial; then there is none */
    THROTTLE_STEPS = 16,      /* steps per window */
    THROTTLE_SURE = 4,        /* steps after which the gain is judged; fewer if they lose time */
    THROTTLE_RECHECK = 4,     /* windows until plain steps are timed again */
    THROTTLE_PAUSE = 256,     /* steps of the first pause */
    THROTTLE_PAUSE_MAX = 4096
};
#define THROTTLE_LOSS   1.0  /* lost time at which drafting pauses, in times of a plain step */
#define THROTTLE_LUCK   2.5  /* the same where the largest possible gain is known */
#define THROTTLE_COLD   0.9  /* memory is still cold: a plain step relative to the fastest before */
#define THROTTLE_FASTER 0.97 /* the same, once drafting is not clearly faster */
#define THROTTLE_CLEAR  1.5  /* gain for which few plain steps are evidence enough */

struct throttle {
    bool always;                   /* never pause drafting */
    size_t busy;                   /* sequences in the last step */
    size_t plain;                  /* plain steps left before drafting is tried */
    size_t next_pause;             /* length of the next pause, in steps */
    double recent[THROTTLE_PLAIN]; /* times of the last plain steps in ms, a ring buffer */
    size_t n_recent;               /* plain steps timed since `busy` changed */
    bool doubted;                  /* the gain was unclear: THROTTLE_PLAIN steps are timed */
    double plain_ms;               /* the fastest of `recent` */
    size_t allowed;                /* maximum draft tokens per sequence in a trial */
    bool cold;                     /* the trial's first step is still to come */
    size_t windows;                /* windows since plain steps were timed */
    size_t steps;                  /* in this window; below: their tokens per sequence, and time */
    double tokens, ms;
    size_t pauses;
};

/* `first`: draft tokens allowed in the first step, THROTTLE_FIRST where they are expensive. */
void throttle_begin(struct throttle *throttle, bool always, size_t first);

/* Before a step of `busy` sequences: the maximum draft tokens of each; 0: decode a plain step. */
size_t throttle_draft_limit(struct throttle *throttle, size_t busy);

/* True while a trial limits the number of draft tokens. */
bool throttle_is_ramping(const struct throttle *throttle);

/* After a step: its time, the mean number of tokens per sequence, and whether it had draft
 * tokens. `max`: upper bound of tokens per ms with drafting; INFINITY: unknown. */
void throttle_update(struct throttle *throttle, bool drafted, double tokens, double ms, double max);

/* Draft lengths by measured gain: of all lengths, the one that promises the most tokens per time.
 *
 * The acceptance rate at each depth is learnt from all sequences, recent steps counting more. The
 * time of a step is measured for each number of draft tokens that was tried: it is a staircase,
 * since kernels compute several tokens at a time. Between measured lengths it is interpolated;
 * beyond the longest it is extrapolated, but at most twice that length is tried, in batches one token
 * more, since each costs many rows there. Plain steps leave the length as it is. */

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

/* Upper bound of tokens per ms for lengths of 1 to `limit`, with the highest acceptance rates that the drafts so
 * far make plausible. */
double draft_gain_most(const struct draft_gain *gain, size_t limit);
