/* Setup common to the subcommands: model, policies, machine. */
#include <time.h>

#include "quant/cache_types.h"
#include "base/threads.h"
#include "cli.h"
#include "tuned.h"
#include "model/model_pages.h"
#include "model/family/family.h"
#include "model_files.h"
#include "prof/prof.h"
#include "open_model.h"

void prof_list(const char *text, const char *option, size_t min, size_t max, size_t *list, size_t *n)
{
    const struct opt_sizes what = {option, min, max, PROF_MAX_LIST};
    opt_sizes(&prof_program, &what, text, list, n);
}

size_t prof_one(const char *text, const char *option, size_t min)
{
    const struct opt_sizes what = {option, min, 1 << 30, 1};
    size_t number, n;
    opt_sizes(&prof_program, &what, text, &number, &n);
    return number;
}

static void add_contender(struct prof *prof, char *text, bool is_default)
{
    struct err err;
    const struct prof_options *o = &prof->options;
    struct contender *contender = &prof->contender[prof->n_contenders];
    if (prof->n_contenders == PROF_MAX_LIST)
        opt_usage_error(&prof_program, "--kv: at most %d policies can be compared", PROF_MAX_LIST);
    contender->text = text;
    if (kv_spec_parse(&contender->spec, text, &err) < 0)
        opt_usage_error(&prof_program, "%s", err.text);
    if (o->lockstep && is_default && !kv_spec_can_lockstep(&contender->spec))
        return;
    if (o->lockstep && !kv_spec_can_lockstep(&contender->spec))
        opt_usage_error(&prof_program, "--lockstep: cache policy \"%s\" cannot grow in lockstep", text);
    contender->spec.alloc = (enum vm_alloc)o->alloc;
    contender->spec.lockstep = o->lockstep;
    contender->spec.attend_valid = o->rows;
    prof->n_contenders++;
}

/* True if the text after a comma is a parameter of the policy before it, as "group=2" in
 * "headwise:ram=1G,group=2", and not another policy. */
static bool is_parameter(const char *text)
{
    const char *end = text + strcspn(text, "=:,");
    return *end == '=';
}

static char *next_policy(char **rest)
{
    char *text = *rest, *comma = strchr(text, ',');
    while (comma && is_parameter(comma + 1))
        comma = strchr(comma + 1, ',');
    if (comma)
        *comma = 0;
    *rest = comma ? comma + 1 : NULL;
    return text;
}

/* Parses the policies of a list, NULL: of --kv or its default. */
static int open_contenders(struct prof *prof, const char *list, struct err *err)
{
    const struct prof_options *o = &prof->options;
    list = list ? list : o->kv ? o->kv : prof_default_kv[o->command];
    opt_no_empty_entry(&prof_program, "--kv", list);
    free(prof->texts);
    prof->n_contenders = 0;
    prof->texts = strdup(list);
    if (!prof->texts)
        return err_no_memory(err, "the list of policies");
    for (char *rest = prof->texts; rest;)
        add_contender(prof, next_policy(&rest), !o->kv);
    return 0;
}

/* Types of --type; of predict those of a file of that name, which may be a mixture. */
static struct tensor_types types_of(const struct prof_options *o)
{
    const size_t type = o->type < 0 ? DTYPE_BF16 : (size_t)o->type;
    const char *name = o->command == PROF_PREDICT ? model_types_find(random_types_name(type)) : NULL;
    for (size_t i = 0; name && model_types_name(i); i++)
        if (strcmp(name, model_types_name(i)) == 0)
            return model_types(i);
    return random_types(type);
}

