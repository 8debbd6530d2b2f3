/* How many candidates a step has, and whether there are any. */
#ifndef BMC_PACE_H
#define BMC_PACE_H

#include "base/base.h"

/* Draft lengths by algorithm 1 of bass.txt (3.2). */
struct draft_length {
    size_t increment, modulus, limit; /* l_incre, l_mod, l_limit */
    size_t now;                       /* l_draft */
    bool fixed;                       /* it stays what it is */
    bool shrank;                      /* s: the last step made it shorter */
};

/* After a step of `offered` candidates per sequence at most, of which the luckiest sequence accepted `accepted`. */
void draft_length_update(struct draft_length *length, size_t offered, size_t accepted);

/* The largest draft length under which `batch` sequences, each with its newest token, have at most `free_rows`
 * rows; at least 1. */
size_t draft_length_limit(size_t free_rows, size_t batch);

/* Whether drafting pays. The gain is the time that plain steps would have taken for the tokens that came, divided
 * by the time that they took. Drafting pauses when it is below 1 over PACE_STEPS steps, or earlier when PACE_LOSS
 * plain steps have been lost; the pause is longer each time, and ends with a gain above 1. */
enum { PACE_STEPS = 16, PACE_LOSS = 2, PACE_PLAIN = 3, PACE_PAUSE = 256, PACE_PAUSE_MAX = 4096 };

struct pace {
    bool always;      /* never pause */
    size_t plain;     /* plain steps still to come before drafting is tried */
    size_t next_wait; /* of the next pause */
    size_t settle;    /* steps that do not count: caches are cold after a change */
    double plain_ms;  /* of a plain step; 0: not known yet */
    size_t steps;     /* of the window */
    double tokens, ms;
    size_t pauses;
};

void pace_begin(struct pace *pace, bool always);

/* Is the next step to have candidates? */
bool pace_wants_draft(const struct pace *pace);

/* A step took `ms`; every sequence got `tokens` on average. `drafted`: it had candidates. */
void pace_update(struct pace *pace, bool drafted, double tokens, double ms);

#endif
