/* Rows of whole model steps: latency, bench and use cases. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/stat.h"
#include "prof/rows.h"

static void tell(const struct report *report, size_t done, size_t total)
{
    if (report->progress)
        report->progress(report->arg, done, total);
}

/* ---- latency ---- */

/* Median and slowest of one contender's tokens [from, to) over all rounds; one[] holds rounds x N times. */
static int add_latency(json_t *row, const char *name, const double *one, size_t rounds, size_t N,
                       size_t from, size_t to, struct err *err)
{
    char key[64];
    double *x = mem_alloc(rounds * (to - from), sizeof *x);
    size_t n = 0;
    if (!x)
        return err_set(err, "out of memory for times");
    for (size_t round = 0; round < rounds; round++)
        for (size_t i = from; i < to; i++)
            x[n++] = one[round * N + i];
    snprintf(key, sizeof key, "%s_ms", name);
    json_object_set_new(row, key, json_real(stat_quantile(x, n, 0.5)));
    snprintf(key, sizeof key, "%s_max_ms", name);
    json_object_set_new(row, key, json_real(x[n - 1]));
    free(x);
    return 0;
}

int report_latency(const struct report *report, const struct model *model,
                   const struct contender *contender, size_t n, size_t every, json_t *rows,
                   struct err *err)
{
    const struct snapshot *snapshot = report->run.snapshot;
    const size_t begin = snapshot ? run_snapshot_rows(snapshot, 0) : 1;
    const size_t rounds = (size_t)report->repeat, tokens = report->run.N - begin;
    double *time = mem_alloc(n * rounds * tokens, sizeof *time);
    int rc = -1;
    if (!time)
        return err_set(err, "out of memory for %zu times", n * rounds * tokens);
    const size_t warmup = (size_t)report->warmup;
    for (size_t round = 0; round < rounds + warmup; round++)
        for (size_t i = 0; i < n; i++) {
            struct steps_result result;
            if (run_steps(&report->run, model, &contender[i].spec, 0, !snapshot, tokens, &result, err) <
                0)
                goto out;
            if (round >= warmup)
                memcpy(time + (i * rounds + round - warmup) * tokens, result.step_ms,
                       tokens * sizeof *time);
            steps_result_release(&result);
            tell(report, round * n + i + 1, (rounds + warmup) * n);
        }
    for (size_t from = 0; from < tokens; from += every) {
        const size_t to = size_min(from + every, tokens);
        json_t *row = json_pack("{s:I, s:I}", "n", (json_int_t)(to + begin), "batch",
                                (json_int_t)report->run.batch);
        for (size_t i = 0; i < n; i++)
            if (add_latency(row, contender[i].text, time + i * rounds * tokens, rounds, tokens, from,
                            to, err) < 0)
                goto out;
        if (rows_add_setup(report, &contender[0].spec, row, err) < 0 ||
            json_array_append_new(rows, row) < 0)
            goto out;
    }
    rc = 0;
out:
    free(time);
    return rc;
}

/* ---- bench ---- */

/* What a decode step must read at least: the weights once, and the rows of every sequence. */
static double step_bytes(const struct report *report, const struct model *model,
                         const struct bench_test *test)
{
    const struct config *c = &report->run.config;
    const double rows = (double)test->depth + (double)test->n_gen / 2;
    return (double)model_step_bytes(model) + 2 * rows * (double)test->batch * (double)c->layers *
                                                 (double)(c->kv_heads * c->head_dim) *
                                                 (double)dtype_size(report->run.kv_type);
}

/* Floating-point operations of a prompt: every row through the layers, attention over half the rows on
 * average, the last row through the head. */
static double prompt_flop(const struct report *report, const struct model *model,
                          const struct bench_test *test)
{
    const struct config *c = &report->run.config;
    const double rows = (double)test->n_prompt, width = (double)(c->heads * c->head_dim);
    const double attention =
        2 * (double)c->layers * width * rows * ((double)test->depth + (rows + 1) / 2);
    const double head = (double)(model_row_macs(model, true) - model_row_macs(model, false));
    return 2 * (double)test->batch * (rows * (double)model_row_macs(model, false) + attention + head);
}