static int open_shape(struct prof *prof, struct err *err)
{
    const struct prof_options *o = &prof->options;
    struct report *report = &prof->report;
    if (o->shape) {
        char folder[8192];
        if (cli_models_dir(folder, sizeof folder, err) < 0)
            return -1;
        report->shape = o->shape;
        report->types = types_of(o);
        return shape_configure_model(folder, o->shape, &report->run.config, err);
    }
    if (cli_open_model(&prof_program, "-m", o->model, "BMC_MODEL", "grimm", &prof->model, err) < 0 ||
        model_need_head(prof->model, err) < 0 ||
        cli_use_pages(prof_program.name, prof->model,
                      &(struct pages_options){o->hugepages, o->numa, report->run.threads}, err) < 0)
        return -1;
    /* memory computes nothing, and adds its own resident pages to its prediction */
    if (o->command != PROF_MEMORY && !o->experts && !o->hugepages && !o->numa)
        model_map_pages(prof->model);
    report->shape = prof->model->name;
    report->run.config = prof->model->config;
    report->types.type = model_weight_type(prof->model);
    hash_hex(&prof->model->file.model_id, HASH_BYTES, report->model_id);
    return 0;
}

static enum weights_class weights_of(const struct prof *prof)
{
    return prof->model ? model_weights_class(prof->model) : weights_class_of(prof->report.types.type);
}

static int set_layers(struct prof *prof, struct err *err)
{
    const size_t layers = prof->options.layers;
    struct config *config = &prof->report.run.config;
    const bool compares = prof->options.command == PROF_POLICIES || prof->options.command == PROF_SWEEP;
    if (compares && !config->heads)
        return err_set(err, "%s has no attention, so there are no KV cache policies to compare",
                       prof->report.shape);
    if (!layers)
        return 0;
    if (layers > config->layers)
        return err_set(err, "--layers %zu: %s has %zu", layers, prof->report.shape, config->layers);
    if (!config_kv_layers(config, 0, layers))
        return err_set(err, "--layers %zu: these layers of %s have no attention: give more", layers,
                       prof->report.shape);
    struct config *owner = prof->model ? &prof->model->config : config;
    struct config before = *owner; /* has the keys that the new plan follows from */
    owner->layers = layers;
    const int rc = config_plan(owner, err);
    config_close(&before);
    *config = *owner;
    return rc;
}

static void set_types(struct run *run, struct cache_types types)
{
    run->kv_types = types;
    run->kv_type = cache_types_format(&types);
}

/* Opens the snapshot (--load-kv) from which forward passes are measured, and sets the context N,
 * which must exceed the snapshot's tokens. */
static int open_snapshot(struct prof *prof, struct err *err)
{
    const struct prof_options *o = &prof->options;
    struct run *run = &prof->report.run;
    size_t rows = 0, least = SIZE_MAX;
    if (!o->load_kv)
        return 0;
    if (snapshot_open(&prof->snapshot, o->load_kv, prof->model, err) < 0)
        return -1;
    run->snapshot = prof->snapshot;
    const struct cache_types types = snapshot_types(prof->snapshot);
    if (!o->cache_type)
        set_types(run, types);
    if (!snapshot_has_types(prof->snapshot, &run->kv_types))
        cli_say(stderr, "%s: %s: its KV entries are %s and are converted to %s\n", prof_program.name,
                o->load_kv, cache_types_format(&types).text, run->kv_type.text);
    for (size_t i = 0; i < prof->snapshot->file.n_seqs; i++) {
        rows = size_max(rows, run_snapshot_rows(prof->snapshot, i));
        least = size_min(least, run_snapshot_rows(prof->snapshot, i));
    }
    if (rows != least)
        return err_set(err, "%s: its sequences have %zu to %zu tokens; latency needs equal lengths",
                       o->load_kv, least, rows);
    run->N = o->context ? o->context : size_min(rows + 512, run->config.context);
    if (rows >= run->N)
        return err_set(err, "%s: has %zu tokens, -N %zu must be larger", o->load_kv, rows, run->N);
    return 0;
}

/* Gives policies whose T (number of cache allocations) is not specified the tuned profile's. */
static int open_tuned(struct prof *prof, struct err *err)
{
    const struct prof_options *o = &prof->options;
    const struct run *run = &prof->report.run;
    bool needed = o->profile != NULL;
    for (size_t i = 0; i < prof->n_contenders; i++)
        needed = needed || kv_spec_needs_T(&prof->contender[i].spec);
    if (!needed)
        return 0;
    struct machine here;
    machine_of(&here, run->backend, run->kernels->isa, (enum vm_alloc)o->alloc, run->threads);
    if (tuned_open(&prof->tuned, prof_program.name, o->profile, run->backend, &here, err) < 0)
        return -1;
    for (size_t i = 0; i < prof->n_contenders; i++)
        prof->contender[i].spec.tuner =
            tuned_for(&prof->tuned, tune_attn_name(run->backend, run->attn), run->config.heads);
    return 0;
}

