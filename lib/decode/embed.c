/* Embeddings: prefills texts and pools the hidden states of their tokens. */
#include "decode/embed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

/* A slot of the batch, and the text in it while `busy`. */
struct embed_slot {
    bool busy;
    size_t seq; /* KV cache sequence of the slot */
    struct embed_text text;
    size_t at;                /* tokens processed */
    size_t first_row, n_rows; /* its tokens in the last pass: batch index of the first; number */
    double *sum;              /* [hidden]: sum of hidden states, in order of tokens; or the one state */
};

struct embedding {
    struct session *session;
    enum embed_pooling pooling;
    bool normalize;
    const struct embed_callbacks *callbacks;
    const volatile sig_atomic_t *interrupted;
    struct embed_stats *stats;
    struct embed_slot *slot;
    size_t n_slots, hidden;
    float *result; /* [hidden] */
    float *state;  /* [hidden]: of one token */
    bool input_ended;
};

/* Delivers the slot's embedding, or the reason why there is none, and frees the slot. */
static int finish_text(struct embedding *e, struct embed_slot *slot, const struct err *error,
                       struct err *err)
{
    double square = 0;
    struct err why;
    for (size_t i = 0; i < e->hidden; i++)
        square += slot->sum[i] * slot->sum[i];
    if (!error && !isfinite(square)) {
        session_refuse_output(e->session, "the model", "hidden states", &why);
        error = &why;
    }
    const double scale = e->normalize               ? (square > 0 ? 1 / sqrt(square) : 0)
                         : e->pooling == EMBED_MEAN ? 1 / (double)size_max(slot->text.n, 1)
                                                    : 1;
    for (size_t i = 0; i < e->hidden; i++)
        e->result[i] = (float)(slot->sum[i] * scale);
    slot->busy = false;
    session_clear(e->session, slot->seq);
    e->stats->texts++;
    return e->callbacks->done(e->callbacks->arg, &slot->text, error ? NULL : e->result, error, err);
}

static int begin_text(struct embedding *e, struct embed_slot *slot, const struct embed_text *text,
                      struct err *err)
{
    const size_t context = session_options(e->session)->context, vocab = session_vocab(e->session);
    struct err why;
    int rc = 0;
    slot->busy = true;
    slot->text = *text;
    slot->at = 0;
    for (size_t i = 0; i < e->hidden; i++)
        slot->sum[i] = 0;
    session_begin(e->session, slot->seq, text->n, text->n);
    if (!text->n)
        rc = err_set(&why, "the text is empty");
    else if (text->n > context)
        rc = err_code(&why, ERR_FULL, "the text has %zu tokens, the context holds %zu: shorten it",
                      text->n, context);
    for (size_t i = 0; i < text->n && rc == 0; i++)
        if (text->id[i] >= vocab)
            rc = err_set(&why, "id %u is outside the vocabulary of %zu", text->id[i], vocab);
    return rc < 0 ? finish_text(e, slot, &why, err) : 0;
}

static size_t texts_in_flight(const struct embedding *e)
{
    size_t n = 0;
    for (size_t i = 0; i < e->n_slots; i++)
        n += e->slot[i].busy;
    return n;
}

/* Starts texts in free slots; waits for input only if no text is in flight. */
static int fill_slots(struct embedding *e, struct err *err)
{
    for (size_t i = 0; i < e->n_slots; i++)
        while (!e->slot[i].busy && !e->input_ended && !*e->interrupted) {
            struct embed_text text;
            const int got = e->callbacks->next(e->callbacks->arg, !texts_in_flight(e), &text, err);
            if (got < 0)
                return -1;
            if (got == GEN_LATER)
                return 0;
            e->input_ended = got == GEN_END;
            if (got == GEN_REQUEST && begin_text(e, &e->slot[i], &text, err) < 0)
                return -1;
        }
    return 0;
}

/* Adds the hidden states of the slot's tokens in the last pass. */
static void pool_rows(const struct embedding *e, struct embed_slot *slot)
{
    const size_t last = slot->text.n - 1;
    for (size_t i = 0; i < slot->n_rows; i++) {
        const size_t at = slot->at + i;
        if ((e->pooling == EMBED_LAST && at != last) || (e->pooling == EMBED_CLS && at != 0))
            continue;
        session_hidden(e->session, slot->first_row + i, e->state);
        for (size_t j = 0; j < e->hidden; j++)
            slot->sum[j] += e->state[j];
    }
    slot->at += slot->n_rows;
}

