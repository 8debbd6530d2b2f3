/* Measurements with whole forward passes: throughput, latency. */
#include "base/mem.h"
#include "prof/report.h"
#include "prof/roofline.h"
#include "report/stat.h"

/* Bytes that a decode step reads on average: the weights once, of experts those that ran, and all sequences'
 * KV entries; recurrent states are read and written. */
static double step_bytes(const struct report *report, const struct model *model,
                         const struct op_counts *counts, const struct test *test, double expert_runs)
{
    const struct config *c = &report->run.config;
    const struct state_shape state = config_state_shape(c);
    const double rows = (double)test->depth + (double)test->n_gen / 2;
    const double layers = (double)size_max(1, model_expert_layers(model));
    const double more = expert_runs / layers - (double)c->moe->used;
    return (double)counts->weight_bytes + more * (double)counts->expert_bytes +
           rows * (double)test->batch * (double)counts->context_bytes +
           2 * (double)test->batch * (double)state_bytes(&state);
}

/* Floating-point operations to prefill the test's prompts: every token in all layers, attention
 * over `depth` and on average half the prompt, and the output projection of the last token. */
static double prompt_flop(const struct op_counts *counts, const struct test *test)
{
    const double rows = (double)test->n_prompt, context = (double)test->depth + (rows + 1) / 2;
    return 2 * (double)test->batch *
           (rows * ((double)counts->row_macs + context * (double)counts->context_macs) +
            (double)counts->head_macs);
}

/* Operand type of prefill's matrix products, whose peak rate is the limit to compare with. */
static enum peak_kind peak_kind_of(const struct report *report)
{
    if (dtype_is_quantized(report->weight_type) && report->run.precision == PRECISION_INT8)
        return PEAK_INT8;
    const bool narrow = report->run.kernels->panel_bf16 && report->run.precision != PRECISION_F32;
    return report->weight_type == DTYPE_BF16 && narrow ? PEAK_BF16 : PEAK_F32;
}

/* Measures the machine's present limit for a test: memory bandwidth in GB/s for decoding, peak
 * arithmetic in GFLOP/s for prefill. */
static double measure_roof(const struct bench_job *job, struct figures *f)
{
    static const char *const names[PEAK_KINDS] = {"f32", "bf16", "int8"};
    const enum peak_kind own = peak_kind_of(job->report);
    f->roof_gb_s = f->roof_gflop_s = NAN;
    f->roof_kind = "read";
    if (f->test.n_gen)
        return f->roof_gb_s = roof_read_gb_s(job->block, 3);
    const double peak = roof_peak(own, 1).gop_s;
    const double wide = own == PEAK_BF16 ? roof_peak(PEAK_F32, 1).gop_s : 0;
    f->roof_kind = names[peak > wide ? own : PEAK_F32];
    return f->roof_gflop_s = peak > wide ? peak : wide;
}

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

int measure_bench(void *arg, const struct measurement *m, struct figures *f, struct err *err)
{
    const struct bench_job *job = arg;
    const struct test *test = &m->test;
    const bool decode = test->n_gen;
    const double steps = (double)test->n_gen,
                 layers = (double)size_max(1, model_expert_layers(job->model));
    struct steps_result result;
    struct op_counts counts;
    if (model_counts(&counts, job->model, &job->report->run.kv_types, err) < 0)
        return -1;
    const double roof = measure_roof(job, f);
    resident_peak_reset();
    if (run_test(job, m, &result, f, err) < 0)
        return -1;
    f->peak_resident_bytes = resident_peak();
    set_rates(f, test->batch * (test->n_prompt + test->n_gen),
              decode ? result.decode_ms : result.prefill_ms,
              decode ? result.growth_ms + result.sample_ms : result.prefill_growth_ms);
    const double bytes = step_bytes(job->report, job->model, &counts, test, result.expert_runs);
    f->roof_share = (decode ? bytes : prompt_flop(&counts, test)) / f->step_ms / 1e6 / roof;
    f->first_token_ms = decode ? NAN : result.prefill_ms;
    f->step_bytes = decode ? bytes : NAN;
    f->experts_per_layer =
        decode && job->model->config.moe->experts ? result.expert_runs / layers : NAN;
    for (size_t i = 0; i < FORWARD_PHASES; i++)
        f->part_ms[i] = decode ? result.ms[i] / steps : NAN;
    f->sampling_ms = decode ? result.sample_ms / steps : NAN;
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
