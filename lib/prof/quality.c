/* KL divergence between two configurations on a text: both run the same tokens, chunk by chunk in turns, and their logits
 * are compared row by row. */
#include "prof/quality.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/threads.h"
#include "decode/sample/sampler.h"
#include "report/stat.h"

enum { LOGIT_ROWS = 32 }; /* tokens whose logits are computed and compared at a time */

struct comparing {
    struct session *session[QUALITY_SIDES];
    float *logits[QUALITY_SIDES]; /* [LOGIT_ROWS][vocab] */
    size_t vocab, window, kept;
    uint32_t *id; /* [window]: the current window's tokens */
    struct quality_token *token;
    size_t done, total; /* tokens of the text that are compared, and all */
    const struct report *report;
};

/* The sums over a distribution's logits. */
struct softmax_sums {
    float max;
    size_t top;
    double log_sum; /* logarithm of the softmax denominator */
};

static struct softmax_sums top_of(const float *logits, size_t vocab)
{
    struct softmax_sums s = {logits[0], 0, 0};
    for (size_t i = 1; i < vocab; i++)
        if (logits[i] > s.max) {
            s.max = logits[i];
            s.top = i;
        }
    return s;
}

/* Sum of p (log p - log q), where log p - log q is a difference of logits, less that of the denominators: of equal logits
 * exactly 0. */
static void compare_row(void *arg, size_t row)
{
    const struct comparing *c = arg;
    const float *reference = c->logits[QUALITY_REFERENCE] + row * c->vocab,
                *tested = c->logits[QUALITY_TESTED] + row * c->vocab;
    struct softmax_sums p = top_of(reference, c->vocab), q = top_of(tested, c->vocab);
    struct quality_token *token = &c->token[c->done + row];
    double p_sum = 0, q_sum = 0, weighted = 0;
    for (size_t i = 0; i < c->vocab; i++) {
        const double e = exp((double)(reference[i] - p.max));
        p_sum += e;
        weighted += e * ((double)reference[i] - (double)tested[i]);
        q_sum += exp((double)(tested[i] - q.max));
    }
    p.log_sum = (double)p.max + log(p_sum);
    q.log_sum = (double)q.max + log(q_sum);
    const uint32_t next = c->id[token->position];
    token->kld = fmax(0, weighted / p_sum - (p.log_sum - q.log_sum));
    token->same_top = p.top == q.top;
    token->logprob[QUALITY_REFERENCE] = (double)reference[next] - p.log_sum;
    token->logprob[QUALITY_TESTED] = (double)tested[next] - q.log_sum;
}

/* Compares the logits after `rows` tokens of the last pass, which began at position `at` of the window. */
static int compare_chunk(struct comparing *c, size_t at, size_t rows, struct err *err)
{
    size_t row[LOGIT_ROWS];
    for (size_t first = 0, count; first < rows; first += count) {
        count = size_min(LOGIT_ROWS, rows - first);
        for (size_t i = 0; i < count; i++) {
            row[i] = first + i;
            c->token[c->done + i].position = at + first + i + 1;
        }
        for (size_t s = 0; s < QUALITY_SIDES; s++) {
            if (session_logits(c->session[s], row, count, c->logits[s], err) < 0)
                return -1;
            if (!logits_finite(c->logits[s], count * c->vocab))
                return session_refuse_output(c->session[s],
                                             s == QUALITY_REFERENCE ? "the reference" : "the model",
                                             "logits", err);
        }
        parallel_for(count, count * c->vocab * 32, compare_row, c);
        c->done += count;
        c->report->progress(c->report->arg, c->done, c->total);
    }
    return 0;
}

/* Runs a window of n tokens. Its last token predicts no other. */
static int compare_window(struct comparing *c, size_t n, struct err *err)
{
    for (size_t s = 0; s < QUALITY_SIDES; s++) {
        session_clear(c->session[s], 0);
        session_begin(c->session[s], 0, n, n);
    }
    for (size_t at = 0, rows; at + 1 < n; at += rows) {
        rows = n - 1 - at;
        for (size_t s = 0; s < QUALITY_SIDES; s++)
            rows = size_min(rows, batch_space(c->session[s]));
        for (size_t s = 0; s < QUALITY_SIDES; s++) {
            if (*c->report->run.interrupted)
                return err_code(err, ERR_INTERRUPTED, "interrupted");
            batch_add(c->session[s], 0, c->id + at, rows);
            if (session_run(c->session[s], c->report->run.threads, err) < 0)
                return -1;
        }
        if (compare_chunk(c, at, rows, err) < 0)
            return -1;
    }
    return 0;
}

