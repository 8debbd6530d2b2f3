/* The cost model compared with values computed by hand, and the fit with known curves. */
#include <malloc.h>
#include <stdlib.h>

#include "base/vm.h"
#include "tests/unit/check.h"
#include "decode/sample/rng.h"
#include "tune/calibrate.h"
#include "tune/costmodel.h"
#include "tune/fit.h"
#include "tune/spec_plan.h"
#include "tune/sweep.h"

/* ---- the model ---- */

/* N = 8, C1 = 6; copies 12 elements and performs 3 multiply-accumulates per second. */
static const struct cost plain = {
    .N = 8, .elements = 6, .copy_elem_s = 12, .sdpa_mac_s = 3, .gq = 1, .k = 1, .m = 1};

static void expect_T(const char *what, struct cost cost, double want)
{
    struct err err = {0};
    double T = -1;
    check(cost_closed_T(&cost, &T, &err) == 0 && near(T, want, 5e-4 * want),
          "%s: T = %g, %g wanted: %s", what, T, want, err.text);
}

static void test_equations(void)
{
    struct cost c = plain;
    /* Eq. 5 at T = 2: 2*6*8*3/12 = 24 s of copying, 6*64*1.5/3 = 192 s of SDPA. */
    check(near(cost_seconds(&c, 2), 216, 1e-9), "eq. 5: %g", cost_seconds(&c, 2));
    /* At T = 8: 2*6*8*9/12 = 72 and 6*64*1.125/3 = 144. */
    check(near(cost_seconds(&c, 8), 216, 1e-9), "eq. 5 at T = 8: %g", cost_seconds(&c, 8));
    expect_T("eq. 7, sqrt(8*12/(2*3))", c, 4);
    c.growth_s = 0.5;
    check(near(cost_seconds(&c, 2), 217, 1e-9), "T C0: %g", cost_seconds(&c, 2));
    expect_T("eq. 6, sqrt(128/(8 + 0.5))", c, 3.880570);
    c.gq = 4; /* G = 2, Q = 2 */
    check(near(cost_seconds(&c, 2), 6 + 1 + 192, 1e-9), "eq. 8: %g", cost_seconds(&c, 2));
    c.k = 3;
    c.m = 2;
    check(near(cost_seconds(&c, 2), 6 + 1 + 288, 1e-9), "eq. 9: %g", cost_seconds(&c, 2));
    expect_T("sqrt(192/(2 + 0.5))", c, 8.763561);
    c = plain;
    c.gq = 4;
    expect_T("eq. 8, sqrt(8*4*12/(2*3))", c, 8);
    c = plain;
    c.k = 3;
    c.m = 2;
    expect_T("eq. 9, sqrt(3*8*12/(2*2*3))", c, 4.898979);
    /* If k rows take the time of one, the best T becomes T/sqrt(m): k = m = 4 at four times the
     * rate. */
    c.k = c.m = 4;
    c.sdpa_mac_s = 12;
    expect_T("eq. 9 with batch knee", c, 2);
}

/* Known results: those of measurements made when the cost model was designed, and BMC paper VIII-A with
 * alpha BW / (2 beta C) = 0.1. */
static void test_published(void)
{
    struct cost c = {.N = 512,
                     .elements = 2 * 4096,
                     .copy_elem_s = 1.85e9,
                     .sdpa_mac_s = 6.35e9,
                     .gq = 1,
                     .k = 1,
                     .m = 1};
    double T = 0;
    struct err err;
    check(cost_closed_T(&c, &T, &err) == 0 && near(T, 8.6, 0.05), "the probe: T = %g", T);
    c.copy_elem_s = 0.2;
    c.sdpa_mac_s = 1;
    expect_T("sqrt(0.1 * 512)", c, 7.155418);
    c.N *= 4;
    expect_T("four times N", c, 2 * 7.155418);
}

static void expect_error(const char *what, struct cost cost)
{
    struct err err = {0};
    double T = 0;
    check(cost_closed_T(&cost, &T, &err) < 0 && err.text[0], "%s: T = %g and no error", what, T);
}

