/* Embeddings: prefills texts and pools the hidden states of their tokens. */
#include "decode/embed.h"

#include "base/mem.h"
#include "decode/sample/sampler.h"

struct embedding {
    struct text_batch batch; /* first */
    enum embed_pooling pooling;
    bool normalize;
    const struct embed_callbacks *callbacks;
    struct embed_stats *stats;
    size_t hidden;
    double *sum;   /* [slots][hidden]: sum of hidden states, in order of tokens; or the one state */
    float *result; /* [config_pooled_width()], or logits[EMBED_TOKENS], of ranks logits[vocab] */
    float *state;  /* [hidden]: of one token, or pooled */
    uint32_t *id;  /* [context]: of a pair's tokens, with their segments */
};

/* Scales result[n] to unit length. */
static void to_unit_length(float *result, size_t n)
{
    double square = 0;
    for (size_t i = 0; i < n; i++)
        square += (double)result[i] * (double)result[i];
    const double scale = square > 0 ? 1 / sqrt(square) : 0;
    for (size_t i = 0; i < n; i++)
        result[i] = (float)((double)result[i] * scale);
}

/* Makes e->result of the slot's sum of hidden states, which is finite, or of its logits, which may not be: false. */
static bool make_result(struct embedding *e, const struct text_slot *slot, int *rc, struct err *err)
{
    struct session *session = e->batch.session;
    const struct config *config = &session_model(session)->config;
    double *sum = e->sum + slot->seq * e->hidden;
    double square = 0;
    if (e->pooling == EMBED_LOGITS)
        return logits_finite(e->result, EMBED_TOKENS);
    for (size_t i = 0; i < e->hidden; i++)
        square += sum[i] * sum[i];
    if (!isfinite(square))
        return false;
    const bool dense = config_has_pooled_head(config);
    const double scale = e->normalize && !dense     ? (square > 0 ? 1 / sqrt(square) : 0)
                         : e->pooling == EMBED_MEAN ? 1 / (double)size_max(slot->text.n, 1)
                                                    : 1;
    float *pooled = dense ? e->state : e->result;
    for (size_t i = 0; i < e->hidden; i++)
        pooled[i] = (float)(sum[i] * scale);
    *rc = dense ? forward_pooled(session_pass(session), pooled, e->result, err) : 0;
    if (e->normalize && dense)
        to_unit_length(e->result, config_pooled_width(config));
    return true;
}

/* Delivers the slot's embedding, or the reason why there is none. */
static int finish_embedding(struct text_batch *batch, struct text_slot *slot, const struct err *error,
                            struct err *err)
{
    struct embedding *e = (struct embedding *)batch;
    int rc = 0;
    struct err why;
    if (!error && !make_result(e, slot, &rc, err)) {
        session_refuse_output(batch->session, "the model",
                              e->pooling == EMBED_LOGITS ? "logits" : "hidden states", &why);
        error = &why;
    }
    if (rc < 0)
        return -1;
    text_batch_free_slot(batch, slot);
    e->stats->texts++;
    return e->callbacks->done(e->callbacks->arg, &slot->text, error ? NULL : e->result, error, err);
}

int embed_check_length(const struct session *session, size_t n, struct err *err)
{
    const size_t context = session_options(session)->context;
    return n <= context
               ? 0
               : err_code(err, ERR_FULL, "the text has %zu tokens, the context holds %zu: shorten it",
                          n, context);
}

static int begin_embedding(struct text_batch *batch, struct text_slot *slot, struct err *err)
{
    const struct embedding *e = (struct embedding *)batch;
    const size_t n = slot->text.n;
    struct err why;
    int rc = 0;
    memset(e->sum + slot->seq * e->hidden, 0, e->hidden * sizeof *e->sum);
    session_begin(batch->session, slot->seq, n, n);
    if (!n)
        rc = err_code(&why, ERR_INVALID, "the text is empty");
    else
        rc = embed_check_length(batch->session, n, &why);
    if (rc == 0)
        rc = text_batch_check_ids(batch, &slot->text, &why);
    return rc < 0 ? finish_embedding(batch, slot, &why, err) : 0;
}

static size_t add_tokens(struct text_batch *batch, struct text_slot *slot, size_t left)
{
    const size_t n = size_min(left, slot->text.n - slot->at);
    if (n < slot->text.n && config_is_encoder(&session_model(batch->session)->config))
        return 0; /* a later pass has room for the whole text */
    const struct embedding *e = (struct embedding *)batch;
    const uint32_t *id = slot->text.id + slot->at;
    if (slot->text.second && session_model(batch->session)->config.token_types > 1) {
        for (size_t i = 0; i < n; i++)
            e->id[i] = id[i] | (slot->at + i >= slot->text.second ? TOKEN_SECOND : 0);
        id = e->id;
    }
    slot->first_row = batch_add(batch->session, slot->seq, id, n);
    return n;
}

