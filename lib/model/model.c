/* Opens a model, and adds up bytes of its weights. */
#include "model/model.h"

#include <sys/mman.h>

#include "base/vm.h"
#include "model/experts/expert_store.h"
#include "model/key_scales.h"
#include "model/lora/lora.h"
#include "model/model_pages.h"
#include "model/parallel/shard.h"
#include "model/weight_kinds.h"
#include "quant/pack.h"

/* Opens the tokenizer of a model that generates text. */
static int open_tokenizer(struct model *model, struct err *err)
{
    if (config_is_draft_head(&model->config))
        return 0;
    if (tokenizer_open(&model->tok, model->file.tokenizer, model->file.tokenizer_bytes, err) < 0)
        return -1;
    if (tokenizer_vocab(model->tok) > model->config.vocab)
        return err_set(err, "%s: the tokenizer has %zu ids, but the embedding only %zu rows",
                       model->name, tokenizer_vocab(model->tok), model->config.vocab);
    return 0;
}

/* Opens a model whose file is open. Takes over the file. */
static int open_file(struct model **out, struct bmc_file *file, const char *path, const char *name,
                     struct err *err)
{
    struct conf conf = {0};
    int rc = -1;
    struct model *model = calloc(1, sizeof *model);
    if (!model || !(model->path = strdup(path)) || !(model->name = strdup(name))) {
        free(model ? model->path : NULL);
        free(model);
        bmc_file_release(file);
        return err_no_memory(err, "a model");
    }
    model->file = *file;
    if (conf_parse(&conf, file->config, file->config_bytes, name, err) < 0 ||
        config_read(&model->config, &conf, err) < 0 || open_tokenizer(model, err) < 0 ||
        weights_bind(&model->weights, &model->config, &model->file, name, err) < 0 ||
        key_scales_apply(&model->weights, &model->config, &model->key_gains, err) < 0)
        goto out;
    model_advise_pages(model);
    rc = 0;
out:
    conf_release(&conf);
    if (rc < 0)
        model_close(model);
    else
        *out = model;
    return rc;
}

int model_open(struct model **out, const char *path, struct err *err)
{
    return model_open_as(out, path, path, err);
}

int model_open_as(struct model **out, const char *path, const char *name, struct err *err)
{
    if (model_open_any(out, path, name, err) < 0)
        return -1;
    if (!config_is_draft_head(&(*out)->config))
        return 0;
    model_close(*out);
    *out = NULL;
    return err_set(err,
                   "%s: is a draft head, which only drafts for its target model: bmc-spec -m "
                   "TARGET.bmc -d %s",
                   name, name);
}

int model_need_head(const struct model *model, struct err *err)
{
    return model->config.no_head ? err_set(err,
                                           "%s: has no LM head, so it generates no text and scores "
                                           "none: it is for embeddings (bmc-gen --embed)",
                                           model->name)
                                 : 0;
}

int model_open_any(struct model **out, const char *path, const char *name, struct err *err)
{
    struct bmc_file file;
    *out = NULL;
    if (bmc_file_open(&file, path, err) < 0)
        return strcmp(path, name) == 0
                   ? -1
                   : err_prefix(err, "%s: the file that it was converted to is unusable, remove it",
                                name);
    return open_file(out, &file, path, name, err);
}

int model_open_draft(struct model **out, const struct model *model, struct err *err)
{
    struct bmc_file file;
    char name[4096 + 32];
    *out = NULL;
    if (!model->file.draft_offset)
        return err_set(err,
                       "%s: has no draft head: bmc-convert stores one if the checkpoint has layers for "
                       "multi-token prediction; choose another drafter: -d FILE, --suffix or --lookup",
                       model->name);
    snprintf(name, sizeof name, "draft head of %s", model->name);
    if (bmc_file_open_draft(&file, &model->file, name, err) < 0 ||
        open_file(out, &file, model->path, name, err) < 0)
        return -1;
    if (config_is_draft_head(&(*out)->config))
        return 0;
    model_close(*out);
    *out = NULL;
    return err_set(err, "%s: is a model of its own: the file is damaged; convert it again", name);
}

void model_close(struct model *model)
{
    if (!model)
        return;
    expert_store_close(model->store);
    loras_close(model->loras);
    weights_release(&model->weights);
    free(model->key_gains);
    vm_free(VM_THP, model->synthetic, model->synthetic_bytes);
    tokenizer_free(model->tok);
    bmc_file_release(&model->file);
    config_close(&model->config);
    free(model->name);
    free(model->path);
    free(model);
}

int model_lock(const struct model *model, struct err *err)
{
    if (mlock(model->file.data, model->file.size) < 0)
        return err_errno(err, "%s: cannot lock %zu bytes in memory (ulimit -l)", model->name,
                         model->file.size);
    return 0;
}

