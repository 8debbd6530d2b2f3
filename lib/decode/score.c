/* Scores given texts: prefills them window by window and sums log-probabilities of their tokens. */
#include "decode/score.h"

#include "base/mem.h"
#include "decode/sample/sampler.h"

enum { LOGIT_ROWS = 32 }; /* tokens whose logits are computed at a time */

/* The text in a slot that is being scored. */
struct score_window {
    struct score_result result;
    /* The current window: begins at token `from`, but its first `kept` tokens are the text's (BOS). */
    size_t from, kept;
    size_t next; /* index of the next token to score */
};

struct scoring {
    /* first; slot.at: the first token that the current window has not prefilled yet */
    struct text_batch batch;
    size_t stride;
    const struct score_callbacks *callbacks;
    struct score_stats *stats;
    struct score_window *window; /* [slots] */
    float *logits;               /* [LOGIT_ROWS][vocab]: after the tokens before those to score */
    uint32_t *token;             /* [chunk]: tokens to add to the batch */
};

double score_mean(size_t tokens, double sum_logprob)
{
    return tokens ? sum_logprob / (double)tokens : NAN;
}

double score_perplexity(size_t tokens, double sum_logprob)
{
    return exp(-score_mean(tokens, sum_logprob));
}

static struct score_window *window_of(const struct scoring *s, const struct text_slot *slot)
{
    return &s->window[slot->seq];
}

/* Delivers the result of the slot's text. */
static int finish_score(struct text_batch *batch, struct text_slot *slot, const struct err *error,
                        struct err *err)
{
    const struct scoring *s = (struct scoring *)batch;
    struct score_result *result = &window_of(s, slot)->result;
    result->text = &slot->text;
    result->error = error;
    text_batch_free_slot(batch, slot);
    s->stats->texts++;
    s->stats->tokens += result->tokens;
    s->stats->sum_logprob += result->sum_logprob;
    return s->callbacks->done(s->callbacks->arg, result, err);
}

static int begin_score(struct text_batch *batch, struct text_slot *slot, struct err *err)
{
    const struct scoring *s = (struct scoring *)batch;
    const size_t context = session_options(batch->session)->context;
    const struct text_ids *text = &slot->text;
    struct score_window *w = window_of(s, slot);
    struct err why;
    int rc = 0;
    session_begin(batch->session, slot->seq, size_min(text->n, context), text->n);
    *w = (struct score_window){.kept = session_kept_tokens(batch->session, text->id, text->n),
                               .next = 1};
    if (text->n > context + 1 && s->stride + w->kept > context)
        rc = err_set(
            &why,
            "its windows of %zu tokens begin with BOS, so that a stride of %zu leaves some unscored",
            context, s->stride);
    if (rc < 0 || text_batch_check_ids(batch, text, &why) < 0)
        return finish_score(batch, slot, &why, err);
    if (text->n && s->callbacks->token(s->callbacks->arg, text, 0, NAN, err) < 0)
        return -1;
    return text->n > 1 ? 0 : finish_score(batch, slot, NULL, err);
}

/* Index of the token after the slot's current window. No window has the text's last token: it
 * predicts no other. */
static size_t window_end(const struct scoring *s, const struct text_slot *slot)
{
    const size_t context = session_options(s->batch.session)->context;
    return size_min(window_of(s, slot)->from + context, slot->text.n - 1);
}

/* Scores the slot's next token, given the logits after the token before it. */
static int take_token(struct scoring *s, struct text_slot *slot, const float *logits, struct err *err)
{
    struct score_window *w = window_of(s, slot);
    const size_t pos = w->next++;
    const double norm = log_sum_exp(logits, session_vocab(s->batch.session)),
                 logprob = logprob_of(logits, slot->text.id[pos], norm);
    w->result.tokens++;
    w->result.sum_logprob += logprob;
    return s->callbacks->token(s->callbacks->arg, &slot->text, pos, logprob, err);
}