static void test_degenerate(void)
{
    const double bad[] = {0, -1, NAN, INFINITY};
    struct cost c = plain;
    c.N = 1;
    expect_error("N = 1", c);
    c.N = 0;
    expect_error("N = 0", c);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        c = plain;
        c.copy_elem_s = bad[i];
        expect_error("bandwidth", c);
        c = plain;
        c.sdpa_mac_s = bad[i];
        expect_error("arithmetic", c);
        c = plain;
        c.elements = bad[i];
        expect_error("C1", c);
        c = plain;
        c.gq = bad[i];
        expect_error("G Q", c);
        c = plain;
        c.m = bad[i];
        expect_error("m", c);
        c = plain;
        c.growth_s = bad[i];
        if (bad[i] != 0)
            expect_error("C0", c);
    }
    c = plain;
    c.growth_s = 0; /* eq. 7 */
    expect_T("C0 = 0", c, 4);
    c.m = 2;
    expect_error("m > k", c);
}

/* ---- speculation ---- */

static struct rate_curve flat(enum curve_what what, double value);

/* Drafts of which each token is accepted with probability 1/2, for passes that take 10 ms whatever
 * they compute, and a cache whose growth takes copy_s seconds for each entry of its new size. */
static struct spec_costs spec_costs(size_t N, const struct rate_curve *curves)
{
    static const double half = .5;
    return (struct spec_costs){.cache = {.N = N,
                                         .layers = 1,
                                         .batch = 1,
                                         .width = 1,
                                         .row_bytes = 8,
                                         .gq = 1,
                                         .k = 1,
                                         .m = 1,
                                         .copy = &curves[0],
                                         .sdpa = &curves[1]},
                               .target = {{.rows = {1, 64}, .ms = {10, 10}, .n = 2},
                                          {.rows = {1, 64}, .ms = {10, 10}, .n = 2}},
                               .attended = {16, 64},
                               .accept = &half,
                               .ranks = 1};
}

static double planned(const struct spec_costs *costs, size_t T, size_t k)
{
    const struct spec_shape chain = {.draft_tokens = k};
    double seconds = 0;
    struct err err = {0};
    check(spec_plan_seconds(&seconds, costs, T, &chain, &err) == 0, "%s", err.text);
    return seconds;
}