/* Sets e->result to the logits of callbacks->token after a row; ranks compute all logits, of which each has a part. */
static int take_logits(struct embedding *e, size_t row, struct err *err)
{
    struct session *session = e->batch.session;
    const uint32_t *token = e->callbacks->token;
    if (!session_model(session)->ranks)
        return forward_token_logits(session_pass(session), row, token, EMBED_TOKENS, e->result, err);
    if (session_logits(session, &row, 1, e->result, err) < 0)
        return -1;
    const float logit[EMBED_TOKENS] = {e->result[token[0]], e->result[token[1]]};
    memcpy(e->result, logit, sizeof logit);
    return 0;
}

/* Adds the hidden states of the slot's tokens in the last pass. */
static int pool_rows(struct text_batch *batch, struct text_slot *slot, struct err *err)
{
    struct embedding *e = (struct embedding *)batch;
    double *sum = e->sum + slot->seq * e->hidden;
    for (size_t i = 0; i < slot->n_rows; i++) {
        const size_t at = slot->at + i, row = slot->first_row + i;
        if (e->pooling == EMBED_LOGITS && at == slot->text.n - 1 && take_logits(e, row, err) < 0)
            return -1;
        if (e->pooling == EMBED_LOGITS || (e->pooling == EMBED_LAST && at != slot->text.n - 1) ||
            (e->pooling == EMBED_CLS && at != 0))
            continue;
        session_hidden(batch->session, row, e->state);
        for (size_t j = 0; j < e->hidden; j++)
            sum[j] += e->state[j];
    }
    slot->at += slot->n_rows;
    if (memory_failed(session_options(batch->session)->backend->memory, err) < 0)
        return -1;
    return slot->at == slot->text.n ? finish_embedding(batch, slot, NULL, err) : 0;
}

int embed_declared(const struct model *model, enum embed_pooling *pooling, struct err *err)
{
    static const enum embed_pooling poolings[] = {[POOLING_NONE] = EMBED_MEAN,
                                                  [POOLING_MEAN] = EMBED_MEAN,
                                                  [POOLING_LAST] = EMBED_LAST,
                                                  [POOLING_CLS] = EMBED_CLS};
    if (model->config.pooled.pooling == POOLING_UNSUPPORTED)
        return err_set(err,
                       "declares a pooling that is not supported; choose one with --pooling, but its "
                       "embeddings will differ");
    *pooling = poolings[model->config.pooled.pooling];
    return 0;
}

int embed_prompt(const struct model *model, const char *name, struct buf *prompt, struct err *err)
{
    struct chat chat;
    char names[256];
    if (name && !*name)
        return 0;
    if (model_chat(model, &chat, err) < 0)
        return -1;
    const json_t *text = json_object_get(chat.prompts, name ? name : "");
    chat_name_prompts(chat.prompts, names, sizeof names);
    const int rc =
        text    ? buf_add(prompt, json_string_value(text), json_string_length(text), err)
        : !name ? 0
        : *names
            ? err_set(err, "has no prompt \"%.60s\" for embeddings; its prompts are %s", name, names)
            : err_set(err, "declares no prompts for embeddings: put \"%.60s\" into the texts", name);
    chat_release(&chat);
    return rc;
}

int embed_texts(struct session *session, enum embed_pooling pooling, bool normalize,
                const struct embed_callbacks *callbacks, const volatile sig_atomic_t *interrupted,
                struct embed_stats *stats, struct err *err)
{
    const size_t hidden = session_model(session)->config.hidden,
                 slots = session_options(session)->batch;
    struct embedding e = {
        .batch = {.session = session,
                  .interrupted = interrupted,
                  .next = callbacks->next,
                  .arg = callbacks->arg,
                  .begin = begin_embedding,
                  .add = add_tokens,
                  .passed = pool_rows,
                  .finish = finish_embedding,
                  .tokens = &stats->tokens,
                  .ms = &stats->ms},
        .pooling = pooling,
        .normalize = normalize,
        .callbacks = callbacks,
        .stats = stats,
        .hidden = hidden,
    };
    int rc = -1;
    *stats = (struct embed_stats){0};
    struct hidden_tap *tap =
        &session_pass(session)->tap; /* another one may be in use: a draft head's */
    const struct hidden_tap before = *tap;
    *tap = (struct hidden_tap){0};
    if (pooling != EMBED_LOGITS && session_tap(session, (const size_t[]){HIDDEN_FINAL}, 1, err) < 0) {
        *tap = before;
        return -1;
    }
    const struct config *config = &session_model(session)->config;
    const size_t logits = session_model(session)->ranks ? config->vocab : EMBED_TOKENS;
    e.result =
        mem_alloc(pooling == EMBED_LOGITS ? logits : config_pooled_width(config), sizeof *e.result);
    e.id = mem_alloc(session_options(session)->context, sizeof *e.id);
    e.state = mem_alloc(hidden, sizeof *e.state);
    e.sum = mem_alloc(slots, hidden * sizeof *e.sum);
    if (e.result && e.id && e.state && e.sum)
        rc = text_batch_run(&e.batch, err);
    else
        err_no_memory(err, "%zu embeddings of %zu elements", slots, hidden);
    forward_tap_close(session_pass(session), tap);
    *tap = before;
    free(e.sum);
    free(e.id);
    free(e.result);
    free(e.state);
    return rc;
}
