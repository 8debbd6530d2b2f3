/* bmc-prof quality: the divergence of a configuration from a reference, over a text. */
#include <stdlib.h>

#include "base/mem.h"
#include "cli.h"
#include "model/model.h"
#include "prof/prof.h"
#include "quant/cache_types.h"

/* Positions whose tokens have a row of their own: those from each of these to the next. */
static const struct {
    const char *text;
    size_t first, end;
} positions[] = {
    {"all", 0, SIZE_MAX},      {"1-255", 0, 256},         {"256-1023", 256, 1024},
    {"1024-4095", 1024, 4096}, {"4096-8191", 4096, 8192}, {"8192-", 8192, SIZE_MAX},
};

static int add_rows(const struct prof *prof, struct prof_quality *record,
                    const struct quality_token *token, size_t n, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(positions); i++) {
        if (quality_summarize(&record->q, token, n, positions[i].first, positions[i].end, err) < 0)
            return -1;
        record->q.positions = positions[i].text;
        if (record->q.tokens && prof_add_record(prof, record, err) < 0)
            return -1;
    }
    return n ? 0 : err_set(err, "the text has no tokens that others precede: give a longer text");
}

static int compare(struct prof *prof, const struct model *reference, const struct ids *ids,
                   struct err *err)
{
    const struct prof_options *o = &prof->options;
    struct run *run = &prof->report.run;
    struct quality_side side[QUALITY_SIDES] = {
        {reference, run_session_options(run, run->N, 1)},
        {prof->model, run_session_options(run, run->N, 1)},
    };
    struct session_options *of_reference = &side[QUALITY_REFERENCE].options;
    struct quality_token *token = mem_alloc(size_max(ids->len, 1), sizeof *token);
    size_t n;
    if (!token)
        return err_no_memory(err, "%zu tokens", ids->len);
    side[QUALITY_TESTED].options.kv = prof->contender[0].spec;
    of_reference->kv_type =
        o->reference_kv_type < 0 ? DTYPE_F32 : cache_types[o->reference_kv_type].type;
    int rc = kv_spec_parse(&of_reference->kv, "upfront", err);
    if (rc == 0)
        rc = precision_parse(&of_reference->precision,
                             o->reference_precision ? o->reference_precision : "f32", run->kernels,
                             model_is_quantized(reference) || dtype_is_quantized(of_reference->kv_type),
                             err);
    if (rc == 0)
        rc = quality_measure(token, &n, side, ids->id, ids->len, &prof->report, err);
    struct prof_quality record = {.reference = reference->path,
                                  .reference_precision = precision_name(of_reference->precision),
                                  .reference_kv_type = cache_type_name(of_reference->kv_type)};
    if (rc == 0)
        rc = add_rows(prof, &record, token, n, err);
    free(token);
    return rc;
}

int prof_measure_quality(struct prof *prof, struct err *err)
{
    const struct prof_options *o = &prof->options;
    struct run *run = &prof->report.run;
    struct model *reference = NULL;
    struct ids ids = {0};
    if (prof->n_contenders > 1)
        opt_usage_error(&prof_program, "--kv: quality measures one policy, \"%s\" names %zu", o->kv,
                        prof->n_contenders);
    int rc = model_open(&reference, o->reference ? o->reference : prof->model->path, err);
    if (rc == 0 && reference->config.vocab != prof->model->config.vocab)
        rc = err_set(err, "%s has %zu tokens in its vocabulary, %s has %zu: divergence needs the same",
                     reference->path, reference->config.vocab, prof->model->path,
                     prof->model->config.vocab);
    if (rc == 0)
        rc = prof_read_text(prof, &ids, err);
    if (rc == 0) {
        const size_t context = size_min(run->config.context, reference->config.context);
        run->N = size_max(size_min(o->context ? o->context : ids.len, context), 2);
        rc = compare(prof, reference, &ids, err);
    }
    ids_release(&ids);
    model_close(reference);
    return rc;
}