static void test_spec_plan(void)
{
    const struct rate_curve free_growth[] = {flat(CURVE_COPY, 1e30), flat(CURVE_SDPA, 1)},
                            growth[] = {flat(CURVE_COPY, 400), flat(CURVE_SDPA, 1)};
    struct spec_costs costs = spec_costs(64, free_growth);
    struct spec_plan plan;
    struct err err = {0};
    check(near(planned(&costs, 1, 0), .64, 1e-9), "plain: 64 passes");
    /* Drafts of 3 give 1.875 tokens: 33 passes leave 2.125 entries of 64, with room for one draft token,
     * whose 1.5 tokens leave 0.625 of a plain pass. */
    check(near(planned(&costs, 1, 3), .34625, 1e-9), "a chain: %g", planned(&costs, 1, 3));
    /* Of 4 entries each: 60 entries in drafts of 3, which make the cache grow, 32 passes. The last 4: drafts
     * of 3 and 1 (2.125 left), then 0.625. */
    check(near(planned(&costs, 16, 3), .34625, 1e-9), "little room: %g", planned(&costs, 16, 3));
    /* Growth to 32 and to 64 entries: 4 * 96 elements, 400 in a second. */
    costs.cache.copy = &growth[0];
    check(near(planned(&costs, 2, 0), .64 + .96, 1e-9), "growth: %g", planned(&costs, 2, 0));
    check(spec_plan(&plan, &costs, 3, &err) == 0 && plan.T == 1 && plan.shape.draft_tokens == 3 &&
              !plan.shape.tree && near(plan.tokens, 1.875, 1e-9) &&
              near(plan.seconds, .34625 + .64, 1e-9) && plan.plain_T == 1 &&
              near(plan.plain_seconds, .64 + .64, 1e-9),
          "expensive growth: T = %zu, %zu draft tokens, %g s", plan.T, plan.shape.draft_tokens,
          plan.seconds);
    /* 1 ms for each entry attended to: 64 each time, or 1 to 64. */
    costs.cache.copy = &free_growth[0];
    costs.target[0].ms[0] = costs.target[0].ms[1] = 26;
    costs.target[1].ms[0] = costs.target[1].ms[1] = 74;
    check(near(planned(&costs, 1, 0), 64 * .074, 1e-9) &&
              near(planned(&costs, 64, 0), 64 * .01 + 2080 * .001, 1e-9),
          "attention: %g and %g s", planned(&costs, 1, 0), planned(&costs, 64, 0));
    /* Drafts of 3, T = 16: the first of each 4 entries fits, 2.125 remain for drafts that attend to 4 more. */
    double four = 0;
    for (size_t cap = 4; cap < 64; cap += 4)
        four += .01 + .001 * (double)cap + 2.125 / 1.875 * (.01 + .001 * (double)(cap + 4));
    check(near(planned(&costs, 16, 3), four + 2.625 * .074, 1e-9),
          "attention of drafts: %g instead of %g", planned(&costs, 16, 3), four + 2.625 * .074);
    check(spec_plan(&plan, &costs, 3, &err) == 0 && plan.plain_T == 64 && plan.T > 1 && plan.T < 64,
          "expensive attention: T = %zu, plain %zu", plan.T, plan.plain_T);
    /* Passes that take as long as their tokens one by one, or drafting that takes as long: no drafts. */
    costs = spec_costs(64, free_growth);
    costs.target[0].ms[1] = costs.target[1].ms[1] = 640;
    check(spec_plan(&plan, &costs, 3, &err) == 0 && plan.shape.draft_tokens == 0,
          "tokens cost in full");
    costs = spec_costs(64, free_growth);
    const struct row_times slow = {.rows = {1}, .ms = {10}, .n = 1};
    costs.draft = &slow;
    check(spec_plan(&plan, &costs, 3, &err) == 0 && plan.shape.draft_tokens == 0,
          "drafting costs as much");
    /* Drafts of which 8 % are accepted gain less than 10 %. */
    static const double few = .08;
    costs = spec_costs(64, free_growth);
    costs.accept = &few;
    check(spec_plan(&plan, &costs, 3, &err) == 0 && plan.shape.draft_tokens == 0 &&
              near(plan.seconds, plan.plain_seconds, 1e-12),
          "a small gain: %zu draft tokens", plan.shape.draft_tokens);
    costs.cache.N = 1;
    check(spec_plan(&plan, &costs, 3, &err) < 0 && err.text[0], "a context of one entry");
}

/* ---- cells ---- */

static struct rate_curve flat(enum curve_what what, double value)
{
    return (struct rate_curve){.what = what,
                               .attn = "-",
                               .width = 1,
                               .group = 1,
                               .rows = 1,
                               .batch = 1,
                               .n = 1,
                               .at = {{1024, value, 0, 1}}};
}

static int answer_all(const struct cost_config *cell, struct cost_answer *answer, struct err *err)
{
    if (cost_answer(cell, answer, err) < 0)
        return -1;
    cost_least(cell, answer);
    return 0;
}

