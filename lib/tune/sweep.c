/* Timing decodes from a sample of their growths and steps. */
#include "tune/sweep.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

/* A growth and the steps up to the next one. */
struct class
{
    double growth_ms;
    double first_ms; /* the step right after it: in a hot run it finds its new rows in no cache yet */
    double step_ms;  /* mean of the others that were timed */
};

/* Steps that take n from `from` to `to`: k rows each of which m stay, fewer where fewer are free. */
static size_t count_steps(const struct tune_run *run, size_t from, size_t to)
{
    size_t steps = 0;
    for (size_t n = from; n < to; steps++)
        n += size_min(run->m, to - n);
    return steps;
}

/* Where the i-th of `count` samples over [0, n) lies, ends included. */
static size_t spread(size_t i, size_t count, size_t n)
{
    return count > 1 ? i * (n - 1) / (count - 1) : 0;
}

/* Every step of [b->n, to). */
static int time_all_steps(struct block *b, size_t to, double *sum, size_t *n, struct err *err)
{
    double ms;
    for (; b->n < to; (*n)++, *sum += ms)
        if (block_grow(b, &ms, err) < 0 || block_step(b, &ms, err) < 0)
            return -1;
    return 0;
}

/* Steps at the middles of `steps` equal parts of [b->n, to). In a hot run a step that does not count comes before each: the rows
 * that were skipped lie in the caches of whichever core wrote them. */
static int time_some_steps(struct block *b, size_t to, size_t steps, double *sum, size_t *n,
                           struct err *err)
{
    double ms;
    const size_t from = b->n;
    for (; *n < steps && b->n < to; (*n)++, *sum += ms) {
        if (block_skip_to(b, from + (2 * *n + 1) * (to - from) / (2 * steps), err) < 0)
            return -1;
        const bool settle = !b->run->sweeper && count_steps(b->run, b->n, to) > 1;
        for (int i = 0; i <= settle; i++)
            if (block_grow(b, &ms, err) < 0 || block_step(b, &ms, err) < 0)
                return -1;
    }
    return 0;
}

/* Times the growth at `from` rows and `steps` of the steps up to `to`; 0 steps are all. */
static int time_class(struct block *b, size_t from, size_t to, size_t steps, struct class *class,
                      size_t *timed, struct err *err)
{
    const bool cold = b->run->sweeper != NULL; /* then the first step is like all others */
    double sum = 0;
    size_t n = 0;
    if (block_skip_to(b, from, err) < 0 || block_grow(b, &class->growth_ms, err) < 0)
        return -1;
    if (cold && steps) /* the growth has opened a step: it is closed without rows */
        for (size_t s = 0; s < b->run->batch; s++)
            kv_commit(b->kv, s, 0);
    else if (block_step(b, &class->first_ms, err) < 0)
        return -1;
    const bool first = !(cold && steps);
    *timed += first;
    if (steps) {
        const size_t left = size_min(size_max(steps - first, 1), count_steps(b->run, b->n, to));
        if (time_some_steps(b, to, left, &sum, &n, err) < 0)
            return -1;
    } else if (time_all_steps(b, to, &sum, &n, err) < 0) {
        return -1;
    }
    *timed += n;
    class->step_ms = n ? sum / (double)n : class->first_ms;
    if (!first)
        class->first_ms = class->step_ms;
    return 0;
}

/* Between two classes that were timed the values lie on a straight line. */
static void integrate(const struct class *class, const size_t *at, size_t n, size_t growths, size_t r,
                      size_t N, const struct tune_run *run, struct sweep_time *time)
{
    size_t left = 0;
    for (size_t i = 0; i < growths; i++) {
        while (left + 1 < n && at[left + 1] <= i)
            left++;
        const size_t right = left + 1 < n ? left + 1 : left;
        const double share = right > left ? (double)(i - at[left]) / (double)(at[right] - at[left]) : 0;
        const struct class *a = &class[left], *b = &class[right];
        const size_t steps = count_steps(run, i * r, size_min((i + 1) * r, N));
        time->growth_ms += a->growth_ms + share * (b->growth_ms - a->growth_ms);
        time->step_ms += a->first_ms + share * (b->first_ms - a->first_ms) +
                         (double)(steps - 1) * (a->step_ms + share * (b->step_ms - a->step_ms));
    }
    time->total_ms = time->growth_ms + time->step_ms;
}

