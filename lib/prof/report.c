/* Rows of the attention block and of the roofs, and what all rows carry. */
#include "prof/report.h"

#include <stdlib.h>

#include "base/cpu.h"
#include "base/stat.h"
#include "prof/rows.h"

/* null where there is nothing to tell: an event that is not counted is no zero. */
json_t *rows_count(int64_t value) { return value < 0 ? json_null() : json_integer(value); }

int rows_add_setup(const struct report *report, const struct kv_spec *spec, json_t *row,
                   struct err *err)
{
    const struct run *run = &report->run;
    char cpu[128];
    cpu_model_name(cpu, sizeof cpu);
    json_t *setup = json_pack(
        "{s:s, s:s, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:I, s:s, s:s}", "shape",
        report->shape, "model_id", report->model_id, "layers", (json_int_t)run->config.layers, "N",
        (json_int_t)run->N, "weight_type", dtype_name(report->weight_type), "kv_type",
        dtype_name(run->kv_type), "attn", run->attn->name, "isa", run->kernels->isa, "precision",
        precision_name(run->precision), "threads", run->threads, "repeat", report->repeat, "warmup",
        report->warmup, "seed", (json_int_t)run->seed, "cpu", cpu, "version", report->version);
    if (setup && spec) {
        json_object_set_new(setup, "rows",
                            json_string(spec->valid_rows_only || spec->policy->rows == KV_ROWS_VALID
                                            ? "valid"
                                            : "policy"));
        json_object_set_new(setup, "alloc", json_string(pages_alloc_name(spec->alloc)));
        json_object_set_new(setup, "lockstep", json_boolean(spec->lockstep));
    }
    const int rc = setup ? json_object_update(row, setup) : -1;
    json_decref(setup);
    return rc < 0 ? err_set(err, "out of memory for a row") : 0;
}

static double median_of(const struct block_result *result, size_t n, size_t at)
{
    double x[MAX_REPEAT];
    for (size_t i = 0; i < n; i++)
        x[i] = *(const double *)(const void *)((const char *)&result[i] + at);
    return stat_quantile(x, n, 0.5);
}

static json_t *time_or_null(double ms) { return ms < 0 ? json_null() : json_real(ms); }

#define MEDIAN(field) median_of(result, n, offsetof(struct block_result, field))

static json_t *block_row(const struct report *report, const struct contender *contender,
                         const struct block_result *result, size_t n, struct err *err)
{
    double total[MAX_REPEAT];
    const struct block_result *last = &result[n - 1]; /* counts are the same in every run, or nearly */
    for (size_t i = 0; i < n; i++)
        total[i] = result[i].total_ms;
    const double median = stat_quantile(total, n, 0.5);
    json_t *row = json_pack(
        "{s:s, s:I, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:f, s:f, s:f}", "policy",
        contender->text, "T", (json_int_t)last->T, "T_from", kv_T_from_name(last->T_from), "r",
        (json_int_t)last->r, "batch", (json_int_t)report->run.batch, "alloc_ms", MEDIAN(kv.alloc_ms),
        "copy_ms", MEDIAN(kv.copy_ms), "append_ms", MEDIAN(append_ms), "sdpa_ms", MEDIAN(sdpa_ms),
        "scores_ms", time_or_null(MEDIAN(scores_ms)), "softmax_ms", time_or_null(MEDIAN(softmax_ms)),
        "values_ms", time_or_null(MEDIAN(values_ms)), "total_ms", median, "total_ms_min", total[0],
        "total_ms_max", total[n - 1]);
    json_t *counts = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I}", "minor_faults",
        rows_count(last->counters.minor_faults), "major_faults",
        rows_count(last->counters.major_faults), "dtlb_misses", rows_count(last->counters.dtlb_misses),
        "cycles", rows_count(last->counters.cycles), "instructions",
        rows_count(last->counters.instructions), "kv_allocations", (json_int_t)last->kv.allocations,
        "kv_copied_bytes", (json_int_t)last->kv.copied_bytes, "kv_padded_rows",
        (json_int_t)last->kv.padded_rows, "rows_computed", (json_int_t)last->kv.rows_computed,
        "kv_peak_bytes", (json_int_t)last->kv.peak_bytes);
    if (!row || !counts || json_object_update(row, counts) < 0 ||
        rows_add_setup(report, &contender->spec, row, err) < 0) {
        json_decref(row);
        row = NULL;
        err_set(err, "out of memory for a row");
    }
    json_decref(counts);
    return row;
}

int report_blocks(const struct report *report, const struct contender *contender, size_t n,
                  json_t *rows, struct err *err)
{
    const size_t repeat = (size_t)report->repeat, rounds = repeat + (size_t)report->warmup;
    struct block_result *result = calloc(n * repeat, sizeof *result);
    int rc = -1;
    if (!result)
        return err_set(err, "out of memory for %zu results", n * repeat);
    /* In turns, so that drift of the machine meets all alike. */
    for (size_t round = 0; round < rounds; round++)
        for (size_t i = 0; i < n; i++) {
            struct block_result one;
            if (run_block(&report->run, &contender[i].spec, &one, err) < 0) {
                err_prefix(err, "%s", contender[i].text);
                goto out;
            }
            if (round >= (size_t)report->warmup)
                result[i * repeat + round - (size_t)report->warmup] = one;
            if (report->progress)
                report->progress(report->arg, round * n + i + 1, rounds * n);
        }
    for (size_t i = 0; i < n; i++) {
        json_t *row = block_row(report, &contender[i], &result[i * repeat], repeat, err);
        if (!row || json_array_append_new(rows, row) < 0)
            goto out;
    }
    rc = 0;
out:
    free(result);
    return rc;
}

json_t *report_roof(const struct report *report, const struct roof *roof)
{
    char cpu[128];
    cpu_model_name(cpu, sizeof cpu);
    return json_pack(
        "{s:f, s:f, s:f, s:s, s:o, s:s?, s:f, s:i, s:i, s:s, s:s}", "read_gb_s", roof->read_gb_s,
        "copy_gb_s", roof->copy_gb_s, "f32_gflop_s", roof->f32_gflop_s, "f32_isa", roof->f32_isa,
        "bf16_gflop_s", roof->bf16_isa ? json_real(roof->bf16_gflop_s) : json_null(), "bf16_isa",
        roof->bf16_isa, "page_fault_ns", roof->page_fault_ns, "threads", report->run.threads, "repeat",
        report->repeat, "cpu", cpu, "version", report->version);
}