static int run_step(struct embedding *e, struct err *err)
{
    const struct session_options *o = session_options(e->session);
    const double start = clock_ms();
    size_t rows = 0;
    for (struct embed_slot *slot = e->slot; slot < e->slot + e->n_slots; slot++) {
        slot->n_rows =
            slot->busy ? size_min(o->chunk - size_min(rows, o->chunk), slot->text.n - slot->at) : 0;
        if (slot->n_rows)
            slot->first_row = batch_add(e->session, slot->seq, slot->text.id + slot->at, slot->n_rows);
        rows += slot->n_rows;
    }
    if (session_run(e->session, o->threads_prefill, err) < 0)
        return -1;
    e->stats->tokens += rows;
    for (struct embed_slot *slot = e->slot; slot < e->slot + e->n_slots; slot++) {
        if (!slot->n_rows)
            continue;
        pool_rows(e, slot);
        if (slot->at == slot->text.n && finish_text(e, slot, NULL, err) < 0)
            return -1;
    }
    e->stats->ms += clock_ms() - start;
    return 0;
}

static int embed_all(struct embedding *e, struct err *err)
{
    for (;;) {
        if (fill_slots(e, err) < 0)
            return -1;
        if (!texts_in_flight(e))
            return 0;
        for (size_t i = 0; i < e->n_slots && *e->interrupted; i++)
            if (e->slot[i].busy && finish_text(e, &e->slot[i], &err_interrupted, err) < 0)
                return -1;
        if (texts_in_flight(e) && run_step(e, err) < 0)
            return -1;
    }
}

int embed_declared(const struct model *model, enum embed_pooling *pooling, struct err *err)
{
    static const enum embed_pooling poolings[] = {[POOLING_NONE] = EMBED_MEAN,
                                                  [POOLING_MEAN] = EMBED_MEAN,
                                                  [POOLING_LAST] = EMBED_LAST,
                                                  [POOLING_CLS] = EMBED_CLS};
    if (model->config.pooling == POOLING_UNSUPPORTED)
        return err_set(err,
                       "%s: declares a pooling that is not supported; choose one with --pooling, but "
                       "its embeddings will differ",
                       model->path);
    *pooling = poolings[model->config.pooling];
    return 0;
}

int embed_texts(struct session *session, enum embed_pooling pooling, bool normalize,
                const struct embed_callbacks *callbacks, const volatile sig_atomic_t *interrupted,
                struct embed_stats *stats, struct err *err)
{
    struct embedding e = {
        .session = session,
        .pooling = pooling,
        .normalize = normalize,
        .callbacks = callbacks,
        .interrupted = interrupted,
        .stats = stats,
        .n_slots = session_options(session)->batch,
        .hidden = session_model(session)->config.hidden,
    };
    int rc = -1;
    *stats = (struct embed_stats){0};
    struct hidden_tap *tap =
        &session_pass(session)->tap; /* another one may be in use: a draft head's */
    const struct hidden_tap before = *tap;
    *tap = (struct hidden_tap){0};
    if (session_tap(session, (const size_t[]){HIDDEN_FINAL}, 1, err) < 0) {
        *tap = before;
        return -1;
    }
    e.slot = mem_zalloc(e.n_slots, sizeof *e.slot);
    e.result = mem_alloc(e.hidden, sizeof *e.result);
    e.state = mem_alloc(e.hidden, sizeof *e.state);
    double *sums = mem_alloc(e.n_slots, e.hidden * sizeof *sums);
    for (size_t i = 0; e.slot && sums && i < e.n_slots; i++)
        e.slot[i] = (struct embed_slot){.seq = i, .sum = sums + i * e.hidden};
    if (e.slot && e.result && e.state && sums)
        rc = embed_all(&e, err);
    else
        err_no_memory(err, "%zu embeddings of %zu elements", e.n_slots, e.hidden);
    free(sums);
    forward_tap_close(session_pass(session), tap);
    *tap = before;
    free(e.result);
    free(e.state);
    free(e.slot);
    return rc;
}
