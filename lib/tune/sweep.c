/* Estimates decode times from a sample of growths and steps. */
#include "tune/sweep.h"

#include "base/clock.h"
#include "base/mem.h"

/* A growth and the steps up to the next one. */
struct growth_class {
    double growth_ms;
    /* the first step after the growth: in a hot run, its new KV entries are in no CPU cache yet */
    double first_ms;
    double step_ms; /* mean of the other timed steps */
};

/* Number of steps from `from` to `to` tokens; each keeps m tokens, the last may keep fewer. */
static size_t count_steps(const struct tune_run *run, size_t from, size_t to)
{
    size_t steps = 0;
    for (size_t n = from; n < to; steps++)
        n += size_min(run->m, to - n);
    return steps;
}

/* Position of the i-th of `count` samples over [0, n), ends included. */
static size_t sample_position(size_t i, size_t count, size_t n)
{
    return count > 1 ? i * (n - 1) / (count - 1) : 0;
}

/* Times the steps up to `to` tokens; or, unless `steps` is 0, one step in the middle of each of `steps` equal sections of
 * [b->n, to). Adds to *sum and *n. In a hot run an untimed step precedes each of these, since skipped entries are only in
 * the caches of the core that wrote them. */
static int time_steps(struct layer_bench *b, size_t to, size_t steps, double *sum, size_t *n,
                      struct err *err)
{
    double ms;
    const size_t from = b->n;
    for (; (!steps || *n < steps) && b->n < to; (*n)++, *sum += ms) {
        if (steps && layer_bench_skip_to(b, from + (2 * *n + 1) * (to - from) / (2 * steps), err) < 0)
            return -1;
        const bool drain = steps && !b->run->evictor && count_steps(b->run, b->n, to) > 1;
        for (int i = 0; i <= drain; i++)
            if (layer_bench_grow(b, &ms, err) < 0 || layer_bench_step(b, &ms, err) < 0)
                return -1;
    }
    return 0;
}

/* Times the growth at `from` tokens and `steps` steps spread up to `to`; steps 0: all. */
static int time_class(struct layer_bench *b, size_t from, size_t to, size_t steps,
                      struct growth_class *class, size_t *timed, struct err *err)
{
    const bool cold = b->run->evictor != NULL; /* evicts before every step, the first included */
    double sum = 0;
    size_t n = 0;
    if (layer_bench_skip_to(b, from, err) < 0 || layer_bench_grow(b, &class->growth_ms, err) < 0)
        return -1;
    if (cold && steps) /* the growth only reserved the new entries' pages: leave them untouched */
        for (size_t s = 0; s < b->run->batch; s++)
            kv_commit(b->kv, s, 0);
    else if (layer_bench_step(b, &class->first_ms, err) < 0)
        return -1;
    const bool first = !(cold && steps);
    *timed += first;
    const size_t left = size_min(size_max(steps - first, 1), count_steps(b->run, b->n, to));
    if (time_steps(b, to, steps ? left : 0, &sum, &n, err) < 0)
        return -1;
    *timed += n;
    class->step_ms = n ? sum / (double)n : class->first_ms;
    if (!first)
        class->first_ms = class->step_ms;
    return 0;
}

