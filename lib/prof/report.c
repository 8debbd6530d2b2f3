/* Builds bmc-prof's result rows (JSON objects): those of the attention block benchmark and of the
 * roofline, and the fields common to all rows. */
#include "prof/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/cache_types.h"
#include "base/cores.h"
#include "base/mem.h"
#include "report/stat.h"
#include "prof/rows.h"

bool contender_fits(const struct contender *contender, size_t rows, struct err *err)
{
    if (!contender->longest || rows <= contender->longest)
        return true;
    (void)err_set(err, "%zu tokens are beyond the model's context of %zu", rows, contender->longest);
    return false;
}

static int note_failure(struct failures *failures, const char *policy, const struct err *why,
                        struct err *err)
{
    if (mem_grow(&failures->list, &failures->cap, failures->n, sizeof *failures->list, err) < 0)
        return -1;
    struct failure *failure = &failures->list[failures->n++];
    *failure = (struct failure){.why = *why};
    snprintf(failure->policy, sizeof failure->policy, "%s", policy);
    return 0;
}

void failures_release(struct failures *failures)
{
    free(failures->list);
    *failures = (struct failures){0};
}

/* Reports events that are not counted as null rather than 0. */
json_t *rows_count(int64_t value) { return value < 0 ? json_null() : json_integer(value); }

json_t *rows_real_if(bool there, double value) { return there ? json_real(value) : json_null(); }

int rows_add_samples(json_t *row, const char *figure, const void *first, size_t n, size_t stride_bytes,
                     struct err *err)
{
    json_t *list = json_array();
    int rc = list ? 0 : err_no_memory(err, "a list");
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const void *at = (const char *)first + i * stride_bytes;
        rc = json_push(list, json_real(*(const double *)at), err);
    }
    if (rc == 0 && !json_object_get(row, "samples"))
        rc = json_put(row, "samples", json_object(), err);
    if (rc == 0)
        rc = json_put(json_object_get(row, "samples"), figure, json_incref(list), err);
    json_decref(list);
    return rc;
}

static json_t *setup_members(const struct report *report)
{
    const struct run *run = &report->run;
    char cpu[128];
    cpu_model_name(cpu, sizeof cpu);
    return json_pack(
        "{s:o, s:s, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:o, s:o, s:s, s:s?, s:s}",
        "shape", json_text(report->shape, strlen(report->shape)), "model_id", report->model_id,
        "layers", (json_int_t)run->config.layers, "N", (json_int_t)run->N, "weight_type",
        dtype_name(report->weight_type), "kv_type", cache_type_name(run->kv_type), "attn",
        run->attn->name, "isa", run->kernels->isa, "precision", precision_name(run->precision),
        "threads", run->threads, "repeat", report->repeat, "warmup", report->warmup, "seed",
        json_whole(run->seed), "cpu", json_text(cpu, strlen(cpu)), "version", report->version, "commit",
        report->commit, "timestamp", report->timestamp);
}

int rows_merge(json_t *row, json_t *more, struct err *err)
{
    const int rc = row && more ? json_object_update(row, more) : -1;
    json_decref(more);
    return rc < 0 ? err_no_memory(err, "a row") : 0;
}

int rows_end(int rc, json_t *row, json_t *rows, struct err *err)
{
    if (rc == 0)
        return json_push(rows, row, err);
    json_decref(row);
    return rc;
}

int rows_add_cache(const struct kv_spec *spec, bool valid, json_t *row, struct err *err)
{
    return rows_merge(row,
                      json_pack("{s:s, s:s, s:b}", "attended", valid ? "valid" : "padded", "alloc",
                                vm_alloc_name(spec->alloc), "lockstep", spec->lockstep),
                      err);
}

int rows_add_setup(const struct report *report, const struct kv_spec *spec, json_t *row,
                   struct err *err)
{
    if (rows_merge(row, setup_members(report), err) < 0)
        return -1;
    return spec ? rows_add_cache(spec, kv_spec_attends_valid(spec), row, err) : 0;
}

int rows_add_failure(const struct report *report, const char *policy, const struct kv_spec *spec,
                     size_t N, json_t *what, const struct err *why, json_t *rows, struct err *err)
{
    json_t *row = json_pack("{s:s}", "policy", policy);
    int rc = rows_merge(row, what, err);
    if (rc == 0)
        rc = rows_add_setup(report, spec, row, err);
    if (rc == 0)
        rc = json_put(row, "N", json_integer((json_int_t)N), err);
    if (rc == 0)
        rc = json_put(row, "error", json_text(why->text, strlen(why->text)), err);
    return rows_end(rc, row, rows, err) < 0 ? -1 : note_failure(report->failures, policy, why, err);
}

static double median_of(const struct block_result *result, size_t n, size_t at)
{
    double x[MAX_REPEAT];
    for (size_t i = 0; i < n; i++)
        x[i] = *(const double *)(const void *)((const char *)&result[i] + at);
    return stat_quantile(x, n, 0.5);
}

static json_t *time_or_null(double ms) { return rows_real_if(ms >= 0, ms); }

#define MEDIAN(field) median_of(result, n, offsetof(struct block_result, field))

