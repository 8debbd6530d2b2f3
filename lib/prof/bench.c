/* Measurements with whole forward passes: throughput, latency. */
#include "base/mem.h"
#include "prof/report.h"
#include "prof/roofline.h"
#include "tune/layer_bench.h"
#include "report/stat.h"

static int run_test(const struct bench_job *job, const struct measurement *m,
                    struct steps_result *result, struct figures *f, struct err *err)
{
    struct run run = job->report->run;
    const struct test *test = &m->test;
    run.batch = test->batch;
    run.N = m->N;
    if (run_steps(&run, job->model, &m->contender->spec, test->depth, test->n_prompt, test->n_gen,
                  result, err) < 0)
        return -1;
    f->T = result->T;
    f->r = result->r;
    f->T_from = kv_T_from_name(result->T_from);
    return 0;
}

/* Rates of a test of which `ms` were measured, `apart` of them for cache growth and sampling. */
static void set_rates(struct figures *f, size_t tokens, double ms, double apart)
{
    f->tok_s = (double)tokens * 1e3 / (ms - apart);
    f->tok_s_end_to_end = (double)tokens * 1e3 / ms;
    f->step_ms = ms / (double)size_max(f->test.n_gen, 1);
}

/* What the test's passes had to do, how near they came to the least time of that, and where the time went. */
static void set_work(const struct bench_job *job, const struct pass_work *work, struct roof *roof,
                     struct figures *f)
{
    const struct run *run = &job->report->run;
    const struct cpu_options how = {run->kernels, run->precision, run->attn};
    const double steps = f->test.n_gen ? (double)f->test.n_gen : 1;
    const bool on_device = tune_on_device(run->backend);
    if (!on_device)
        roof_measure_peaks(roof, 1);
    const struct roof_limit limit = roof_limit(roof, work, on_device ? NULL : &how, run->kv_types.all);
    const bool reads = limit.kind && strcmp(limit.kind, "read") == 0;
    f->roof_share = limit.ms / steps / f->step_ms;
    f->roof_kind = limit.kind;
    f->roof_gb_s = reads ? limit.rate : NAN;
    f->roof_gflop_s = reads ? NAN : limit.rate;
    f->step_bytes = (double)work_bytes(work) / steps;
    for (size_t class = 0; class < WEIGHTS_CLASSES; class ++)
        f->step_macs[class] = (double)work->macs[class] / steps;
    f->attention_macs = (double)work->attention_macs / steps;
    for (size_t i = 0; i < FORWARD_PHASES; i++)
        f->part_ms[i] = work->times.ms[i] / steps;
    f->conversion_ms = work->times.convert_ms / steps;
    f->wait_ms = work->times.wait_ms / steps;
}

int measure_bench(void *arg, const struct measurement *m, struct figures *f, struct err *err)
{
    const struct bench_job *job = arg;
    const struct test *test = &m->test;
    const bool decode = test->n_gen;
    struct steps_result result;
    const struct backend *backend = job->report->run.backend;
    struct roof roof = {.read_gb_s = tune_on_device(backend)
                                         ? roof_device_gb_s(backend->memory, job->block->bytes, 3)
                                         : roof_read_gb_s(job->block, decode ? 3 : 1)};
    resident_peak_reset();
    if (backend && backend->peak_bytes)
        backend->peak_bytes(true);
    if (run_test(job, m, &result, f, err) < 0)
        return -1;
    f->peak_resident_bytes = resident_peak();
    f->device_peak_bytes = backend && backend->peak_bytes ? backend->peak_bytes(false) : 0;
    set_rates(f, test->batch * (test->n_prompt + test->n_gen),
              decode ? result.decode_ms : result.prefill_ms,
              decode ? result.growth_ms + result.sample_ms : result.prefill_growth_ms);
    set_work(job, decode ? &result.decode : &result.prefill, &roof, f);
    f->first_token_ms = decode ? NAN : result.prefill_ms;
    f->experts_per_layer =
        decode && job->model->config.moe->experts
            ? result.expert_runs / (double)size_max(1, model_expert_layers(job->model))
            : NAN;
    f->sampling_ms = decode ? result.sample_ms / (double)test->n_gen : NAN;
    f->token_ms = result.step_ms;
    f->n_tokens = test->n_gen;
    return 0;
}

/* Copies the times of tokens [from, to) of all rounds, rounds after each other; NULL: out of memory. */
static double *tokens_of(const struct measurement *m, size_t rounds, size_t from, size_t to)
{
    double *x = mem_alloc(size_max(rounds * (to - from), 1), sizeof *x);
    for (size_t r = 0; x && r < rounds; r++)
        memcpy(x + r * (to - from), m->round[r].token_ms + from, (to - from) * sizeof *x);
    return x;
}

