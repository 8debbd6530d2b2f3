/* Types for a size or a divergence: opens the source as a model, and searches. */
#include "attn/attn.h"
#include "convert/convert_cmd.h"
#include "kernel/kernel.h"
#include "model/convert/gguf_out.h"

static int search_types(struct chosen_types *chosen, const struct target *target,
                        const struct model *model, struct type_search *search, struct err *err)
{
    static const volatile sig_atomic_t never = 0;
    struct cli_progress progress;
    struct session_options options = {.kv_types.all = {DTYPE_F32, DTYPE_F32},
                                      .batch = 1,
                                      .threads = target->threads,
                                      .threads_prefill = target->threads};
    struct buf text = {0};
    struct ids ids = {0};
    int rc = cli_read_all(target->text, &text, err);
    if (rc == 0)
        rc = tokenizer_encode(model->tok, buf_text(&text), text.len, true, &ids, err);
    if (rc == 0 && ids.len < 32)
        rc = err_set(err, "%s: has %zu tokens: give a text of at least a few hundred", target->text,
                     ids.len);
    options.context = options.chunk = size_min(size_max(ids.len, 2), 512);
    if (rc == 0 &&
        (!(options.cpu.kernels = kernels_select(NULL, err)) ||
         kernels_load(options.cpu.kernels, err) < 0 || !(options.cpu.attn = attn_find("fused", err)) ||
         kv_spec_parse(&options.kv, "upfront", err) < 0 ||
         precision_parse(&options.cpu.precision, "f32", options.cpu.kernels, model_weights_class(model),
                         NULL, err) < 0))
        rc = -1;
    cli_progress_begin(&progress, "measure");
    progress.lines = true;
    search->model = model;
    search->options = &options;
    search->id = ids.id;
    search->n = ids.len;
    search->goal = target->goal;
    search->value = target->value;
    search->progress = cli_progress;
    search->arg = &progress;
    search->interrupted = &never;
    if (rc == 0)
        rc = type_search(chosen, search, err);
    cli_progress_end(&progress);
    ids_release(&ids);
    buf_release(&text);
    return rc;
}

/* A conversion whose size is computed. */
struct sized {
    const char *source, *out;
    const struct convert_options *plain;
};

static int size_of_types(void *arg, const struct chosen_types *types, size_t *bytes, struct err *err)
{
    const struct sized *sized = arg;
    struct hash model_id;
    struct convert_options options = *sized->plain;
    options.dry_run = true;
    options.size = bytes;
    options.certificate = buf_text(&types->certificate);
    options.types.tensor_type = types->text;
    options.types.n_tensor_types = types->n;
    return convert_folder(sized->source, sized->out, &options, &model_id, err);
}

int convert_choose_types(struct chosen_types *chosen, const struct target *target, const char *source,
                         const char *out, const struct convert_options *plain, struct err *err)
{
    const struct weight_kind **fused = NULL;
    struct sized sized = {source, out, plain};
    struct opened_source opened;
    *chosen = (struct chosen_types){0};
    int rc = opened_source_open(&opened, source, out, plain, err);
    const struct model *model = opened.model;
    if (rc == 0 && config_is_draft_head(&model->config))
        rc =
            err_set(err, "%s: is a draft head, which runs on its target alone: give it a type", source);
    if (rc == 0)
        rc = model_need_head(model, err);
    if (rc == 0 && convert_makes_gguf(out)) {
        fused = calloc(n_weight_kinds, sizeof *fused);
        rc = fused ? gguf_out_fused(plain->models_dir, &model->config, fused, err)
                   : err_no_memory(err, "%zu kinds of weights", n_weight_kinds);
    }
    if (rc == 0) {
        struct type_search search = {.imatrix = plain->imatrix_weights,
                                     .fused = fused,
                                     .size = size_of_types,
                                     .size_arg = &sized};
        rc = search_types(chosen, target, model, &search, err);
    }
    free(fused);
    opened_source_close(&opened);
    return rc;
}
