/* Adaptive drafting by expected gain. */
#include "decode/length/draft_adaptive.h"

#include <math.h>

enum { PAID = 16 }; /* steps with drafts that pay, after which pauses are short again */

#define LOST_MAX  1.2 /* plain steps that count as lost at most */
#define LOST_MIN  2.0 /* and as gained: luck long ago does not make up for a loss */
#define RESUME    1.1 /* speedup for fewer sequences that ends a pause */
#define INTERRUPT 1.2 /* a step counts as no slower than so many times its expected time */

void draft_adaptive_begin(struct draft_adaptive *a, bool always, size_t start, size_t limit,
                          double cost)
{
    start = size_min(start, always ? limit : size_min(limit, ADAPTIVE_START));
    *a = (struct draft_adaptive){.always = always,
                                 .next_pause = ADAPTIVE_PAUSE,
                                 .gain = {.cost = cost, .start = start, .limit = limit}};
}

/* True if the time of plain steps must be measured: for another number of sequences, or again, the sooner the fewer
 * measurements there are, and the less speedup. */
static bool plain_is_due(const struct draft_adaptive *a, size_t busy, double speedup)
{
    const struct time_curve *pass = &a->gain.pass;
    const struct time_point *point = time_curve_near(pass, busy - busy / 4, busy + busy / 3);
    if (!point) /* a few sequences may draft first */
        return busy >= ADAPTIVE_PILOT_FROM || a->steps >= ADAPTIVE_AGAIN ||
               (a->steps > 0 && speedup < ADAPTIVE_CLEAR);
    const size_t age = point->n > 2 ? ADAPTIVE_RECHECK : ADAPTIVE_RECHECK / 4;
    /* memory may have been cold */
    return pass->measured - point->at >=
           (point->n == 1 ? ADAPTIVE_AGAIN : age * (speedup > ADAPTIVE_CLEAR ? 4 : 1));
}

static void pause_drafting(struct draft_adaptive *a, size_t busy)
{
    a->resume = a->steps + a->next_pause;
    a->next_pause = size_min(2 * a->next_pause, ADAPTIVE_PAUSE_MAX);
    a->busy = busy;
    a->lost = 0;
    a->paid = 0;
    a->pauses++;
}

/* True while drafting pauses; it resumes with little known about acceptance. */
static bool is_paused(struct draft_adaptive *a, size_t busy, double speedup)
{
    if (a->resume == 0)
        return false;
    if (a->steps < a->resume && (busy >= a->busy || speedup < RESUME))
        return true;
    if (a->steps >= a->resume)
        draft_gain_forget(&a->gain);
    a->resume = 0;
    return false;
}

struct draft_plan draft_adaptive_plan(struct draft_adaptive *a, size_t busy)
{
    const struct draft_gain *gain = &a->gain;
    const struct draft_plan plain = {0};
    struct draft_plan plan = {SIZE_MAX, draft_gain_length(gain, busy)};
    if (a->always)
        return plan;
    const double speedup = draft_gain_speedup(gain, busy, false);
    if (plain_is_due(a, busy, speedup) || is_paused(a, busy, speedup))
        return plain;
    const double drafts = gain->reached[1];
    if (drafts > 0 && draft_gain_speedup(gain, busy, true) < 1) {
        pause_drafting(a, busy);
        return plain;
    }
    /* The others' prompts are still to be prefilled, and little is known. */
    const bool pilot = busy >= ADAPTIVE_PILOT_FROM;
    const double wanted = 1 + ADAPTIVE_CAUTION * fmax(a->lost, 0) +
                          (pilot && a->paid == 0 ? ADAPTIVE_PILOT_GAIN / drafts : 0);
    if (drafts > 0 && speedup >= wanted) {
        if (++a->paid == PAID)
            a->next_pause = ADAPTIVE_PAUSE;
        return plan;
    }
    if (pilot)
        plan.sequences = ADAPTIVE_PILOT;
    const bool known = drafts > (pilot ? ADAPTIVE_PILOT_DRAFTS - 1 : 0);
    return known && a->lost > 0 ? plain : plan;
}

void draft_adaptive_update(struct draft_adaptive *a, const struct draft_step *step, double tokens)
{
    struct draft_gain *gain = &a->gain;
    const double draft_ms = fmax(step->draft_ms, 0);
    a->steps++;
    draft_gain_timed(gain, step);
    const double plain = time_curve_at(&gain->pass, step->busy),
                 expected = time_curve_at(&gain->pass, step->rows) + draft_ms;
    if (step->drafted)
        a->lost += fmin(draft_ms + step->pass_ms, INTERRUPT * expected) / plain - tokens;
    else if (a->lost > 0)
        a->lost = fmax(a->lost - ADAPTIVE_LOSS, 0);
    a->lost = fmax(fmin(a->lost, LOST_MAX), -LOST_MIN);
}
