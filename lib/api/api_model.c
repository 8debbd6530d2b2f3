/* The public API: models, tokens, and text of tokens as they arrive. */
#include "api/api.h"
#include "base/number.h"
#include "base/text_util.h"
#include "base/threads.h"
#include "decode/text_streamer.h"
#include "model/experts/expert_store.h"
#include "model/lora/lora_open.h"
#include "text/tokenizer/detok.h"

/* Members of the first version of the structure, which every program has. */
#define FIRST_OPTIONS (offsetof(struct bmc_model_options, hugepages) + sizeof(int))

static int read_options(struct bmc_model_options *o, struct expert_store_options *experts,
                        const struct bmc_model_options *given, struct err *err)
{
    *o = (struct bmc_model_options){0};
    if (given && api_read(o, sizeof *o, given, FIRST_OPTIONS, "bmc_model_options", err) < 0)
        return -1;
    if (o->n_lora > LORAS_MAX)
        return err_set(err, "%zu LoRA adapters are given, at most %d are supported", o->n_lora,
                       LORAS_MAX);
    if (o->experts && expert_store_parse(experts, o->experts, err) < 0)
        return -1;
    if (o->experts && (o->mlock || o->hugepages || o->numa))
        return err_set(err,
                       "`experts` reads weights from the file: it excludes `mlock`, `hugepages` and "
                       "`numa`");
    if (o->threads < 0 || o->threads > THREADS_MOST)
        return err_set(err, "%d `threads`: from 1 to %d are possible", o->threads, THREADS_MOST);
    for (size_t i = 0; o->lora_scale && i < o->n_lora; i++)
        if (!isfinite(o->lora_scale[i]))
            return err_set(err, "the scale of LoRA adapter %zu is not a finite number", i);
    return 0;
}

int api_place_model(const struct bmc_model *m, const struct model *model, struct err *err)
{
    bool one_node;
    if (model_use_pages(model, &m->pages, &one_node, err) < 0)
        return -1;
    return m->mlock ? model_lock(model, err) : 0;
}

/* Finds the .bmc model of a path, by conversion if the options permit it. */
static int find_file(struct bmc_model *m, const char *path, const struct bmc_model_options *o,
                     struct err *err)
{
    struct model_cache cache = {.folder = o->convert_dir,
                                .max_bytes = MODEL_CACHE_BYTES,
                                .convert.models_dir = o->models_dir ? o->models_dir : "."};
    if (o->convert_size && !parse_bytes(o->convert_size, &cache.max_bytes))
        return err_code(err, ERR_INVALID, "`convert_size` is no size as 32G: \"%s\"",
                        excerpt_of(o->convert_size, strlen(o->convert_size)).text);
    return model_cache_open(&cache, path, &m->file, err);
}

static int open_model(struct bmc_model *m, const char *path, const struct bmc_model_options *o,
                      const struct expert_store_options *experts, struct err *err)
{
    m->mlock = o->mlock;
    m->pages = (struct pages_options){.hugepages = o->hugepages,
                                      .numa = o->numa,
                                      .threads = o->threads ? o->threads : threads_allowed()};
    if (o->convert_dir && find_file(m, path, o, err) < 0)
        return -1;
    if (model_open_as(&m->model, o->convert_dir ? m->file.path : path, path, err) < 0 ||
        api_place_model(m, m->model, err) < 0 ||
        (o->experts && expert_store_open(m->model, experts, backends[0]->memory, err) < 0))
        return -1;
    for (size_t i = 0; i < o->n_lora; i++)
        if (lora_open(m->model, o->lora[i], o->lora_scale ? (double)o->lora_scale[i] : 1,
                      o->models_dir ? o->models_dir : ".", err) < 0)
            return -1;
    return 0;
}

static void free_model(struct api_object *object)
{
    AUTO(free_auto) struct bmc_model *model = (struct bmc_model *)object;
    model_close(model->model);
    cached_model_close(&model->file);
}

int bmc_model_open_with(struct bmc_model **model, const char *path,
                        const struct bmc_model_options *options, struct bmc_error *error)
{
    struct err err;
    struct bmc_model_options o;
    struct expert_store_options experts;
    if (model)
        *model = NULL;
    if (api_given(model, "model", &err) < 0 || api_given(path, "path", &err) < 0 ||
        read_options(&o, &experts, options, &err) < 0)
        return api_status(-1, &err, BMC_INVALID, error);
    if (sodium_init() < 0)
        return api_status(err_set(&err, "libsodium cannot be initialised"), &err, BMC_FAILED, error);
    kernels_setup();
    struct bmc_model *opened = mem_zalloc(1, sizeof *opened);
    if (!opened)
        return api_status(err_no_memory(&err, "a model"), &err, BMC_FAILED, error);
    opened->file.lock = -1;
    api_object_open(&opened->object, NULL, false, free_model);
    const int rc = open_model(opened, path, &o, &experts, &err);
    if (rc == 0)
        *model = opened;
    else
        bmc_model_close(opened);
    return api_status(rc, &err, BMC_BAD_FILE, error);
}

int bmc_model_open(struct bmc_model **model, const char *path, struct bmc_error *error)
{
    return bmc_model_open_with(model, path, NULL, error);
}

void bmc_model_close(struct bmc_model *model) { api_object_drop(API_OBJECT(model)); }

size_t bmc_model_vocab(const struct bmc_model *m) { return m ? m->model->config.vocab : 0; }

size_t bmc_model_context(const struct bmc_model *m) { return m ? m->model->config.context : 0; }

