/* One cell, predicted and measured. */
#include "tune/cell.h"

#include <stdlib.h>

#include "base/cache_types.h"
#include "base/mem.h"
#include "base/stat.h"

const char *const cell_other_names[CELL_OTHERS] = {"iterative", "upfront", "paged:16", "reserve",
                                                   "segment:T=tuned"};

enum { REACH = 8 }; /* T within this factor of the one used are measured and fitted */

/* The question about this cell, and about the same with f32 rows for every query head. */
static struct tune_question question_of(const struct tune_run *run, const struct cell_plan *plan,
                                        bool gq)
{
    return (struct tune_question){
        .attn = run->attn->name,
        .type = gq ? DTYPE_F32 : run->type,
        .heads = run->heads,
        .kv_heads = gq ? run->heads : run->kv_heads,
        .head_dim = run->head_dim,
        .layers = 1,
        .batch = plan->batch,
        .N = plan->N,
        .k = run->k,
        .m = run->m,
        .hot = run->sweeper == NULL,
    };
}

/* The other reading of eq. 8: what f32 and G = 1 measured, with G * Q in the formula. */
static double closed_gq(const struct tune_run *run, const struct profile *profile,
                        const struct cell_plan *plan)
{
    const struct tune_question question = question_of(run, plan, true);
    struct cost_cell cell;
    struct err ignored;
    double T;
    if (!profile_cell(profile, &question, &cell) || cell.sdpa->group != 1 || cell.copy->group != 1)
        return 0;
    const double Q = (double)dtype_row_bytes(DTYPE_F32, run->head_dim) /
                     (double)dtype_row_bytes(run->type, run->head_dim);
    cell.shrink = (double)(run->heads / run->kv_heads) * Q;
    const struct cost cost = cost_of_cell(&cell);
    return cost_closed_T(&cost, &T, &ignored) < 0 ? 0 : T;
}

/* T = 1 and the powers of two around the one used. */
static void choose_T(struct cell *cell)
{
    cell->n = 0;
    for (size_t T = 1; T <= cell->N; T *= 2) {
        const bool near = T * REACH >= cell->answer.pow2 && T <= cell->answer.pow2 * REACH;
        if (!near && T != 1)
            continue;
        if (T == cell->answer.pow2)
            cell->used = cell->n;
        cell->in_fit[cell->n] = near;
        cell->T[cell->n++] = (double)T;
    }
}

static struct cell_time time_of(const double *time, size_t columns, size_t rounds, size_t column)
{
    double x[FIT_MAX_ROUNDS];
    for (size_t r = 0; r < rounds; r++)
        x[r] = time[r * columns + column];
    return (struct cell_time){stat_quantile(x, rounds, 0.5), stat_quantile(x, rounds, 0.25),
                              stat_quantile(x, rounds, 0.75)};
}

/* The regret over the columns that are in the fit. */
static int find_regret(struct cell *cell, const double *time, size_t columns, uint64_t seed,
                       struct err *err)
{
    double T[SWEEP_MAX];
    double *part = mem_alloc(cell->rounds * cell->n, sizeof *part);
    size_t n = 0, used = 0, first = 0;
    if (!part)
        return err_set(err, "out of memory for times");
    while (!cell->in_fit[first])
        first++;
    for (size_t i = first; i < cell->n; i++) {
        used = i == cell->used ? n : used;
        T[n++] = cell->T[i];
    }
    for (size_t r = 0; r < cell->rounds; r++)
        for (size_t i = 0; i < n; i++)
            part[r * n + i] = time[r * columns + first + i];
    const int rc =
        fit_regret(&cell->regret, T, part, n, cell->rounds, used, (double)cell->N, seed, err);
    cell->regret.best += first;
    free(part);
    return rc;
}

/* Where T as it happens, ceil(N / r), is another than was asked for, that is what is reported. */
static int take_times(struct cell *cell, const struct cell_plan *plan, const double *time,
                      const size_t *T, size_t columns, uint64_t seed, struct err *err)
{
    for (size_t i = 0; i < cell->n; i++) {
        cell->T[i] = (double)T[i];
        cell->time[i] = time_of(time, columns, cell->rounds, i);
    }
    for (size_t i = 0; plan->others && i < CELL_OTHERS; i++) {
        cell->other[i] = time_of(time, columns, cell->rounds, cell->n + i);
        if (fit_ratio(&cell->over_bmc[i], time, columns, cell->rounds, cell->n + i, cell->used, seed,
                      err) < 0)
            return -1;
    }
    return find_regret(cell, time, columns, seed, err);
}

