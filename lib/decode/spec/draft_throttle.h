/* Draft lengths (BASS), and throttling: drafting pauses while it is slower than plain decoding. */
#ifndef BMC_DRAFT_THROTTLE_H
#define BMC_DRAFT_THROTTLE_H

#include "kernel/gemm.h"

/* Draft lengths by measured gain (draft_gain.h), or by algorithm 1 of the BASS paper (3.2). */
struct draft_length {
    size_t increment, modulus, limit; /* l_incre, l_mod, l_limit of the paper */
    size_t now;                       /* l_draft */
    bool fixed;                       /* `now` never changes */
    bool measured;                    /* by measured gain */
    bool shrank;                      /* s of the paper: the last update reduced `now` */
};

/* Updates the draft length after a step by algorithm 1 of the BASS paper, given the tokens of its
 * longest draft (`offered`) and the most tokens accepted of a draft. The length grows only if a draft of the full length `now` was
 * accepted as a whole. It does not change if all of a shorter draft was accepted, whose length free
 * KV entries or the end of the request had limited. */
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

/* Throttling compares the time of speculative steps with the time of plain steps for the same
 * number of tokens.
 *
 * A run starts with plain steps until they stop getting faster, since memory is cold at first; the
 * time of a plain step is the minimum of the last THROTTLE_PLAIN. Drafting is then tried with few
 * draft tokens, doubled while no time is lost. It pauses when a window of THROTTLE_STEPS steps has
 * lost time, or earlier when it has lost the time of THROTTLE_LOSS plain steps. Each pause is twice
 * as long as the one before, until a window gains time. Meanwhile plain steps are timed again
 * every THROTTLE_RECHECK windows, and whenever the number of sequences changes. */
enum {
    THROTTLE_PLAIN = 4,       /* plain steps before drafting, none much faster than those before */
    THROTTLE_PLAIN_AGAIN = 2, /* plain steps to time again, after the first THROTTLE_PLAIN */
    THROTTLE_FIRST = 1,       /* draft tokens in a trial's first step */
    THROTTLE_RAMP = 4,        /* last limit on draft tokens in a trial; then there is none */
    THROTTLE_STEPS = 16,      /* steps per window */
    THROTTLE_RECHECK = 4,     /* windows until plain steps are timed again */
    THROTTLE_PAUSE = 256,     /* steps of the first pause */
    THROTTLE_PAUSE_MAX = 4096
};
#define THROTTLE_LOSS   1.0  /* lost time at which drafting pauses, in times of a plain step */
#define THROTTLE_FASTER 0.97 /* "much faster", relative to the fastest of the last plain steps */

struct throttle {
    bool always;                   /* never pause drafting */
    size_t busy;                   /* sequences in the last step */
    size_t plain;                  /* plain steps left before drafting is tried */
    size_t next_pause;             /* length of the next pause, in steps */
    double recent[THROTTLE_PLAIN]; /* times of the last plain steps in ms, a ring buffer */
    size_t n_recent;               /* plain steps timed since `busy` changed */
    double plain_ms;               /* the fastest of `recent` */
    size_t allowed;                /* maximum draft tokens per sequence in a trial */
    bool cold;                     /* the trial's first step is still to come */
    size_t windows;                /* windows since plain steps were timed */
    size_t steps;                  /* in this window; below: their tokens per sequence, and time */
    double tokens, ms;
    size_t pauses;
};

void throttle_begin(struct throttle *throttle, bool always);

/* Before a step of `busy` sequences: the maximum draft tokens of each; 0: decode a plain step. */
size_t throttle_draft_limit(struct throttle *throttle, size_t busy);

/* True while a trial limits the number of draft tokens. */
bool throttle_is_ramping(const struct throttle *throttle);

/* After a step: its time, the mean number of tokens per sequence, and whether it had draft
 * tokens. */
void throttle_update(struct throttle *throttle, bool drafted, double tokens, double ms);

#endif
