/* Builds result rows of benchmarks with whole forward passes: latency, bench and use cases. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "report/stat.h"
#include "prof/rows.h"

/* ---- latency ---- */

/* Decode times of tokens under one policy: time_ms[round][token], with n tokens per round. */
struct tokens {
    const char *name;
    const double *time_ms;
    size_t rounds, n;
};

/* Adds to the row median, 95th percentile and maximum time of tokens [from, to) over all rounds,
 * and the median of each round. */
static int add_latency(json_t *row, const struct tokens *tokens, size_t from, size_t to,
                       struct err *err)
{
    char key[256];
    double of_round[MAX_REPEAT];
    const size_t n = to - from, all = tokens->rounds * n;
    double *x = mem_alloc(all, sizeof *x);
    if (!x)
        return err_no_memory(err, "times");
    for (size_t round = 0; round < tokens->rounds; round++) {
        memcpy(x + round * n, tokens->time_ms + round * tokens->n + from, n * sizeof *x);
        of_round[round] = stat_quantile(x + round * n, n, 0.5);
    }
    snprintf(key, sizeof key, "%s_ms", tokens->name);
    int rc = json_put(row, key, json_real(stat_quantile(x, all, 0.5)), err);
    if (rc == 0)
        rc = rows_add_samples(row, key, of_round, tokens->rounds, sizeof *of_round, err);
    snprintf(key, sizeof key, "%s_p95_ms", tokens->name);
    if (rc == 0)
        rc = json_put(row, key, json_real(stat_quantile(x, all, 0.95)), err);
    snprintf(key, sizeof key, "%s_max_ms", tokens->name);
    if (rc == 0)
        rc = json_put(row, key, json_real(x[all - 1]), err);
    free(x);
    return rc;
}

/* Adds a row with the times of tokens [from, to) under all policies; time[contender][round][token]
 * is in milliseconds. */
static int latency_row(const struct report *report, const struct contender *contender, size_t n,
                       const struct err *why, const double *time, size_t begin, size_t from, size_t to,
                       json_t *rows, struct err *err)
{
    const size_t rounds = (size_t)report->repeat, n_tokens = report->run.N - begin;
    json_t *row =
        json_pack("{s:I, s:I}", "n", (json_int_t)(to + begin), "batch", (json_int_t)report->run.batch);
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct tokens tokens = {contender[i].text, time + i * rounds * n_tokens, rounds,
                                      n_tokens};
        if (!*why[i].text)
            rc = add_latency(row, &tokens, from, to, err);
    }
    if (rc == 0)
        rc = rows_add_setup(report, NULL, row, err);
    /* The row states --attend, common to all policies, not how the first policy applies it. */
    if (rc == 0)
        rc = rows_add_cache(&contender[0].spec, contender[0].spec.attend_valid, row, err);
    return rows_end(rc, row, rows, err);
}

/* Adds a row per interval of `every` tokens, then an error row for each policy that failed. */
static int latency_rows(const struct report *report, const struct contender *contender, size_t n,
                        const struct err *why, const double *time, size_t begin, size_t every,
                        json_t *rows, struct err *err)
{
    const size_t tokens = report->run.N - begin;
    bool any = false;
    int rc = 0;
    for (size_t i = 0; i < n; i++)
        any = any || !*why[i].text;
    for (size_t from = 0; any && from < tokens && rc == 0; from += every)
        rc = latency_row(report, contender, n, why, time, begin, from, size_min(from + every, tokens),
                         rows, err);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (*why[i].text)
            rc = rows_add_failure(report, contender[i].text, &contender[i].spec, report->run.N,
                                  json_pack("{s:I}", "batch", (json_int_t)report->run.batch), &why[i],
                                  rows, err);
    return rc;
}

/* Sets median and 95th percentile of n token times; NaN if there are none or out of memory. */
static void take_all(struct latency_all *all, const double *time, size_t n)
{
    double *x = mem_alloc(size_max(n, 1), sizeof *x);
    *all = (struct latency_all){NAN, NAN};
    if (x && n) {
        memcpy(x, time, n * sizeof *x);
        all->p50_ms = stat_quantile(x, n, 0.5);
        all->p95_ms = stat_quantile(x, n, 0.95);
    }
    free(x);
}

