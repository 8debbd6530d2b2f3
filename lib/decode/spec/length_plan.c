/* Plans draft lengths by probabilities of draft tokens and measured times of passes. */
#include "decode/spec/length_plan.h"

#include "base/mem.h"

/* The cost of rows to begin with, relative to a pass of one: that of small models, of which few bytes are read. */
#define FEW_ROWS  4
#define FEW_COST  0.25 /* of each of the first */
#define MORE_COST 0.17 /* of a further one */

/* A pass counts as no slower and no faster than so many times its estimate: it was interrupted, or others were. */
#define SLOWEST_FIRST 2.0 /* the first pass of its rows */
#define SLOWEST       1.25
#define FASTEST       0.5

#define PACE       0.2  /* weight of a step without draft tokens in the common pace */
#define ROW_PACE   0.15 /* of one with draft tokens in that of its rows */
#define GAIN       1.06 /* expected at least */
#define IMPROBABLE 0.05 /* tokens after those that are right with this probability are not verified */
#define LOSS       4.0  /* lost time at which drafting pauses, in plain steps */

enum {
    FIRST_STEPS = 2,    /* without draft tokens */
    MOST_IN_A_ROW = 48, /* steps with draft tokens until one without them is timed */
    STALE = 512,        /* steps after which times are forgotten */
    PAUSE = 32,         /* steps of the first pause, and of the longest: */
    PAUSE_MAX = 1024
};

int length_plan_open(struct length_plan *plan, size_t max_rows, struct err *err)
{
    *plan = (struct length_plan){.max_rows = max_rows, .pause = PAUSE};
    plan->row = mem_zalloc(max_rows + 1, sizeof *plan->row);
    return plan->row ? 0 : err_no_memory(err, "times of passes of up to %zu tokens", max_rows);
}

void length_plan_close(struct length_plan *plan) { free(plan->row); }

/* The cost of a pass to begin with, relative to one of a row. */
static double cost_at_first(size_t rows)
{
    const size_t few = size_min(rows, FEW_ROWS);
    return 1 + FEW_COST * (double)(few - 1) + MORE_COST * (double)(rows - few);
}

/* Whether passes of so many rows were timed of late. */
static bool is_known(const struct length_plan *plan, size_t rows)
{
    return plan->row[rows].n && plan->steps - plan->row[rows].at < STALE;
}

/* The cost of a pass: between numbers of rows that were timed the factor is interpolated. */
static double cost_of(const struct length_plan *plan, size_t rows)
{
    size_t lo = rows, hi = rows;
    while (lo > 0 && !is_known(plan, lo))
        lo--;
    while (hi <= plan->max_rows && !is_known(plan, hi))
        hi++;
    const double above = hi <= plan->max_rows ? plan->row[hi].factor : lo ? plan->row[lo].factor : 1;
    const double below = lo ? plan->row[lo].factor : above;
    const double share = hi > lo ? (double)(rows - lo) / (double)(hi - lo) : 0;
    return cost_at_first(rows) * (below + share * (above - below));
}

/* The draft whose next token is most likely to be reached and right; NULL: none is likely enough. */
static struct planned_draft *most_likely(struct planned_draft *draft, size_t n)
{
    struct planned_draft *best = NULL;
    double most = IMPROBABLE;
    for (size_t i = 0; i < n; i++) {
        const struct planned_draft *d = &draft[i];
        const double path = d->taken < d->n ? d->path * d->probability[d->taken] : 0;
        if (path > most) {
            most = path;
            best = &draft[i];
        }
    }
    return best;
}

void length_plan_choose(struct length_plan *plan, struct planned_draft *draft, size_t n, size_t busy)
{
    const bool drafts =
        plan->steps >= FIRST_STEPS && plan->paused == 0 && plan->in_a_row < MOST_IN_A_ROW;
    double tokens = (double)busy, best = GAIN * tokens / cost_of(plan, busy);
    struct planned_draft *d;
    for (size_t i = 0; i < n; i++) {
        draft[i].taken = draft[i].verified = 0;
        draft[i].path = 1;
    }
    for (size_t rows = busy + 1; drafts && rows <= plan->max_rows && (d = most_likely(draft, n));
         rows++) {
        tokens += d->path *= d->probability[d->taken++];
        const double rate = tokens / cost_of(plan, rows);
        if (rate <= best)
            continue;
        best = rate;
        for (size_t i = 0; i < n; i++)
            draft[i].verified = draft[i].taken;
    }
}

/* Adjusts the common pace to a step without draft tokens, else that of its rows; returns the step's time, or a shorter one if
 * it was interrupted. */
static double take_time(struct length_plan *plan, size_t rows, bool drafted, double ms)
{
    struct row_pace *row = &plan->row[rows];
    if (plan->ms <= 0)
        plan->ms = ms / cost_at_first(rows);
    const double expected = plan->ms * cost_of(plan, rows),
                 slowest = is_known(plan, rows) ? SLOWEST : SLOWEST_FIRST,
                 ratio = fmax(FASTEST, fmin(slowest, ms / expected));
    plan->steps++;
    if (!is_known(plan, rows))
        *row = (struct row_pace){.factor = cost_of(plan, rows) / cost_at_first(rows)};
    if (drafted)
        row->factor *= 1 + fmax(ROW_PACE, 1 / (double)(row->n + 1)) * (ratio - 1);
    else
        plan->ms *= 1 + fmax(PACE, 1 / (double)plan->steps) * (ratio - 1);
    row->n++;
    row->at = plan->steps;
    return expected * ratio;
}

void length_plan_timed(struct length_plan *plan, size_t busy, size_t drafted, size_t tokens, double ms)
{
    const double taken = take_time(plan, busy + drafted, drafted > 0, ms);
    plan->paused -= plan->paused > 0;
    plan->in_a_row = drafted ? plan->in_a_row + 1 : 0;
    if (drafted == 0)
        return;
    const double plain = plan->ms * cost_of(plan, busy);
    plan->lost += taken / plain - (double)tokens / (double)busy;
    if (plan->lost <= 0) {
        plan->lost = 0;
        plan->pause = PAUSE;
    }
    if (plan->lost <= LOSS)
        return;
    plan->lost = 0;
    plan->paused = plan->pause;
    plan->pause = size_min(2 * plan->pause, PAUSE_MAX);
    plan->pauses++;
}