static void test_cells(void)
{
    struct rate_curve copy = flat(CURVE_COPY, 12), sdpa = flat(CURVE_SDPA, 3),
                      alloc = flat(CURVE_ALLOC, 0.25);
    struct cost_config cell = {.N = 8,
                               .layers = 1,
                               .batch = 2,
                               .width = 3,
                               .row_bytes = 128,
                               .gq = 1,
                               .k = 1,
                               .m = 1,
                               .copy = &copy,
                               .sdpa = &sdpa};
    struct cost_answer answer = {0};
    struct err err = {0};
    /* With constant rates and r that divides N, the time is that of eq. 5. */
    for (size_t T = 1; T <= 8; T *= 2)
        check(near(cost_config_seconds(&cell, T), cost_seconds(&plain, (double)T), 1e-9),
              "T = %zu: %g and %g", T, cost_config_seconds(&cell, T), cost_seconds(&plain, (double)T));
    /* N = 7, r = 4: copying takes 4*6*(4 + 7)/12 = 22 s; 4 steps over 4 rows and 3 over 7 take
     * 2*6*(16 + 21)/3 = 148 s. */
    cell.N = 7;
    check(near(cost_config_seconds(&cell, 2), 170, 1e-9), "N = 7: %g", cost_config_seconds(&cell, 2));
    cell.alloc = &alloc; /* two allocations of K and V of two sequences */
    check(near(cost_config_seconds(&cell, 2), 172, 1e-9), "C0: %g", cost_config_seconds(&cell, 2));
    cell.alloc = NULL;
    cell.N = 8;
    check(answer_all(&cell, &answer, &err) == 0 && near(answer.closed, 4, 1e-9) && answer.pow2 == 4 &&
              answer.least == 4 && near(answer.least_s, 200, 1e-9),
          "answers %g %zu %zu %g: %s", answer.closed, answer.pow2, answer.least, answer.least_s,
          err.text);
    /* The best T is 11.3. Eq. 5 is flatter above its minimum, so 16 may be cheaper than 8, the
     * nearer power of two. */
    cell.N = 64;
    cell.k = cell.m = 1;
    check(answer_all(&cell, &answer, &err) == 0 && near(answer.closed, sqrt(128), 1e-9), "N = 64: %g",
          answer.closed);
    check(answer.pow2 == (cost_config_seconds(&cell, 16) < cost_config_seconds(&cell, 8) ? 16u : 8u) &&
              answer.least_s <= answer.pow2_s,
          "rounding gave %zu", answer.pow2);
    size_t least = 1; /* compares every T */
    for (size_t T = 1; T <= 64; T++)
        least = cost_config_seconds(&cell, T) < cost_config_seconds(&cell, least) ? T : least;
    check(near(cost_config_seconds(&cell, least), answer.least_s, 1e-9), "the least is %zu, found %zu",
          least, answer.least);
    sdpa.at[0].value = 0;
    check(cost_answer(&cell, &answer, &err) < 0, "a rate of 0 was taken");
    sdpa.at[0].value = 3;
    cell.N = 1;
    check(cost_answer(&cell, &answer, &err) < 0, "N = 1 was taken");
}

static void test_curves(void)
{
    struct rate_curve c = {.what = CURVE_SDPA,
                           .attn = "blas",
                           .rows = 1,
                           .group = 1,
                           .batch = 1,
                           .width = 64,
                           .n = 3,
                           .at = {{1024, 100, 0, 5}, {4096, 400, 0, 5}, {16384, 25, 0, 5}}};
    struct rate_curve two[2] = {c, c};
    struct err err;
    check(near(rate_curve_at(&c, 10), 100, 1e-9) && near(rate_curve_at(&c, 1e9), 25, 1e-9),
          "beyond the ends");
    check(near(rate_curve_at(&c, 1024), 100, 1e-9) && near(rate_curve_at(&c, 4096), 400, 1e-9),
          "at the points");
    /* 2048 is midway between 1024 and 4096 on a logarithmic axis: sqrt(100 * 400). */
    check(near(rate_curve_at(&c, 2048), 200, 1e-9), "between: %g", rate_curve_at(&c, 2048));
    check(near(rate_curve_at(&c, 8192), 100, 1e-9), "between, falling: %g", rate_curve_at(&c, 8192));
    check(rate_curve_check(&c, &err) == 0, "a good curve: %s", err.text);
    two[1].group = 4;
    check(rate_curve_find(two, 2, &c) == &two[0], "the same is nearest");
    c.group = 8;
    check(rate_curve_find(two, 2, &c) == &two[1], "G = 4 is nearer to 8 than 1");
    c.cold = true;
    check(rate_curve_find(two, 2, &c) == NULL, "hot was taken for cold");
    two[0].at[1].bytes = 1024;
    check(rate_curve_check(&two[0], &err) < 0, "sizes that do not ascend");
    two[1].at[2].value = -1;
    check(rate_curve_check(&two[1], &err) < 0, "a negative value");
    two[1].n = 0;
    check(rate_curve_check(&two[1], &err) < 0, "no points");
}

