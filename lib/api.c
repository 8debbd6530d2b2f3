/* The public API, bmc.h, on top of the internal modules. */
#include "bmc.h"

#include <stdlib.h>

#include "base/threads.h"
#include "decode/session.h"
#include "text/tokenizer/detok.h"

struct bmc_model {
    struct model *model;
};

struct bmc_context {
    struct session *session;
    float *logits;
};

_Static_assert(sizeof(struct bmc_error) == sizeof(struct err),
               "bmc_error and err are the same structure");

static struct err *inner(struct bmc_error *error) { return (struct err *)error; }

int bmc_model_open(struct bmc_model **model, const char *path, struct bmc_error *error)
{
    *model = NULL;
    if (sodium_init() < 0)
        return err_set(inner(error), "libsodium cannot be initialised");
    kernels_setup();
    struct bmc_model *opened = malloc(sizeof *opened);
    if (!opened)
        return err_set(inner(error), "out of memory");
    if (model_open(&opened->model, path, inner(error)) < 0) {
        free(opened);
        return -1;
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

int bmc_model_is_end(const struct bmc_model *model, uint32_t id)
{
    return model_is_eos(model->model, id);
}

int bmc_tokenize(const struct bmc_model *model, const char *text, size_t len, uint32_t **ids,
                 size_t *n_ids, struct bmc_error *error)
{
    struct ids list = {0};
    *ids = NULL;
    *n_ids = 0;
    if (tokenizer_encode(model->model->tok, text, len, true, &list, inner(error)) < 0) {
        ids_release(&list);
        return -1;
    }
    *ids = list.id;
    *n_ids = list.len;
    return 0;
}

int bmc_detokenize(const struct bmc_model *model, const uint32_t *ids, size_t n_ids, char **text,
                   struct bmc_error *error)
{
    struct detok detok;
    struct buf out = {0};
    *text = NULL;
    detok_init(&detok, model->model->tok, false);
    int rc = buf_reserve(&out, 1, inner(error));
    for (size_t i = 0; i < n_ids && rc == 0; i++)
        rc = detok_add(&detok, ids[i], &out, inner(error));
    if (rc == 0)
        rc = detok_finish(&detok, &out, inner(error));
    if (rc < 0) {
        buf_release(&out);
        return -1;
    }
    out.data[out.len] = 0;
    *text = out.data;
    return 0;
}

int bmc_context_open(struct bmc_context **context, const struct bmc_model *model,
                     const struct bmc_options *options, struct bmc_error *error)
{
    static const struct bmc_options defaults;
    const struct bmc_options *o = options ? options : &defaults;
    const size_t limit = model->model->config.context;
    struct session_options s = {
        .batch = o->sequences ? o->sequences : 1, .chunk = 512, .kept_states = 8};
    *context = NULL;
    s.context = o->context ? o->context : size_min(limit, 4096);
    if (s.context > limit)
        return err_set(inner(error), "a context of %zu is beyond the model's %zu", s.context, limit);
    if (kv_spec_parse(&s.kv, o->kv ? o->kv : "bmc", inner(error)) < 0)
        return -1;
    s.attn = attn_find(NULL, inner(error));
    s.kernels = kernels_select(NULL, inner(error));
    s.precision = precision_default(s.kernels, model_is_quantized(model->model));
    s.threads = s.threads_prefill = o->threads > 0 ? o->threads : threads_allowed();
    struct bmc_context *opened = calloc(1, sizeof *opened);
    if (!opened || !(opened->logits = mem_alloc(model->model->config.vocab, sizeof(float)))) {
        free(opened);
        return err_set(inner(error), "out of memory for a context");
    }
    threads_set(s.threads);
    const int rc = session_open(&opened->session, model->model, &s, inner(error));
    if (rc < 0) {
        bmc_context_close(opened);
        return -1;
    }
    *context = opened;
    return 0;
}

void bmc_context_close(struct bmc_context *context)
{
    if (!context)
        return;
    session_close(context->session);
    free(context->logits);
    free(context);
}

int bmc_feed(struct bmc_context *context, size_t sequence, const uint32_t *ids, size_t n,
             const float **logits, struct bmc_error *error)
{
    struct session *s = context->session;
    size_t row = 0;
    if (sequence >= session_options(s)->batch || n == 0)
        return err_set(inner(error), "sequence %zu of %zu cannot be fed %zu tokens", sequence,
                       session_options(s)->batch, n);
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= session_vocab(s))
            return err_set(inner(error), "id %u is outside the vocabulary of %zu", ids[i],
                           session_vocab(s));
    if (n > session_remaining(s, sequence))
        return err_set(inner(error),
                       "the context of %zu tokens is full: %zu are used, %zu more are fed",
                       session_options(s)->context, session_length(s, sequence), n);
    threads_set(session_options(s)->threads);
    int rc = 0;
    for (size_t at = 0, rows; at < n && rc == 0; at += rows) {
        rows = size_min(session_options(s)->chunk, n - at);
        row = batch_add(s, sequence, ids + at, rows) + rows - 1;
        rc = session_run(s, session_options(s)->threads, inner(error));
    }
    if (rc == 0 && logits) {
        rc = session_logits(s, &row, 1, context->logits, inner(error));
        *logits = context->logits;
    }
    return rc;
}

size_t bmc_fed(const struct bmc_context *context, size_t sequence)
{
    return sequence < session_options(context->session)->batch
               ? session_length(context->session, sequence)
               : 0;
}

void bmc_cut(struct bmc_context *context, size_t sequence, size_t n)
{
    struct kv *kv = session_kv(context->session);
    if (n < bmc_fed(context, sequence))
        kv_truncate(kv, sequence, kv_is_untrimmed(kv, sequence) ? kv_rewind(kv, sequence, n) : 0);
}
