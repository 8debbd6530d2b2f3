/* Log-probabilities of given texts. */
#include "decode/score.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "decode/sampler.h"

enum { LOGIT_ROWS = 32 }; /* rows whose logits are made at a time: [32][vocab] floats */

/* A place in the batch and the text in it. */
struct place {
    bool busy;
    size_t seq; /* of the cache */
    struct score_text text;
    struct score_result result;
    size_t from;              /* first token of the window */
    size_t at;                /* first token of the window that was not computed yet */
    size_t next;              /* first token of the text without a log-probability yet */
    size_t first_row, n_rows; /* of the step just run */
};

struct scoring {
    struct session *session;
    size_t stride;
    const struct score_callbacks *callbacks;
    const volatile sig_atomic_t *interrupted;
    struct score_stats *stats;
    struct place *place;
    size_t n_places;
    size_t
        turn; /* whose rows come first in the next step: a long text does not keep the others waiting */
    float *logits; /* [LOGIT_ROWS][vocab] */
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

static size_t vocab(const struct scoring *s) { return s->session->model->config.vocab; }

/* ---- beginnings and ends ---- */

/* The result goes out and the place is free again. */
static int finish(struct scoring *s, struct place *place, const char *error, struct err *err)
{
    place->result.text = &place->text;
    place->result.error = error;
    place->busy = false;
    session_drop(s->session, place->seq);
    s->stats->texts++;
    s->stats->tokens += place->result.tokens;
    s->stats->sum_logprob += place->result.sum_logprob;
    return s->callbacks->done(s->callbacks->arg, &place->result, err);
}

static int begin(struct scoring *s, struct place *place, const struct score_text *text, struct err *err)
{
    char fault[96];
    *place = (struct place){.busy = true, .seq = place->seq, .text = *text, .next = 1};
    session_begin(s->session, place->seq, text->n);
    for (size_t i = 0; i < text->n; i++)
        if (text->id[i] >= vocab(s)) {
            snprintf(fault, sizeof fault, "id %u is outside the vocabulary of %zu", text->id[i],
                     vocab(s));
            return finish(s, place, fault, err);
        }
    if (text->n && s->callbacks->token(s->callbacks->arg, &place->text, 0, NAN, err) < 0)
        return -1;
    return text->n > 1 ? 0 : finish(s, place, NULL, err);
}

static size_t n_busy(const struct scoring *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_places; i++)
        n += s->place[i].busy;
    return n;
}

/* Texts into free places, as long as there are any at hand; waits only when there is nothing else to do. */
static int fill_places(struct scoring *s, struct err *err)
{
    for (size_t i = 0; i < s->n_places; i++) {
        /* A text that ends at once leaves the place free for the next. */
        while (!s->place[i].busy && !s->input_ended && !*s->interrupted) {
            struct score_text text;
            const int got = s->callbacks->next(s->callbacks->arg, !n_busy(s), &text, err);
            if (got < 0)
                return -1;
            if (got == GEN_LATER)
                return 0;
            s->input_ended = got == GEN_END;
            if (got == GEN_REQUEST && begin(s, &s->place[i], &text, err) < 0)
                return -1;
        }
    }
    return 0;
}

/* ---- tokens ---- */

/* The end of the window's tokens. The text's last one needs no row: nothing follows it. */
static size_t window_end(const struct scoring *s, const struct place *place)
{
    return size_min(place->from + s->session->options.context, place->text.n - 1);
}

/* One token's logits have come: the log-probability of the token that follows it. */
static int take_token(struct scoring *s, struct place *place, const float *logits, struct err *err)
{
    const size_t pos = place->next++;
    const double logprob = logits[place->text.id[pos]] - log_sum_exp(logits, vocab(s));
    place->result.tokens++;
    place->result.sum_logprob += logprob;
    return s->callbacks->token(s->callbacks->arg, &place->text, pos, logprob, err);
}

/* The place's rows of the step just run: each scores its successor, unless an earlier window did. */
static int score_rows(struct scoring *s, struct place *place, struct err *err)
{
    size_t row[LOGIT_ROWS];
    const size_t end = place->at + place->n_rows;
    while (place->next <= end) {
        const size_t count = size_min(LOGIT_ROWS, end + 1 - place->next);
        for (size_t i = 0; i < count; i++)
            row[i] = place->first_row + (place->next - 1 - place->at) + i;
        if (session_logits(s->session, row, count, s->logits, err) < 0)
            return -1;
        for (size_t i = 0; i < count; i++) {
            const float *logits = s->logits + i * vocab(s);
            if (!logits_finite(logits, vocab(s)))
                return finish(s, place, NO_FINITE_LOGITS, err);
            if (take_token(s, place, logits, err) < 0)
                return -1;
        }
    }
    return 0;
}