/* ---- the fit ---- */

static void test_fit(void)
{
    const double T[] = {1, 2, 4, 8, 16, 32, 64}, flat_time[] = {5, 5, 5, 5, 5, 5, 5};
    double time[ARRAY_LEN(T) * 9], rising[ARRAY_LEN(T)];
    struct fit fit = {0};
    struct regret regret = {0};
    struct err err = {0};
    for (size_t i = 0; i < ARRAY_LEN(T); i++) {
        time[i] = 100 + 2 * T[i] + 128 / T[i];
        rising[i] = 10 + T[i];
    }
    check(fit_times(&fit, T, time, ARRAY_LEN(T), 512, &err) == 0 && near(fit.a, 100, 1e-6) &&
              near(fit.b, 2, 1e-7) && near(fit.c, 128, 1e-6) && near(fit.T, 8, 1e-6),
          "100 + 2T + 128/T: %g %g %g, T %g: %s", fit.a, fit.b, fit.c, fit.T, err.text);
    check(fit_times(&fit, T, rising, ARRAY_LEN(T), 512, &err) == 0 && fit.T < 1.01, "rising: T = %g",
          fit.T);
    check(fit_times(&fit, T, flat_time, ARRAY_LEN(T), 512, &err) == 0 && isfinite(fit.T),
          "flat: T = %g", fit.T);
    for (size_t i = 0; i < ARRAY_LEN(T); i++)
        rising[i] = 10 + 100 / T[i];
    check(fit_times(&fit, T, rising, ARRAY_LEN(T), 512, &err) == 0 && fit.T >= 64, "falling: T = %g",
          fit.T);
    /* Beyond T = 64 this curve keeps falling, below 0. */
    for (size_t i = 0; i < ARRAY_LEN(T); i++)
        rising[i] = 100 - T[i] + 100 / T[i];
    check(fit_times(&fit, T, rising, ARRAY_LEN(T), 512, &err) == 0 && fit.T == 64,
          "falling for ever: T = %g", fit.T);
    check(fit_times(&fit, T, time, 2, 512, &err) < 0, "two points were fitted");
    time[3] = NAN;
    check(fit_times(&fit, T, time, ARRAY_LEN(T), 512, &err) < 0, "NaN was fitted");
    /* Nine rounds with noise of up to 5 %, on a machine that slows down: T is 16, the best would be
     * 8. */
    for (size_t round = 0; round < 9; round++)
        for (size_t i = 0; i < ARRAY_LEN(T); i++)
            time[round * ARRAY_LEN(T) + i] = (100 + 2 * T[i] + 128 / T[i]) * (1 + 0.1 * (double)round) *
                                             (1 + 0.05 * (rng_uniform(3, round, (uint32_t)i, 0) - 0.5));
    check(fit_regret(&regret, T, time, ARRAY_LEN(T), ARRAY_LEN(T), 9, 4, 512, 1, &err) == 0, "%s",
          err.text);
    check(near(regret.ratio, 140.0 / 132, 0.02) && regret.lo <= regret.ratio &&
              regret.ratio <= regret.hi && regret.hi - regret.lo < 0.1,
          "regret %g in %g .. %g, %g wanted", regret.ratio, regret.lo, regret.hi, 140.0 / 132);
    check(regret.T_lo <= 8.5 && regret.T_hi >= 7.5 && regret.T_hi / regret.T_lo < 2, "T in %g .. %g",
          regret.T_lo, regret.T_hi);
    check(regret.raw.lo <= regret.raw.value && regret.raw.value <= regret.raw.hi && regret.best >= 2 &&
              regret.best <= 4,
          "raw %g in %g .. %g", regret.raw.value, regret.raw.lo, regret.raw.hi);
    check(fit_regret(&regret, T, time, ARRAY_LEN(T), ARRAY_LEN(T), 2, 4, 512, 1, &err) < 0,
          "two rounds were taken");
}

/* ---- batch knee ---- */

