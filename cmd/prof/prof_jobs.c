/* The subcommands: what each of them measures, by the one runner. */
#include "base/conf.h"
#include "base/file.h"
#include "base/file_head.h"
#include "base/number.h"
#include "cli.h"
#include "model/experts/expert_store.h"
#include "model/model.h"
#include "model_files.h"
#include "prof/prof.h"
#include "prof/retrieval_text.h"
#include "prof/predict.h"
#include "prof/roofline.h"
#include "quant/pack.h"
#include "userdir.h"

/* ---- tests ---- */

/* An option that lists values of a member of tests. */
struct axis {
    const char *text, *option;
    size_t min, max, at;
};

#define AXIS(text, option, min, max, member)                                                           \
    {                                                                                                  \
        text, option, min, max, offsetof(struct test, member)                                          \
    }

static int add_test(struct prof *prof, struct test test, struct err *err)
{
    if (mem_grow(&prof->test, &prof->tests_cap, prof->n_tests, sizeof test, err) < 0)
        return -1;
    prof->test[prof->n_tests++] = test;
    return 0;
}

/* Adds all combinations of n axes, the last one fastest, except those of no tokens. */
static int combine(struct prof *prof, const struct axis *axis, size_t n, struct test test,
                   struct err *err)
{
    size_t list[PROF_MAX_LIST], length;
    if (!n)
        return test.n_prompt + test.n_gen ? add_test(prof, test, err) : 0;
    prof_list(axis->text, axis->option, axis->min, axis->max, list, &length);
    for (size_t i = 0; i < length; i++) {
        *(size_t *)(void *)((char *)&test + axis->at) = list[i];
        if (combine(prof, axis + 1, n - 1, test, err) < 0)
            return -1;
    }
    return 0;
}

static int check_tests(const struct prof *prof, struct err *err)
{
    return prof_longest_test(prof) <= prof_longest(prof)
               ? 0
               : err_set(err, "%zu tokens (depth, prompt and generated) exceed the context of %zu",
                         prof_longest_test(prof), prof->report.run.config.context);
}

/* Measures all tests under all policies. */
static int measure_tests(struct prof *prof, measure_one *one, void *arg, struct err *err)
{
    if (!prof->all.list && measurements_open(&prof->all, &prof->report, prof->contender,
                                             prof->n_contenders, prof->test, prof->n_tests, err) < 0)
        return -1;
    return measure_all(&prof->all, &prof->report, one, arg, err);
}

static int add_test_rows(struct prof *prof, struct err *err)
{
    return report_measurements(&prof->report, &prof_rows[prof->options.command], &prof->all, prof->rows,
                               err);
}

/* ---- policies, sweep ---- */

static int list_batch(struct prof *prof, struct err *err)
{
    size_t batch[PROF_MAX_LIST], n;
    prof_list(prof->options.batch, "--parallel", 1, 1 << 30, batch, &n);
    return add_test(prof, (struct test){.batch = batch[0]}, err);
}

static int measure_blocks(struct prof *prof, struct err *err)
{
    return measure_tests(prof, measure_block, &prof->report, err) < 0 ? -1 : add_test_rows(prof, err);
}

static int explain_counters(struct prof *prof, struct err *err)
{
    const char *refusal = counting_refusal(prof->report.run.counting);
    (void)err;
    if (refusal)
        fprintf(stderr, "%s: %s\n", prof_program.name, refusal);
    return 0;
}

/* ---- latency ---- */

static int list_latency(struct prof *prof, struct err *err)
{
    if (list_batch(prof, err) < 0)
        return -1;
    prof->test->depth = prof_one(prof->options.depth, "--depth", 0);
    return 0;
}

static int measure_latencies(struct prof *prof, struct err *err)
{
    const struct prof_options *o = &prof->options;
    const size_t depth = prof->test->depth, N = prof->report.run.N;
    struct bench_job job = {&prof->report, prof->model, NULL};
    prof_check_columns(prof);
    if (N < depth + 2)
        return err_set(err, "latency needs at least 2 tokens beyond the depth of %zu, and -N is %zu%s",
                       depth, N, o->context ? "" : ", the model's context");
    if (measure_tests(prof, measure_latency, &job, err) < 0 ||
        bench_percentiles(&prof->all, &prof->report, err) < 0)
        return -1;
    return report_latency(&prof->report, &prof_rows[PROF_LATENCY], &prof->all, o->every, prof->rows,
                          err);
}

