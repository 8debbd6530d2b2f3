/* Opening a model. */
#include "model/model.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/pages.h"
#include "model/roles.h"

int model_open(struct model **out, const char *path, struct err *err)
{
    struct conf conf = {0};
    int rc = -1;
    *out = NULL;
    struct model *model = calloc(1, sizeof *model);
    if (!model || !(model->path = strdup(path))) {
        free(model);
        return err_set(err, "out of memory");
    }
    if (bmc_file_open(&model->file, path, err) < 0 ||
        conf_parse(&conf, model->file.config, model->file.config_bytes, path, err) < 0 ||
        config_read(&model->config, &conf, err) < 0 ||
        tokenizer_open(&model->tok, model->file.tokenizer, model->file.tokenizer_bytes, err) < 0 ||
        weights_bind(&model->weights, &model->config, &model->file, path, err) < 0)
        goto out;
    if (tokenizer_vocab(model->tok) > model->config.vocab) {
        err_set(err, "%s: its tokenizer has %zu ids, its embedding %zu rows", path,
                tokenizer_vocab(model->tok), model->config.vocab);
        goto out;
    }
    rc = 0;
out:
    conf_release(&conf);
    if (rc < 0)
        model_close(model);
    else
        *out = model;
    return rc;
}

void model_close(struct model *model)
{
    if (!model)
        return;
    weights_release(&model->weights);
    pages_free(PAGES_THP, model->synthetic, model->synthetic_bytes);
    tokenizer_free(model->tok);
    bmc_file_release(&model->file);
    free(model->path);
    free(model);
}

int model_lock(const struct model *model, struct err *err)
{
    if (mlock(model->file.map.data, model->file.map.size) < 0)
        return err_errno(err, "%s: cannot lock %zu bytes in memory (ulimit -l)", model->path,
                         model->file.map.size);
    return 0;
}

int model_chat(const struct model *model, struct chat *chat, struct err *err)
{
    if (!model->file.chat_bytes)
        return err_set(
            err,
            "%s: has no chat format, since the model that it was made from has no chat template, or "
            "one that is not known; --chat-format NAME chooses",
            model->path);
    return chat_parse(chat, model->file.chat, model->file.chat_bytes, model->path, err);
}

bool model_is_eos(const struct model *model, uint32_t id)
{
    for (size_t i = 0; i < model->config.n_eos; i++)
        if (model->config.eos[i] == id)
            return true;
    return false;
}

enum dtype model_weight_type(const struct model *model)
{
    return model->weights.layer[0].q.weight.dtype;
}

bool model_few_bits(const struct model *model)
{
    bool any = false;
    for (size_t i = 0; i < model->file.n_tensors; i++)
        any |= dtype_few_bits(model->file.tensor[i].dtype);
    return any || dtype_few_bits(model_weight_type(model));
}

size_t model_parameters(const struct model *model)
{
    size_t elements = 0;
    for (size_t i = 0; i < model->file.n_tensors; i++) {
        const uint64_t *shape = model->file.tensor[i].shape;
        elements += (size_t)(shape[0] * shape[1] * shape[2] * shape[3]); /* fits: padded, it does */
    }
    return elements;
}

/* Calls for every tensor that a step multiplies by, or reads whole. */
static size_t sum_roles(const struct model *model, bool matrices_only, bool with_head,
                        size_t (*weigh)(enum dtype))
{
    const struct config *c = &model->config;
    size_t sum = 0;
    for (size_t i = 0; i < n_roles; i++) {
        const struct role *role = &roles[i];
        const bool table =
            strcmp(role->name, "embed.weight") == 0 || strcmp(role->name, "position.weight") == 0;
        const bool head = strcmp(role->name, "head.weight") == 0;
        if (!role_wanted(role, c) || table || (head && !with_head) ||
            (matrices_only && role->in == DIM_NONE))
            continue;
        const enum dtype type = role->in == DIM_NONE ? DTYPE_F32 : model_weight_type(model);
        sum += config_dim(c, role->out) * config_dim(c, role->in) * weigh(type) *
               (role_in_layer(role) ? c->layers : 1);
    }
    return sum;
}

static size_t one(enum dtype type)
{
    (void)type;
    return 1;
}

size_t model_step_bytes(const struct model *model) { return sum_roles(model, false, true, dtype_size); }

size_t model_row_macs(const struct model *model, bool with_head)
{
    return sum_roles(model, true, with_head, one);
}