int report_latency(const struct report *report, const struct model *model,
                   const struct contender *contender, size_t n, const struct latency_case *what,
                   json_t *rows, struct err *err)
{
    const struct snapshot *snapshot = report->run.snapshot;
    const size_t begin = snapshot ? run_snapshot_rows(snapshot, 0) : what->depth + 1;
    const size_t rounds = (size_t)report->repeat, tokens = report->run.N - begin;
    const size_t every = what->every ? what->every : size_max((tokens + 1) / 32, 1);
    struct err why[MAX_CONTENDERS] = {{.text = ""}}; /* why each policy could not be measured, or "" */
    int rc = -1;
    if (n > MAX_CONTENDERS)
        return err_set(err, "at most %d policies can be compared", MAX_CONTENDERS);
    double *time = mem_alloc(n * rounds * tokens, sizeof *time);
    if (!time)
        return err_no_memory(err, "%zu times", n * rounds * tokens);
    const size_t warmup = (size_t)report->warmup;
    for (size_t round = 0; round < rounds + warmup; round++)
        for (size_t i = 0; i < n; i++) {
            struct steps_result result;
            if (*why[i].text || !contender_fits(&contender[i], report->run.N, &why[i]))
                continue;
            if (run_steps(&report->run, model, &contender[i].spec, what->depth, !snapshot, tokens,
                          &result, &why[i]) < 0) {
                if (!*report->run.interrupted)
                    continue;
                *err = why[i];
                goto out;
            }
            if (round >= warmup)
                memcpy(time + (i * rounds + round - warmup) * tokens, result.step_ms,
                       tokens * sizeof *time);
            steps_result_release(&result);
            report_progress(report, round * n + i + 1, (rounds + warmup) * n);
        }
    for (size_t i = 0; i < n && what->all; i++)
        take_all(&what->all[i], time + i * rounds * tokens, *why[i].text ? 0 : rounds * tokens);
    rc = latency_rows(report, contender, n, why, time, begin, every, rows, err);
out:
    free(time);
    return rc;
}

/* ---- bench ---- */

/* Bytes that a decode step reads on average: the weights once, of experts those that ran, and all sequences'
 * KV entries; recurrent states are read and written. */
static double step_bytes(const struct report *report, const struct model *model,
                         const struct bench_test *test, double expert_runs)
{
    const struct config *c = &report->run.config;
    const struct state_shape state = config_state_shape(c);
    const double rows = (double)test->depth + (double)test->n_gen / 2;
    const double counted = (double)(c->moe->used * model_expert_layers(model));
    return (double)model_step_bytes(model) + (expert_runs - counted) * model_expert_bytes(model) +
           rows * (double)test->batch * config_token_bytes(c, report->run.kv_type) +
           2 * (double)test->batch * (double)state_bytes(&state);
}

/* Floating-point operations to prefill the test's prompts: every token in all layers, attention
 * over `depth` and on average half the prompt, and the output projection of the last token. */
static double prompt_flop(const struct report *report, const struct model *model,
                          const struct bench_test *test)
{
    const struct config *c = &report->run.config;
    const double rows = (double)test->n_prompt;
    const double width = (double)(config_q_width(c) + config_context_width(c));
    const double attention = (double)config_kv_layers(c, 0, c->layers, KV_ALL_SIZES) * width * rows *
                             ((double)test->depth + (rows + 1) / 2);
    const double head = (double)(model_row_macs(model, true) - model_row_macs(model, false));
    return 2 * (double)test->batch * (rows * (double)model_row_macs(model, false) + attention + head);
}

/* Results of one repeat of a test. */
struct step_sample {
    double tok_s, tok_s_end_to_end, step_ms;
};

static struct step_sample sample_of(const struct bench_test *test, const struct steps_result *result)
{
    if (!test->n_gen) {
        const double tokens = (double)(test->batch * test->n_prompt), ms = result->prefill_ms;
        const double alone = ms - result->prefill_growth_ms;
        return (struct step_sample){tokens * 1e3 / alone, tokens * 1e3 / ms, ms};
    }
    double growing = 0;
    for (size_t i = 0; i < test->n_gen; i++)
        growing += result->growth_ms[i];
    const double tokens = (double)(test->batch * test->n_gen);
    const double alone = result->decode_ms - growing - result->sample_ms;
    return (struct step_sample){tokens * 1e3 / alone, tokens * 1e3 / result->decode_ms,
                                result->decode_ms / (double)test->n_gen};
}