static int compare_text(struct comparing *c, const uint32_t *id, size_t n, struct err *err)
{
    for (size_t at = 0, kept = 0, own; at < n; at += own, kept = c->kept) {
        own = size_min(c->window - kept, n - at);
        memcpy(c->id, id, kept * sizeof *id);
        memcpy(c->id + kept, id + at, own * sizeof *id);
        if (compare_window(c, kept + own, err) < 0)
            return -1;
    }
    return 0;
}

int quality_measure(struct quality_token *token, size_t *n_tokens,
                    const struct quality_side side[QUALITY_SIDES], const uint32_t *id, size_t n,
                    const struct report *report, struct err *err)
{
    struct comparing c = {.vocab = side[0].model->config.vocab,
                          .window = side[0].options.context,
                          .token = token,
                          .total = n,
                          .report = report};
    int rc = 0;
    for (size_t s = 0; rc == 0 && s < QUALITY_SIDES; s++) {
        rc = session_open(&c.session[s], side[s].model, &side[s].options, err);
        c.logits[s] = mem_alloc(LOGIT_ROWS, c.vocab * sizeof *c.logits[s]);
        if (rc == 0 && !c.logits[s])
            rc = err_no_memory(err, "%d rows of %zu logits", LOGIT_ROWS, c.vocab);
    }
    c.id = mem_alloc(c.window, sizeof *c.id);
    if (rc == 0 && !c.id)
        rc = err_no_memory(err, "a window of %zu tokens", c.window);
    if (rc == 0) {
        c.kept = session_kept_tokens(c.session[0], id, n);
        rc = compare_text(&c, id, n, err);
    }
    *n_tokens = c.done;
    for (size_t s = 0; s < QUALITY_SIDES; s++) {
        session_close(c.session[s]);
        free(c.logits[s]);
    }
    free(c.id);
    return rc;
}

/* ---- statistics ---- */

/* `value` has room for one number of each token. */
static void summarize(struct quality *q, const struct quality_token *token, size_t n, size_t first,
                      size_t end, double *value)
{
    double sum[QUALITY_SIDES] = {0};
    size_t same = 0, count = 0;
    for (size_t i = 0; i < n; i++) {
        if (token[i].position < first || token[i].position >= end)
            continue;
        value[count++] = token[i].logprob[QUALITY_REFERENCE] - token[i].logprob[QUALITY_TESTED];
        same += token[i].same_top;
        for (size_t s = 0; s < QUALITY_SIDES; s++)
            sum[s] += token[i].logprob[s];
    }
    *q = (struct quality){.tokens = count};
    if (!count)
        return;
    q->same_top = (double)same / (double)count;
    q->ppl = exp(-sum[QUALITY_TESTED] / (double)count);
    q->ppl_reference = exp(-sum[QUALITY_REFERENCE] / (double)count);
    q->ppl_ratio = exp(stat_mean(value, count));
    q->ppl_ratio_se = q->ppl_ratio * stat_sd(value, count) / sqrt((double)count);
    count = 0;
    for (size_t i = 0; i < n; i++)
        if (token[i].position >= first && token[i].position < end)
            value[count++] = token[i].kld;
    q->kld_mean = stat_mean(value, count);
    q->kld_median = stat_quantile(value, count, 0.5);
    q->kld_p99 = stat_quantile(value, count, 0.99);
    q->kld_p999 = stat_quantile(value, count, 0.999);
    q->kld_max = value[count - 1]; /* sorted now */
}

int quality_summarize(struct quality *quality, const struct quality_token *token, size_t n,
                      size_t first, size_t end, struct err *err)
{
    double *value = mem_alloc(n, sizeof *value);
    if (!value)
        return err_no_memory(err, "%zu tokens", n);
    summarize(quality, token, n, first, end, value);
    free(value);
    return 0;
}