/* The place's rows were computed: on to its next rows, its next window, or the end. */
static int advance(struct scoring *s, struct place *place, struct err *err)
{
    if (score_rows(s, place, err) < 0)
        return -1;
    if (!place->busy)
        return 0;
    place->at += place->n_rows;
    if (place->next == place->text.n)
        return finish(s, place, NULL, err);
    if (place->at == window_end(s, place)) {
        session_drop(s->session, place->seq);
        place->from += s->stride;
        place->at = place->from;
    }
    return 0;
}

/* Puts rows of all texts under way into a step, up to a chunk; returns how many. */
static size_t gather_rows(struct scoring *s)
{
    struct session *session = s->session;
    size_t rows = 0;
    for (size_t k = 0; k < s->n_places; k++) {
        const size_t i = (s->turn + k) % s->n_places;
        struct place *place = &s->place[i];
        place->n_rows =
            place->busy ? size_min(session->options.chunk - rows, window_end(s, place) - place->at) : 0;
        if (place->n_rows)
            place->first_row =
                session_add(session, place->seq, place->text.id + place->at, place->n_rows);
        rows += place->n_rows;
    }
    s->turn = (s->turn + 1) % s->n_places;
    return rows;
}

static int run_step(struct scoring *s, struct err *err)
{
    const double start = clock_ms();
    const size_t rows = gather_rows(s);
    if (session_run(s->session, s->session->options.threads_prefill, err) < 0)
        return -1;
    for (size_t i = 0; i < s->n_places; i++)
        if (s->place[i].n_rows && advance(s, &s->place[i], err) < 0)
            return -1;
    s->stats->prefill_tokens += rows;
    s->stats->prefill_ms += clock_ms() - start;
    return 0;
}

/* ---- the loop ---- */

static int run(struct scoring *s, struct err *err)
{
    for (;;) {
        if (fill_places(s, err) < 0)
            return -1;
        if (!n_busy(s))
            return 0;
        for (size_t i = 0; i < s->n_places && *s->interrupted; i++)
            if (s->place[i].busy && finish(s, &s->place[i], GEN_INTERRUPTED, err) < 0)
                return -1;
        if (n_busy(s) && run_step(s, err) < 0)
            return -1;
    }
}

int score_texts(struct session *session, size_t stride, const struct score_callbacks *callbacks,
                const volatile sig_atomic_t *interrupted, struct score_stats *stats, struct err *err)
{
    const size_t context = session->options.context;
    struct scoring s = {
        .session = session,
        .stride = stride ? stride : size_max(context / 2, 1),
        .callbacks = callbacks,
        .interrupted = interrupted,
        .stats = stats,
        .n_places = session->options.batch,
    };
    int rc = -1;
    *stats = (struct score_stats){0};
    if (s.stride > context)
        return err_set(err,
                       "a stride of %zu tokens leaves some unscored between two windows: the context "
                       "holds %zu, a stride may not be longer",
                       stride, context);
    s.place = mem_zalloc(s.n_places, sizeof *s.place);
    s.logits = mem_alloc(LOGIT_ROWS, vocab(&s) * sizeof *s.logits);
    for (size_t i = 0; s.place && i < s.n_places; i++)
        s.place[i].seq = i;
    if (s.place && s.logits)
        rc = run(&s, err);
    else
        err_set(err, "out of memory for %d rows of %zu logits", LOGIT_ROWS, vocab(&s));
    free(s.place);
    free(s.logits);
    return rc;
}

/* ---- one text ---- */

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
    return result->error && !*one->interrupted ? err_set(err, "%s", result->error) : 0;
}

int score_ids(struct session *session, size_t stride, const uint32_t *id, size_t n, score_token *token,
              void *arg, const volatile sig_atomic_t *interrupted, struct score_stats *stats,
              struct err *err)
{
    struct one_text one = {{id, n, NULL}, false, token, arg, interrupted};
    const struct score_callbacks callbacks = {next_one, take_one, end_one, &one};
    return score_texts(session, stride, &callbacks, interrupted, stats, err);
}
