/* Opening a model. */
#include "model/model.h"

#include <stdlib.h>
#include <sys/mman.h>

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

size_t model_parameters(const struct model *model)
{
    size_t elements = 0;
    for (size_t i = 0; i < model->file.n_tensors; i++)
        elements += (size_t)model->file.tensor[i].bytes / dtype_size(model->file.tensor[i].dtype);
    return elements;
}