int bench_percentiles(const struct measurements *all, const struct report *report, struct err *err)
{
    static const double at[] = {0.5, 0.95, 0.99};
    const size_t rounds = (size_t)report->repeat;
    for (size_t i = 0; i < all->n; i++) {
        const struct measurement *m = &all->list[i];
        const size_t n = m->round->n_tokens;
        double *x = tokens_of(m, rounds, 0, n);
        if (!x)
            return err_no_memory(err, "times");
        for (size_t k = 0; k < ARRAY_LEN(at); k++)
            m->round[rounds - 1].latency_ms[k] = n ? stat_quantile(x, rounds * n, at[k]) : NAN;
        free(x);
    }
    return 0;
}

/* ---- latency ---- */

/* KV entries before the first timed token. */
static size_t first_token(const struct report *report, const struct measurement *m)
{
    return report->run.snapshot ? run_snapshot_rows(report->run.snapshot, 0) : m->test.depth + 1;
}

int measure_latency(void *arg, const struct measurement *m, struct figures *f, struct err *err)
{
    const struct bench_job *job = arg;
    const struct run *run = &job->report->run;
    struct steps_result result;
    const size_t tokens = run->N - first_token(job->report, m);
    if (run_steps(run, job->model, &m->contender->spec, m->test.depth, !run->snapshot, tokens, &result,
                  err) < 0)
        return -1;
    f->token_ms = result.step_ms;
    f->n_tokens = tokens;
    return 0;
}

static int put_time(json_t *row, const char *policy, const char *end, double ms, struct err *err)
{
    char key[256];
    snprintf(key, sizeof key, "%s%s", policy, end);
    return json_put(row, key, json_real(ms), err);
}

/* Adds to the row median, 95th percentile and maximum time of tokens [from, to) over all rounds,
 * and the median of each round. */
static int add_latency(json_t *row, const struct measurement *m, size_t rounds, size_t from, size_t to,
                       struct err *err)
{
    const char *policy = m->contender->text;
    const size_t n = to - from;
    json_t *medians = json_array(), *samples = json_object_get(row, "samples");
    AUTO(free_auto) double *x = tokens_of(m, rounds, from, to);
    char key[256];
    int rc = x ? 0 : err_no_memory(err, "times");
    for (size_t r = 0; rc == 0 && r < rounds; r++)
        rc = json_push(medians, json_real(stat_quantile(x + r * n, n, 0.5)), err);
    snprintf(key, sizeof key, "%s_ms", policy);
    if (rc == 0 && (put_time(row, policy, "_ms", stat_quantile(x, rounds * n, 0.5), err) < 0 ||
                    put_time(row, policy, "_p95_ms", stat_quantile(x, rounds * n, 0.95), err) < 0 ||
                    put_time(row, policy, "_max_ms", x[rounds * n - 1], err) < 0 ||
                    json_put(samples, key, json_incref(medians), err) < 0))
        rc = -1;
    json_decref(medians);
    return rc;
}

/* Adds a row with the times of tokens [from, to) under all policies. */
static int latency_row(const struct report *report, const struct row_kind *kind,
                       const struct measurements *all, size_t from, size_t to, json_t *rows,
                       struct err *err)
{
    const struct measurement *first = &all->list[0];
    const struct kv_spec *spec = &first->contender->spec;
    json_t *row = json_pack("{s:I, s:I, s:{}}", "n", (json_int_t)(to + first_token(report, first)),
                            "batch", (json_int_t)report->run.batch, "samples");
    int rc = row ? 0 : err_no_memory(err, "a row");
    for (size_t i = 0; i < all->n && rc == 0; i++)
        if (!*all->list[i].why.text)
            rc = add_latency(row, &all->list[i], (size_t)report->repeat, from, to, err);
    /* The row states --attend, common to all policies, not how the first policy applies it. */
    if (rc == 0)
        rc = report_setup(report, kind, spec, spec->attend_valid ? "valid" : "padded", report->run.N,
                          row, err);
    return fields_end(rc, row, rows, err);
}

int report_latency(const struct report *report, const struct row_kind *kind,
                   const struct measurements *m, size_t every, json_t *rows, struct err *err)
{
    size_t tokens = 0;
    for (size_t i = 0; i < m->n; i++)
        tokens = size_max(tokens, m->list[i].round->n_tokens);
    every = every ? every : size_max((tokens + 1) / 32, 1);
    for (size_t from = 0; from < tokens; from += every)
        if (latency_row(report, kind, m, from, size_min(from + every, tokens), rows, err) < 0)
            return -1;
    for (size_t i = 0; i < m->n; i++)
        if (*m->list[i].why.text && report_measurement(report, kind, &m->list[i], rows, err) < 0)
            return -1;
    return 0;
}
