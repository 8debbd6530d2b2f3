/* Scores given texts: prefills them window by window and sums log-probabilities of their tokens. */
#include "decode/score.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "decode/sample/sampler.h"

enum { LOGIT_ROWS = 32 }; /* tokens whose logits are computed at a time */

/* A slot of the batch, and the text that is scored in it while `busy`. */
struct score_slot {
    bool busy;
    size_t seq; /* KV cache sequence of the slot */
    struct score_text text;
    struct score_result result;
    /* The current window: begins at token `from`, but its first `kept` tokens are the text's (BOS). */
    size_t from, kept;
    size_t at;                /* index of the first token that this window has not prefilled yet */
    size_t next;              /* index of the next token to score */
    size_t first_row, n_rows; /* its tokens in the last pass: batch index of the first; number */
};

struct scoring {
    struct session *session;
    size_t stride;
    const struct score_callbacks *callbacks;
    const volatile sig_atomic_t *interrupted;
    struct score_stats *stats;
    struct score_slot *slot;
    size_t n_slots;
    size_t turn;     /* the slot served first in the next pass: round robin */
    float *logits;   /* [LOGIT_ROWS][vocab]: after the tokens before those to score */
    uint32_t *token; /* [chunk]: tokens to add to the batch */
    bool input_ended;
};

double score_mean(size_t tokens, double sum_logprob)
{
    return tokens ? sum_logprob / (double)tokens : NAN;
}

double score_perplexity(size_t tokens, double sum_logprob)
{
    return exp(-score_mean(tokens, sum_logprob));
}

static size_t vocab_of(const struct scoring *s) { return session_vocab(s->session); }

/* Delivers the result of the slot's text and frees the slot. */
static int finish_text(struct scoring *s, struct score_slot *slot, const struct err *error,
                       struct err *err)
{
    slot->result.text = &slot->text;
    slot->result.error = error;
    slot->busy = false;
    session_clear(s->session, slot->seq);
    s->stats->texts++;
    s->stats->tokens += slot->result.tokens;
    s->stats->sum_logprob += slot->result.sum_logprob;
    return s->callbacks->done(s->callbacks->arg, &slot->result, err);
}

static int begin_text(struct scoring *s, struct score_slot *slot, const struct score_text *text,
                      struct err *err)
{
    const size_t context = session_options(s->session)->context;
    struct err why;
    *slot = (struct score_slot){.busy = true, .seq = slot->seq, .text = *text, .next = 1};
    session_begin(s->session, slot->seq, size_min(text->n, context), text->n);
    slot->kept = session_kept_tokens(s->session, text->id, text->n);
    if (text->n > context + 1 && s->stride + slot->kept > context) {
        err_set(
            &why,
            "its windows of %zu tokens begin with BOS, so that a stride of %zu leaves some unscored",
            context, s->stride);
        return finish_text(s, slot, &why, err);
    }
    for (size_t i = 0; i < text->n; i++)
        if (text->id[i] >= vocab_of(s)) {
            err_set(&why, "id %u is outside the vocabulary of %zu", text->id[i], vocab_of(s));
            return finish_text(s, slot, &why, err);
        }
    if (text->n && s->callbacks->token(s->callbacks->arg, &slot->text, 0, NAN, err) < 0)
        return -1;
    return text->n > 1 ? 0 : finish_text(s, slot, NULL, err);
}

static size_t texts_in_flight(const struct scoring *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_slots; i++)
        n += s->slot[i].busy;
    return n;
}

/* Starts scoring texts in free slots; waits for input only if no text is in flight. */
static int fill_slots(struct scoring *s, struct err *err)
{
    for (size_t i = 0; i < s->n_slots; i++) {
        while (!s->slot[i].busy && !s->input_ended && !*s->interrupted) {
            struct score_text text;
            const int got = s->callbacks->next(s->callbacks->arg, !texts_in_flight(s), &text, err);
            if (got < 0)
                return -1;
            if (got == GEN_LATER)
                return 0;
            s->input_ended = got == GEN_END;
            if (got == GEN_REQUEST && begin_text(s, &s->slot[i], &text, err) < 0)
                return -1;
        }
    }
    return 0;
}

/* Index of the token after the slot's current window. No window has the text's last token: it
 * predicts no other. */
static size_t window_end(const struct scoring *s, const struct score_slot *slot)
{
    return size_min(slot->from + session_options(s->session)->context, slot->text.n - 1);
}

/* Scores the slot's next token, given the logits after the token before it. */
static int take_token(struct scoring *s, struct score_slot *slot, const float *logits, struct err *err)
{
    const size_t pos = slot->next++;
    const double logprob = logits[slot->text.id[pos]] - log_sum_exp(logits, vocab_of(s));
    slot->result.tokens++;
    slot->result.sum_logprob += logprob;
    return s->callbacks->token(s->callbacks->arg, &slot->text, pos, logprob, err);
}

/* Scores the tokens after those that the slot had in the last pass, except ones scored already. */
static int score_rows(struct scoring *s, struct score_slot *slot, struct err *err)
{
    size_t row[LOGIT_ROWS];
    const size_t end = slot->at + slot->n_rows;
    while (slot->next <= end) {
        const size_t count = size_min(LOGIT_ROWS, end + 1 - slot->next);
        for (size_t i = 0; i < count; i++)
            row[i] = slot->first_row + (slot->next - 1 - slot->at) + i;
        if (session_logits(s->session, row, count, s->logits, err) < 0)
            return -1;
        for (size_t i = 0; i < count; i++) {
            const float *logits = s->logits + i * vocab_of(s);
            struct err why;
            if (!logits_finite(logits, vocab_of(s)))
                return session_refuse_output(s->session, "the model", "logits", &why),
                       finish_text(s, slot, &why, err);
            if (take_token(s, slot, logits, err) < 0)
                return -1;
        }
    }
    return 0;
}

