/* bmc-prof quality: the divergence of a configuration from a reference, over a text. */
#include "base/mem.h"
#include "cli.h"
#include "format/detect.h"
#include "model_files.h"
#include "prof/prof.h"
#include "quant/cache_types.h"
#include "open_model.h"

/* Positions whose tokens have a row of their own: those from each of these to the next. */
static const struct {
    const char *text;
    size_t first, end;
} positions[] = {
    {"all", 0, SIZE_MAX},      {"1-255", 0, 256},         {"256-1023", 256, 1024},
    {"1024-4095", 1024, 4096}, {"4096-8191", 4096, 8192}, {"8192-", 8192, SIZE_MAX},
};

/* What a run compares. */
struct comparison_job {
    struct prof *prof;
    struct model *model; /* the reference's; NULL: saved, or none */
    struct quality_side reference;
    struct logits_file saved;
    struct logits_writer save;
    struct hash ids_hash;
    struct ids ids;
    char saved_id[2 * HASH_BYTES + 1];
    struct kv_streaming heads;
    struct kv_scales scales;
    struct cache_types_text reference_type;
    struct buf adapters; /* their names */
    struct prof_quality record;
};

static int add_rows(struct comparison_job *job, const struct quality_token *token, size_t n,
                    struct err *err)
{
    struct quality *q = &job->record.q;
    for (size_t i = 0; i < ARRAY_LEN(positions); i++) {
        if (quality_summarize(q, token, n, positions[i].first, positions[i].end, err) < 0)
            return -1;
        q->positions = positions[i].text;
        if (q->tokens && prof_add_record(job->prof, &job->record, err) < 0)
            return -1;
    }
    return n ? 0 : err_set(err, "the text has no tokens that others precede: give a longer text");
}

/* ---- the reference ---- */

static int check_vocab(const struct prof *prof, const char *name, size_t vocab, struct err *err)
{
    const size_t own = prof->model->config.vocab;
    return vocab == own
               ? 0
               : err_set(err,
                         "%s has %zu tokens in its vocabulary, %s has %zu: divergence needs the same",
                         name, vocab, prof->model->name, own);
}

/* Opens saved logits, and checks that they are of this text, cut into the same windows. */
static int open_saved(struct comparison_job *job, struct err *err)
{
    struct prof *prof = job->prof;
    const char *path = prof->options.reference;
    if (logits_open(&job->saved, path, err) < 0)
        return -1;
    const struct logits_head *head = job->saved.head;
    if (check_vocab(prof, path, (size_t)head->vocab, err) < 0)
        return -1;
    if (!hash_equal(&head->ids, &job->ids_hash))
        return err_set(err, "%s: was saved for another text or tokenizer: save the logits of this text",
                       path);
    if (!prof->options.context)
        prof->report.run.N = (size_t)head->window;
    if (head->window != prof->report.run.N || head->window > prof->report.run.config.context)
        return err_set(err, "%s: was saved with windows of %llu tokens, this run has %zu (-N)", path,
                       (unsigned long long)head->window, prof->report.run.N);
    hash_hex(&head->model_id, HASH_BYTES, job->saved_id);
    job->record.reference = path;
    job->record.reference_model_id = job->saved_id;
    job->record.reference_precision = head->precision;
    job->record.reference_kv_type = head->kv_type;
    return 0;
}

/* Opens the reference's own model, since adapters change the tested one. */
static int open_model(struct comparison_job *job, struct err *err)
{
    struct prof *prof = job->prof;
    const struct prof_options *o = &prof->options;
    struct run *run = &prof->report.run;
    struct session_options *options = &job->reference.options;
    if (cli_open_model(&prof_program, "--reference", o->reference ? o->reference : prof->model->name,
                       NULL, NULL, &job->model, err) < 0 ||
        check_vocab(prof, job->model->name, job->model->config.vocab, err) < 0)
        return -1;
    run->N = size_min(run->N, job->model->config.context);
    job->reference.model = job->model;
    *options = run_session_options(run, run->N, 1);
    options->kv_types =
        opt_cache_types(&prof_program, "--reference-cache-type", o->reference_cache_type, NULL);
    job->reference_type = cache_types_format(&options->kv_types);
    if (kv_spec_parse(&options->kv, "upfront", err) < 0 ||
        precision_parse(&options->cpu.precision,
                        o->reference_precision ? o->reference_precision : "f32", run->kernels,
                        model_weights_class(job->model), &options->kv_types, err) < 0)
        return -1;
    hash_hex(&job->model->file.model_id, HASH_BYTES, job->saved_id);
    job->record.reference = job->model->name;
    job->record.reference_model_id = job->saved_id;
    job->record.reference_precision = precision_name(options->cpu.precision);
    job->record.reference_kv_type = job->reference_type.text;
    return 0;
}