struct test_times {
    struct step_sample sample[MAX_REPEAT];
    double first_ms[MAX_REPEAT]; /* time to the first token */
    double *latency;             /* time of each decode step, over all repeats */
    size_t n_latency;
    double part_ms[FORWARD_PHASES];
    double sample_ms;
    double expert_runs; /* experts per step over all layers, summed over repeats */
    double step_bytes;  /* of the last repeat */
    size_t peak_bytes, T, r;
    /* the machine's limit, measured before each repeat: GB/s for decoding, GFLOP/s for prefill */
    double roof[MAX_REPEAT];
    const char *roof_kind; /* which limit: "read", "f32", "bf16" or "int8" */
    double share[MAX_REPEAT];
    enum kv_T_from T_from;
    struct err why; /* why the policy could not be measured; "" if it could */
};

/* Operand type of prefill's matrix products, whose peak rate is the limit to compare with. */
static enum peak_kind peak_kind_of(const struct report *report)
{
    if (dtype_is_quantized(report->weight_type) && report->run.precision == PRECISION_INT8)
        return PEAK_INT8;
    const bool narrow = report->run.kernels->panel_bf16 && report->run.precision != PRECISION_F32;
    return report->weight_type == DTYPE_BF16 && narrow ? PEAK_BF16 : PEAK_F32;
}

/* Returns the machine's present limit for a test: memory bandwidth in GB/s for decoding, peak
 * arithmetic in GFLOP/s for prefill; *kind names it. */
static double measure_roof(const struct report *report, const struct bench_test *test,
                           const struct roof_block *block, const char **kind)
{
    static const char *const names[PEAK_KINDS] = {"f32", "bf16", "int8"};
    const enum peak_kind own = peak_kind_of(report);
    *kind = "read";
    if (test->n_gen)
        return roof_read_gb_s(block, 3);
    const double peak = roof_peak(own, 1).gop_s;
    const double wide = own == PEAK_BF16 ? roof_peak(PEAK_F32, 1).gop_s : 0;
    *kind = names[peak > wide ? own : PEAK_F32];
    return peak > wide ? peak : wide;
}

static int run_test(const struct report *report, const struct model *model,
                    const struct contender *contender, const struct bench_test *test,
                    const struct roof_block *block, size_t round, struct test_times *times,
                    struct err *err)
{
    const size_t rows = test->depth + test->n_prompt + test->n_gen;
    if (*times->why.text || !contender_fits(contender, rows, &times->why))
        return 0;
    struct steps_result result;
    const double roof = measure_roof(report, test, block, &times->roof_kind);
    struct report of_test = *report;
    resident_peak_reset();
    of_test.run.batch = test->batch;
    of_test.run.N = size_max(rows, 1);
    if (run_steps(&of_test.run, model, &contender->spec, test->depth, test->n_prompt, test->n_gen,
                  &result, &times->why) < 0) {
        *err = times->why;
        return *report->run.interrupted ? -1 : 0;
    }
    times->T = result.T;
    times->r = result.r;
    times->T_from = result.T_from;
    times->peak_bytes = size_max(times->peak_bytes, resident_peak());
    if (round < MAX_REPEAT) {
        times->sample[round] = sample_of(test, &result);
        times->roof[round] = roof;
        times->share[round] = (test->n_gen ? step_bytes(report, model, test, result.expert_runs)
                                           : prompt_flop(report, model, test)) /
                              times->sample[round].step_ms / 1e6 / roof;
        times->first_ms[round] = result.prefill_ms;
        for (size_t i = 0; i < test->n_gen; i++)
            times->latency[times->n_latency++] = result.step_ms[i];
        for (size_t i = 0; i < FORWARD_PHASES; i++)
            times->part_ms[i] += result.ms[i];
        times->sample_ms += result.sample_ms;
        times->expert_runs += result.expert_runs;
        times->step_bytes = step_bytes(report, model, test, result.expert_runs);
    }
    steps_result_release(&result);
    return 0;
}