/* After a pass: scores the slot's tokens, then starts the next window or finishes the text. */
static int advance_text(struct scoring *s, struct score_slot *slot, struct err *err)
{
    if (score_rows(s, slot, err) < 0)
        return -1;
    if (!slot->busy)
        return 0;
    slot->at += slot->n_rows;
    if (slot->next == slot->text.n)
        return finish_text(s, slot, NULL, err);
    if (slot->at == window_end(s, slot)) {
        session_clear(s->session, slot->seq);
        slot->from += s->stride;
        slot->at = slot->from;
    }
    return 0;
}

/* Adds the next n tokens of the slot's window to the batch. */
static void add_tokens(struct scoring *s, struct score_slot *slot, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const size_t in_window = slot->at + i - slot->from;
        s->token[i] = slot->text.id[in_window < slot->kept ? in_window : slot->at + i];
    }
    slot->first_row = batch_add(s->session, slot->seq, s->token, n);
}

/* Adds tokens of texts in flight to the batch, at most a prefill chunk; returns their number. */
static size_t fill_batch(struct scoring *s)
{
    struct session *session = s->session;
    size_t rows = 0;
    for (size_t k = 0; k < s->n_slots; k++) {
        const size_t i = (s->turn + k) % s->n_slots;
        struct score_slot *slot = &s->slot[i];
        slot->n_rows = slot->busy ? size_min(session_options(session)->chunk - rows,
                                             window_end(s, slot) - slot->at)
                                  : 0;
        if (slot->n_rows)
            add_tokens(s, slot, slot->n_rows);
        rows += slot->n_rows;
    }
    s->turn = (s->turn + 1) % s->n_slots;
    return rows;
}

static int run_step(struct scoring *s, struct err *err)
{
    const double start = clock_ms();
    const size_t rows = fill_batch(s);
    if (session_run(s->session, session_options(s->session)->threads_prefill, err) < 0)
        return -1;
    for (size_t i = 0; i < s->n_slots; i++)
        if (s->slot[i].n_rows && advance_text(s, &s->slot[i], err) < 0)
            return -1;
    s->stats->prefill_tokens += rows;
    s->stats->prefill_ms += clock_ms() - start;
    return 0;
}

static int score_all(struct scoring *s, struct err *err)
{
    for (;;) {
        if (fill_slots(s, err) < 0)
            return -1;
        if (!texts_in_flight(s))
            return 0;
        for (size_t i = 0; i < s->n_slots && *s->interrupted; i++)
            if (s->slot[i].busy && finish_text(s, &s->slot[i], &err_interrupted, err) < 0)
                return -1;
        if (texts_in_flight(s) && run_step(s, err) < 0)
            return -1;
    }
}

int score_texts(struct session *session, size_t stride, const struct score_callbacks *callbacks,
                const volatile sig_atomic_t *interrupted, struct score_stats *stats, struct err *err)
{
    const size_t context = session_options(session)->context;
    struct scoring s = {
        .session = session,
        .stride = stride ? stride : size_max(context / 2, 1),
        .callbacks = callbacks,
        .interrupted = interrupted,
        .stats = stats,
        .n_slots = session_options(session)->batch,
    };
    int rc = -1;
    *stats = (struct score_stats){0};
    if (s.stride > context)
        return err_set(err,
                       "a stride of %zu tokens leaves some unscored between two windows: the context "
                       "holds %zu, a stride may not be longer",
                       stride, context);
    s.slot = mem_zalloc(s.n_slots, sizeof *s.slot);
    s.logits = mem_alloc(LOGIT_ROWS, vocab_of(&s) * sizeof *s.logits);
    s.token = mem_alloc(session_options(session)->chunk, sizeof *s.token);
    for (size_t i = 0; s.slot && i < s.n_slots; i++)
        s.slot[i].seq = i;
    if (s.slot && s.logits && s.token)
        rc = score_all(&s, err);
    else
        err_no_memory(err, "%d rows of %zu logits", LOGIT_ROWS, vocab_of(&s));
    free(s.slot);
    free(s.logits);
    free(s.token);
    return rc;
}

struct one_text {
    struct score_text text;
    bool taken;
    score_token *token;
    void *arg;
    const volatile sig_atomic_t *interrupted;
};

static int next_one(void *arg, bool wait, struct score_text *text, struct err *err)
{
    struct one_text *one = arg;
    (void)wait;
    (void)err;
    if (one->taken)
        return GEN_END;
    one->taken = true;
    *text = one->text;
    return GEN_REQUEST;
}

static int take_one(void *arg, const struct score_text *text, size_t pos, double logprob,
                    struct err *err)
{
    const struct one_text *one = arg;
    return one->token(one->arg, text, pos, logprob, err);
}

static int end_one(void *arg, const struct score_result *result, struct err *err)
{
    const struct one_text *one = arg;
    return result->error && !*one->interrupted ? (*err = *result->error, -1) : 0;
}

int score_ids(struct session *session, size_t stride, const uint32_t *id, size_t n, score_token *token,
              void *arg, const volatile sig_atomic_t *interrupted, struct score_stats *stats,
              struct err *err)
{
    struct one_text one = {{id, n, NULL}, false, token, arg, interrupted};
    const struct score_callbacks callbacks = {next_one, take_one, end_one, &one};
    return score_texts(session, stride, &callbacks, interrupted, stats, err);
}