/* One repeat of a test, in both clocks. */
struct sample {
    double tok_s, tok_s_end_to_end, step_ms;
};

static struct sample sample_of(const struct bench_test *test, const struct steps_result *result)
{
    if (!test->n_gen) {
        const double tokens = (double)(test->batch * test->n_prompt), ms = result->prefill_ms;
        const double alone = ms - result->prefill_growth_ms;
        return (struct sample){tokens * 1e3 / alone, tokens * 1e3 / ms, ms};
    }
    double growing = 0;
    for (size_t i = 0; i < test->n_gen; i++)
        growing += result->growth_ms[i];
    const double tokens = (double)(test->batch * test->n_gen);
    const double alone = result->decode_ms - growing - result->sample_ms;
    return (struct sample){tokens * 1e3 / alone, tokens * 1e3 / result->decode_ms,
                           result->decode_ms / (double)test->n_gen};
}

struct test_times {
    struct sample sample[MAX_REPEAT];
    double first_ms[MAX_REPEAT]; /* time to the first token */
    double *latency;             /* of all tokens of all repeats */
    size_t n_latency;
    double part_ms[FORWARD_PARTS];
    double sample_ms;
    size_t peak_bytes, T, r;
    double roof[MAX_REPEAT]; /* GB/s for decoding, GFLOP/s for prompts; measured beside the step */
    double share[MAX_REPEAT];
    enum kv_T_from T_from;
};

/* The machine's limit for a test, now: reading for decoding, arithmetic in the weights' type for prompts. */
static double measure_roof(const struct report *report, const struct bench_test *test,
                           const struct roof_block *block)
{
    const char *isa;
    if (test->n_gen)
        return roof_read_gb_s(block, 3);
    const double wide = roof_gflop_s(false, 1, &isa);
    const double narrow = report->weight_type == DTYPE_BF16 ? roof_gflop_s(true, 1, &isa) : 0;
    return narrow > wide ? narrow : wide;
}

static int run_test(const struct report *report, const struct model *model,
                    const struct contender *contender, const struct bench_test *test,
                    const struct roof_block *block, size_t round, struct test_times *times,
                    struct err *err)
{
    struct steps_result result;
    const double roof = measure_roof(report, test, block);
    struct report of_test = *report;
    resident_peak_reset();
    of_test.run.batch = test->batch;
    of_test.run.N = size_max(test->depth + test->n_prompt + test->n_gen, 1);
    if (run_steps(&of_test.run, model, &contender->spec, test->depth, test->n_prompt, test->n_gen,
                  &result, err) < 0)
        return -1;
    times->T = result.T;
    times->r = result.r;
    times->T_from = result.T_from;
    times->peak_bytes = size_max(times->peak_bytes, resident_peak());
    if (round < MAX_REPEAT) {
        times->sample[round] = sample_of(test, &result);
        times->roof[round] = roof;
        times->share[round] =
            (test->n_gen ? step_bytes(report, model, test) : prompt_flop(report, model, test)) /
            times->sample[round].step_ms / 1e6 / roof;
        times->first_ms[round] = result.prefill_ms;
        for (size_t i = 0; i < test->n_gen; i++)
            times->latency[times->n_latency++] = result.step_ms[i];
        for (size_t i = 0; i < FORWARD_PARTS; i++)
            times->part_ms[i] += result.ms[i];
        times->sample_ms += result.sample_ms;
    }
    steps_result_release(&result);
    return 0;
}

