/* The public API: text of tokens as they arrive. */
#include <stdlib.h>

#include "api/api_object.h"
#include "decode/text_streamer.h"

struct bmc_text {
    struct api_object object;
    const struct bmc_model *model;
    struct text_streamer streamer;
    size_t told; /* bytes that the caller has */
};

static void free_text(struct api_object *object)
{
    struct bmc_text *t = (struct bmc_text *)object;
    text_streamer_release(&t->streamer);
    free(t);
}

static int open_text(struct bmc_text **text, const struct bmc_model *model, const uint32_t *ids,
                     size_t n_ids, struct err *err)
{
    if (api_given(model, "model", err) < 0 || api_check_ids(model, ids, n_ids, err) < 0)
        return -1;
    struct bmc_text *t = *text = mem_zalloc(1, sizeof *t);
    if (!t)
        return err_no_memory(err, "a text");
    api_object_open(&t->object, API_OBJECT(model), false, free_text);
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
    if (api_given(text, "text", &err) < 0)
        return api_status(-1, &err, BMC_INVALID, error);
    *text = NULL;
    return api_status(open_text(text, model, ids, n_ids, &err), &err, BMC_FAILED, error);
}

void bmc_text_close(struct bmc_text *t) { api_object_drop(API_OBJECT(t)); }

static void tell(struct bmc_text *t, const char **more, size_t *len)
{
    *more = t->streamer.text.data ? t->streamer.text.data + t->told : "";
    *len = t->streamer.ready - t->told;
    t->told = t->streamer.ready;
}

static int add(struct bmc_text *t, uint32_t id, const char **more, size_t *len, struct err *err)
{
    if (api_given(more, "more", err) < 0 || api_given(len, "len", err) < 0 ||
        api_check_ids(t->model, &id, 1, err) < 0 || text_streamer_add(&t->streamer, id, err) < 0)
        return -1;
    tell(t, more, len);
    return 0;
}

int bmc_text_add(struct bmc_text *t, uint32_t id, const char **more, size_t *len,
                 struct bmc_error *error)
{
    API_CALL("text", t, add(t, id, more, len, &err), BMC_FAILED, error);
}

static int finish(struct bmc_text *t, const char **more, size_t *len, struct err *err)
{
    if (api_given(more, "more", err) < 0 || api_given(len, "len", err) < 0 ||
        text_streamer_finish(&t->streamer, false, err) < 0)
        return -1;
    tell(t, more, len);
    return 0;
}

int bmc_text_finish(struct bmc_text *t, const char **more, size_t *len, struct bmc_error *error)
{
    API_CALL("text", t, finish(t, more, len, &err), BMC_FAILED, error);
}