int model_chat(const struct model *model, struct chat *chat, struct err *err)
{
    *chat = (struct chat){0};
    if (!model->file.chat_bytes)
        return 0;
    return chat_parse(chat, model->file.chat, model->file.chat_bytes, model->name, err);
}

struct hash model_entries_id(const struct model *model, const float *lora_factor)
{
    return loras_entries_id(model->loras, lora_factor, &model->file.model_id);
}

bool model_is_eos(const struct model *model, uint32_t id)
{
    for (size_t i = 0; i < model->config.n_eos; i++)
        if (model->config.eos[i] == id)
            return true;
    return false;
}

enum weights_class model_weights_class(const struct model *model)
{
    /* of all tensors, but a synthetic model has no file */
    enum weights_class all = weights_class_of(model_weight_type(model));
    for (size_t i = 0; i < model->file.n_tensors; i++) {
        const enum weights_class one = weights_class_of(model->file.tensor[i].dtype);
        all = one > all ? one : all;
    }
    return all;
}

size_t model_parameters(const struct model *model)
{
    size_t elements = 0;
    for (size_t i = 0; i < model->file.n_tensors; i++) {
        const uint64_t *shape = model->file.tensor[i].shape;
        /* cannot overflow: opening the file has checked the padded size */
        elements += (size_t)(shape[0] * shape[1] * shape[2] * shape[3]);
    }
    return elements;
}

/* ---- bytes of weights ---- */

struct weight_bytes model_weight_bytes(const struct model *model)
{
    const struct config *c = &model->config;
    struct weight_bytes sum = {0};
    struct config own;
    for (const struct weight_kind *kind = weight_kinds; kind < weight_kinds + n_weight_kinds; kind++)
        for (size_t l = 0; l < weight_kind_copies(kind, c); l++) {
            if (!weight_kind_has(kind, c, l))
                continue;
            const size_t one = kind->in == DIM_NONE
                                   ? config_dim(config_of_layer(c, l, &own), kind->out) * sizeof(float)
                                   : mat_plain_bytes(weight_kind_at(kind, &model->weights, l));
            const size_t stack = weight_kind_stack(kind, c);
            const bool tied = c->tied_head && strcmp(kind->name, "head.weight") == 0;
            sum.all += tied ? 0 : size_max(stack, 1) * one;
            sum.experts += weight_kind_of_experts(kind) ? stack * one : 0;
        }
    return sum;
}

size_t model_expert_layers(const struct model *model)
{
    size_t n = 0;
    for (size_t l = 0; l < model->config.layers; l++)
        n += model->config.plan[l].has_experts;
    return n;
}

size_t model_own_experts(const struct model *model, size_t n)
{
    const struct ranks *ranks = model->ranks;
    return model->expert_parallel
               ? div_up(n * shard_experts(&model->config, (size_t)ranks->rank, (size_t)ranks->size).n,
                        model->config.moe->experts)
               : n;
}

/* Returns the type with the most bytes left and zeroes its entry; DTYPE_COUNT: all are zero. */
static enum dtype take_largest(size_t left[DTYPE_COUNT])
{
    enum dtype largest = DTYPE_F32;
    for (enum dtype type = DTYPE_F32; type < DTYPE_COUNT; type++)
        if (left[type] > left[largest])
            largest = type;
    if (!left[largest])
        return DTYPE_COUNT;
    left[largest] = 0;
    return largest;
}

/* Of the matrices of a forward pass; it only reads single rows of embedding tables. */
static void bytes_by_type(const struct model *model, size_t bytes[DTYPE_COUNT])
{
    const struct config *c = &model->config;
    memset(bytes, 0, DTYPE_COUNT * sizeof *bytes);
    for (const struct weight_kind *kind = weight_kinds; kind < weight_kinds + n_weight_kinds; kind++)
        for (size_t l = 0; l < weight_kind_copies(kind, c); l++) {
            if (kind->in == DIM_NONE || weight_kind_is_table(kind) || !weight_kind_has(kind, c, l))
                continue;
            const struct mat *mat = weight_kind_at(kind, &model->weights, l);
            const size_t stack = weight_kind_stack(kind, c);
            bytes[mat->dtype] +=
                (weight_kind_of_experts(kind) ? model_own_experts(model, stack) : size_max(stack, 1)) *
                mat_plain_bytes(mat);
        }
}

enum dtype model_weight_type(const struct model *model)
{
    size_t bytes[DTYPE_COUNT];
    bytes_by_type(model, bytes);
    return take_largest(bytes);
}

void model_weight_types(const struct model *model, char text[MODEL_TYPES_SIZE])
{
    size_t bytes[DTYPE_COUNT], len = 0;
    bytes_by_type(model, bytes);
    *text = 0;
    for (enum dtype type; (type = take_largest(bytes)) != DTYPE_COUNT;)
        len += (size_t)snprintf(text + len, MODEL_TYPES_SIZE - len, "%s%s", len ? "+" : "",
                                dtype_name(type));
}
