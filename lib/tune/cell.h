/* One cell: a context and a batch of one shape, predicted and measured. */
#ifndef BMC_CELL_H
#define BMC_CELL_H

#include "tune/profile.h"
#include "tune/sweep.h"

/* What beside bmc is run in the same rounds. */
enum cell_other { CELL_ITERATIVE, CELL_UPFRONT, CELL_PAGED, CELL_RESERVE, CELL_SEGMENT, CELL_OTHERS };

struct cell_plan {
    size_t N, batch;
    bool sweep;  /* measure; else predict only */
    bool others; /* the policies beside bmc, too */
    bool exact;  /* every step of every run */
    size_t rounds;
    double budget_s; /* about; 0: no limit */
    void (*progress)(void *arg, size_t done, size_t total);
    void *arg;
};

/* A median over rounds and the distance of its quartiles. */
struct cell_time {
    double ms, lo_ms, hi_ms;
};

struct cell {
    size_t N, batch, k, m;
    bool cold;
    struct cost_answer answer; /* with constants at the cache's type and G */
    double
        closed_gq; /* with f32 constants of G = 1, and G * Q (eq. 8); 0 where these were not measured */
    size_t n;      /* T measured, or predicted only */
    double T[SWEEP_MAX], predicted_ms[SWEEP_MAX];
    struct cell_time time[SWEEP_MAX];
    size_t used;         /* index of answer.pow2 */
    const char *refusal; /* why nothing was measured, or NULL */
    bool measured;
    size_t rounds, batch_run;
    bool in_fit[SWEEP_MAX]; /* T within a factor of 8 of the one used */
    struct regret regret;   /* over those */
    struct cell_time other[CELL_OTHERS];
    struct ratio over_bmc[CELL_OTHERS]; /* time divided by that of bmc at the T used */
};

extern const char *const cell_other_names[CELL_OTHERS];

/* `profile` has the curves; its hot or cold ones are used as run->sweeper says. */
int cell_make(const struct tune_run *run, const struct profile *profile, const struct cell_plan *plan,
              struct cell *cell, struct err *err) MUST_USE;

/* Measured, and the fitted regret and the measured one contradict each other: their intervals lie more than 5 % apart.
 * Then the curve is not that of the points, and what is read from it is nothing to go by. */
bool cell_doubtful(const struct cell *cell);

/* The policy that measured fastest by the ratios to bmc at the T used, "bmc" where none is below 1; *ratio is that policy's,
 * 1 for bmc. Whether the difference is more than noise, its interval says. */
const char *cell_fastest(const struct cell *cell, struct ratio *ratio);

/* The policy to use after `n` cells: one whose interval lies below 1 in every cell that was measured cold without
 * speculation, of several the one with the least ratio at its worst; else "bmc". NULL when there is no such cell. *ratio is
 * that of its worst cell. */
const char *cells_policy(const struct cell *cell, size_t n, struct ratio *ratio);

#endif