static json_t *bench_row(const struct report *report, const struct contender *contender,
                         const struct bench_test *test, struct test_times *times, struct err *err)
{
    const size_t n = (size_t)report->repeat;
    double alone[MAX_REPEAT], whole[MAX_REPEAT], step[MAX_REPEAT];
    for (size_t i = 0; i < n; i++) {
        alone[i] = times->sample[i].tok_s;
        whole[i] = times->sample[i].tok_s_end_to_end;
        step[i] = times->sample[i].step_ms;
    }
    const double median_ms = stat_quantile(step, n, 0.5), steps = (double)(n * test->n_gen);
    const double roof = stat_quantile(times->roof, n, 0.5);
    json_t *row = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "test",
                            test->n_gen ? "decode" : "prefill", "policy", contender->text, "batch",
                            (json_int_t)test->batch, "n_prompt", (json_int_t)test->n_prompt, "n_gen",
                            (json_int_t)test->n_gen, "depth", (json_int_t)test->depth, "tok_s",
                            stat_mean(alone, n), "tok_s_sd", stat_sd(alone, n), "tok_s_end_to_end",
                            stat_mean(whole, n), "tok_s_end_to_end_sd", stat_sd(whole, n), "step_ms",
                            median_ms, "roof_share", stat_quantile(times->share, n, 0.5));
    static const char *const part[FORWARD_PARTS] = {"attention_ms", "projections_ms", "mlp_ms",
                                                    "head_ms", "other_ms"};
    json_t *more = json_object();
    if (!row || !more) {
        err_set(err, "out of memory for a row");
        goto fail;
    }
    json_object_set_new(more, "first_token_ms",
                        test->n_prompt ? json_real(stat_quantile(times->first_ms, n, 0.5))
                                       : json_null());
    json_object_set_new(more, "roof_gb_s", test->n_gen ? json_real(roof) : json_null());
    json_object_set_new(more, "roof_gflop_s", test->n_gen ? json_null() : json_real(roof));
    static const double quantile[] = {0.5, 0.95, 0.99};
    static const char *const name[] = {"latency_p50_ms", "latency_p95_ms", "latency_p99_ms"};
    for (size_t i = 0; i < ARRAY_LEN(quantile); i++)
        json_object_set_new(
            more, name[i],
            test->n_gen ? json_real(stat_quantile(times->latency, times->n_latency, quantile[i]))
                        : json_null());
    for (size_t i = 0; i < FORWARD_PARTS; i++)
        json_object_set_new(more, part[i],
                            test->n_gen ? json_real(times->part_ms[i] / steps) : json_null());
    json_object_set_new(more, "sampling_ms",
                        test->n_gen ? json_real(times->sample_ms / steps) : json_null());
    json_object_set_new(more, "T", json_integer((json_int_t)times->T));
    json_object_set_new(more, "T_from", json_string(kv_T_from_name(times->T_from)));
    json_object_set_new(more, "r", json_integer((json_int_t)times->r));
    json_object_set_new(more, "peak_resident_bytes", json_integer((json_int_t)times->peak_bytes));
    if (json_object_update(row, more) < 0 || rows_add_setup(report, &contender->spec, row, err) < 0)
        goto fail;
    json_object_set_new(row, "N",
                        json_integer((json_int_t)(test->depth + test->n_prompt + test->n_gen)));
    json_decref(more);
    return row;
fail:
    json_decref(row);
    json_decref(more);
    return NULL;
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
        return err_set(err, "out of memory for %zu tests", n);
    if (roof_block_open(&block, roof_bytes, err) < 0)
        goto out;
    for (size_t i = 0; i < n; i++)
        if (!(times[i].latency =
                  mem_alloc(repeat * test[i / n_contenders].n_gen + 1, sizeof(double)))) {
            err_set(err, "out of memory for times");
            goto out;
        }
    for (size_t round = 0; round < repeat + warmup; round++)
        for (size_t i = 0; i < n; i++) {
            if (run_test(report, model, &contender[i % n_contenders], &test[i / n_contenders], &block,
                         round < warmup ? MAX_REPEAT : round - warmup, &times[i], err) < 0)
                goto out;
            tell(report, round * n + i + 1, (repeat + warmup) * n);
        }
    for (size_t i = 0; i < n; i++) {
        json_t *row =
            bench_row(report, &contender[i % n_contenders], &test[i / n_contenders], &times[i], err);
        if (!row || json_array_append_new(rows, row) < 0)
            goto out;
    }
    rc = 0;