static void test_batch_knee(void)
{
    struct batch_knee rows = {.n = 5, .step_ms = {10, 10.5, 11, 11.4, 20}};
    double speedup = 0;
    batch_knee_judge(&rows);
    check(rows.tokens == 8, "%zu batch knee, 8 wanted", rows.tokens);
    /* Rows cost nothing and all draft tokens are accepted: the most that were measured, 12 - 1. */
    struct batch_knee idle = {.n = 5, .step_ms = {10, 10, 10, 10, 10}};
    check(batch_knee_k(&idle, 1, &speedup) == 11 && near(speedup, 12, 1e-9), "k = %zu, %g",
          batch_knee_k(&idle, 1, &speedup), speedup);
    /* Every row costs as much as the first: no draft tokens. */
    struct batch_knee dear = {.n = 5, .step_ms = {10, 20, 40, 80, 120}};
    check(batch_knee_k(&dear, 0.9, &speedup) == 0 && speedup == 1, "k = %zu",
          batch_knee_k(&dear, 0.9, &speedup));
    /* 1 + 1/2 tokens in 12 ms instead of 1 in 10: k = 1. A second draft token would add 1/4 for 24
     * - 12 ms more. */
    struct batch_knee one = {.n = 3, .step_ms = {10, 12, 36}};
    check(batch_knee_k(&one, 0.5, &speedup) == 1 && near(speedup, 1.25, 1e-9), "k = %zu, %g",
          batch_knee_k(&one, 0.5, &speedup), speedup);
    struct batch_knee none = {.n = 0};
    batch_knee_judge(&none);
    check(none.tokens == 0 && batch_knee_k(&none, 0.5, &speedup) == 0, "no rows");
}

/* ---- sampled and whole runs ---- */

static void test_sampling(void)
{
    static volatile sig_atomic_t interrupted;
    struct err err = {0};
    const char *policies[] = {"bmc:T=4", "bmc:r=7", "iterative", "upfront", "paged:16", "reserve"};
    for (size_t k = 1; k <= 5; k += 4)
        for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
            struct sweep_time whole = {0}, part = {0};
            struct kv_spec spec;
            const struct tune_run run = {.layers = 1,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .head_dim = 16,
                                         .batch = 2,
                                         .k = k,
                                         .m = k == 1 ? 1 : 2,
                                         .type = DTYPE_F32,
                                         .attn = attn_find(NULL, &err),
                                         .kernels = kernels_select("ref", &err),
                                         .threads = 1,
                                         .interrupted = &interrupted};
            const struct sweep_sample all = {.exact = true}, some = {.growths = 8, .steps = 32};
            check(kv_spec_parse(&spec, policies[i], &err) == 0 &&
                      sweep_run(&run, &spec, 100, &all, &whole, &err) == 0 &&
                      sweep_run(&run, &spec, 100, &some, &part, &err) == 0,
                  "%s: %s", policies[i], err.text);
            /* Without speculation every step keeps one row, with it two. */
            const size_t most = k == 1 ? 100 : 50 + whole.T;
            check(whole.steps_timed <= most && whole.steps_timed >= (k == 1 ? 100 : 50) &&
                      whole.growths_timed == whole.T && whole.total_ms > 0,
                  "%s: %zu steps, %zu growths of %zu", policies[i], whole.steps_timed,
                  whole.growths_timed, whole.T);
            check(part.T == whole.T && part.growths_timed <= 8 && part.steps_timed <= 40 &&
                      part.total_ms > 0 && isfinite(part.total_ms),
                  "%s sampled: %zu steps, %zu growths", policies[i], part.steps_timed,
                  part.growths_timed);
        }
}

static struct tune_run small_run(void)
{
    static volatile sig_atomic_t interrupted;
    static struct err err;
    return (struct tune_run){.layers = 1,
                             .heads = 2,
                             .kv_heads = 2,
                             .head_dim = 16,
                             .batch = 1,
                             .k = 1,
                             .m = 1,
                             .type = DTYPE_F32,
                             .attn = attn_find(NULL, &err),
                             .kernels = kernels_select("ref", &err),
                             .threads = 1,
                             .interrupted = &interrupted};
}