/* ---- bench ---- */

static int list_bench(struct prof *prof, struct err *err)
{
    const struct prof_options *o = &prof->options;
    struct axis axes[] = {AXIS(o->prompt, "--prompt", 0, 1 << 30, n_prompt),
                          AXIS(o->depth, "--depth", 0, 1 << 30, depth),
                          AXIS(o->batch, "--parallel", 1, 1 << 30, batch)};
    struct expert_store_options experts;
    if (combine(prof, axes, ARRAY_LEN(axes), (struct test){0}, err) < 0)
        return -1;
    axes[0] = (struct axis)AXIS(o->gen, "--gen", 0, 1 << 30, n_gen);
    if (combine(prof, axes, ARRAY_LEN(axes), (struct test){0}, err) < 0)
        return -1;
    if (!prof->n_tests)
        opt_usage_error(&prof_program, "nothing to measure: -p and -n are all 0");
    if (o->experts && expert_store_parse(&experts, o->experts, err) < 0)
        opt_usage_error(&prof_program, "%s", err->text);
    return 0;
}

static int measure_benches(struct prof *prof, struct err *err)
{
    const struct prof_options *o = &prof->options;
    struct expert_store_options experts;
    struct roof_block block = {.bytes = size_min(o->megabytes, 64) << 20}; /* of a device's memory */
    struct bench_job job = {&prof->report, prof->model, &block};
    if (check_tests(prof, err) < 0 ||
        (o->experts &&
         (expert_store_parse(&experts, o->experts, err) < 0 ||
          expert_store_open(prof->model, &experts, prof->report.run.backend->memory, err) < 0)) ||
        (!tune_on_device(prof->report.run.backend) &&
         roof_block_open(&block, o->megabytes << 20, err) < 0))
        return -1;
    const int rc = measure_tests(prof, measure_bench, &job, err);
    if (block.data)
        roof_block_close(&block);
    return rc < 0 || bench_percentiles(&prof->all, &prof->report, err) < 0 ? -1
                                                                           : add_test_rows(prof, err);
}

/* ---- predict ---- */

static int measure_predictions(struct prof *prof, struct err *err)
{
    struct predict_job job;
    if (check_tests(prof, err) < 0)
        return -1;
    const int rc = predict_open(&job, &prof->report, PREDICT_BYTES, err) < 0 ||
                           measure_tests(prof, measure_prediction, &job, err) < 0
                       ? -1
                       : add_test_rows(prof, err);
    predict_close(&job);
    return rc;
}

/* ---- memory ---- */

static int list_memory(struct prof *prof, struct err *err)
{
    struct prof_options *o = &prof->options;
    const struct axis axes[] = {
        AXIS(o->prompt, "--prompt", 0, 1 << 30, n_prompt), AXIS(o->gen, "--gen", 0, 1 << 30, n_gen),
        AXIS(o->beams, "--beams", 1, 4096, beams), AXIS(o->batch, "--parallel", 1, 1 << 30, batch)};
    if (combine(prof, axes, ARRAY_LEN(axes), (struct test){0}, err) < 0)
        return -1;
    if (!prof->n_tests)
        opt_usage_error(&prof_program, "nothing to count: -p and -n are all 0");
    o->context = o->context ? o->context : prof_longest_test(prof);
    return 0;
}

static int open_memory_job(const struct prof *prof, struct memory_job *job, struct err *err)
{
    const struct report *report = &prof->report;
    struct model shape = {.config = report->run.config};
    const struct model *model = prof->model ? prof->model : &shape;
    if (!prof->model && weights_shape(&shape.weights, &shape.config, &report->types, err) < 0)
        return -1;
    *job = (struct memory_job){.report = report,
                               .budget = prof->options.memory_bytes,
                               .run_bytes = prof->options.megabytes << 20,
                               .weights = model_weight_bytes(model)};
    if (!model->config.tied_head)
        job->embed_bytes = mat_plain_bytes(&model->weights.embed);
    const int rc = model_counts(&job->counts, model, &report->run.kv_types, err);
    weights_release(&shape.weights);
    /* without the model's header, which may be in a huge page of weights */
    if (prof->model)
        file_map_release_pages(&prof->model->file.map);
    job->program_bytes = file_proc_bytes("/proc/self/status", "VmRSS");
    return rc;
}

