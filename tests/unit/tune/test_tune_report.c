/* What bmc-tune reports and does for given results: which policy is fastest, which is selected,
 * whether fit and measurement agree, and that no profile is written if they do not. */
#include <string.h>
#include <unistd.h>

#include "tests/unit/check.h"
#include "tune/tune.h"

/* A point measured at T = 1, 2 and 4, of which 2 is used; other policies take `over` times as long
 * as bmc. */
static struct config_point cell_of(bool cold, struct ratio fit, struct ratio raw,
                                   const struct ratio over[POINT_POLICIES])
{
    struct config_point point = {.N = 64,
                                 .batch = 1,
                                 .k = 1,
                                 .m = 1,
                                 .cold = cold,
                                 .answer = {.closed = 2, .pow2 = 2, .least = 2},
                                 .n = 3,
                                 .T = {1, 2, 4},
                                 .predicted_ms = {3, 2, 3},
                                 .time = {{3, 2.9, 3.1}, {2, 1.9, 2.1}, {1.9, 1.8, 2}},
                                 .used = 1,
                                 .measured = true,
                                 .rounds = 7,
                                 .batch_run = 1,
                                 .in_fit = {true, true, true},
                                 .regret = {.fit = {1, 0.1, 1, 3}, .T_lo = 2, .T_hi = 4, .best = 2}};
    point.regret.ratio = fit.value;
    point.regret.lo = fit.lo;
    point.regret.hi = fit.hi;
    point.regret.raw = raw;
    for (size_t i = 0; i < POINT_POLICIES; i++) {
        point.over_bmc[i] = over[i];
        point.other[i] = (struct config_point_time){2 * over[i].value, 2 * over[i].lo, 2 * over[i].hi};
    }
    return point;
}

/* Times relative to bmc of iterative, upfront, paged, reserve, segment. */
static const struct ratio bmc_least[] = {
    {2, 1.9, 2.1}, {1.5, 1.4, 1.6}, {1.2, 1.1, 1.3}, {1.1, 1, 1.2}, {1.3, 1.2, 1.4}};
static const struct ratio reserve_perhaps[] = {
    {2, 1.9, 2.1}, {1.5, 1.4, 1.6}, {0.98, 0.9, 1.1}, {0.95, 0.9, 1.02}, {1.3, 1.2, 1.4}};
static const struct ratio reserve_clearly[] = {
    {2, 1.9, 2.1}, {1.5, 1.4, 1.6}, {0.9, 0.8, 0.97}, {0.8, 0.7, 0.9}, {1.3, 1.2, 1.4}};
static const struct ratio paged_clearly[] = {
    {2, 1.9, 2.1}, {1.5, 1.4, 1.6}, {0.7, 0.6, 0.8}, {0.95, 0.9, 0.99}, {1.3, 1.2, 1.4}};
static const struct ratio good = {1.01, 1, 1.02}, bad = {1.3, 1.2, 1.4};

static void expect_fastest(const struct ratio *over, const char *want)
{
    struct ratio ratio;
    const struct config_point point = cell_of(true, good, good, over);
    check(strcmp(config_point_fastest(&point, &ratio), want) == 0, "%s is wanted", want);
    for (size_t i = 0; i < POINT_POLICIES; i++)
        check(ratio.value <= 1 && ratio.value <= over[i].value, "%s is fastest by the figures", want);
}

static void expect_policy(const char *what, const struct config_point *point, size_t n,
                          const char *want)
{
    struct ratio ratio;
    const char *policy = config_points_policy(point, n, &ratio);
    check(want ? policy && strcmp(policy, want) == 0 : !policy, "%s: %s", what,
          policy ? policy : "none");
}

