/* What a decode from empty to N rows costs under a policy, from each class of growth and a sample of steps. */
#ifndef BMC_SWEEP_H
#define BMC_SWEEP_H

#include "tune/block.h"
#include "tune/fit.h"

/* How much of a run is timed. */
struct sweep_sample {
    bool exact;     /* every growth and every step */
    size_t growths; /* classes of growths at most; all where there are no more */
    size_t steps;   /* steps at least, spread over [1, N] */
};

struct sweep_time {
    double total_ms, growth_ms, step_ms;
    size_t T, r;
    size_t steps_timed, growths_timed;
};

/* One run. A growth to (i+1) r rows is a class, and so are the steps between it and the next one: what was not timed is
 * taken as lying straight between its neighbours. */
int sweep_run(const struct tune_run *run, const struct kv_spec *spec, size_t N,
              const struct sweep_sample *sample, struct sweep_time *time, struct err *err) MUST_USE;

/* A context and batch, all T of which take turns. */
struct sweep_cell {
    size_t N, batch;
    size_t batch_run; /* sequences that are run at a time; times are scaled to `batch` */
    size_t rounds;
    struct sweep_sample sample;
    double
        budget_s; /* sample.growths (at least 8) and batch_run are chosen so that the cell takes about so
                     long; 0: they stay, and all sequences are run */
    void (*progress)(void *arg, size_t done, size_t total);
    void *arg;
};

enum { SWEEP_MAX = FIT_MAX_POINTS };

/* time[round * n + i] in milliseconds of spec[i], and T[i] as it really was. Sets cell->batch_run and sample. */
int sweep_cell(const struct tune_run *run, struct sweep_cell *cell, const struct kv_spec *spec,
               size_t n, double *time, size_t *T, struct err *err) MUST_USE;

#endif