static int measure_memories(struct prof *prof, struct err *err)
{
    const size_t N = prof->report.run.N;
    if (prof_longest_test(prof) > N)
        return err_set(err, "prompt and answer have %zu tokens together, the context %zu: raise -N",
                       prof_longest_test(prof), N);
    struct memory_job job;
    if (open_memory_job(prof, &job, err) < 0)
        return -1;
    memmove(prof->contender + MEMORY_EQUATIONS, prof->contender,
            prof->n_contenders * sizeof *prof->contender);
    memory_equations(prof->contender, &prof->contender[MEMORY_EQUATIONS].spec);
    prof->n_contenders += MEMORY_EQUATIONS;
    if (measurements_open(&prof->all, &prof->report, prof->contender, prof->n_contenders, prof->test,
                          prof->n_tests, err) < 0)
        return -1;
    for (size_t i = 0; i < prof->all.n; i++)
        prof->all.list[i].N = N;
    return measure_tests(prof, measure_memory, &job, err) < 0 ? -1 : add_test_rows(prof, err);
}

/* ---- ranks ---- */

static int list_ranks(struct prof *prof, struct err *err)
{
    struct prof_options *o = &prof->options;
    size_t list[PROF_MAX_LIST], n;
    struct network network;
    if (network_parse(&network, o->network, err) < 0)
        opt_usage_error(&prof_program, "--network: %s", err->text);
    prof_list(o->ranks, "--ranks", 2, RANKS_MOST, list, &n);
    o->context = prof_one(o->prompt, "--prompt", 0) + prof_one(o->gen, "--gen", 1);
    return 0;
}

static int measure_ranks(struct prof *prof, struct err *err)
{
    const struct prof_options *o = &prof->options;
    size_t batch[PROF_MAX_LIST], ranks[PROF_MAX_LIST];
    struct ranks_case what = {.network_text = o->network,
                              .batch = batch,
                              .ranks = ranks,
                              .depth = prof_one(o->prompt, "--prompt", 0),
                              .n_gen = prof_one(o->gen, "--gen", 1)};
    prof_list(o->batch, "--parallel", 1, 1 << 30, batch, &what.n_batches);
    prof_list(o->ranks, "--ranks", 2, RANKS_MOST, ranks, &what.n_ranks);
    if (prof->n_contenders > 1)
        opt_usage_error(&prof_program, "--kv: ranks measures under one policy, \"%s\" names %zu", o->kv,
                        prof->n_contenders);
    if (network_parse(&what.network, o->network, err) < 0)
        return -1;
    return report_ranks(&prof->report, &prof_rows[PROF_RANKS], prof->model, &prof->contender[0], &what,
                        prof->rows, err);
}

/* ---- roof, heads, cache-scales, prefix-cache ---- */

static int list_roof(struct prof *prof, struct err *err)
{
    (void)err;
    prof->options.shape = "tinyllama-1.1b"; /* any shape: it is not used */
    return 0;
}

static int measure_roof(struct prof *prof, struct err *err)
{
    const struct prof_options *o = &prof->options;
    struct roof roof;
    return roof_measure(&roof, o->megabytes << 20, (int)o->repeat, err) < 0
               ? -1
               : prof_add_record(prof, &roof, err);
}

/* Reads the input text, or makes one that tells retrieval heads, up to the number of tokens that are measured. */
static int read_ids(struct prof *prof, struct ids *ids, struct err *err)
{
    const struct prof_options *o = &prof->options;
    const bool make = o->command == PROF_HEADS && !o->text;
    const size_t wanted = !make || o->context ? o->context : RETRIEVAL_TEXT;
    const size_t context = prof->report.run.config.context,
                 most = wanted ? size_min(wanted, context) : context;
    const int rc = make ? retrieval_text_make(ids, prof->model->tok, most, o->sink, o->recent, err)
                        : prof_read_text(prof, ids, err);
    if (rc == 0 && !wanted && ids->len > most)
        cli_say(stderr, "%s: the text has %zu tokens: the first %zu, the model's context, are used\n",
                prof_program.name, ids->len, most);
    ids->len = size_min(ids->len, most);
    prof->report.run.N = ids->len;
    return rc;
}