out:
    roof_block_close(&block);
    for (size_t i = 0; i < n; i++)
        free(times[i].latency);
    free(times);
    return rc;
}

/* ---- use cases ---- */

/* Generated tokens per second of prompt and generation together: medians of the repeats, contender by contender. */
static int time_usecase(const struct report *report, const struct model *model,
                        const struct contender *contender, size_t n, const struct bench_test *test,
                        double *tok_s, size_t *T, enum kv_T_from *from, struct err *err)
{
    const size_t repeat = (size_t)report->repeat, warmup = (size_t)report->warmup;
    double x[MAX_REPEAT][MAX_CONTENDERS];
    for (size_t round = 0; round < repeat + warmup; round++)
        for (size_t i = 0; i < n; i++) {
            struct steps_result result;
            struct run run = report->run;
            run.batch = test->batch;
            run.N = test->n_prompt + test->n_gen;
            if (run_steps(&run, model, &contender[i].spec, 0, test->n_prompt, test->n_gen, &result,
                          err) < 0)
                return -1;
            if (round >= warmup)
                x[round - warmup][i] =
                    (double)(test->batch * test->n_gen) * 1e3 / (result.prefill_ms + result.decode_ms);
            T[i] = result.T;
            from[i] = result.T_from;
            steps_result_release(&result);
        }
    for (size_t i = 0; i < n; i++) {
        double one[MAX_REPEAT];
        for (size_t round = 0; round < repeat; round++)
            one[round] = x[round][i];
        tok_s[i] = stat_quantile(one, repeat, 0.5);
    }
    return 0;
}

int report_usecases(const struct report *report, const struct model *model,
                    const struct contender *contender, size_t n, const struct bench_test *test,
                    size_t n_tests, json_t *rows, struct err *err)
{
    double tok_s[MAX_CONTENDERS];
    size_t T[MAX_CONTENDERS];
    enum kv_T_from from[MAX_CONTENDERS];
    if (n > MAX_CONTENDERS)
        return err_set(err, "at most %zu policies can be compared here", (size_t)MAX_CONTENDERS);
    for (size_t t = 0; t < n_tests; t++) {
        double paged = 0;
        if (time_usecase(report, model, contender, n, &test[t], tok_s, T, from, err) < 0)
            return -1;
        for (size_t i = n; i-- > 0;)
            if (strncmp(contender[i].text, "paged", 5) == 0)
                paged = tok_s[i];
        for (size_t i = 0; i < n; i++) {
            json_t *row =
                json_pack("{s:I, s:I, s:I, s:s, s:f, s:o}", "n_prompt", (json_int_t)test[t].n_prompt,
                          "n_gen", (json_int_t)test[t].n_gen, "batch", (json_int_t)test[t].batch,
                          "policy", contender[i].text, "tok_s_end_to_end", tok_s[i], "over_paged",
                          paged > 0 ? json_real(tok_s[i] / paged) : json_null());
            if (!row || rows_add_setup(report, &contender[i].spec, row, err) < 0)
                return err_set(err, "out of memory for a row");
            const size_t N = test[t].n_prompt + test[t].n_gen;
            json_object_set_new(row, "N", json_integer((json_int_t)N));
            json_object_set_new(row, "T", json_integer((json_int_t)T[i]));
            json_object_set_new(row, "T_from", json_string(kv_T_from_name(from[i])));
            json_object_set_new(row, "r", json_integer((json_int_t)div_up(N, T[i])));
            if (json_array_append_new(rows, row) < 0)
                return err_set(err, "out of memory for a row");
        }
        tell(report, t + 1, n_tests);
    }
    return 0;
}
