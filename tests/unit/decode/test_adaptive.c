/* Adaptive drafting: curves of measured times, expected speedups, and whole runs on machines whose times are known, against
 * plain decoding and all fixed lengths on the same machines. */
#include <math.h>

#include "decode/length/draft_adaptive.h"
#include "decode/sample/rng.h"
#include "tests/unit/check.h"

enum { ROUNDS = 40, BATCH_MAX = 8 };

/* ---- time curves ---- */

static void test_curve(void)
{
    struct time_curve c = {0};
    check(time_curve_at(&c, 5) == 0 && time_curve_last(&c) == 0 && !time_curve_near(&c, 0, 100),
          "nothing is known");
    time_curve_add(&c, 8, 40);
    check(near(time_curve_at(&c, 8), 40, 1e-9) && near(time_curve_at(&c, 9), 44, 1e-9),
          "one point: 8 take %g ms, 9 %g", time_curve_at(&c, 8), time_curve_at(&c, 9));
    c.slope = 4;
    check(near(time_curve_at(&c, 16), 64, 1e-9) && near(time_curve_at(&c, 9), 40, 1e-9),
          "with a slope 16 take %g ms, 9 %g", time_curve_at(&c, 16), time_curve_at(&c, 9));
    c.slope = 9;
    check(near(time_curve_at(&c, 9), 44, 1e-9), "a slope that 8 contradict is not used: %g",
          time_curve_at(&c, 9));
    c.slope = 0;
    for (int i = 0; i < 2; i++)
        time_curve_add(&c, 16, 80);
    /* 80 measured twice is expected to be 76: 40 + 4 / 8 of 36 */
    check(near(time_curve_at(&c, 12), 58, 1e-9), "between points: %g", time_curve_at(&c, 12));
    check(near(time_curve_at(&c, 24), 76 + 8 * .7 * 36 / 8, 1e-9), "beyond: %g", time_curve_at(&c, 24));
    time_curve_add(&c, 16, 500);
    check(time_curve_at(&c, 16) < 86, "an interruption hardly counts: %g", time_curve_at(&c, 16));
    time_curve_add(&c, 8, 20);
    check(near(time_curve_at(&c, 8), 20, 1e-9), "nor does a first, cold pass: %g",
          time_curve_at(&c, 8));
    time_curve_add(&c, 32, 10);
    check(time_curve_at(&c, 8) <= 10, "no time exceeds that of more work: %g", time_curve_at(&c, 8));
    check(time_curve_near(&c, 6, 20)->work == 8 && time_curve_near(&c, 9, 20)->work == 16 &&
              time_curve_last(&c) == 32,
          "the point measured last");
    for (size_t i = 0; i < 300; i++)
        time_curve_add(&c, 2, 1);
    check(c.n == 1 && time_curve_last(&c) == 2, "old points are forgotten: %zu", c.n);
    for (size_t i = 0; i < 200; i++)
        time_curve_add(&c, i, (double)i);
    check(c.n <= TIME_POINTS, "%zu points", c.n);
    for (size_t i = 1; i < c.n; i++)
        check(c.point[i].work > c.point[i - 1].work, "points in order");
}

/* ---- expected speedup ---- */

static void test_gain(void)
{
    struct draft_gain gain = {.start = 9, .limit = 32};
    check(draft_gain_length(&gain, 1) == 9 && draft_gain_speedup(&gain, 1, false) == 0,
          "nothing measured: the first length");
    gain.start = 2;
    draft_gain_timed(&gain, &(struct draft_step){.busy = 1, .rows = 1, .pass_ms = 1});
    check(draft_gain_length(&gain, 1) <= 2, "a plain step: %zu tokens are tried",
          draft_gain_length(&gain, 1));
    gain.limit = 1;
    check(draft_gain_length(&gain, 1) == 1, "within the limit");
    /* Of 16 draft tokens, which count as 14.9, none is accepted: the mean rate is 1.5 / 16.9; a likely one is below it
     * and 1.6 deviations, .2. A plain step and one with 8 draft tokens take 10 ms. */
    gain = (struct draft_gain){.start = 1, .limit = 1};
    draft_gain_timed(&gain, &(struct draft_step){.busy = 8, .rows = 8, .pass_ms = 10});
    draft_gain_timed(
        &gain, &(struct draft_step){.busy = 8, .drafting = 8, .drafted = 1, .rows = 16, .pass_ms = 10});
    for (size_t i = 0; i < 16; i++)
        draft_gain_accepted(&gain, 1, 0);
    check(near(draft_gain_speedup(&gain, 8, false), 1 + 1.5 / 16.85, 1e-3), "speedup %g",
          draft_gain_speedup(&gain, 8, false));
    check(draft_gain_speedup(&gain, 8, true) > 1.1 && draft_gain_speedup(&gain, 8, true) < 1.21,
          "at most %g", draft_gain_speedup(&gain, 8, true));
    draft_gain_forget(&gain);
    check(gain.reached[1] == 1 && draft_gain_speedup(&gain, 8, true) > 1.5, "forgotten: %g",
          draft_gain_speedup(&gain, 8, true));
}

