/* The subcommands of bmc-prof. */
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/number.h"
#include "cli.h"
#include "model/model.h"
#include "prof.h"

#define BLOCK_COLUMNS                                                                                  \
    "policy T r batch alloc_ms copy_ms sdpa_ms total_ms total_ms_min total_ms_max kv_peak_bytes"

/* A line for people when columns are empty. */
static void explain_counters(const struct prof *prof)
{
    const char *refusal = counting_refusal(prof->report.run.counting);
    if (refusal)
        fprintf(stderr, "%s: %s\n", prof_program.name, refusal);
}

static int run_blocks(struct prof *prof, bool sweep, struct err *err)
{
    json_t *rows = json_array();
    int rc = report_blocks(&prof->report, prof->contender, prof->n_contenders, rows, err);
    if (rc == 0)
        rc = prof_print(prof, rows, BLOCK_COLUMNS, err);
    if (rc == 0 && prof->options->plot)
        rc = sweep ? prof_plot_sweep(prof, rows, err) : prof_plot_policies(prof, rows, err);
    if (rc == 0)
        explain_counters(prof);
    json_decref(rows);
    return rc;
}

int prof_policies(const struct prof_options *options, struct err *err)
{
    struct prof prof;
    int rc = prof_open(&prof, options, false, err);
    if (rc == 0)
        rc = run_blocks(&prof, false, err);
    prof_close(&prof);
    return rc;
}

/* T = 1, 2, 4 ... and N itself. */
static int sweep_list(size_t N, struct buf *list, struct err *err)
{
    for (size_t T = 1; T < N && T < (size_t)1 << 14; T *= 2)
        if (buf_addf(list, err, "bmc:T=%zu,", T) < 0)
            return -1;
    return buf_addf(list, err, "bmc:T=%zu", N);
}

int prof_sweep(const struct prof_options *options, struct err *err)
{
    struct prof prof;
    struct prof_options o = *options;
    struct buf list = {0};
    /* N is known once the shape is: opened twice, which costs nothing. */
    int rc = prof_open(&prof, options, false, err);
    const size_t N = prof.report.run.N;
    const char *from = NULL;
    const size_t own_T = rc == 0 ? prof_own_T(&prof, &from) : 0;
    prof_close(&prof);
    if (rc == 0)
        rc = sweep_list(N, &list, err);
    if (rc == 0) {
        o.kv = list.data;
        rc = prof_open(&prof, &o, false, err);
        prof.own_T = own_T;
        prof.own_T_from = from;
        if (rc == 0)
            rc = run_blocks(&prof, true, err);
        prof_close(&prof);
    }
    buf_release(&list);
    return rc;
}

/* The medians, and where few policies leave room for them, the slowest tokens. */
static int latency_columns(const struct prof *prof, struct buf *columns, struct err *err)
{
    enum { FEW = 3 };
    int rc = buf_addf(columns, err, "n");
    for (size_t i = 0; rc == 0 && i < prof->n_contenders; i++) {
        const char *policy = prof->contender[i].text;
        rc = buf_addf(columns, err, " %s_ms", policy);
        if (rc == 0 && prof->n_contenders <= FEW)
            rc = buf_addf(columns, err, " %s_max_ms", policy);
    }
    return rc;
}

int prof_latency(const struct prof_options *options, struct err *err)
{
    struct prof prof;
    json_t *rows = json_array();
    struct buf columns = {0};
    struct latency_all all[PROF_MAX_LIST];
    const struct latency_case what = {options->held_rows, options->every, all};
    int rc = prof_open(&prof, options, true, err);
    if (rc == 0)
        prof_check_columns(options, &prof);
    if (rc == 0 && prof.report.run.N < what.depth + 2)
        rc = err_set(err, "latency needs at least 2 rows beyond the depth of %zu, and -N is %zu%s",
                     what.depth, prof.report.run.N, options->context ? "" : ", the model's context");
    if (rc == 0)
        rc = report_latency(&prof.report, prof.model, prof.contender, prof.n_contenders, &what, rows,
                            err);
    if (rc == 0)
        rc = latency_columns(&prof, &columns, err);
    if (rc == 0)
        rc = prof_print(&prof, rows, columns.data, err);
    if (rc == 0 && options->plot)
        rc = prof_plot_latency(&prof, rows, all, err);
    buf_release(&columns);
    json_decref(rows);
    prof_close(&prof);
    return rc;
}

/* ---- bench ---- */

/* Every combination: prefill tests of the prompts, decode tests of the lengths, at every batch and depth. */
static size_t combine(const size_t *batch, size_t n_batch, const size_t *length, size_t n_length,
                      const size_t *depth, size_t n_depth, bool decode, struct bench_test *test)
{
    size_t n = 0;
    for (size_t l = 0; l < n_length; l++)
        for (size_t d = 0; d < n_depth; d++)
            for (size_t b = 0; b < n_batch; b++)
                if (length[l])
                    test[n++] = (struct bench_test){.batch = batch[b],
                                                    .n_prompt = decode ? 0 : length[l],
                                                    .n_gen = decode ? length[l] : 0,
                                                    .depth = depth[d]};
    return n;
}

static int check_tests(const struct prof *prof, const struct bench_test *test, size_t n,
                       struct err *err)
{
    const size_t context = prof->report.run.config.context, longest = prof_longest(prof);
    for (size_t i = 0; i < n; i++) {
        const size_t rows = test[i].depth + test[i].n_prompt + test[i].n_gen;
        if (rows > longest)
            return err_set(
                err, "%zu rows (depth, prompt and generation together) are beyond the context of %zu",
                rows, context);
    }
    return 0;
}