static int open_reference(struct comparison_job *job, struct err *err)
{
    const struct prof_options *o = &job->prof->options;
    const bool saved = o->reference && file_detect(o->reference) == KIND_LOGITS;
    if (saved && (o->reference_precision || o->reference_cache_type))
        opt_usage_error(&prof_program, "--reference has saved logits: --reference-precision and "
                                       "--reference-cache-type go with a model");
    if (saved)
        return open_saved(job, err);
    return o->reference || !o->save_logits ? open_model(job, err) : 0;
}

/* ---- the run ---- */

/* Opens adapters, the list of retrieval heads and shared scales of the tested side, and describes them. */
static int open_changes(struct comparison_job *job, struct err *err)
{
    struct prof *prof = job->prof;
    struct prof_quality *record = &job->record;
    const struct prof_options *o = &prof->options;
    const struct config *config = &prof->model->config;
    const struct kv_shape shape = config_kv_shape(config, 1, &prof->report.run.kv_types);
    if (cli_open_adapters(prof->model, o->lora.text, o->lora.n, err) < 0 ||
        (o->heads && cli_open_heads(&job->heads, o->heads, config, err) < 0) ||
        (prof->kv_scales &&
         kv_scales_open(&job->scales, prof->kv_scales, &shape, &prof->model->file.model_id,
                        prof->model->key_gains != NULL, err) < 0))
        return -1;
    for (size_t i = 0; i < o->lora.n; i++)
        if (buf_addf(&job->adapters, err, "%s%s", i ? "," : "", o->lora.text[i]) < 0)
            return -1;
    record->policy = prof->contender[0].text;
    record->heads = o->heads;
    record->streaming = job->heads.n;
    record->share = (double)job->heads.n / (double)(config->layers * config->kv_heads);
    record->scales = prof->kv_scales;
    record->adapters = o->lora.n ? buf_text(&job->adapters) : NULL;
    return 0;
}

static int open_save(struct comparison_job *job, struct err *err)
{
    const struct prof *prof = job->prof;
    const struct run *run = &prof->report.run;
    const size_t vocab = prof->model->config.vocab, listed = prof->options.save_top;
    struct logits_head head = {.listed = (uint32_t)(listed < vocab ? listed : 0),
                               .vocab = vocab,
                               .window = run->N,
                               .model_id = prof->model->file.model_id,
                               .ids = job->ids_hash};
    snprintf(head.precision, sizeof head.precision, "%s", precision_name(run->precision));
    snprintf(head.kv_type, sizeof head.kv_type, "%s", run->kv_type.text);
    return logits_writer_open(&job->save, prof->options.save_logits, &head, err);
}

static int compare(struct comparison_job *job, struct err *err)
{
    struct prof *prof = job->prof;
    const struct run *run = &prof->report.run;
    const bool saves = prof->options.save_logits != NULL;
    struct quality_run what = {.tested = {prof->model, run_session_options(run, run->N, 1)},
                               .reference = job->model ? &job->reference : NULL,
                               .saved = job->saved.head ? &job->saved : NULL,
                               .saved_name = prof->options.reference,
                               .save = saves ? &job->save : NULL};
    struct quality_token *token = mem_alloc(size_max(job->ids.len, 1), sizeof *token);
    size_t n;
    what.tested.options.kv = prof->contender[0].spec;
    what.tested.options.kv.offload.streaming = job->heads.is ? &job->heads : NULL;
    what.tested.options.kv.scales = job->scales.range ? &job->scales : NULL;
    int rc = token ? 0 : err_no_memory(err, "%zu tokens", job->ids.len);
    if (rc == 0)
        rc = quality_measure(token, &n, &what, job->ids.id, job->ids.len, &prof->report, err);
    if (rc == 0)
        rc = add_rows(job, token, n, err);
    if (rc == 0 && saves)
        rc = logits_writer_commit(&job->save, err);
    free(token);
    return rc;
}

int prof_measure_quality(struct prof *prof, struct err *err)
{
    const struct prof_options *o = &prof->options;
    struct run *run = &prof->report.run;
    struct comparison_job job = {.prof = prof, .save.out.fd = -1};
    if (o->heads && (!o->kv || strncmp(o->kv, "headwise", 8) != 0))
        opt_usage_error(&prof_program, "--retrieval-heads goes with --kv headwise");
    if (prof->n_contenders > 1)
        opt_usage_error(&prof_program, "--kv: quality measures one policy, \"%s\" names %zu", o->kv,
                        prof->n_contenders);
    int rc = prof_read_text(prof, &job.ids, err);
    if (rc == 0) {
        job.ids_hash = hash_of(job.ids.id, job.ids.len * sizeof *job.ids.id);
        run->N = size_max(size_min(o->context ? o->context : job.ids.len, run->config.context), 2);
        rc = open_changes(&job, err) < 0 || open_reference(&job, err) < 0 ||
                     (o->save_logits && open_save(&job, err) < 0) || compare(&job, err) < 0
                 ? -1
                 : 0;
    }
    logits_writer_abort(&job.save);
    logits_close(&job.saved);
    kv_streaming_release(&job.heads);
    kv_scales_release(&job.scales);
    free(o->lora.text);
    buf_release(&job.adapters);
    ids_release(&job.ids);
    model_close(job.model);
    return rc;
}