static int measure(const struct tune_run *run, const struct cell_plan *plan, struct cell *cell,
                   struct err *err)
{
    struct kv_spec spec[SWEEP_MAX + CELL_OTHERS];
    size_t T[SWEEP_MAX + CELL_OTHERS], columns = cell->n;
    for (size_t i = 0; i < cell->n; i++) {
        if (kv_spec_parse(&spec[i], "bmc", err) < 0)
            return -1;
        spec[i].T = (size_t)cell->T[i];
    }
    for (size_t i = 0; plan->others && i < CELL_OTHERS; i++, columns++) {
        if (kv_spec_parse(&spec[columns], cell_other_names[i], err) < 0)
            return -1;
        spec[columns].T = kv_spec_needs_T(&spec[columns]) ? cell->answer.pow2 : 0; /* as bmc's */
    }
    struct sweep_cell sweep = {
        .N = plan->N,
        .batch = plan->batch,
        .rounds = plan->rounds,
        .sample = {.exact = plan->exact, .growths = 32, .steps = 32},
        .budget_s = plan->exact ? 0 : plan->budget_s,
        .progress = plan->progress,
        .arg = plan->arg,
    };
    double *time = mem_alloc(plan->rounds * columns, sizeof *time);
    int rc = time ? sweep_cell(run, &sweep, spec, columns, time, T, err)
                  : err_set(err, "out of memory for times");
    cell->rounds = plan->rounds;
    cell->batch_run = sweep.batch_run;
    if (rc == 0)
        rc = take_times(cell, plan, time, T, columns, run->seed, err);
    cell->measured = rc == 0;
    free(time);
    return rc;
}

int cell_make(const struct tune_run *given, const struct profile *profile, const struct cell_plan *plan,
              struct cell *cell, struct err *err)
{
    struct tune_run run = *given;
    struct cost_cell cost;
    run.batch = plan->batch;
    const struct tune_question question = question_of(&run, plan, false);
    *cell = (struct cell){
        .N = plan->N, .batch = plan->batch, .k = run.k, .m = run.m, .cold = run.sweeper != NULL};
    if (!profile_cell(profile, &question, &cost))
        return err_set(err, "nothing was calibrated for attention %s and %s rows", run.attn->name,
                       cache_type_name(run.type));
    if (cost_answer(&cost, &cell->answer, err) < 0)
        return -1;
    cost_least(&cost, &cell->answer);
    cell->closed_gq = closed_gq(&run, profile, plan);
    choose_T(cell);
    for (size_t i = 0; i < cell->n; i++)
        cell->predicted_ms[i] = cost_cell_seconds(&cost, (size_t)cell->T[i]) * 1e3;
    if (!plan->sweep)
        return 0;
    const double bytes = block_row_bytes(&run) * (double)plan->N * (double)plan->batch;
    const size_t free_bytes = memory_available();
    if (free_bytes && bytes * 1.2 > (double)free_bytes)
        cell->refusal = "the cache does not fit in memory";
    else if (plan->N < 4)
        cell->refusal = "too few T to compare";
    return cell->refusal ? 0 : measure(&run, plan, cell, err);
}

bool cell_doubtful(const struct cell *cell)
{
    const struct regret *r = &cell->regret;
    return cell->measured && (r->lo > r->raw.hi * 1.05 || r->raw.lo > r->hi * 1.05);
}

/* Programs decode as cold cells do; speculation has steps of its own. */
static bool cell_counts(const struct cell *cell)
{
    return cell->measured && cell->cold && cell->k == 1 && cell->over_bmc[CELL_ITERATIVE].value > 0;
}

static const struct ratio bmc_itself = {1, 1, 1};

const char *cell_fastest(const struct cell *cell, struct ratio *ratio)
{
    const char *name = "bmc";
    *ratio = bmc_itself;
    for (size_t i = 0; i < CELL_OTHERS; i++)
        if (cell->over_bmc[i].value > 0 && cell->over_bmc[i].value < ratio->value) {
            name = cell_other_names[i];
            *ratio = cell->over_bmc[i];
        }
    return name;
}

/* The largest ratio of a policy in the cells that count; false where one of its intervals reaches 1, or there is no cell. */
static bool clearly_faster(const struct cell *cell, size_t n, size_t other, struct ratio *worst)
{
    *worst = (struct ratio){0};
    for (size_t i = 0; i < n; i++) {
        const struct ratio *r = &cell[i].over_bmc[other];
        if (!cell_counts(&cell[i]))
            continue;
        if (!(r->value > 0 && r->hi < 1))
            return false;
        *worst = r->value > worst->value ? *r : *worst;
    }
    return worst->value > 0;
}

const char *cells_policy(const struct cell *cell, size_t n, struct ratio *ratio)
{
    const char *name = NULL;
    struct ratio worst;
    *ratio = bmc_itself;
    for (size_t i = 0; i < n && !name; i++)
        name = cell_counts(&cell[i]) ? "bmc" : NULL;
    for (size_t other = 0; other < CELL_OTHERS; other++)
        if (clearly_faster(cell, n, other, &worst) && worst.value < ratio->value) {
            name = cell_other_names[other];
            *ratio = worst;
        }
    return name;
}