static json_t *bench_rates(const struct contender *contender, const struct bench_test *test,
                           const struct test_times *times, size_t n)
{
    double alone[MAX_REPEAT], whole[MAX_REPEAT], step[MAX_REPEAT], share[MAX_REPEAT];
    for (size_t i = 0; i < n; i++) {
        alone[i] = times->sample[i].tok_s;
        whole[i] = times->sample[i].tok_s_end_to_end;
        step[i] = times->sample[i].step_ms;
        share[i] = times->share[i];
    }
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:s}", "test",
                     test->n_gen ? "decode" : "prefill", "policy", contender->text, "batch",
                     (json_int_t)test->batch, "n_prompt", (json_int_t)test->n_prompt, "n_gen",
                     (json_int_t)test->n_gen, "depth", (json_int_t)test->depth, "tok_s",
                     stat_mean(alone, n), "tok_s_sd", stat_sd(alone, n), "tok_s_end_to_end",
                     stat_mean(whole, n), "tok_s_end_to_end_sd", stat_sd(whole, n), "step_ms",
                     stat_quantile(step, n, 0.5), "roof_share", stat_quantile(share, n, 0.5),
                     "roof_kind", times->roof_kind);
}

/* Builds more fields of a row; those that apply only to prefill or only to decoding may be null. */
static json_t *bench_details(const struct bench_test *test, struct test_times *times, size_t n)
{
    const bool decode = test->n_gen;
    const double steps = (double)(n * test->n_gen), *ms = times->part_ms;
    const double roof = stat_quantile(times->roof, n, 0.5);
    const double first_ms = stat_quantile(times->first_ms, n, 0.5);
    double latency[3] = {0};
    static const double quantile[] = {0.5, 0.95, 0.99};
    for (size_t i = 0; decode && i < ARRAY_LEN(quantile); i++)
        latency[i] = stat_quantile(times->latency, times->n_latency, quantile[i]);
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:s, s:I, s:I}",
                     "first_token_ms", rows_real_if(test->n_prompt, first_ms), "roof_gb_s",
                     rows_real_if(decode, roof), "roof_gflop_s", rows_real_if(!decode, roof),
                     "latency_p50_ms", rows_real_if(decode, latency[0]), "latency_p95_ms",
                     rows_real_if(decode, latency[1]), "latency_p99_ms",
                     rows_real_if(decode, latency[2]), "attention_ms",
                     rows_real_if(decode, ms[PHASE_ATTENTION] / steps), "projections_ms",
                     rows_real_if(decode, ms[PHASE_PROJECTION] / steps), "mlp_ms",
                     rows_real_if(decode, ms[PHASE_MLP] / steps), "head_ms",
                     rows_real_if(decode, ms[PHASE_HEAD] / steps), "other_ms",
                     rows_real_if(decode, ms[PHASE_OTHER] / steps), "sampling_ms",
                     rows_real_if(decode, times->sample_ms / steps), "T", (json_int_t)times->T,
                     "T_from", kv_T_from_name(times->T_from), "r", (json_int_t)times->r,
                     "peak_resident_bytes", (json_int_t)times->peak_bytes);
}

/* Adds each repeat's tokens/s, without and with cache growth and sampling; step_ms, the inverse of
 * the second, needs no samples. */
static int add_bench_samples(json_t *row, const struct step_sample *sample, size_t n, struct err *err)
{
    if (rows_add_samples(row, "tok_s", &sample->tok_s, n, sizeof *sample, err) < 0)
        return -1;
    return rows_add_samples(row, "tok_s_end_to_end", &sample->tok_s_end_to_end, n, sizeof *sample, err);
}

static json_t *bench_what(const struct bench_test *test)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I}", "test", test->n_gen ? "decode" : "prefill", "batch",
                     (json_int_t)test->batch, "n_prompt", (json_int_t)test->n_prompt, "n_gen",
                     (json_int_t)test->n_gen, "depth", (json_int_t)test->depth);
}

/* Adds the bytes that a decode step reads, and the experts of a layer that it runs. */
static int add_bytes(json_t *row, const struct model *model, const struct bench_test *test,
                     const struct test_times *times, size_t n, struct err *err)
{
    const double layers = (double)(n * size_max(1, model_expert_layers(model)));
    const bool experts = test->n_gen && model->config.moe->experts;
    return json_put(row, "step_bytes", rows_real_if(test->n_gen, times->step_bytes), err) < 0
               ? -1
               : json_put(row, "experts_per_layer", rows_real_if(experts, times->expert_runs / layers),
                          err);
}

