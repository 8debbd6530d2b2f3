/* The public API: text of tokens as they arrive. */
#include <stdlib.h>

#include "api/api.h"
#include "decode/text_streamer.h"

struct bmc_text {
    const struct bmc_model *model;
    struct text_streamer streamer;
    size_t told; /* bytes that the caller has */
};

static int open_text(struct bmc_text **text, const struct bmc_model *model, const uint32_t *ids,
                     size_t n_ids, struct err *err)
{
    if (api_check_ids(model, ids, n_ids, err) < 0)
        return -1;
    struct bmc_text *t = *text = mem_zalloc(1, sizeof *t);
    if (!t)
        return err_no_memory(err, "a text");
    t->model = model;
    text_streamer_init(&t->streamer, model->model->tok, NULL);
    if (text_streamer_resume(&t->streamer, ids, n_ids, err) == 0)
        return 0;
    bmc_text_close(t);
    *text = NULL;
    return -1;
}

int bmc_text_open(struct bmc_text **text, const struct bmc_model *model, const uint32_t *ids,
                  size_t n_ids, struct bmc_error *error)
{
    struct err err;
    *text = NULL;
    return api_status(open_text(text, model, ids, n_ids, &err), &err, BMC_FAILED, error);
}

void bmc_text_close(struct bmc_text *t)
{
    if (t)
        text_streamer_release(&t->streamer);
    free(t);
}

static void tell(struct bmc_text *t, const char **more, size_t *len)
{
    *more = t->streamer.text.data ? t->streamer.text.data + t->told : "";
    *len = t->streamer.ready - t->told;
    t->told = t->streamer.ready;
}

int bmc_text_add(struct bmc_text *t, uint32_t id, const char **more, size_t *len,
                 struct bmc_error *error)
{
    struct err err;
    int rc = api_check_ids(t->model, &id, 1, &err);
    if (rc == 0)
        rc = text_streamer_add(&t->streamer, id, &err);
    if (rc == 0)
        tell(t, more, len);
    return api_status(rc, &err, BMC_FAILED, error);
}

int bmc_text_finish(struct bmc_text *t, const char **more, size_t *len, struct bmc_error *error)
{
    struct err err;
    const int rc = text_streamer_finish(&t->streamer, false, &err);
    if (rc == 0)
        tell(t, more, len);
    return api_status(rc, &err, BMC_FAILED, error);
}