/* Warns of a text that cannot tell retrieval heads. */
static void warn_of_text(size_t repeats)
{
    if (repeats < REPEATS_LEAST)
        fprintf(
            stderr,
            "%s: the text repeats %zu tokens from beyond the window, of at least %d: it cannot tell "
            "retrieval heads, and scores are of all attention beyond sinks and window; without -f a "
            "text is made that can\n",
            prof_program.name, repeats, REPEATS_LEAST);
}

static int add_heads(struct prof *prof, const struct ids *ids, struct retrieval_head *head, size_t n,
                     struct buf *list, struct err *err)
{
    const struct prof_options *o = &prof->options;
    const struct retrieval_options options = {o->sink, o->recent, o->sparsity};
    size_t repeats, streaming = 0;
    if (retrieval_heads_measure(head, &repeats, &options, &prof->report.run, prof->model, ids->id,
                                ids->len, err) < 0)
        return -1;
    warn_of_text(repeats);
    for (size_t i = 0; i < n; i++)
        streaming += head[i].sparse;
    for (size_t i = 0; i < n; i++)
        if (prof_add_record(prof,
                            &(struct prof_head){ids->len, o->sink, o->recent, repeats, streaming,
                                                (double)streaming / (double)n, head[i]},
                            err) < 0)
            return -1;
    return retrieval_heads_list(head, &options, prof->model, list, err);
}

static int find_heads(struct prof *prof, const struct ids *ids, struct buf *list, struct err *err)
{
    const size_t n = prof->model->config.layers * prof->model->config.kv_heads;
    struct retrieval_head *head = mem_alloc(n, sizeof *head);
    const int rc = head ? add_heads(prof, ids, head, n, list, err) : err_no_memory(err, "%zu heads", n);
    free(head);
    return rc;
}

static int add_ranges(const struct prof *prof, const struct kv_scales *scales,
                      const struct kv_shape *shape, size_t tokens, struct err *err)
{
    for (size_t l = 0; l < shape->layers; l++)
        for (size_t h = 0; h < kv_sizes_of(shape, l)->kv_heads; h++) {
            struct prof_range range = {tokens, l, h, {NAN, NAN}, {NAN, NAN}};
            for (size_t v = 0; v < kv_matrices(kv_sizes_of(shape, l)); v++) {
                const struct kv_extent *extent = &scales->range[kv_scales_index(shape, l, v, h)];
                range.low[v] = (double)extent->low;
                range.high[v] = (double)extent->high;
            }
            if (prof_add_record(prof, &range, err) < 0)
                return -1;
        }
    return 0;
}

static int find_ranges(struct prof *prof, const struct ids *ids, struct buf *list, struct err *err)
{
    const struct cache_types f32 = cache_types_alike(DTYPE_F32);
    const struct kv_shape shape = config_kv_shape(&prof->model->config, 1, &f32);
    struct kv_scales scales;
    if (cache_ranges_measure(&scales, &prof->report.run, prof->model, ids->id, ids->len, err) < 0)
        return -1;
    int rc = kv_scales_format(&scales, &shape, &prof->model->file.model_id,
                              prof->model->key_gains != NULL, list, err);
    if (rc == 0)
        rc = add_ranges(prof, &scales, &shape, ids->len, err);
    kv_scales_release(&scales);
    return rc;
}

static int add_costs(const struct prof *prof, const struct kv_sensitivity *s, struct err *err)
{
    char layer[24];
    struct prof_cost cost = {.tokens = s->tokens, .layer = "all"};
    for (size_t i = 0; i < s->n_types + s->layers; i++) {
        const bool one = i >= s->n_types;
        cost.type = cache_type_name(one ? s->probe : s->type[i].type);
        memcpy(cost.kld, one ? s->part[i - s->n_types] : s->type[i].kld, sizeof cost.kld);
        if (one) {
            snprintf(layer, sizeof layer, "%zu", i - s->n_types);
            cost.layer = layer;
        }
        if (prof_add_record(prof, &cost, err) < 0)
            return -1;
    }
    return 0;
}