size_t prof_longest_test(const struct prof *prof)
{
    size_t longest = 0;
    for (size_t i = 0; i < prof->n_tests; i++)
        longest = size_max(longest, prof->test[i].depth + prof->test[i].n_prompt + prof->test[i].n_gen);
    return longest;
}

size_t prof_longest(const struct prof *prof)
{
    const struct config *c = &prof->report.run.config;
    size_t rolling = 0;
    for (size_t i = 0; i < prof->n_contenders && c->position != POSITION_LEARNED; i++)
        rolling += kv_spec_rolling(&prof->contender[i].spec);
    /* Without --kv, N stays within the context if some of the default policies are not rolling, so
     * that those are measured, too. */
    return rolling && (prof->options.kv || rolling == prof->n_contenders) ? SIZE_MAX : c->context;
}

static void limit_to_context(struct prof *prof)
{
    const struct config *c = &prof->report.run.config;
    for (size_t i = 0; i < prof->n_contenders; i++)
        if (c->position == POSITION_LEARNED || !kv_spec_rolling(&prof->contender[i].spec))
            prof->contender[i].longest = c->context;
}

size_t prof_own_T(const struct prof *prof, const char **from)
{
    const struct run *run = &prof->report.run;
    const struct kv_tuner *tuner = prof->contender[0].spec.tuner;
    const struct kv_shape shape = config_kv_shape(&run->config, run->N, &run->kv_types);
    enum kv_T_from why = KV_T_DEFAULT;
    size_t T = tuner ? tuner->pick(tuner, &shape, run->batch, &why) : 0;
    if (!T) {
        why = KV_T_DEFAULT;
        T = kv_default_T(run->N);
    }
    *from = kv_T_from_name(why);
    return div_up(run->N, div_up(run->N, size_min(T, run->N)));
}

/* The policies of sweep: bmc with T (number of cache allocations) 1, 2, 4 .. and N. */
static int open_sweep(struct prof *prof, struct err *err)
{
    const size_t N = prof->report.run.N;
    const struct kv_tuner *tuner = prof->contender[0].spec.tuner;
    struct buf list = {0};
    int rc = 0;
    for (size_t T = 1; rc == 0 && T < N && T < (size_t)1 << 14; T *= 2)
        rc = buf_addf(&list, err, "bmc:T=%zu,", T);
    if (rc == 0 && (rc = buf_addf(&list, err, "bmc:T=%zu", N)) == 0)
        rc = open_contenders(prof, list.data, err);
    prof->contender[0].spec.tuner = tuner; /* for prof_own_T() */
    buf_release(&list);
    return rc;
}

static int choose_types(struct prof *prof, struct err *err)
{
    const struct prof_options *o = &prof->options;
    if (!o->cache_kld)
        return 0;
    if (o->cache_type)
        opt_usage_error(&prof_program,
                        "--cache-kld chooses the types of --cache-type: give one of them");
    if (cli_choose_cache_types(&prof->kv_chosen, o->cache_kld, prof->model, &prof_program, false, err) <
        0)
        return -1;
    set_types(&prof->report.run, kv_chosen_types_of(&prof->kv_chosen));
    return 0;
}