/* ---- runs ---- */

/* A machine: ms of a target pass of `rows` tokens are the higher one of two lines; drafting takes `draft` ms and
 * `token` ms per token, the draft model's pass over a prompt `prompt` ms. */
struct sim_machine {
    double pass, more, row;
    double draft, token, prompt;
};

static double pass_ms(const struct sim_machine *m, size_t rows)
{
    return fmax(m->pass + m->more * (double)(rows - 1), m->row * (double)rows);
}

struct setting {
    const struct sim_machine *machine;
    size_t batch, n;
    double rate; /* acceptance */
};

struct sim_run {
    struct draft_adaptive adaptive;
    size_t left[BATCH_MAX];
    bool prefilled[BATCH_MAX];
    double ms;
    uint32_t random;
};

static double uniform(struct sim_run *run, uint64_t seed)
{
    return rng_uniform(5, seed, run->random++, 0);
}

/* One step by the plan. Every 20th is interrupted. */
static void run_step(struct sim_run *run, const struct setting *set, const struct draft_plan *plan,
                     size_t busy, uint64_t seed)
{
    const struct sim_machine *m = set->machine;
    struct draft_step step = {.busy = busy};
    size_t tokens = 0, prompts = 0;
    for (size_t i = 0; i < set->batch; i++) {
        size_t k = step.drafting < plan->sequences ? plan->length : 0, accepted = 0;
        if (run->left[i] == 0)
            continue;
        k = size_min(k, run->left[i] - 1);
        step.drafting += k > 0;
        prompts += k > 0 && !run->prefilled[i];
        run->prefilled[i] |= k > 0;
        while (accepted < k && uniform(run, seed) < set->rate)
            accepted++;
        draft_gain_accepted(&run->adaptive.gain, k, accepted);
        run->left[i] -= accepted + 1;
        tokens += accepted + 1;
        step.rows += k + 1;
        step.drafted = size_max(step.drafted, k);
    }
    const double ms = step.drafted ? m->draft + m->token * (double)(step.rows - busy) : 0;
    step.pass_ms =
        pass_ms(m, step.rows) * (1 + .05 * uniform(run, seed)) * (uniform(run, seed) < .05 ? 1.5 : 1);
    step.draft_ms = prompts ? -1 : ms;
    run->ms += step.pass_ms + ms + (double)prompts * m->prompt;
    draft_adaptive_update(&run->adaptive, &step, (double)tokens / (double)busy);
}

/* Mean time of the requests, with drafts of `fixed` tokens, SIZE_MAX: adaptive. */
static double run_ms(const struct setting *set, size_t fixed)
{
    double ms = 0;
    for (uint64_t seed = 0; seed < ROUNDS; seed++) {
        struct sim_run run = {0};
        draft_adaptive_begin(&run.adaptive, false, 7, set->batch > 1 ? 7 : 32, 0);
        if (set->batch > 1)
            draft_gain_prefill(&run.adaptive.gain, 128, pass_ms(set->machine, 128));
        for (size_t i = 0; i < set->batch; i++)
            run.left[i] = set->n - 1;
        for (;;) {
            size_t busy = 0;
            for (size_t i = 0; i < set->batch; i++)
                busy += run.left[i] > 0;
            if (busy == 0)
                break;
            struct draft_plan plan = draft_adaptive_plan(&run.adaptive, busy);
            if (fixed != SIZE_MAX)
                plan = (struct draft_plan){SIZE_MAX, fixed};
            run_step(&run, set, &plan, busy, seed);
        }
        ms += run.ms;
    }
    return ms / ROUNDS;
}

