/* How many tokens of each draft a step verifies, where drafts cost nothing and their drafter tells how probable each token is: as
 * many as promise the most tokens per time. No draft token is verified to find out whether it pays: probabilities are learnt from
 * drafts that are not verified, too, and the times of passes from those that promise a gain by cautious estimates. */
#pragma once

#include "base/err.h"

/* Of passes with a number of rows (tokens): their time relative to the estimate to begin with, and how many were timed. */
struct row_pace {
    double factor;
    size_t n, at; /* the step of the last one */
};

/* Paces are relative to a common one, `ms`, so that a machine that is busier for a while changes no ratio. */
struct length_plan {
    double ms;              /* of a row whose cost is 1; 0: unknown */
    size_t steps, in_a_row; /* steps so far; those with draft tokens since one without */
    struct row_pace *row;   /* [max_rows + 1] */
    size_t max_rows;
    double lost;          /* time lost by drafts of late, in plain steps */
    size_t pause, paused; /* steps of the next pause, and those left of this one */
    size_t pauses;
};

/* `max_rows`: of a pass. */
int length_plan_open(struct length_plan *plan, size_t max_rows, struct err *err) MUST_USE;
void length_plan_close(struct length_plan *plan);

/* A draft, a chain: the probability of each of its n tokens if those before it are right; and how many of them are to be
 * verified. */
struct planned_draft {
    const float *probability;
    size_t n, verified;
    /* While plans are compared: tokens of this one, and the probability that all of them are right. */
    size_t taken;
    double path;
};

/* Chooses `verified` of all drafts of a step of `busy` sequences; not all of these need to have a draft. */
void length_plan_choose(struct length_plan *plan, struct planned_draft *draft, size_t n, size_t busy);

/* After a step of `busy` sequences with `drafted` draft tokens in all, which gave `tokens` tokens in `ms`. */
void length_plan_timed(struct length_plan *plan, size_t busy, size_t drafted, size_t tokens, double ms);