static int bench_row(const struct report *report, const struct model *model,
                     const struct contender *contender, const struct bench_test *test,
                     struct test_times *times, json_t *rows, struct err *err)
{
    const size_t n = (size_t)report->repeat, N = test->depth + test->n_prompt + test->n_gen;
    if (*times->why.text)
        return rows_add_failure(report, contender->text, &contender->spec, N, bench_what(test),
                                &times->why, rows, err);
    json_t *row = bench_rates(contender, test, times, n);
    int rc = rows_merge(row, bench_details(test, times, n), err);
    if (rc == 0)
        rc = add_bytes(row, model, test, times, n, err);
    if (rc == 0)
        rc = add_bench_samples(row, times->sample, n, err);
    if (rc == 0)
        rc = rows_add_setup(report, &contender->spec, row, err);
    if (rc == 0)
        rc = json_put(row, "N", json_integer((json_int_t)N), err);
    return rows_end(rc, row, rows, err);
}

int report_bench(const struct report *report, const struct model *model,
                 const struct contender *contender, size_t n_contenders, const struct bench_test *test,
                 size_t n_tests, size_t roof_bytes, json_t *rows, struct err *err)
{
    const size_t repeat = (size_t)report->repeat, warmup = (size_t)report->warmup,
                 n = n_contenders * n_tests;
    struct test_times *times = calloc(n, sizeof *times);
    struct roof_block block = {0};
    int rc = -1;
    if (!times)
        return err_no_memory(err, "%zu tests", n);
    if (roof_block_open(&block, roof_bytes, err) < 0)
        goto out;
    for (size_t i = 0; i < n; i++)
        if (!(times[i].latency =
                  mem_alloc(repeat * test[i / n_contenders].n_gen + 1, sizeof(double)))) {
            err_no_memory(err, "times");
            goto out;
        }
    for (size_t round = 0; round < repeat + warmup; round++)
        for (size_t i = 0; i < n; i++) {
            if (run_test(report, model, &contender[i % n_contenders], &test[i / n_contenders], &block,
                         round < warmup ? MAX_REPEAT : round - warmup, &times[i], err) < 0)
                goto out;
            report_progress(report, round * n + i + 1, (repeat + warmup) * n);
        }
    rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = bench_row(report, model, &contender[i % n_contenders], &test[i / n_contenders], &times[i],
                       rows, err);
out:
    roof_block_close(&block);
    for (size_t i = 0; i < n; i++)
        free(times[i].latency);
    free(times);
    return rc;
}

/* ---- use cases ---- */

/* One policy's rates per round: generated tokens per second of prefill and decoding time. */
struct case_times {
    size_t batch;
    double tok_s[MAX_REPEAT];
    double median;
    size_t T;
    enum kv_T_from T_from;
    struct err why; /* why the policy could not be measured; "" if it could */
};

/* Sets *batch to the use case's batch size, or to as many sequences as fit the limit --memory. */
static int choose_batch(const struct report *report, const struct contender *contender,
                        const struct bench_test *test, size_t *batch, struct err *err)
{
    struct run run = report->run;
    struct memory_result memory;
    const struct memory_case one = {1, 1, test->n_prompt, test->n_gen};
    *batch = test->batch;
    if (!report->memory_bytes)
        return 0;
    run.N = test->n_prompt + test->n_gen;
    if (run_memory(&run, &contender->spec, &one, report->memory_bytes, 0, &memory, err) < 0)
        return -1;
    if (memory.fits < SIZE_MAX)
        *batch = memory.fits;
    if (memory.impossible)
        return err_set(err, "%zu + %zu tokens need %zu bytes in memory, ram= allows less",
                       test->n_prompt, test->n_gen, memory.least);
    return memory.fits ? 0
                       : err_set(err, "%zu + %zu tokens take %zu bytes, --memory holds %zu",
                                 test->n_prompt, test->n_gen, memory.bytes, report->memory_bytes);
}