static void test_policies(void)
{
    expect_fastest(bmc_least, "bmc");
    expect_fastest(reserve_perhaps, "reserve");
    expect_fastest(reserve_clearly, "reserve");
    expect_fastest(paged_clearly, "paged:16");
    struct config_point points[3] = {cell_of(true, good, good, reserve_clearly),
                                     cell_of(true, good, good, paged_clearly),
                                     cell_of(false, good, good, bmc_least)};
    expect_policy("one point", points, 1, "reserve");
    expect_policy("two points: worst 0.95 and 0.9", points, 2, "paged:16");
    expect_policy("a hot one does not count", points, 3, "paged:16");
    expect_policy("hot ones alone", &points[2], 1, NULL);
    points[1] = cell_of(true, good, good, reserve_perhaps);
    expect_policy("no clear difference in one point", points, 2, "bmc");
    points[0].k = points[1].k = 4;
    expect_policy("speculation", points, 2, NULL);
    points[0].measured = false;
    expect_policy("nothing measured", points, 1, NULL);
}

static void test_doubts(void)
{
    const struct {
        struct ratio fit, raw;
        bool doubtful;
    } cases[] = {
        {good, good, false},
        {good, bad, true},
        {bad, good, true},
        {{1.01, 1, 1.02}, {1, 1, 1}, false},            /* the T used was the fastest */
        {{1.02, 1.01, 1.03}, {1.06, 1.05, 1.2}, false}, /* distinct, but by less than 5 % */
        {{1.02, 1.0, 1.5}, {1.3, 1.2, 1.4}, false},     /* too noisy to tell */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct config_point point = cell_of(true, cases[i].fit, cases[i].raw, bmc_least);
        check(config_point_contradicts(&point) == cases[i].doubtful, "case %zu", i);
        point.measured = false;
        check(!config_point_contradicts(&point), "nothing was measured");
    }
}

/* Measured times of T, in place of those of sweep_plan() (the Makefile wraps it): of the first `wrong` calls such that the T used is
 * 1.3 times as slow as its neighbours, which no fit follows; then those of T + 16/T. */
static size_t sweeps, wrong, last_rounds;

int __wrap_sweep_plan(const struct tune_run *run, struct sweep_plan *plan, const struct kv_spec *spec,
                      size_t n, double *time, size_t *T, struct err *err);
int __wrap_sweep_plan(const struct tune_run *run, struct sweep_plan *plan, const struct kv_spec *spec,
                      size_t n, double *time, size_t *T, struct err *err)
{
    (void)run, (void)err;
    const bool bad_times = sweeps++ < wrong;
    last_rounds = plan->rounds;
    plan->batch_run = plan->batch;
    for (size_t i = 0; i < n; i++) {
        T[i] = spec[i].T;
        for (size_t r = 0; r < plan->rounds; r++)
            time[r * n + i] = (bad_times ? (T[i] == 4 ? 130 : 100) : (double)T[i] + 16 / (double)T[i]) +
                              (double)r * 1e-3;
    }
    return 0;
}

/* A rate that makes 4 the best T: sqrt(64 * 0.5 / 2). */
static int put_rate(struct profile *profile, enum curve_what what, double value, struct err *err)
{
    const struct rate_curve curve = {.what = what,
                                     .attn = {what == CURVE_SDPA ? 'x' : '-'},
                                     .width = 4,
                                     .group = 1,
                                     .rows = 1,
                                     .batch = 1,
                                     .cold = true,
                                     .n = 1,
                                     .at = {{1024, value, 0, 1}}};
    return profile_put_curve(profile, &curve, err);
}

static void expect_attempts(size_t first_wrong, size_t most, size_t want, size_t want_rounds)
{
    static const struct attn_backend backend = {.name = "x"};
    static const struct evictor evictor;
    struct err err = {0};
    struct profile profile = {0};
    const struct tune_run run = {.layers = 1,
                                 .heads = 1,
                                 .kv_heads = 1,
                                 .head_dim = 4,
                                 .k = 1,
                                 .m = 1,
                                 .attn = &backend,
                                 .evictor = &evictor};
    const struct config_point_plan plan = {
        .N = 64, .batch = 1, .sweep = true, .rounds = 7, .attempts = most};
    struct config_point point;
    sweeps = 0;
    wrong = first_wrong;
    check(put_rate(&profile, CURVE_COPY, 1e9, &err) == 0 &&
              put_rate(&profile, CURVE_SDPA, 2e9, &err) == 0 &&
              put_rate(&profile, CURVE_ALLOC, 1e-12, &err) == 0 &&
              config_point_make(&run, &profile, &plan, &point, &err) == 0,
          "%s", err.text);
    check(point.answer.pow2 == 4, "T = %zu", point.answer.pow2);
    check(sweeps == want && point.attempts == want, "%zu measurements, %zu wanted", sweeps, want);
    check(last_rounds == want_rounds && point.rounds == want_rounds, "%zu rounds", last_rounds);
    check(config_point_contradicts(&point) == (first_wrong >= want), "the last measurement counts");
    profile_release(&profile);
}