size_t bmc_model_hidden(const struct bmc_model *m) { return m ? m->model->config.hidden : 0; }
size_t bmc_model_embedding(const struct bmc_model *m)
{
    return m ? config_pooled_width(&m->model->config) : 0;
}

size_t bmc_model_lora(const struct bmc_model *m)
{
    return m && m->model->loras ? m->model->loras->n : 0;
}

int bmc_is_eog(const struct bmc_model *m, uint32_t id) { return m && model_is_eos(m->model, id); }

int api_check_ids(const struct bmc_model *model, const uint32_t *ids, size_t n, struct err *err)
{
    const size_t vocab = bmc_model_vocab(model);
    if (n && api_given(ids, "ids", err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= vocab)
            return err_code(err, ERR_INVALID, "id %u is outside the vocabulary of %zu", ids[i], vocab);
    return 0;
}

static int tokenize(const struct bmc_model *model, const char *text, size_t len, unsigned flags,
                    struct ids *list, struct err *err)
{
    const bool template = !(flags & BMC_NO_SPECIAL);
    if (api_given(model, "model", err) < 0 || (len && api_given(text, "text", err) < 0))
        return -1;
    if (flags & ~(unsigned)(BMC_NO_SPECIAL | BMC_PLAIN))
        return err_code(err, ERR_INVALID, "there are no flags 0x%x", flags);
    const struct tokenizer *tok = model->model->tok;
    const int rc = flags & BMC_PLAIN ? tokenizer_encode_plain(tok, text, len, template, list, err)
                                     : tokenizer_encode(tok, text, len, template, list, err);
    if (rc < 0)
        ids_release(list);
    return rc;
}

int bmc_tokenize_flags(const struct bmc_model *model, const char *text, size_t len, unsigned flags,
                       uint32_t **ids, size_t *n_ids, struct bmc_error *error)
{
    struct err err;
    struct ids list = {0};
    if (api_given(ids, "ids", &err) < 0 || api_given(n_ids, "n_ids", &err) < 0)
        return api_status(-1, &err, BMC_INVALID, error);
    const int rc = tokenize(model, text, len, flags, &list, &err);
    *ids = list.id;
    *n_ids = list.len;
    return api_status(rc, &err, BMC_INVALID, error);
}

int bmc_tokenize(const struct bmc_model *model, const char *text, size_t len, uint32_t **ids,
                 size_t *n_ids, struct bmc_error *error)
{
    return bmc_tokenize_flags(model, text, len, 0, ids, n_ids, error);
}

static int detokenize(const struct bmc_model *model, const uint32_t *ids, size_t n_ids, char **text,
                      struct err *err)
{
    struct detok detok;
    struct buf out = {0};
    if (api_given(model, "model", err) < 0 || api_check_ids(model, ids, n_ids, err) < 0)
        return -1;
    detok_init(&detok, model->model->tok, false);
    int rc = buf_reserve(&out, 1, err);
    for (size_t i = 0; i < n_ids && rc == 0; i++)
        rc = detok_add(&detok, ids[i], &out, err);
    if (rc == 0)
        rc = detok_finish(&detok, &out, err);
    if (rc == 0)
        out.data[out.len] = 0;
    else
        buf_release(&out);
    *text = out.data;
    return rc;
}

int bmc_detokenize(const struct bmc_model *model, const uint32_t *ids, size_t n_ids, char **text,
                   struct bmc_error *error)
{
    struct err err;
    if (api_given(text, "text", &err) < 0)
        return api_status(-1, &err, BMC_INVALID, error);
    *text = NULL;
    return api_status(detokenize(model, ids, n_ids, text, &err), &err, BMC_FAILED, error);
}

/* ---- text of tokens ---- */

struct bmc_text {
    struct api_object object;
    const struct bmc_model *model;
    struct text_streamer streamer;
    size_t returned; /* bytes that the caller has */
};

static void free_text(struct api_object *object)
{
    AUTO(free_auto) struct bmc_text *t = (struct bmc_text *)object;
    text_streamer_release(&t->streamer);
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

static void tell_more(struct bmc_text *t, const char **more, size_t *len)
{
    *more = t->streamer.text.data ? t->streamer.text.data + t->returned : "";
    *len = t->streamer.ready - t->returned;
    t->returned = t->streamer.ready;
}

static int add_token(struct bmc_text *t, uint32_t id, const char **more, size_t *len, struct err *err)
{
    if (api_given(more, "more", err) < 0 || api_given(len, "len", err) < 0 ||
        api_check_ids(t->model, &id, 1, err) < 0 || text_streamer_add(&t->streamer, id, err) < 0)
        return -1;
    tell_more(t, more, len);
    return 0;
}

int bmc_text_add(struct bmc_text *t, uint32_t id, const char **more, size_t *len,
                 struct bmc_error *error)
{
    API_CALL("text", t, add_token(t, id, more, len, &err), BMC_FAILED, error);
}

static int finish_text(struct bmc_text *t, const char **more, size_t *len, struct err *err)
{
    if (api_given(more, "more", err) < 0 || api_given(len, "len", err) < 0 ||
        text_streamer_finish(&t->streamer, false, err) < 0)
        return -1;
    tell_more(t, more, len);
    return 0;
}

int bmc_text_finish(struct bmc_text *t, const char **more, size_t *len, struct bmc_error *error)
{
    API_CALL("text", t, finish_text(t, more, len, &err), BMC_FAILED, error);
}