static int time_usecase(const struct report *report, const struct model *model,
                        const struct contender *contender, size_t n, const struct bench_test *test,
                        struct case_times *times, struct err *err)
{
    const size_t repeat = (size_t)report->repeat, warmup = (size_t)report->warmup;
    struct run run = report->run;
    run.N = test->n_prompt + test->n_gen;
    for (size_t i = 0; i < n; i++)
        if ((!contender_fits(&contender[i], run.N, &times[i].why) ||
             choose_batch(report, &contender[i], test, &times[i].batch, &times[i].why) < 0) &&
            *run.interrupted) {
            *err = times[i].why;
            return -1;
        }
    for (size_t round = 0; round < repeat + warmup; round++)
        for (size_t i = 0; i < n; i++) {
            struct steps_result result;
            run.batch = times[i].batch;
            if (*times[i].why.text)
                continue;
            if (run_steps(&run, model, &contender[i].spec, 0, test->n_prompt, test->n_gen, &result,
                          &times[i].why) < 0) {
                *err = times[i].why;
                if (*run.interrupted)
                    return -1;
                continue;
            }
            if (round >= warmup)
                times[i].tok_s[round - warmup] =
                    (double)(run.batch * test->n_gen) * 1e3 / (result.prefill_ms + result.decode_ms);
            times[i].T = result.T;
            times[i].T_from = result.T_from;
            steps_result_release(&result);
        }
    for (size_t i = 0; i < n; i++) {
        double sorted[MAX_REPEAT];
        memcpy(sorted, times[i].tok_s, sizeof sorted);
        times[i].median = stat_quantile(sorted, repeat, 0.5);
    }
    return 0;
}

/* Adds a policy's row; `paged` is the tokens/s of the first paged policy, 0 if there is none. */
static int usecase_row(const struct report *report, const struct contender *contender,
                       const struct bench_test *test, const struct case_times *times, double paged,
                       json_t *rows, struct err *err)
{
    const size_t N = test->n_prompt + test->n_gen;
    if (*times->why.text)
        return rows_add_failure(report, contender->text, &contender->spec, N,
                                json_pack("{s:I, s:I, s:I}", "n_prompt", (json_int_t)test->n_prompt,
                                          "n_gen", (json_int_t)test->n_gen, "batch",
                                          (json_int_t)test->batch),
                                &times->why, rows, err);
    json_t *row = json_pack("{s:I, s:I, s:I, s:s, s:f, s:o}", "n_prompt", (json_int_t)test->n_prompt,
                            "n_gen", (json_int_t)test->n_gen, "batch", (json_int_t)times->batch,
                            "policy", contender->text, "tok_s_end_to_end", times->median, "over_paged",
                            rows_real_if(paged > 0, times->median / paged));
    json_t *growth =
        json_pack("{s:I, s:I, s:s, s:I}", "N", (json_int_t)N, "T", (json_int_t)times->T, "T_from",
                  kv_T_from_name(times->T_from), "r", (json_int_t)div_up(N, times->T));
    int rc = rows_add_setup(report, &contender->spec, row, err);
    if (rows_merge(row, growth, err) < 0)
        rc = -1;
    if (rc == 0)
        rc = rows_add_samples(row, "tok_s_end_to_end", times->tok_s, (size_t)report->repeat,
                              sizeof *times->tok_s, err);
    return rows_end(rc, row, rows, err);
}

int report_usecases(const struct report *report, const struct model *model,
                    const struct contender *contender, size_t n, const struct bench_test *test,
                    size_t n_tests, json_t *rows, struct err *err)
{
    struct case_times times[MAX_CONTENDERS];
    if (n > MAX_CONTENDERS)
        return err_set(err, "at most %zu policies can be compared here", (size_t)MAX_CONTENDERS);
    for (size_t t = 0; t < n_tests; t++) {
        double paged = 0;
        memset(times, 0, sizeof times);
        if (time_usecase(report, model, contender, n, &test[t], times, err) < 0)
            return -1;
        for (size_t i = n; i-- > 0;)
            if (!*times[i].why.text && strncmp(contender[i].text, "paged", 5) == 0)
                paged = times[i].median;
        for (size_t i = 0; i < n; i++)
            if (usecase_row(report, &contender[i], &test[t], &times[i], paged, rows, err) < 0)
                return -1;
        report_progress(report, t + 1, n_tests);
    }
    return 0;
}