static int find_costs(struct prof *prof, const struct ids *ids, struct buf *list, struct err *err)
{
    struct kv_sensitivity s = {0};
    if (!prof->options.precision)
        prof->report.run.precision = PRECISION_F32;
    int rc = cache_costs_measure(&s, &prof->report, prof->model, ids->id, ids->len, err);
    if (rc == 0 && (rc = kv_sensitivity_format(&s, &prof->model->file.model_id, list, err)) == 0)
        rc = add_costs(prof, &s, err);
    kv_sensitivity_release(&s);
    return rc;
}

/* Saves costs where --cache-kld looks for those of the model. */
static int save_costs(const struct prof *prof, const struct buf *list, struct err *err)
{
    char path[8192];
    if (!cli_cache_types_path(prof->model, path, sizeof path))
        return err_set(err, "there is no home folder for the file of cache types: give --output");
    file_make_parents(path);
    if (outfile_save(path, list->data, list->len, err) < 0)
        return -1;
    cli_say(stderr, "%s: costs for --cache-kld are in %s\n", prof_program.name, path);
    return 0;
}

/* Runs a text, and writes what was found to the file of --output. */
static int measure_text(struct prof *prof, struct err *err)
{
    struct ids ids = {0};
    struct buf list = {0};
    int rc = read_ids(prof, &ids, err);
    if (rc == 0)
        rc = prof->options.command == PROF_HEADS    ? find_heads(prof, &ids, &list, err)
             : prof->options.command == PROF_SCALES ? find_ranges(prof, &ids, &list, err)
                                                    : find_costs(prof, &ids, &list, err);
    if (rc == 0 && prof->options.output)
        rc = outfile_save(prof->options.output, list.data, list.len, err);
    else if (rc == 0 && prof->options.command == PROF_CACHE_TYPES)
        rc = save_costs(prof, &list, err);
    ids_release(&ids);
    buf_release(&list);
    return rc;
}

static int describe_folder(struct prof *prof, struct err *err)
{
    struct prof_folder f = {.folder = prof->options.file[0]};
    if (kvblock_folder_describe(f.folder, &f.usage, &f.counts, err) < 0)
        return -1;
    f.hit_rate =
        f.counts.lookup_tokens ? (double)f.counts.hit_tokens / (double)f.counts.lookup_tokens : NAN;
    return prof_add_record(prof, &f, err);
}

const struct prof_job prof_jobs[PROF_COMMANDS] = {
    [PROF_POLICIES] = {3, 0, .list = list_batch, .measure = measure_blocks, .plot = prof_plot_policies,
                       .conclude = explain_counters},
    [PROF_SWEEP] = {3, 0, .list = list_batch, .measure = measure_blocks, .plot = prof_plot_sweep,
                    .conclude = explain_counters},
    [PROF_LATENCY] = {1, 0, .weights = true, .list = list_latency, .measure = measure_latencies,
                      .plot = prof_plot_latency},
    [PROF_BENCH] = {5, 1, .lists = true, .weights = true, .list = list_bench,
                    .measure = measure_benches},
    [PROF_MEMORY] = {1, 0, .lists = true, .list = list_memory, .measure = measure_memories},
    [PROF_RANKS] = {3, 1, .lists = true, .weights = true, .list = list_ranks, .measure = measure_ranks},
    [PROF_PREDICT] = {3, 1, .lists = true, .list = list_bench, .measure = measure_predictions},
    [PROF_ROOF] = {3, 0, .list = list_roof, .measure = measure_roof},
    [PROF_HEADS] = {1, 0, .weights = true, .measure = measure_text},
    [PROF_SCALES] = {1, 0, .weights = true, .measure = measure_text},
    [PROF_CACHE_TYPES] = {1, 0, .weights = true, .measure = measure_text},
    [PROF_QUALITY] = {1, 0, .weights = true, .measure = prof_measure_quality,
                      .plot = prof_plot_quality},
    [PROF_PREFIX_CACHE] = {1, 0, .bare = true, .measure = describe_folder},
    [PROF_COMPARE] = {8, 0, .bare = true, .measure = prof_measure_compare,
                      .conclude = prof_conclude_compare},
};