static json_t *block_times(const struct block_result *result, size_t n)
{
    double total[MAX_REPEAT];
    for (size_t i = 0; i < n; i++)
        total[i] = result[i].total_ms;
    const double median = stat_quantile(total, n, 0.5);
    return json_pack("{s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:f, s:f, s:f}", "alloc_ms",
                     MEDIAN(kv.alloc_ms), "copy_ms", MEDIAN(kv.copy_ms), "append_ms", MEDIAN(append_ms),
                     "sdpa_ms", MEDIAN(sdpa_ms), "scores_ms", time_or_null(MEDIAN(scores_ms)),
                     "softmax_ms", time_or_null(MEDIAN(softmax_ms)), "values_ms",
                     time_or_null(MEDIAN(values_ms)), "total_ms", median, "total_ms_min", total[0],
                     "total_ms_max", total[n - 1]);
}

static json_t *block_counts(const struct block_result *r)
{
    const struct counters *c = &r->counters;
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I}", "minor_faults",
                     rows_count(c->minor_faults), "major_faults", rows_count(c->major_faults),
                     "dtlb_misses", rows_count(c->dtlb_misses), "cycles", rows_count(c->cycles),
                     "instructions", rows_count(c->instructions), "kv_allocations",
                     (json_int_t)r->kv.allocations, "kv_copied_bytes", (json_int_t)r->kv.copied_bytes,
                     "kv_padded_rows", (json_int_t)r->kv.padded_rows, "rows_computed",
                     (json_int_t)r->kv.rows_computed, "kv_peak_bytes", (json_int_t)r->kv.peak_bytes);
}

static int block_row(const struct report *report, const struct contender *contender,
                     const struct block_result *result, size_t n, json_t *rows, struct err *err)
{
    /* Allocation counts hardly differ between runs: the last run's are reported. */
    const struct block_result *last = &result[n - 1];
    json_t *row = json_pack("{s:s, s:I, s:s, s:I, s:I}", "policy", contender->text, "T",
                            (json_int_t)last->T, "T_from", kv_T_from_name(last->T_from), "r",
                            (json_int_t)last->r, "batch", (json_int_t)report->run.batch);
    int rc = rows_merge(row, block_times(result, n), err);
    if (rc == 0)
        rc = rows_merge(row, block_counts(last), err);
    if (rc == 0)
        rc = rows_add_samples(row, "total_ms", &result->total_ms, n, sizeof *result, err);
    if (rc == 0)
        rc = rows_add_setup(report, &contender->spec, row, err);
    return rows_end(rc, row, rows, err);
}

int report_blocks(const struct report *report, const struct contender *contender, size_t n,
                  json_t *rows, struct err *err)
{
    const size_t repeat = (size_t)report->repeat, rounds = repeat + (size_t)report->warmup;
    struct block_result *result = calloc(n * repeat, sizeof *result);
    struct err *why = calloc(n, sizeof *why);
    int rc = -1;
    if (!result || !why) {
        err_no_memory(err, "%zu results", n * repeat);
        goto out;
    }
    /* Alternating the policies spreads slow drift of the machine over all of them. */
    for (size_t round = 0; round < rounds; round++)
        for (size_t i = 0; i < n; i++) {
            struct block_result one;
            if (*why[i].text || !contender_fits(&contender[i], report->run.N, &why[i]))
                continue;
            if (run_block(&report->run, &contender[i].spec, &one, &why[i]) < 0) {
                if (!*report->run.interrupted)
                    continue;
                *err = why[i];
                goto out;
            }
            if (round >= (size_t)report->warmup)
                result[i * repeat + round - (size_t)report->warmup] = one;
            report_progress(report, round * n + i + 1, rounds * n);
        }
    rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = *why[i].text
                 ? rows_add_failure(report, contender[i].text, &contender[i].spec, report->run.N,
                                    json_pack("{s:I}", "batch", (json_int_t)report->run.batch), &why[i],
                                    rows, err)
                 : block_row(report, &contender[i], &result[i * repeat], repeat, rows, err);
out:
    free(why);
    free(result);
    return rc;
}

/* Adds the peak arithmetic rate for each operand type; null if the CPU lacks the instructions. */
static int add_peaks(json_t *row, const struct roof *roof, struct err *err)
{
    static const struct {
        const char *rate, *isa;
    } names[PEAK_KINDS] = {[PEAK_F32] = {"f32_gflop_s", "f32_isa"},
                           [PEAK_BF16] = {"bf16_gflop_s", "bf16_isa"},
                           [PEAK_INT8] = {"int8_gop_s", "int8_isa"}};
    for (size_t k = 0; k < PEAK_KINDS; k++) {
        const struct peak_rate *peak = &roof->peak[k];
        if (json_put(row, names[k].rate, rows_real_if(peak->isa, peak->gop_s), err) < 0 ||
            json_put(row, names[k].isa, peak->isa ? json_string(peak->isa) : json_null(), err) < 0)
            return -1;
    }
    return 0;
}

int report_roof(const struct report *report, const struct roof *roof, json_t *rows, struct err *err)
{
    char cpu[128];
    cpu_model_name(cpu, sizeof cpu);
    json_t *row = json_pack("{s:f, s:f}", "read_gb_s", roof->read_gb_s, "copy_gb_s", roof->copy_gb_s);
    json_t *rest = json_pack("{s:f, s:i, s:i, s:o, s:s, s:s?, s:s}", "page_fault_ns",
                             roof->page_fault_ns, "threads", report->run.threads, "repeat",
                             report->repeat, "cpu", json_text(cpu, strlen(cpu)), "version",
                             report->version, "commit", report->commit, "timestamp", report->timestamp);
    int rc = row ? add_peaks(row, roof, err) : err_no_memory(err, "a row");
    if (rows_merge(row, rest, err) < 0)
        rc = -1;
    return rows_end(rc, row, rows, err);
}