/* Whatever its time budget, a measurement ends after whole sequences, with enough growth events for
 * a fit. */
static void test_budget(void)
{
    static const double budget_s[] = {0, 1e-6, 1e-3, 0.02, 0.1, 60};
    struct err err = {0};
    const struct tune_run run = small_run();
    struct kv_spec spec[3];
    for (size_t T = 1; T <= ARRAY_LEN(spec); T++) {
        check(kv_spec_parse(&spec[T - 1], "bmc", &err) == 0, "%s", err.text);
        spec[T - 1].T = T * T * T * T;
    }
    for (size_t i = 0; i < ARRAY_LEN(budget_s); i++) {
        struct sweep_plan cell = {.N = 96,
                                  .batch = 5,
                                  .rounds = 3,
                                  .sample = {.growths = 32, .steps = 32},
                                  .budget_s = budget_s[i]};
        double time[3 * ARRAY_LEN(spec)];
        size_t T[ARRAY_LEN(spec)];
        check(sweep_plan(&run, &cell, spec, ARRAY_LEN(spec), time, T, &err) == 0, "%s", err.text);
        check(cell.batch_run >= 1 && cell.batch_run <= 5 && cell.sample.growths >= 8 &&
                  cell.sample.growths <= 32,
              "%g s: %zu sequences, %zu growths", budget_s[i], cell.batch_run, cell.sample.growths);
        check(budget_s[i] > 1e-5 || (cell.batch_run == 1) == (budget_s[i] > 0), "%g s: %zu sequences",
              budget_s[i], cell.batch_run);
    }
}

/* Large blocks come from mmap even after larger ones were freed, as in a new process. */
static void test_allocator(void)
{
#ifdef __GLIBC__
    struct err err = {0};
    const struct tune_run run = small_run();
    struct kv_spec spec;
    struct layer_bench b;
    const size_t before = mallinfo2().hblks;
    char *large = malloc(8 << 20);
    const bool counts = large && mallinfo2().hblks == before + 1; /* not under a sanitizer */
    free(large);
    if (!counts)
        return;
    check(kv_spec_parse(&spec, "bmc", &err) == 0 && layer_bench_open(&b, &run, &spec, 16, &err) == 0,
          "%s", err.text);
    char *block = malloc(2 * VM_MAPPED_BYTES);
    check(block && mallinfo2().hblks == before + 1, "a block came from the heap");
    free(block);
    layer_bench_close(&b);
#endif
}

/* Passes accumulate: each size has the samples of all passes, and the curve is valid. */
static void test_calibration(void)
{
    struct err err = {0};
    const struct tune_run run = small_run();
    const struct calibrate_plan plan = {.points = 5,
                                        .min_bytes = 1 << 14,
                                        .max_bytes = 1 << 18,
                                        .seconds_per_point = 1e-4,
                                        .samples = 2};
    for (int what = 0; what < CURVE_WHATS; what++) {
        static struct calibration c;
        struct rate_curve curve = {0};
        calibration_begin(&c, &run, (enum curve_what)what, &plan);
        for (size_t pass = 0; pass < CALIBRATE_MAX_PASSES; pass++)
            check(calibration_pass(&c, &plan, &err) == 0, "%s", err.text);
        check(calibration_curve(&c, &curve, &err) == 0 && curve.n == 5, "%s: %s",
              rate_curve_name(curve.what), err.text);
        for (size_t i = 0; i < curve.n; i++)
            check(curve.at[i].samples >= 3 && curve.at[i].value > 0 && curve.at[i].spread >= 0,
                  "%s: %zu samples of %g", rate_curve_name(curve.what), curve.at[i].samples,
                  curve.at[i].value);
    }
}

int main(void)
{
    test_equations();
    test_published();
    test_degenerate();
    test_cells();
    test_curves();
    test_fit();
    test_batch_knee();
    test_spec_plan();
    kernels_setup();
    test_sampling();
    test_budget();
    test_allocator();
    test_calibration();
    return check_result();
}