int prof_bench(const struct prof_options *options, struct err *err)
{
    enum { MAX_TESTS = 2 * PROF_MAX_LIST * PROF_MAX_LIST * PROF_MAX_LIST };
    struct prof prof;
    size_t batch[PROF_MAX_LIST], prompt[PROF_MAX_LIST], gen[PROF_MAX_LIST], depth[PROF_MAX_LIST];
    size_t n_batch, n_prompt, n_gen, n_depth, n = 0;
    struct bench_test *test = calloc(MAX_TESTS, sizeof *test);
    if (!test)
        return err_set(err, "out of memory for %d tests", MAX_TESTS);
    prof_batches(options, batch, &n_batch);
    prof_list(options->prompt, "--prompt", prompt, &n_prompt);
    prof_list(options->gen, "--gen", gen, &n_gen);
    prof_list(options->depth, "--depth", depth, &n_depth);
    n = combine(batch, n_batch, prompt, n_prompt, depth, n_depth, false, test);
    n += combine(batch, n_batch, gen, n_gen, depth, n_depth, true, test + n);
    if (!n)
        opt_usage_error(&prof_program, "nothing to measure: -p and -n are all 0");
    json_t *rows = json_array();
    int rc = prof_open(&prof, options, true, err);
    if (rc == 0)
        rc = check_tests(&prof, test, n, err);
    if (rc == 0)
        rc = report_bench(&prof.report, prof.model, prof.contender, prof.n_contenders, test, n,
                          options->megabytes << 20, rows, err);
    if (rc == 0)
        rc = prof_print(
            &prof, rows,
            "test policy batch n_prompt n_gen depth tok_s tok_s_end_to_end step_ms roof_share", err);
    prof_close(&prof);
    free(test);
    json_decref(rows);
    return rc;
}

/* ---- use cases ---- */

/* A whole number, moving on behind it; false when there is none. */
static bool read_number(const char **at, size_t *number)
{
    char text[32];
    const size_t len = strcspn(*at, ":,");
    snprintf(text, sizeof text, "%.*s", (int)size_min(len, sizeof text - 1), *at);
    *at += len;
    return len < sizeof text && parse_count(text, number) && *number > 0 && *number < 1 << 30;
}

/* "128:1920,..." -> prompt and generated lengths at every batch. */
static void read_cases(const char *text, const size_t *batch, size_t n_batch, struct bench_test *test,
                       size_t *n)
{
    *n = 0;
    opt_no_empty_entry(&prof_program, "--cases", text);
    for (const char *at = text; *at;) {
        size_t prompt, gen;
        bool ok =
            read_number(&at, &prompt) && *at++ == ':' && read_number(&at, &gen) && (!*at || *at == ',');
        if (!ok || *n + n_batch > (size_t)PROF_MAX_LIST * PROF_MAX_LIST)
            opt_usage_error(&prof_program,
                            "--cases: \"%s\" is no list of PROMPT:GENERATED, as 128:128,128:1920",
                            text);
        for (size_t b = 0; b < n_batch; b++)
            test[(*n)++] = (struct bench_test){.batch = batch[b], .n_prompt = prompt, .n_gen = gen};
        at += *at == ',';
    }
}

/* The paper's four cases (BMC paper, table II), but those that are beyond a context. */
static size_t drop_long(struct bench_test *test, size_t n, size_t context)
{
    size_t left = 0;
    for (size_t i = 0; i < n; i++)
        if (test[i].n_prompt + test[i].n_gen <= context)
            test[left++] = test[i];
    return left;
}

int prof_usecases(const struct prof_options *options, struct err *err)
{
    static const char four[] = "128:128,128:1920,1920:128,1920:1920";
    struct prof prof = {.options = options};
    struct bench_test test[PROF_MAX_LIST * PROF_MAX_LIST];
    size_t batch[PROF_MAX_LIST], n_batch, n = 0, longest = 0;
    struct prof_options o = *options;
    prof_batches(&o, batch, &n_batch);
    read_cases(o.cases ? o.cases : four, batch, n_batch, test, &n);
    json_t *rows = json_array();
    for (size_t i = 0; i < n; i++)
        longest = size_max(longest, test[i].n_prompt + test[i].n_gen);
    if (o.shape)
        o.context = size_max(o.context, longest);
    int rc = prof_open(&prof, &o, true, err);
    if (rc == 0 && !o.cases)
        n = drop_long(test, n, prof.report.run.config.context);
    if (rc == 0)
        rc = check_tests(&prof, test, n, err);
    if (rc == 0)
        rc = report_usecases(&prof.report, prof.model, prof.contender, prof.n_contenders, test, n, rows,
                             err);
    if (rc == 0)
        rc = prof_print(&prof, rows, "n_prompt n_gen batch policy tok_s_end_to_end over_paged", err);
    prof_close(&prof);
    json_decref(rows);
    return rc;
}

/* ---- roof ---- */

int prof_roof(const struct prof_options *options, struct err *err)
{
    struct prof prof;
    struct roof roof;
    struct prof_options o = *options;
    json_t *rows = json_array();
    o.shape = o.shape || o.model ? o.shape : "tinyllama-1.1b"; /* any: nothing of it is used */
    int rc = prof_open(&prof, &o, false, err);
    if (rc == 0)
        rc = roof_measure(&roof, o.megabytes << 20, (int)o.repeat, err);
    if (rc == 0) {
        rc = report_roof(&prof.report, &roof, rows, err);
        if (rc == 0)
            rc = prof_print(&prof, rows,
                            "read_gb_s copy_gb_s f32_gflop_s bf16_gflop_s int8_gop_s page_fault_ns",
                            err);
    }
    json_decref(rows);
    prof_close(&prof);
    return rc;
}