int sweep_run(const struct tune_run *run, const struct kv_spec *spec, size_t N,
              const struct sweep_sample *sample, struct sweep_time *time, struct err *err)
{
    struct block b;
    int rc = -1;
    *time = (struct sweep_time){0};
    if (block_open(&b, run, spec, N, err) < 0)
        return -1;
    const size_t r = kv_setup(b.kv)->r, growths = div_up(N, r);
    const size_t n = sample->exact ? growths : size_min(growths, sample->growths);
    const size_t steps = div_up(sample->steps, n);
    struct class *class = mem_alloc(n, sizeof *class);
    size_t *at = mem_alloc(n, sizeof *at);
    if (!class || !at) {
        err_set(err, "out of memory for %zu times", n);
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        at[i] = spread(i, n, growths);
        const size_t from = at[i] * r, to = size_min(from + r, N);
        if (time_class(&b, from, to, sample->exact ? 0 : steps, &class[i], &time -> steps_timed, err) <
            0)
            goto out;
    }
    integrate(class, at, n, growths, r, N, run, time);
    time->growths_timed = n;
    time->T = kv_setup(b.kv)->T;
    time->r = r;
    rc = 0;
out:
    block_close(&b);
    free(class);
    free(at);
    return rc;
}

/* Seconds of one round, or of as much of it as fits into `limit_s` seconds: then it is more than those. */
static int time_round(const struct tune_run *run, const struct sweep_cell *cell, size_t batch,
                      const struct kv_spec *spec, size_t n, double limit_s, double *seconds,
                      struct err *err)
{
    struct tune_run part = *run;
    const double start = clock_ms();
    part.batch = batch;
    *seconds = 0;
    for (size_t i = 0; i < n && *seconds <= limit_s; i++) {
        struct sweep_time time;
        if (sweep_run(&part, &spec[i], cell->N, &cell->sample, &time, err) < 0)
            return -1;
        *seconds = (clock_ms() - start) / 1e3;
    }
    return 0;
}

/* Makes a round take its share of the budget: first fewer classes of growths, then fewer sequences of the batch. */
static int fit_budget(const struct tune_run *run, struct sweep_cell *cell, const struct kv_spec *spec,
                      size_t n, struct err *err)
{
    enum { LEAST_GROWTHS = 8 };
    const double round_s = cell->budget_s / (double)(cell->rounds + 1); /* one for finding out */
    double one_s, part_s;
    cell->batch_run = cell->batch;
    if (cell->budget_s <= 0)
        return 0;
    for (;;) {
        if (time_round(run, cell, 1, spec, n, round_s, &one_s, err) < 0)
            return -1;
        if (one_s <= round_s || cell->sample.growths <= LEAST_GROWTHS)
            break;
        cell->sample.growths /= 2;
    }
    if (one_s * (double)cell->batch <= round_s)
        return 0;
    /* Sweeping the caches takes the same time for any number of sequences: a second point tells. */
    const size_t some = one_s * 2 <= round_s ? (size_t)(round_s / one_s) : 1;
    cell->batch_run = some;
    if (some < 2)
        return 0;
    if (time_round(run, cell, some, spec, n, round_s, &part_s, err) < 0)
        return -1;
    /* Noise can make the larger batch the faster one. */
    const double each_s = fmax((part_s - one_s) / (double)(some - 1), part_s / (double)some / 8);
    const double most = (double)some + fmax(round_s - part_s, 0) / each_s;
    cell->batch_run = most < (double)cell->batch ? (size_t)most : cell->batch;
    return 0;
}

int sweep_cell(const struct tune_run *run, struct sweep_cell *cell, const struct kv_spec *spec,
               size_t n, double *time, size_t *T, struct err *err)
{
    struct tune_run part = *run;
    if (fit_budget(run, cell, spec, n, err) < 0)
        return -1;
    part.batch = cell->batch_run;
    const double scale = (double)cell->batch / (double)cell->batch_run;
    for (size_t round = 0; round < cell->rounds; round++)
        for (size_t i = 0; i < n; i++) {
            struct sweep_time one;
            if (sweep_run(&part, &spec[i], cell->N, &cell->sample, &one, err) < 0)
                return -1;
            time[round * n + i] = one.total_ms * scale;
            T[i] = one.T;
            if (cell->progress)
                cell->progress(cell->arg, round * n + i + 1, cell->rounds * n);
        }
    return 0;
}
