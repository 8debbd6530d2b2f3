/* The public API: models and tokens. */
#include <stdlib.h>

#include "api/api.h"
#include "text/tokenizer/detok.h"

int bmc_model_open(struct bmc_model **model, const char *path, struct bmc_error *error)
{
    struct err *err = api_err(error);
    *model = NULL;
    if (sodium_init() < 0)
        return err_set(err, "libsodium cannot be initialised");
    kernels_setup();
    struct bmc_model *opened = mem_zalloc(1, sizeof *opened);
    if (!opened)
        return err_set(err, "out of memory for a model"), BMC_NO_MEMORY;
    if (model_open(&opened->model, path, err) < 0) {
        free(opened);
        return api_failed(err, BMC_BAD_FILE);
    }
    *model = opened;
    return 0;
}

void bmc_model_close(struct bmc_model *model)
{
    if (model)
        model_close(model->model);
    free(model);
}

size_t bmc_model_vocab(const struct bmc_model *model) { return model->model->config.vocab; }

size_t bmc_model_context(const struct bmc_model *model) { return model->model->config.context; }

size_t bmc_model_hidden(const struct bmc_model *model) { return model->model->config.hidden; }

int bmc_is_eog(const struct bmc_model *model, uint32_t id) { return model_is_eos(model->model, id); }

int bmc_tokenize_flags(const struct bmc_model *model, const char *text, size_t len, unsigned flags,
                       uint32_t **ids, size_t *n_ids, struct bmc_error *error)
{
    struct err *err = api_err(error);
    const struct tokenizer *tok = model->model->tok;
    const bool template = !(flags & BMC_NO_SPECIAL);
    struct ids list = {0};
    *ids = NULL;
    *n_ids = 0;
    if ((flags & BMC_PLAIN ? tokenizer_encode_plain(tok, text, len, template, &list, err)
                           : tokenizer_encode(tok, text, len, template, &list, err)) < 0) {
        ids_release(&list);
        return api_failed(err, BMC_INVALID);
    }
    *ids = list.id;
    *n_ids = list.len;
    return 0;
}

int bmc_tokenize(const struct bmc_model *model, const char *text, size_t len, uint32_t **ids,
                 size_t *n_ids, struct bmc_error *error)
{
    return bmc_tokenize_flags(model, text, len, 0, ids, n_ids, error);
}

int bmc_detokenize(const struct bmc_model *model, const uint32_t *ids, size_t n_ids, char **text,
                   struct bmc_error *error)
{
    struct err *err = api_err(error);
    struct detok detok;
    struct buf out = {0};
    *text = NULL;
    detok_init(&detok, model->model->tok, false);
    int rc = buf_reserve(&out, 1, err);
    for (size_t i = 0; i < n_ids && rc == 0; i++)
        rc = detok_add(&detok, ids[i], &out, err);
    if (rc == 0)
        rc = detok_finish(&detok, &out, err);
    if (rc < 0) {
        buf_release(&out);
        return api_failed(err, BMC_FAILED);
    }
    out.data[out.len] = 0;
    *text = out.data;
    return 0;
}
