/* Estimates the time of decoding from an empty cache to N tokens under a cache policy, from a
 * sample of its growths (reallocations) and steps. */
#pragma once

#include "tune/layer_bench.h"
#include "tune/fit.h"

/* How many growths and steps of a decode are timed. */
struct sweep_sample {
    bool exact;     /* every growth and every step */
    size_t growths; /* maximum number of growths timed; all if there are fewer */
    size_t steps;   /* minimum number of steps timed, spread over [1, N] */
};

struct sweep_time {
    double total_ms, growth_ms, step_ms;
    size_t T, r;
    size_t steps_timed, growths_timed;
};

/* Estimates the time of one decode. A growth class is one growth, to (i+1) r tokens, and the steps
 * up to the next growth; classes that are not timed are interpolated linearly. */
int sweep_run(const struct tune_run *run, const struct kv_spec *spec, size_t N,
              const struct sweep_sample *sample, struct sweep_time *time, struct err *err) MUST_USE;

/* A context length and batch size to measure; every round measures all policies in turn. */
struct sweep_plan {
    size_t N, batch;
    size_t batch_run; /* sequences that actually run; times are scaled to `batch` */
    size_t rounds;
    struct sweep_sample sample;
    /* time limit, met by reducing sample.growths (to 8 at least) and batch_run; 0: none */
    double budget_s;
    void (*progress)(void *arg, size_t done, size_t total);
    void *arg;
};

enum { SWEEP_MAX = FIT_MAX_POINTS };

/* Measures decode times under n policies. Sets time[round * n + i], milliseconds under spec[i];
 * T[i], its actual number of allocations; plan->batch_run and plan->sample. */
int sweep_plan(const struct tune_run *run, struct sweep_plan *plan, const struct kv_spec *spec,
               size_t n, double *time, size_t *T, struct err *err) MUST_USE;