/* Scores the tokens after those that the slot had in the last pass, except ones scored already. */
static int score_rows(struct scoring *s, struct text_slot *slot, struct err *err)
{
    struct session *session = s->batch.session;
    const size_t vocab = session_vocab(session), end = slot->at + slot->n_rows;
    const struct score_window *w = window_of(s, slot);
    size_t row[LOGIT_ROWS];
    while (w->next <= end) {
        const size_t count = size_min(LOGIT_ROWS, end + 1 - w->next);
        for (size_t i = 0; i < count; i++)
            row[i] = slot->first_row + (w->next - 1 - slot->at) + i;
        if (session_logits(session, row, count, s->logits, err) < 0)
            return -1;
        for (size_t i = 0; i < count; i++) {
            const float *logits = s->logits + i * vocab;
            struct err why;
            if (!logits_finite(logits, vocab))
                return session_refuse_output(session, "the model", "logits", &why),
                       finish_score(&s->batch, slot, &why, err);
            if (take_token(s, slot, logits, err) < 0)
                return -1;
        }
    }
    return 0;
}

/* After a pass: scores the slot's tokens, then starts the next window or finishes the text. */
static int advance_window(struct text_batch *batch, struct text_slot *slot, struct err *err)
{
    struct scoring *s = (struct scoring *)batch;
    struct score_window *w = window_of(s, slot);
    if (score_rows(s, slot, err) < 0)
        return -1;
    if (!slot->busy)
        return 0;
    slot->at += slot->n_rows;
    if (w->next == slot->text.n)
        return finish_score(batch, slot, NULL, err);
    if (slot->at == window_end(s, slot)) {
        session_clear(batch->session, slot->seq);
        w->from += s->stride;
        slot->at = w->from;
    }
    return 0;
}

static size_t add_tokens(struct text_batch *batch, struct text_slot *slot, size_t left)
{
    const struct scoring *s = (struct scoring *)batch;
    const struct score_window *w = window_of(s, slot);
    const size_t n = size_min(left, window_end(s, slot) - slot->at);
    for (size_t i = 0; i < n; i++) {
        const size_t in_window = slot->at + i - w->from;
        s->token[i] = slot->text.id[in_window < w->kept ? in_window : slot->at + i];
    }
    slot->first_row = batch_add(batch->session, slot->seq, s->token, n);
    return n;
}

int score_texts(struct session *session, size_t stride, const struct score_callbacks *callbacks,
                const volatile sig_atomic_t *interrupted, struct score_stats *stats, struct err *err)
{
    const struct session_options *o = session_options(session);
    const size_t vocab = session_vocab(session);
    struct scoring s = {
        .batch = {.session = session,
                  .interrupted = interrupted,
                  .next = callbacks->next,
                  .arg = callbacks->arg,
                  .begin = begin_score,
                  .add = add_tokens,
                  .passed = advance_window,
                  .finish = finish_score,
                  .tokens = &stats->prefill_tokens,
                  .ms = &stats->prefill_ms},
        .stride = stride ? stride : size_max(o->context / 2, 1),
        .callbacks = callbacks,
        .stats = stats,
    };
    int rc = -1;
    *stats = (struct score_stats){0};
    if (s.stride > o->context)
        return err_set(err,
                       "a stride of %zu tokens leaves some unscored between two windows: the context "
                       "holds %zu, a stride may not be longer",
                       stride, o->context);
    s.window = mem_zalloc(o->batch, sizeof *s.window);
    s.logits = mem_alloc(LOGIT_ROWS, vocab * sizeof *s.logits);
    s.token = mem_alloc(o->chunk, sizeof *s.token);
    if (s.window && s.logits && s.token)
        rc = text_batch_run(&s.batch, err);
    else
        err_no_memory(err, "%d rows of %zu logits", LOGIT_ROWS, vocab);
    free(s.window);
    free(s.logits);
    free(s.token);
    return rc;
}

struct one_text {
    struct text_once once; /* first */
    score_token *token;
    void *arg;
    const volatile sig_atomic_t *interrupted;
};

static int take_one(void *arg, const struct text_ids *text, size_t pos, double logprob, struct err *err)
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
    struct one_text one = {{{.id = id, .n = n}, false}, token, arg, interrupted};
    const struct score_callbacks callbacks = {text_once_next, take_one, end_one, &one};
    return score_texts(session, stride, &callbacks, interrupted, stats, err);
}