int prof_open(struct prof *prof, struct err *err)
{
    static struct cli_progress progress;
    static struct counting counting;
    const struct prof_options *o = &prof->options;
    struct report *report = &prof->report;
    struct run *run = &report->run;
    size_t list[PROF_MAX_LIST], n;
    prof_list(o->batch, "--parallel", 1, 1 << 30, list, &n);
    report->version = BMC_RELEASE;
    report->commit = *cli_commit ? cli_commit : NULL;
    cli_time(time(NULL), report->timestamp);
    report->repeat = (int)o->repeat;
    report->warmup = (int)o->warmup;
    cli_progress_begin(&progress, "measuring");
    progress.lines = o->command == PROF_CACHE_TYPES;
    report->progress = cli_progress;
    report->arg = &progress;
    run->threads = o->threads ? (int)o->threads : threads_allowed();
    set_types(run, opt_cache_types(&prof_program, "--cache-type", o->cache_type,
                                   o->command == PROF_QUALITY ? &prof->kv_scales : NULL));
    run->seed = o->seed.value;
    run->interrupted = &cli_interrupted;
    counting_open(&counting);
    threads_set(run->threads);
    run->counting = &counting;
    if (!(run->backend = tuned_backend(o->backend, o->precision, o->attn, err)))
        return -1;
    run->attn = attn_find(o->attn, err);
    run->kernels = run->attn ? isa_select(o->isa, o->profile, NULL, err) : NULL;
    if (!run->kernels || open_contenders(prof, NULL, err) < 0 || open_shape(prof, err) < 0 ||
        set_layers(prof, err) < 0 || choose_types(prof, err) < 0 || open_tuned(prof, err) < 0)
        return -1;
    run->batch = list[0];
    const size_t depth = o->command == PROF_LATENCY ? prof_one(o->depth, "--depth", 0) : 0;
    const size_t room = o->shape && depth ? SIZE_MAX : run->config.context;
    run->N = o->context ? o->context : size_min(depth + 512, room);
    if (open_snapshot(prof, err) < 0 ||
        precision_parse(&run->precision, run->backend->only_f32 ? "f32" : o->precision, run->kernels,
                        weights_of(prof), &run->kv_types, err) < 0)
        return -1;
    if (!o->shape && run->N > prof_longest(prof))
        return err_set(err, "-N %zu is beyond the model's context of %zu", run->N, run->config.context);
    if (o->command == PROF_SWEEP && open_sweep(prof, err) < 0)
        return -1;
    if (!o->shape) {
        limit_to_context(prof);
        return 0;
    }
    /* A model synthesised from a shape has no trained positions: its context may be any length. */
    run->config.context = size_max(run->config.context, run->N);
    return prof->job->weights ? model_synthesize_types(&prof->model, &run->config, o->shape,
                                                       &report->types, false, run->seed, err)
                              : 0;
}

int prof_read_text(const struct prof *prof, struct ids *ids, struct err *err)
{
    const char *path = prof->options.text;
    struct buf text = {0};
    int rc = cli_read_all(path ? path : "-", &text, err);
    if (rc == 0 && !text.len)
        rc = err_set(err, "%s: is empty: give a longer text", path ? path : "standard input");
    if (rc == 0 && tokenizer_encode(prof->model->tok, buf_text(&text), text.len, true, ids, err) < 0)
        rc = err_prefix(err, "%s", path ? path : "standard input");
    buf_release(&text);
    return rc;
}

int prof_add_record(const struct prof *prof, const void *record, struct err *err)
{
    const struct row_kind *kind = &prof_rows[prof->options.command];
    const struct report *report = &prof->report;
    json_t *row = json_object();
    int rc = fields_put(row, kind->fields, FIELD_ALL, record, 1, 0, err);
    if (rc == 0 && kind->setup)
        rc = report_setup(report, kind, &prof->contender[0].spec, NULL, report->run.N, row, err);
    return fields_end(rc, row, prof->rows, err);
}

void prof_close(struct prof *prof)
{
    if (prof->report.arg)
        cli_progress_end(prof->report.arg);
    if (prof->report.run.counting)
        counting_close(prof->report.run.counting);
    measurements_release(&prof->all, &prof->report);
    free(prof->test);
    snapshot_close(prof->snapshot);
    if (prof->options.shape) /* else the model's */
        config_close(&prof->report.run.config);
    model_close(prof->model);
    tuned_close(&prof->tuned);
    free(prof->texts);
    kv_chosen_types_release(&prof->kv_chosen);
    json_decref(prof->rows);
}
