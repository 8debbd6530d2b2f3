/* How many candidates a step has, and whether there are any. */
#ifndef BMC_PACE_H
#define BMC_PACE_H

#include "base/base.h"

/* Draft lengths by algorithm 1 of the BASS paper (3.2). */
struct draft_length {
    size_t increment, modulus, limit; /* l_incre, l_mod, l_limit */
    size_t now;                       /* l_draft */
    bool fixed;                       /* it stays what it is */
    bool shrank;                      /* s: the last step made it shorter */
};

/* After a step in which a sequence had at most `offered` draft tokens and one accepted at most `accepted`. Only a draft of the full
 * length `now` that was accepted as a whole makes drafts longer. One that padded rows or the end of the request cut short, and that was
 * accepted as a whole, changes nothing. */
void draft_length_update(struct draft_length *length, size_t offered, size_t accepted);

/* The largest draft length under which `batch` sequences, each with its newest token, have at most `free_rows`
 * rows; at least 1. */
size_t draft_length_limit(size_t free_rows, size_t batch);

/* Whether drafting pays: the time of its steps against the time that plain steps would have taken for as many tokens.
 *
 * A run begins with plain steps until they get no quicker, since memory is cold at first. What a plain step takes is
 * the quickest of the last PACE_PLAIN. Then drafting is tried, with few candidates first, which double while no time
 * is lost. It pauses when PACE_STEPS steps lost time, or earlier when they lost PACE_LOSS plain steps; each pause is
 * twice as long as the one before, until drafting pays again. While it pays, plain steps are timed again now and then,
 * and whenever the batch changes. */
enum {
    PACE_PLAIN = 4, /* plain steps in a row, none of them much quicker than those before */
    PACE_AGAIN = 2, /* the same when they were timed before */
    PACE_FIRST =
        1, /* candidates of a trial's first step; they double for PACE_RAMP steps, then all are allowed */
    PACE_RAMP = 4,    /* candidates of a trial that is not proven; then there may be any number */
    PACE_STEPS = 16,  /* judged together */
    PACE_WINDOWS = 4, /* of PACE_STEPS steps, until plain steps are timed again */
    PACE_PAUSE = 256, /* steps */
    PACE_PAUSE_MAX = 4096
};
#define PACE_LOSS    1.0  /* plain steps */
#define PACE_QUICKER 0.97 /* of the time that was quickest so far */

struct pace {
    bool always;               /* never pause */
    size_t busy;               /* sequences of the step */
    size_t plain;              /* plain steps still to come before drafting is tried */
    size_t next_wait;          /* of the next pause */
    double recent[PACE_PLAIN]; /* ms of the last plain steps */
    size_t n_recent;           /* ever since the batch changed */
    double plain_ms;           /* the quickest of them */
    size_t allowed;            /* candidates of a trial */
    bool cold;                 /* its first step is still to come */
    size_t windows;            /* since plain steps were timed */
    size_t steps;              /* of the window */
    double tokens, ms;
    size_t pauses;
};

void pace_begin(struct pace *pace, bool always);

/* A step of `busy` sequences follows: candidates that each may have, 0 for a plain step. */
size_t pace_candidates(struct pace *pace, size_t busy);

/* True while a trial's first steps may have fewer candidates than are wanted. */
bool pace_ramps(const struct pace *pace);

/* The step took `ms`; every sequence got `tokens` on average. `drafted`: it had candidates. */
void pace_update(struct pace *pace, bool drafted, double tokens, double ms);

#endif
