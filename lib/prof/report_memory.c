/* Result rows of KV cache memory: by the papers' equations, by each policy's formula, and as
 * counted by a real cache. */
#include <math.h>

#include "quant/dtype.h"
#include "prof/rows.h"

/* Bytes of K and V of one token over all layers (segment paper, eq. 1). */
static double token_bytes(const struct run *run)
{
    return config_token_bytes(&run->config, run->kv_type);
}

/* An equation: number of KV entries allocated for one prompt and the tokens generated from it. */
typedef double equation_rows(const struct run *run, const struct memory_case *what);

/* One contiguous cache per beam (segment paper, eq. 2). */
static double standard_rows(const struct run *run, const struct memory_case *what)
{
    (void)run;
    return (double)what->beams * (double)(what->prompt + what->answer);
}

/* Prompt shared by all beams, generated tokens in growth steps of 16 (segment paper, eq. 3). */
static double segment_rows(const struct run *run, const struct memory_case *what)
{
    (void)run;
    return (double)what->prompt + (double)what->beams * (double)round_up(what->answer, 16);
}

/* A sliding window of N positions in 2 (N - 1) KV entries, so that it rarely copies (HTP note). */
static double window_rows(const struct run *run, const struct memory_case *what)
{
    return 2.0 * (double)what->beams * (double)(run->N - 1);
}

/* A sliding window of N positions in 1.5 (N - 1) KV entries, which copies more often. */
static double short_window_rows(const struct run *run, const struct memory_case *what)
{
    return 1.5 * (double)what->beams * (double)(run->N - 1);
}

static const struct equation {
    const char *name;
    equation_rows *rows;
} equations[] = {
    {"standard (eq. 2)", standard_rows},
    {"segment (eq. 3)", segment_rows},
    {"2(N-1) rows", window_rows},
    {"1.5(N-1) rows", short_window_rows},
};

/* Bytes as a JSON integer while a double represents them exactly, else as a JSON real. */
static json_t *bytes_value(double bytes)
{
    return bytes < 0x1p53 ? json_integer((json_int_t)bytes) : json_real(bytes);
}

struct memory_job {
    const struct report *report;
    size_t budget, run_bytes;
    json_t *rows;
};

/* Adds the result row of a policy or equation; takes ownership of `of_run`, further fields. */
static int add_row(const struct memory_job *job, const char *policy, const struct kv_spec *spec,
                   bool is_equation, const struct memory_case *what, double bytes, json_t *of_run,
                   struct err *err)
{
    const struct run *run = &job->report->run;
    const double standard = (double)what->batch * standard_rows(run, what) * token_bytes(run);
    json_t *row = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "policy", policy, "batch",
        (json_int_t)what->batch, "beams", (json_int_t)what->beams, "n_prompt", (json_int_t)what->prompt,
        "n_gen", (json_int_t)what->answer, "token_bytes", bytes_value(token_bytes(run)),
        "full_token_bytes", bytes_value(config_full_token_bytes(&run->config, run->kv_type)),
        "kv_bytes", bytes_value(bytes), "over_standard", rows_real_if(standard > 0, bytes / standard));
    int rc = rows_merge(row, of_run, err);
    const struct report *report = job->report;
    if (rc == 0)
        rc = rows_merge(row,
                        json_pack("{s:I, s:I, s:I}", "weight_bytes", (json_int_t)report->weight_bytes,
                                  "active_weight_bytes", (json_int_t)report->active_weight_bytes,
                                  "expert_bytes", (json_int_t)report->expert_bytes),
                        err);
    if (rc == 0)
        rc = rows_add_setup(job->report, spec, row, err);
    if (rc == 0 && is_equation)
        rc = json_put(row, "attended", json_null(), err);
    return rows_end(rc, row, job->rows, err);
}