/* TinyLlama's shape with a parallel draft, by weight type; a machine with cheap rows; and a draft model that takes half a
 * plain step per token. */
static const struct sim_machine Q8 = {30, 1.5, 3.9, 1.2, .42, 5.5}, Q4 = {17, 2, 3.5, 1.2, .42, 5.5},
                                WIDE = {50, 0.5, 1, 1, .2, 3}, SLOW_DRAFT = {10, 1, 1, 0, 5, 5};

/* The least speed, relative to the best of plain decoding and all fixed lengths. */
static void test_runs(void)
{
    static const struct {
        struct setting set;
        double least;
    } cases[] = {
        {{&Q8, 1, 48, .8}, .85},
        {{&Q8, 1, 400, .8}, .94},
        {{&Q8, 1, 400, .5}, .94},
        {{&Q8, 8, 48, .8}, .92},
        {{&Q8, 8, 400, .8}, .96},
        {{&Q4, 8, 48, .8}, .93},
        {{&Q4, 8, 400, .8}, .96},
        {{&WIDE, 8, 48, .8}, .84},
        {{&WIDE, 8, 400, .8}, .95},
        {{&WIDE, 8, 400, .95}, .92},
        {{&Q4, 1, 400, .8}, .94},
        {{&SLOW_DRAFT, 1, 400, .5}, .97},
        /* nothing is accepted */
        {{&Q8, 1, 96, 0}, .975},
        {{&Q8, 1, 400, 0}, .98},
        {{&Q8, 8, 48, 0}, .975},
        {{&Q4, 8, 48, 0}, .975},
        {{&WIDE, 8, 48, 0}, .98},
        {{&SLOW_DRAFT, 1, 400, 0}, .98},
        {{&SLOW_DRAFT, 8, 96, 0}, .97},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct setting *set = &cases[i].set;
        double best = INFINITY;
        for (size_t k = 0; k <= (set->batch > 1 ? 7 : 12); k++)
            best = fmin(best, run_ms(set, k));
        const double speed = best / run_ms(set, SIZE_MAX);
        check(speed >= cases[i].least && speed < 1.1, "case %zu: %.3f times the best, %.3f expected", i,
              speed, cases[i].least);
    }
}

/* What it plans, step by step. */
static void test_plans(void)
{
    struct draft_adaptive a;
    draft_adaptive_begin(&a, true, 7, 32, 0);
    struct draft_plan plan = draft_adaptive_plan(&a, 1);
    check(plan.length == 7, "always: the first step drafts %zu tokens", plan.length);
    draft_adaptive_begin(&a, false, 7, 7, 0);
    plan = draft_adaptive_plan(&a, 8);
    check(plan.length == 0, "a batch begins with a plain step");
    draft_adaptive_update(&a, &(struct draft_step){.busy = 8, .rows = 8, .pass_ms = 40}, 1);
    plan = draft_adaptive_plan(&a, 8);
    check(plan.length == 1 && plan.sequences == ADAPTIVE_PILOT, "then %zu of the sequences draft",
          plan.sequences);
    /* Nothing is accepted, and 8 tokens more take as long as those before: hopeless. */
    for (size_t i = 0; i < 3 && plan.length; i++) {
        draft_gain_accepted(&a.gain, 1, 0);
        draft_gain_accepted(&a.gain, 1, 0);
        draft_adaptive_update(
            &a,
            &(struct draft_step){
                .busy = 8, .drafting = 2, .drafted = 1, .rows = 10, .draft_ms = 2, .pass_ms = 50},
            1);
        plan = draft_adaptive_plan(&a, 8);
    }
    check(plan.length == 0 && a.pauses == 1, "drafting pauses");
    for (size_t i = 0; i < ADAPTIVE_PAUSE - 1; i++) {
        draft_adaptive_update(&a, &(struct draft_step){.busy = 8, .rows = 8, .pass_ms = 40}, 1);
        plan = draft_adaptive_plan(&a, 8);
        check(plan.length == 0, "for %d steps, not for %zu", ADAPTIVE_PAUSE, i);
    }
    draft_adaptive_update(&a, &(struct draft_step){.busy = 8, .rows = 8, .pass_ms = 40}, 1);
    check(draft_adaptive_plan(&a, 8).length == 1, "and is then tried again");
}

int main(void)
{
    test_curve();
    test_gain();
    test_plans();
    test_runs();
    return check_result();
}
