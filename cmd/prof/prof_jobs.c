/* Subcommands of bmc-prof. */
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/number.h"
#include "cli.h"
#include "model/experts/expert_store.h"
#include "model/model.h"
#include "prof/prof.h"

#define BLOCK_COLUMNS                                                                                  \
    "policy T r batch alloc_ms copy_ms sdpa_ms total_ms total_ms_min total_ms_max kv_peak_bytes"

static void explain_counters(const struct prof *prof)
{
    const char *refusal = counting_refusal(prof->report.run.counting);
    if (refusal)
        fprintf(stderr, "%s: %s\n", prof_program.name, refusal);
}

static int run_blocks(struct prof *prof, bool sweep, struct err *err)
{
    int rc = report_blocks(&prof->report, prof->contender, prof->n_contenders, prof->rows, err);
    if (rc == 0)
        rc = prof_print(prof, BLOCK_COLUMNS, err);
    if (rc == 0 && prof->options->plot)
        rc = sweep ? prof_plot_sweep(prof, err) : prof_plot_policies(prof, err);
    if (rc == 0)
        explain_counters(prof);
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

/* Lists the policies of `sweep`: bmc with T (number of cache allocations) 1, 2, 4 .. and N. */
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
    /* opens twice, since N depends on the shape; opening is cheap */
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

/* Chooses columns: medians, and also maxima if there are few policies. */
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
    struct buf columns = {0};
    struct latency_all all[PROF_MAX_LIST];
    const struct latency_case what = {options->held_rows, options->every, all};
    int rc = prof_open(&prof, options, true, err);
    if (rc == 0)
        prof_check_columns(options, &prof);
    if (rc == 0 && prof.report.run.N < what.depth + 2)
        rc = err_set(err, "latency needs at least 2 tokens beyond the depth of %zu, and -N is %zu%s",
                     what.depth, prof.report.run.N, options->context ? "" : ", the model's context");
    if (rc == 0)
        rc = report_latency(&prof.report, prof.model, prof.contender, prof.n_contenders, &what,
                            prof.rows, err);
    if (rc == 0)
        rc = latency_columns(&prof, &columns, err);
    if (rc == 0)
        rc = prof_print(&prof, columns.data, err);
    if (rc == 0 && options->plot)
        rc = prof_plot_latency(&prof, all, err);
    buf_release(&columns);
    prof_close(&prof);
    return rc;
}

/* Lists all combinations of batch size, length (prompts for prefill, generated tokens for decode)
 * and context depth. */
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
            return err_set(err, "%zu tokens (depth, prompt and generated) exceed the context of %zu",
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
        return err_no_memory(err, "%d tests", MAX_TESTS);
    prof_list(options->batch, "--parallel", 1, batch, &n_batch);
    prof_list(options->prompt, "--prompt", 0, prompt, &n_prompt);
    prof_list(options->gen, "--gen", 0, gen, &n_gen);
    prof_list(options->depth, "--depth", 0, depth, &n_depth);
    n = combine(batch, n_batch, prompt, n_prompt, depth, n_depth, false, test);
    n += combine(batch, n_batch, gen, n_gen, depth, n_depth, true, test + n);
    if (!n)
        opt_usage_error(&prof_program, "nothing to measure: -p and -n are all 0");
    struct expert_store_options experts;
    if (options->experts && expert_store_parse(&experts, options->experts, err) < 0)
        opt_usage_error(&prof_program, "%s", err->text);
    int rc = prof_open(&prof, options, true, err);
    if (rc == 0)
        rc = check_tests(&prof, test, n, err);
    if (rc == 0 && options->experts)
        rc = expert_store_open(prof.model, &experts, err);
    if (rc == 0)
        rc = report_bench(&prof.report, prof.model, prof.contender, prof.n_contenders, test, n,
                          options->megabytes << 20, prof.rows, err);
    if (rc == 0)
        rc = prof_print(
            &prof, "test policy batch n_prompt n_gen depth tok_s tok_s_end_to_end step_ms roof_share",
            err);
    prof_close(&prof);
    free(test);
    return rc;
}

/* Parses a whole number and moves past it; false: not a number. */
static bool read_number(const char **at, size_t *number)
{
    char text[32];
    const size_t len = strcspn(*at, ":,");
    snprintf(text, sizeof text, "%.*s", (int)size_min(len, sizeof text - 1), *at);
    *at += len;
    return len < sizeof text && parse_count(text, number) && *number > 0 && *number < 1 << 30;
}

/* Parses "128:1920,.." (prompt and generated lengths), combined with every batch size. */
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
                            "--cases: \"%s\" is not a list of PROMPT:GENERATED, as 128:128,128:1920",
                            text);
        for (size_t b = 0; b < n_batch; b++)
            test[(*n)++] = (struct bench_test){.batch = batch[b], .n_prompt = prompt, .n_gen = gen};
        at += *at == ',';
    }
}

/* Drops the default cases (BMC paper, table II) that exceed the context. */
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
    prof_list(o.batch, "--parallel", 1, batch, &n_batch);
    read_cases(o.cases ? o.cases : four, batch, n_batch, test, &n);
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
        rc = report_usecases(&prof.report, prof.model, prof.contender, prof.n_contenders, test, n,
                             prof.rows, err);
    if (rc == 0)
        rc = prof_print(&prof, "n_prompt n_gen batch policy tok_s_end_to_end over_paged", err);
    prof_close(&prof);
    return rc;
}

int prof_roof(const struct prof_options *options, struct err *err)
{
    struct prof prof;
    struct roof roof;
    struct prof_options o = *options;
    o.shape = o.shape || o.model ? o.shape : "tinyllama-1.1b"; /* any shape: it is not used */
    int rc = prof_open(&prof, &o, false, err);
    if (rc == 0)
        rc = roof_measure(&roof, o.megabytes << 20, (int)o.repeat, err);
    if (rc == 0) {
        rc = report_roof(&prof.report, &roof, prof.rows, err);
        if (rc == 0)
            rc = prof_print(
                &prof, "read_gb_s copy_gb_s f32_gflop_s bf16_gflop_s int8_gop_s page_fault_ns", err);
    }
    prof_close(&prof);
    return rc;
}
