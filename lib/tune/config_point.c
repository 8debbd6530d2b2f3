/* Predicted and measured times of a configuration point. */
#include "tune/config_point.h"

#include "quant/cache_types.h"
#include "base/mem.h"
#include "base/vm.h"
#include "report/stat.h"

const char *const point_policy_names[POINT_POLICIES] = {"iterative", "upfront", "paged:16", "reserve",
                                                        "segment:T=tuned"};

enum { FIT_RANGE = 8 }; /* T are measured and fitted from T/8 to 8T around the T used */

/* The best T by another reading of eq. 8 of the BMC paper: f32 rates at G = 1, with factor G * Q.
 * 0: the profile has no such rates. */
static double closed_gq(const struct tune_run *run, const struct profile *profile,
                        const struct config_point_plan *plan)
{
    struct tune_query query = tune_query_of(run, plan->batch, plan->N);
    struct cost_config point;
    struct err ignored;
    double T;
    query.type = DTYPE_F32;
    query.kv_heads = run->heads;
    if (!profile_cost_config(profile, &query, &point) || point.sdpa->group != 1 ||
        point.copy->group != 1)
        return 0;
    const double Q = (double)dtype_row_bytes(DTYPE_F32, run->head_dim) /
                     (double)dtype_row_bytes(run->type, run->head_dim);
    point.gq = (double)(run->heads / run->kv_heads) * Q;
    const struct cost cost = cost_constant_rates(&point);
    return cost_closed_T(&cost, &T, &ignored) < 0 ? 0 : T;
}

/* Chooses the T to measure: T = 1 and the powers of two around the T used. */
static void choose_T(struct config_point *point)
{
    point->n = 0;
    for (size_t T = 1; T <= point->N; T *= 2) {
        const bool near = T * FIT_RANGE >= point->answer.pow2 && T <= point->answer.pow2 * FIT_RANGE;
        if (!near && T != 1)
            continue;
        if (T == point->answer.pow2)
            point->used = point->n;
        point->in_fit[point->n] = near;
        point->T[point->n++] = (double)T;
    }
}

static struct config_point_time time_of(const double *time, size_t columns, size_t rounds,
                                        size_t column)
{
    double x[FIT_MAX_ROUNDS];
    for (size_t r = 0; r < rounds; r++)
        x[r] = time[r * columns + column];
    return (struct config_point_time){stat_quantile(x, rounds, 0.5), stat_quantile(x, rounds, 0.25),
                                      stat_quantile(x, rounds, 0.75)};
}

/* Stores measured times, and the actual T, ceil(N / r), where it differs from the requested one. */
static int take_times(struct config_point *point, const struct config_point_plan *plan,
                      const double *time, const size_t *T, size_t columns, uint64_t seed,
                      struct err *err)
{
    for (size_t i = 0; i < point->n; i++) {
        point->T[i] = (double)T[i];
        point->time[i] = time_of(time, columns, point->rounds, i);
    }
    for (size_t i = 0; plan->others && i < POINT_POLICIES; i++) {
        point->other[i] = time_of(time, columns, point->rounds, point->n + i);
        if (fit_ratio(&point->over_bmc[i], time, columns, point->rounds, point->n + i, point->used,
                      seed, err) < 0)
            return -1;
    }
    size_t first = 0;
    while (!point->in_fit[first])
        first++;
    if (fit_regret(&point->regret, point->T + first, time + first, point->n - first, columns,
                   point->rounds, point->used - first, (double)point->N, seed, err) < 0)
        return -1;
    point->regret.best += first;
    return 0;
}

static int measure_point(const struct tune_run *run, const struct config_point_plan *plan,
                         struct config_point *point, struct err *err)
{
    struct kv_spec spec[SWEEP_MAX + POINT_POLICIES];
    size_t T[SWEEP_MAX + POINT_POLICIES], columns = point->n;
    for (size_t i = 0; i < point->n; i++) {
        if (kv_spec_parse(&spec[i], "bmc", err) < 0)
            return -1;
        spec[i].T = (size_t)point->T[i];
    }
    for (size_t i = 0; plan->others && i < POINT_POLICIES; i++, columns++) {
        if (kv_spec_parse(&spec[columns], point_policy_names[i], err) < 0)
            return -1;
        spec[columns].T =
            kv_spec_needs_T(&spec[columns]) ? point->answer.pow2 : 0; /* the T that bmc uses */
    }
    struct sweep_plan sweep = {
        .N = plan->N,
        .batch = plan->batch,
        .rounds = plan->rounds,
        .sample = {.exact = plan->exact, .growths = 32, .steps = 32},
        .budget_s = plan->exact ? 0 : plan->budget_s,
        .progress = plan->progress,
        .arg = plan->arg,
    };
    AUTO(free_auto) double *time = mem_alloc(plan->rounds * columns, sizeof *time);
    int rc = time ? sweep_plan(run, &sweep, spec, columns, time, T, err) : err_no_memory(err, "times");
    point->rounds = plan->rounds;
    point->batch_run = sweep.batch_run;
    if (rc == 0)
        rc = take_times(point, plan, time, T, columns, run->seed, err);
    point->measured = rc == 0;
    return rc;
}