/* Adds the row of a paper's equation. `spec` may be any policy's: it only completes the fields. */
static int equation_row(const struct memory_job *job, const struct equation *e,
                        const struct kv_spec *spec, const struct memory_case *what, struct err *err)
{
    const double one = e->rows(&job->report->run, what) * token_bytes(&job->report->run);
    const double fits = one > 0 ? (double)job->budget / one : 0;
    json_t *none = json_pack("{s:o, s:n, s:n, s:n, s:n, s:n, s:n, s:n}", "fits",
                             rows_count(job->budget ? (int64_t)fits : -1), "least_bytes", "T", "r",
                             "run_layers", "run_batch", "run_bytes", "run_over");
    if (none && (json_object_set_new(none, "activation_bytes", json_null()) < 0 ||
                 json_object_set_new(none, "peak_bytes", json_null()) < 0)) {
        json_decref(none);
        none = NULL;
    }
    return add_row(job, e->name, spec, true, what, (double)what->batch * one, none, err);
}

/* Bytes of an untied input embedding that are resident after random tokens were looked up: on a page
 * fault the kernel maps the 64 KiB around the page (fault_around_bytes). */
static double embedding_read(const struct report *report, const struct memory_case *what)
{
    const double windows = (double)report->embed_bytes / 65536;
    const double tokens = (double)what->batch * (double)(what->prompt + what->beams * what->answer);
    return (double)report->embed_bytes * (windows > 1 ? 1 - exp(-tokens / windows) : 1);
}

/* Predicted peak of resident memory: the program, weights, KV entries while they grow, activations. */
static size_t peak_bytes(const struct report *report, const struct memory_case *what,
                         const struct memory_result *r)
{
    const size_t weights =
        report->weight_bytes - report->embed_bytes + (size_t)embedding_read(report, what);
    return size_plus(size_plus(report->program_bytes, weights), size_plus(r->peak, r->activations));
}

static int policy_row(const struct memory_job *job, const struct contender *c,
                      const struct memory_case *what, struct err *err)
{
    struct memory_result r;
    struct err why;
    if (!contender_fits(c, what->prompt + what->answer, &why) ||
        run_memory(&job->report->run, &c->spec, what, job->budget, job->run_bytes, &r, &why) < 0) {
        *err = why;
        return *job->report->run.interrupted
                   ? -1
                   : rows_add_failure(
                         job->report, c->text, &c->spec, job->report->run.N,
                         json_pack("{s:I, s:I, s:I, s:I}", "batch", (json_int_t)what->batch, "beams",
                                   (json_int_t)what->beams, "n_prompt", (json_int_t)what->prompt,
                                   "n_gen", (json_int_t)what->answer),
                         &why, job->rows, err);
    }
    const bool ran = r.run_layers > 0, fits = r.fits < SIZE_MAX && (job->budget || r.impossible);
    json_t *of_run = json_pack(
        "{s:I, s:I, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:o}", "activation_bytes",
        (json_int_t)r.activations, "peak_bytes", (json_int_t)peak_bytes(job->report, what, &r), "fits",
        rows_count(fits ? (int64_t)r.fits : -1), "least_bytes",
        rows_count(r.least ? (int64_t)r.least : -1), "T", (json_int_t)r.T, "r", (json_int_t)r.r,
        "run_layers", rows_count(ran ? (int64_t)r.run_layers : -1), "run_batch",
        rows_count(ran ? (int64_t)r.run_batch : -1), "run_bytes",
        rows_count(ran ? (int64_t)r.run_bytes : -1), "run_over",
        rows_real_if(ran && r.arithmetic_bytes, (double)r.run_bytes / (double)r.arithmetic_bytes));
    return add_row(job, c->text, &c->spec, false, what, (double)r.bytes, of_run, err);
}

int report_memory(const struct report *report, const struct contender *contender, size_t n,
                  const struct memory_case *what, size_t n_cases, size_t budget, size_t run_bytes,
                  json_t *rows, struct err *err)
{
    const struct memory_job job = {report, budget, run_bytes, rows};
    for (size_t c = 0; c < n_cases; c++) {
        for (size_t i = 0; i < ARRAY_LEN(equations); i++)
            if (equation_row(&job, &equations[i], &contender[0].spec, &what[c], err) < 0)
                return -1;
        for (size_t i = 0; i < n; i++)
            if (policy_row(&job, &contender[i], &what[c], err) < 0)
                return -1;
    }
    return 0;
}
