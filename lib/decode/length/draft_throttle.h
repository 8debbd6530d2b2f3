/* Throttling: drafting pauses while it is slower than plain decoding. */
#ifndef BMC_DRAFT_THROTTLE_H
#define BMC_DRAFT_THROTTLE_H

#include "base/base.h"

/* Throttling compares the time of speculative steps with the time of plain steps for the same
 * number of tokens.
 *
 * A run starts with THROTTLE_PLAIN_AGAIN plain steps, more if they still get faster, since memory is
 * cold at first; the time of a plain step is the minimum of the last THROTTLE_PLAIN. Drafting is then
 * tried, with few draft tokens where they are expensive, doubled while no time is lost. If it is not
 * THROTTLE_CLEAR times as fast as plain decoding, more plain steps are timed, at least THROTTLE_PLAIN
 * in all. Drafting pauses when it cannot be expected to pay, when a window of THROTTLE_STEPS steps has lost time, or earlier when it has lost the time of THROTTLE_LOSS plain steps. Each pause is twice
 * as long as the one before, until a window gains time. Meanwhile plain steps are timed again
 * every THROTTLE_RECHECK windows, and whenever the number of sequences changes. */
enum {
    THROTTLE_PLAIN = 4,       /* plain steps timed before drafting goes on that may not pay */
    THROTTLE_PLAIN_AGAIN = 2, /* plain steps at first, and to time again */
    THROTTLE_FIRST = 1,       /* draft tokens in the first step of a trial after a pause */
    THROTTLE_RAMP = 4,        /* last limit on draft tokens in a trial; then there is none */
    THROTTLE_STEPS = 16,      /* steps per window */
    THROTTLE_SURE =
        4, /* steps, fewer if they lose time, after which drafting is or is not clearly faster */
    THROTTLE_RECHECK = 4, /* windows until plain steps are timed again */
    THROTTLE_PAUSE = 256, /* steps of the first pause */
    THROTTLE_PAUSE_MAX = 4096
};
#define THROTTLE_LOSS 1.0 /* lost time at which drafting pauses, in times of a plain step */
#define THROTTLE_LUCK                                                                                  \
    2.5 /* the same where it is known what drafting may give: some rejections are bad luck */
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
    bool doubted;                  /* drafting was not clearly faster: THROTTLE_PLAIN were asked for */
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
 * tokens. `most`: tokens per ms that drafting may give at most, as far as is known; INFINITY: unknown. */
void throttle_update(struct throttle *throttle, bool drafted, double tokens, double ms, double most);

#endif