/* Measures a point, again with twice the rounds where fit and measurement contradict each other: other processes, and
 * too few rounds, are the usual causes. */
static int settle_point(const struct tune_run *run, struct config_point_plan plan,
                        struct config_point *point, struct err *err)
{
    do {
        choose_T(point); /* a measurement has replaced them by those that the cache allows */
        if (measure_point(run, &plan, point, err) < 0)
            return -1;
        point->attempts++;
        plan.rounds = size_min(2 * plan.rounds, FIT_MAX_ROUNDS);
    } while (config_point_contradicts(point) && point->attempts < plan.attempts);
    return 0;
}

int config_point_make(const struct tune_run *given, const struct profile *profile,
                      const struct config_point_plan *plan, struct config_point *point, struct err *err)
{
    struct tune_run run = *given;
    struct cost_config cost;
    run.batch = plan->batch;
    const struct tune_query query = tune_query_of(&run, plan->batch, plan->N);
    *point = (struct config_point){
        .N = plan->N, .batch = plan->batch, .k = run.k, .m = run.m, .cold = run.evictor != NULL};
    if (!profile_cost_config(profile, &query, &cost))
        return err_set(err, "nothing was calibrated for attention %s and %s rows", query.attn,
                       cache_type_name(run.type));
    if (cost_answer(&cost, &point->answer, err) < 0)
        return -1;
    cost_least(&cost, &point->answer);
    point->closed_gq = closed_gq(&run, profile, plan);
    choose_T(point);
    for (size_t i = 0; i < point->n; i++)
        point->predicted_ms[i] = cost_config_seconds(&cost, (size_t)point->T[i]) * 1e3;
    if (!plan->sweep)
        return 0;
    const double bytes = layer_bench_entry_bytes(&run) * (double)plan->N * (double)plan->batch;
    const size_t free_bytes = vm_available();
    if (free_bytes && bytes * 1.2 > (double)free_bytes)
        point->refusal = "the cache does not fit in memory";
    else if (plan->N < 4)
        point->refusal = "too few T to compare";
    return point->refusal ? 0 : settle_point(&run, *plan, point, err);
}

bool config_point_contradicts(const struct config_point *point)
{
    const struct regret *r = &point->regret;
    return point->measured && (r->lo > r->raw.hi * 1.05 || r->raw.lo > r->hi * 1.05);
}

/* Whether the point is plain decoding: caches evicted (cold) and no speculation. */
static bool is_plain_decoding(const struct config_point *point)
{
    return point->measured && point->cold && point->k == 1 &&
           point->over_bmc[POINT_ITERATIVE].value > 0;
}

static const struct ratio bmc_itself = {1, 1, 1};

const char *config_point_fastest(const struct config_point *point, struct ratio *ratio)
{
    const char *name = "bmc";
    *ratio = bmc_itself;
    for (size_t i = 0; i < POINT_POLICIES; i++)
        if (point->over_bmc[i].value > 0 && point->over_bmc[i].value < ratio->value) {
            name = point_policy_names[i];
            *ratio = point->over_bmc[i];
        }
    return name;
}

/* Whether policy `other` is faster than bmc at every plain decoding point; *worst is its largest
 * ratio. False if an interval reaches 1 or there is no such point. */
static bool clearly_faster(const struct config_point *point, size_t n, size_t other,
                           struct ratio *worst)
{
    *worst = (struct ratio){0};
    for (size_t i = 0; i < n; i++) {
        const struct ratio *r = &point[i].over_bmc[other];
        if (!is_plain_decoding(&point[i]))
            continue;
        if (!(r->value > 0 && r->hi < 1))
            return false;
        *worst = r->value > worst->value ? *r : *worst;
    }
    return worst->value > 0;
}

const char *config_points_policy(const struct config_point *point, size_t n, struct ratio *ratio)
{
    const char *name = NULL;
    struct ratio worst;
    *ratio = bmc_itself;
    for (size_t i = 0; i < n && !name; i++)
        name = is_plain_decoding(&point[i]) ? "bmc" : NULL;
    for (size_t other = 0; other < POINT_POLICIES; other++)
        if (clearly_faster(point, n, other, &worst) && worst.value < ratio->value) {
            name = point_policy_names[other];
            *ratio = worst;
        }
    return name;
}