/* A point is measured again while fit and measurement disagree. */
static void test_attempts(void)
{
    expect_attempts(0, 3, 1, 7);
    expect_attempts(1, 3, 2, 14);
    expect_attempts(2, 3, 3, 28);
    expect_attempts(9, 3, 3, 28);
    expect_attempts(9, 1, 1, 7);
    expect_attempts(9, 6, 6, FIT_MAX_ROUNDS);
}

/* Prints a run of one given point, then does as main() does: warnings, then the profile. */
static int finish(struct config_point point, struct tune_options o, struct err *err)
{
    struct tune tune = {
        .options = &o,
        .shape = "models/given.bmc",
        .key = "given",
        .point = &point,
        .n_points = 1,
        .run = {.layers = 1, .heads = 4, .kv_heads = 4, .head_dim = 16, .batch = 1, .k = 1, .m = 1},
        .profile.machine = {"Test CPU", "ref", "pool", 1, 1, 4096}};
    struct ratio ratio;
    tune.run.attn = attn_find(NULL, err);
    tune.batch[0] = tune.n_batch = tune.n_N = 1;
    tune.N[0] = point.N;
    struct tuned_model *model = profile_put_model(&tune.profile, "given", err);
    snprintf(model->name, sizeof model->name, "given.bmc");
    snprintf(model->policy, sizeof model->policy, "%s", config_points_policy(&point, 1, &ratio));
    model->policy_ratio = ratio;
    int rc = tune_print(&tune, err);
    if (rc == 0)
        rc = tune_warnings(&tune, err);
    if (rc == 0)
        rc = o.dry_run ? tune_say_end(&tune, NULL, err) : tune_save(&tune, err);
    profile_release(&tune.profile);
    return rc;
}

/* test_tune_report WHICH PROFILE FORMAT|summary [force|quiet|dry-run]: one run, for tests of programs. */
static int one_run(char **argument, int n)
{
    static const struct {
        const char *name;
        const struct ratio *over;
    } given[] = {{"bmc", bmc_least},
                 {"perhaps", reserve_perhaps},
                 {"reserve", reserve_clearly},
                 {"doubtful", bmc_least}};
    static const char *const formats[] = {"table", "md", "csv", "json", "jsonl"};
    struct tune_options o = {.profile = argument[1], .format = TUNE_SUMMARY};
    struct err err;
    size_t which = 0;
    for (size_t i = 0; i < ARRAY_LEN(given); i++)
        which = strcmp(given[i].name, argument[0]) == 0 ? i : which;
    for (int i = 0; i < (int)ARRAY_LEN(formats); i++)
        o.format = strcmp(formats[i], argument[2]) == 0 ? i : o.format;
    for (int i = 3; i < n; i++) {
        o.force = o.force || strcmp(argument[i], "force") == 0;
        o.quiet = o.quiet || strcmp(argument[i], "quiet") == 0;
        o.dry_run = o.dry_run || strcmp(argument[i], "dry-run") == 0;
    }
    const bool doubtful = strcmp(argument[0], "doubtful") == 0;
    if (finish(cell_of(true, good, doubtful ? bad : good, given[which].over), o, &err) == 0)
        return 0;
    fprintf(stderr, "bmc-tune: %s\n", err.text);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc >= 4)
        return one_run(argv + 1, argc - 1);
    test_policies();
    test_doubts();
    test_attempts();
    return check_result();
}