/* Sums times over all growth classes, interpolating linearly between timed ones. */
static void sum_classes(const struct growth_class *class, const size_t *at, size_t n, size_t growths,
                        size_t r, size_t N, const struct tune_run *run, struct sweep_time *time)
{
    size_t left = 0;
    for (size_t i = 0; i < growths; i++) {
        while (left + 1 < n && at[left + 1] <= i)
            left++;
        const size_t right = left + 1 < n ? left + 1 : left;
        const double share = right > left ? (double)(i - at[left]) / (double)(at[right] - at[left]) : 0;
        const struct growth_class *a = &class[left], *b = &class[right];
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
    struct layer_bench b;
    int rc = -1;
    *time = (struct sweep_time){0};
    if (layer_bench_open(&b, run, spec, N, err) < 0)
        return -1;
    const size_t r = kv_setup(b.kv)->r, growths = div_up(N, r);
    const size_t n = sample->exact ? growths : size_min(growths, sample->growths);
    const size_t steps = div_up(sample->steps, n);
    struct growth_class *class = mem_alloc(n, sizeof *class);
    size_t *at = mem_alloc(n, sizeof *at);
    if (!class || !at) {
        err_no_memory(err, "%zu times", n);
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        at[i] = sample_position(i, n, growths);
        const size_t from = at[i] * r, to = size_min(from + r, N);
        if (time_class(&b, from, to, sample->exact ? 0 : steps, &class[i], &time -> steps_timed, err) <
            0)
            goto out;
    }
    sum_classes(class, at, n, growths, r, N, run, time);
    time->growths_timed = n;
    time->T = kv_setup(b.kv)->T;
    time->r = r;
    rc = 0;
out:
    layer_bench_close(&b);
    free(class);
    free(at);
    return rc;
}

/* Times one round, which runs all n policies; stops early when *seconds exceeds limit_s. */
static int time_round(const struct tune_run *run, const struct sweep_plan *plan, size_t batch,
                      const struct kv_spec *spec, size_t n, double limit_s, double *seconds,
                      struct err *err)
{
    struct tune_run part = *run;
    const double start = clock_ms();
    part.batch = batch;
    *seconds = 0;
    for (size_t i = 0; i < n && *seconds <= limit_s; i++) {
        struct sweep_time time;
        if (sweep_run(&part, &spec[i], plan->N, &plan->sample, &time, err) < 0)
            return -1;
        *seconds = (clock_ms() - start) / 1e3;
    }
    return 0;
}

/* Reduces the number of timed growths, then the number of sequences, until a round takes no more
 * than its share of the time budget. */
static int fit_budget(const struct tune_run *run, struct sweep_plan *plan, const struct kv_spec *spec,
                      size_t n, struct err *err)
{
    enum { LEAST_GROWTHS = 8 };
    const double round_s = plan->budget_s / (double)(plan->rounds + 1); /* + 1 for this estimate */
    double one_s, part_s;
    plan->batch_run = plan->batch;
    if (plan->budget_s <= 0)
        return 0;
    for (;;) {
        if (time_round(run, plan, 1, spec, n, round_s, &one_s, err) < 0)
            return -1;
        if (one_s <= round_s || plan->sample.growths <= LEAST_GROWTHS)
            break;
        plan->sample.growths /= 2;
    }
    if (one_s * (double)plan->batch <= round_s)
        return 0;
    /* Evicting CPU caches takes the same time for any batch, so a measurement of a second batch
     * size separates that constant. */
    const size_t some = one_s * 2 <= round_s ? (size_t)(round_s / one_s) : 1;
    plan->batch_run = some;
    if (some < 2)
        return 0;
    if (time_round(run, plan, some, spec, n, round_s, &part_s, err) < 0)
        return -1;
    /* Noise can make the larger batch appear faster. */
    const double each_s = fmax((part_s - one_s) / (double)(some - 1), part_s / (double)some / 8);
    const double most = (double)some + fmax(round_s - part_s, 0) / each_s;
    plan->batch_run = most < (double)plan->batch ? (size_t)most : plan->batch;
    return 0;
}

int sweep_plan(const struct tune_run *run, struct sweep_plan *plan, const struct kv_spec *spec,
               size_t n, double *time, size_t *T, struct err *err)
{
    struct tune_run part = *run;
    if (fit_budget(run, plan, spec, n, err) < 0)
        return -1;
    part.batch = plan->batch_run;
    const double scale = (double)plan->batch / (double)plan->batch_run;
    for (size_t round = 0; round < plan->rounds; round++)
        for (size_t i = 0; i < n; i++) {
            struct sweep_time one;
            if (sweep_run(&part, &spec[i], plan->N, &plan->sample, &one, err) < 0)
                return -1;
            time[round * n + i] = one.total_ms * scale;
            T[i] = one.T;
            if (plan->progress)
                plan->progress(plan->arg, round * n + i + 1, plan->rounds * n);
        }
    return 0;
}
