/* Log-probabilities of a given text. */
#include "decode/score.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "decode/sampler.h"

enum { LOGIT_ROWS = 32 }; /* rows whose logits are made at a time: [32][vocab] floats */

struct scoring {
    struct session *session;
    const uint32_t *id;
    size_t n;
    size_t next; /* first token without a log-probability yet */
    float *logits;
    score_token *token;
    void *arg;
    struct score_stats *stats;
};

/* The step just run held the tokens at positions [from, from + rows) of the text: each scores its
 * successor. */
static int score_rows(struct scoring *s, size_t from, size_t rows, struct err *err)
{
    const size_t vocab = s->session->model->config.vocab;
    size_t row[LOGIT_ROWS];
    size_t at = size_max(from, s->next - 1);
    while (at < from + rows && at + 1 < s->n) {
        const size_t count = size_min(LOGIT_ROWS, size_min(from + rows, s->n - 1) - at);
        for (size_t i = 0; i < count; i++)
            row[i] = at - from + i;
        session_logits(s->session, row, count, s->logits);
        for (size_t i = 0; i < count; i++) {
            const float *logits = s->logits + i * vocab;
            const uint32_t id = s->id[at + i + 1];
            if (!logits_finite(logits, vocab))
                return err_set(err, NO_FINITE_LOGITS);
            const double logprob = logits[id] - log_sum_exp(logits, vocab);
            s->stats->tokens++;
            s->stats->sum_logprob += logprob;
            if (s->token(s->arg, at + i + 1, id, logprob, err) < 0)
                return -1;
        }
        at += count;
        s->next = at + 1;
    }
    return 0;
}

/* Positions [from, to) of the text as one sequence. */
static int score_window(struct scoring *s, size_t from, size_t to,
                        const volatile sig_atomic_t *interrupted, struct err *err)
{
    const size_t chunk = s->session->options.chunk;
    for (size_t at = from; at < to && !*interrupted; at += chunk) {
        const size_t rows = size_min(chunk, to - at);
        const double start = clock_ms();
        session_add(s->session, 0, s->id + at, rows);
        if (session_run(s->session, s->session->options.threads_prefill, err) < 0 ||
            score_rows(s, at, rows, err) < 0)
            return -1;
        s->stats->prefill_tokens += rows;
        s->stats->prefill_ms += clock_ms() - start;
    }
    session_drop(s->session, 0);
    return 0;
}

int score_ids(struct session *session, const uint32_t *id, size_t n, score_token *token, void *arg,
              const volatile sig_atomic_t *interrupted, struct score_stats *stats, struct err *err)
{
    const size_t vocab = session->model->config.vocab, context = session->options.context;
    struct scoring s = {
        .session = session, .id = id, .n = n, .next = 1, .token = token, .arg = arg, .stats = stats};
    int rc = -1;
    *stats = (struct score_stats){0};
    for (size_t i = 0; i < n; i++)
        if (id[i] >= vocab)
            return err_set(err, "id %u is outside the vocabulary of %zu", id[i], vocab);
    if (n == 0)
        return 0;
    if (token(arg, 0, id[0], NAN, err) < 0)
        return -1;
    s.logits = mem_alloc(LOGIT_ROWS, vocab * sizeof *s.logits);
    if (!s.logits)
        return err_set(err, "out of memory for %d rows of %zu logits", LOGIT_ROWS, vocab);
    /* The last token needs no row: nothing follows it. */
    for (size_t from = 0; s.next < n && !*interrupted; from += size_max(context / 2, 1))
        if (score_window(&s, from, size_min(from + context, n - 1), interrupted, err) < 0)
            goto out;
    rc = 0;
out:
    free(s.logits);
    return rc;
}
