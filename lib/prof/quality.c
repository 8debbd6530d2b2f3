/* KL divergence between two configurations on a text: both run the same tokens, chunk by chunk in turns, and their logits
 * are compared row by row. */
#include "prof/quality.h"

#include "base/mem.h"
#include "base/threads.h"
#include "decode/sample/sampler.h"
#include "report/stat.h"

enum { LOGIT_ROWS = 32 }; /* tokens whose logits are computed and compared at a time */

struct comparing {
    const struct quality_run *what;
    struct session *session[QUALITY_SIDES]; /* NULL: the side is saved, or there is none */
    float *logits[QUALITY_SIDES];           /* [LOGIT_ROWS][vocab] */
    struct logits_record saved[LOGIT_ROWS];
    char *records;               /* to save: [LOGIT_ROWS][record_bytes] */
    struct candidate *candidate; /* [LOGIT_ROWS][listed], for `records` */
    size_t vocab, window, kept;
    uint32_t *id; /* [window]: the current window's tokens */
    struct quality_token *token;
    size_t done, total; /* tokens of the text that are compared, and all */
    const struct report *report;
};

/* ---- one token ---- */

/* The most probable token, and the logarithm of the softmax denominator. */
struct softmax_sums {
    double max, log_sum;
    size_t top;
};

static struct softmax_sums top_of(const float *logits, size_t vocab)
{
    size_t top = 0;
    for (size_t i = 1; i < vocab; i++)
        top = logits[i] > logits[top] ? i : top;
    return (struct softmax_sums){(double)logits[top], 0, top};
}

/* Sum of p (log p - log q), where log p - log q is a difference of logits, less that of the denominators: of equal logits
 * exactly 0. Sets the sums' log_sum. */
static double divergence(const float *reference, const float *tested, size_t vocab,
                         struct softmax_sums *p, struct softmax_sums *q)
{
    double p_sum = 0, q_sum = 0, weighted = 0;
    for (size_t i = 0; i < vocab; i++) {
        const double e = exp((double)reference[i] - p->max);
        p_sum += e;
        weighted += e * ((double)reference[i] - (double)tested[i]);
        q_sum += exp((double)tested[i] - q->max);
    }
    p->log_sum = p->max + log(p_sum);
    q->log_sum = q->max + log(q_sum);
    return fmax(0, weighted / p_sum - (p->log_sum - q->log_sum));
}

void quality_compare(struct quality_token *token, const float *reference, const float *tested,
                     size_t vocab, uint32_t next)
{
    struct softmax_sums p = top_of(reference, vocab), q = top_of(tested, vocab);
    token->kld = divergence(reference, tested, vocab, &p, &q);
    token->logprob[QUALITY_REFERENCE] = (double)reference[next] - p.log_sum;
    token->logprob[QUALITY_TESTED] = (double)tested[next] - q.log_sum;
    token->same_top = p.top == q.top;
}

/* The divergence from the listed tokens and all others together. */
static double listed_divergence(const struct logits_record *reference, const float *tested,
                                size_t vocab, struct softmax_sums *q)
{
    double p_sum = exp((double)*reference->rest), q_sum = 0, q_rest = 0, sum = 0;
    for (size_t i = 0, k = 0; i < vocab; i++) {
        const double e = exp((double)tested[i] - q->max);
        q_sum += e;
        if (k == reference->n || reference->id[k] != i) {
            q_rest += e;
            continue;
        }
        const double log_p = (double)f16_to_f32(reference->logprob[k++]);
        p_sum += exp(log_p);
        sum += exp(log_p) * (log_p - (double)tested[i]);
    }
    q->log_sum = q->max + log(q_sum);
    if (*reference->rest > -INFINITY && q_rest > 0)
        sum += exp((double)*reference->rest) * ((double)*reference->rest - log(q_rest) - q->max);
    return fmax(0, sum / p_sum - log(p_sum) + q->log_sum);
}

static int by_id(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static f16 saved_logprob(double logprob)
{
    const double least = -65504; /* of f16 */
    return f16_from_f32((float)fmax(least, fmin(0, logprob)));
}

/* Fills the record of a row with its most probable tokens, or all. */
static void save_row(const struct comparing *c, size_t row, const struct softmax_sums *q, uint32_t next)
{
    const struct logits_head *head = &c->what->save->head;
    const float *logits = c->logits[QUALITY_TESTED] + row * c->vocab;
    const struct logits_record r = logits_record_at(head, c->records + row * head->record_bytes);
    struct candidate *best = c->candidate + row * head->listed;
    double rest = 0;
    *r.top = (uint32_t)q->top;
    *r.following = fminf(0, (float)((double)logits[next] - q->log_sum));
    if (r.id) {
        top_logits(logits, c->vocab, r.n, best);
        qsort(best, r.n, sizeof *best, by_id);
    }
    for (size_t i = 0, k = 0; i < c->vocab; i++) {
        const double logprob = (double)logits[i] - q->log_sum;
        if (r.id && (k == r.n || best[k].id != i)) {
            rest += exp(logprob);
            continue;
        }
        if (r.id)
            r.id[k] = (uint32_t)i;
        r.logprob[k++] = saved_logprob(logprob);
    }
    *r.rest = fminf(0, (float)log(rest));
}

static void compare_row(void *arg, size_t row)
{
    const struct comparing *c = arg;
    const struct logits_record *saved = c->what->saved ? &c->saved[row] : NULL;
    float *reference = c->logits[QUALITY_REFERENCE] + row * c->vocab;
    const float *tested = c->logits[QUALITY_TESTED] + row * c->vocab;
    struct softmax_sums p = {0}, q = top_of(tested, c->vocab);
    struct quality_token *token = &c->token[c->done + row];
    const uint32_t next = c->id[token->position];
    for (size_t i = 0; saved && !saved->id && i < c->vocab; i++)
        reference[i] = f16_to_f32(saved->logprob[i]);
    if (saved && saved->id) {
        token->kld = listed_divergence(saved, tested, c->vocab, &q);
    } else if (saved || c->what->reference) {
        p = top_of(reference, c->vocab);
        token->kld = divergence(reference, tested, c->vocab, &p, &q);
    } else {
        token->kld = NAN;
        q.log_sum = log_sum_exp(tested, c->vocab);
    }
    token->logprob[QUALITY_TESTED] = (double)tested[next] - q.log_sum;
    token->logprob[QUALITY_REFERENCE] = saved                ? (double)*saved->following
                                        : c->what->reference ? (double)reference[next] - p.log_sum
                                                             : NAN;
    token->same_top = (saved ? *saved->top : p.top) == q.top;
    if (c->what->save)
        save_row(c, row, &q, next);
}

/* ---- the text ---- */

/* Reads the saved distributions of the next `count` tokens. */
static int read_saved(struct comparing *c, size_t count, struct err *err)
{
    const struct logits_file *saved = c->what->saved;
    for (size_t i = 0; i < count; i++) {
        if (c->done + i >= saved->head->tokens)
            return err_set(err, "%s: has %llu tokens, fewer than the text", c->what->saved_name,
                           (unsigned long long)saved->head->tokens);
        if (logits_record(&c->saved[i], saved, c->done + i, c->what->saved_name, err) < 0)
            return -1;
    }
    return 0;
}

/* Keeps logits of the reference for further runs, or takes those of an earlier one. */
static void keep_logits(const struct comparing *c, size_t count)
{
    float *kept = c->what->logits + c->done * c->vocab, *logits = c->logits[QUALITY_REFERENCE];
    memcpy(c->what->logits_set ? logits : kept, c->what->logits_set ? kept : logits,
           count * c->vocab * sizeof *kept);
}

/* Computes logits of `count` rows of the last pass, in every session. */
static int find_logits(struct comparing *c, const size_t *row, size_t count, struct err *err)
{
    static const char *const whose[] = {"the reference", "the model"};
    for (size_t s = 0; s < QUALITY_SIDES; s++) {
        if (!c->session[s])
            continue;
        if (session_logits(c->session[s], row, count, c->logits[s], err) < 0)
            return -1;
        if (!logits_finite(c->logits[s], count * c->vocab))
            return session_refuse_output(c->session[s], whose[s], "logits", err);
    }
    if (c->what->logits)
        keep_logits(c, count);
    return c->what->saved ? read_saved(c, count, err) : 0;
}

/* Compares the logits after `rows` tokens of the last pass, which began at position `at` of the window. */
static int compare_chunk(struct comparing *c, size_t at, size_t rows, struct err *err)
{
    struct logits_writer *save = c->what->save;
    size_t row[LOGIT_ROWS];
    for (size_t first = 0, count; first < rows; first += count) {
        count = size_min(LOGIT_ROWS, rows - first);
        for (size_t i = 0; i < count; i++) {
            row[i] = first + i;
            c->token[c->done + i].position = at + first + i + 1;
        }
        if (find_logits(c, row, count, err) < 0)
            return -1;
        parallel_for(count, count * c->vocab * 32, compare_row, c);
        if (save && logits_writer_add(save, c->records, count, err) < 0)
            return -1;
        c->done += count;
        c->report->progress(c->report->arg, c->done, c->total);
    }
    return 0;
}

/* Runs the next `rows` tokens of the window. */
static int run_chunk(const struct comparing *c, size_t at, size_t rows, struct err *err)
{
    for (size_t s = 0; s < QUALITY_SIDES; s++) {
        if (!c->session[s])
            continue;
        if (*c->report->run.interrupted)
            return err_code(err, ERR_INTERRUPTED, "interrupted");
        batch_add(c->session[s], 0, c->id + at, rows);
        if (session_run(c->session[s], c->report->run.threads, err) < 0)
            return -1;
    }
    return 0;
}

/* Compares a window of n tokens, of which the last one predicts no other. */
static int compare_window(struct comparing *c, size_t n, struct err *err)
{
    for (size_t s = 0; s < QUALITY_SIDES; s++)
        if (c->session[s]) {
            session_clear(c->session[s], 0);
            session_begin(c->session[s], 0, n, n);
        }
    for (size_t at = 0, rows; at + 1 < n; at += rows) {
        rows = n - 1 - at;
        for (size_t s = 0; s < QUALITY_SIDES; s++)
            rows = c->session[s] ? size_min(rows, batch_space(c->session[s])) : rows;
        if (run_chunk(c, at, rows, err) < 0 || compare_chunk(c, at, rows, err) < 0)
            return -1;
    }
    return 0;
}

static int compare_text(struct comparing *c, const uint32_t *id, size_t n, struct err *err)
{
    c->kept = session_kept_tokens(c->session[QUALITY_TESTED], id, n);
    for (size_t at = 0, kept = 0, own; at < n; at += own, kept = c->kept) {
        own = size_min(c->window - kept, n - at);
        memcpy(c->id, id, kept * sizeof *id);
        memcpy(c->id + kept, id + at, own * sizeof *id);
        if (compare_window(c, kept + own, err) < 0)
            return -1;
    }
    return 0;
}

static int open_comparing(struct comparing *c, struct err *err)
{
    const struct quality_side *side[] = {c->what->logits_set ? NULL : c->what->reference,
                                         &c->what->tested};
    const struct logits_head *head = c->what->save ? &c->what->save->head : NULL;
    for (size_t s = 0; s < QUALITY_SIDES; s++)
        if (side[s] && session_open(&c->session[s], side[s]->model, &side[s]->options, err) < 0)
            return -1;
    bool enough = (c->id = mem_alloc(c->window, sizeof *c->id)) != NULL;
    for (size_t s = 0; s < QUALITY_SIDES; s++)
        enough = (c->logits[s] = mem_alloc(LOGIT_ROWS, c->vocab * sizeof *c->logits[s])) && enough;
    if (head) {
        enough = (c->records = mem_zalloc(LOGIT_ROWS, (size_t)head->record_bytes)) && enough;
        c->candidate = mem_alloc(LOGIT_ROWS, (head->listed + 1) * sizeof *c->candidate);
        enough = c->candidate && enough;
    }
    return enough ? 0 : err_no_memory(err, "%d rows of %zu logits", LOGIT_ROWS, c->vocab);
}

int quality_measure(struct quality_token *token, size_t *n_tokens, const struct quality_run *what,
                    const uint32_t *id, size_t n, const struct report *report, struct err *err)
{
    struct comparing c = {.what = what,
                          .vocab = what->tested.model->config.vocab,
                          .window = what->tested.options.context,
                          .token = token,
                          .total = n,
                          .report = report};
    int rc = open_comparing(&c, err);
    if (rc == 0)
        rc = compare_text(&c, id, n, err);
    *n_tokens = c.done;
    for (size_t s = 0; s < QUALITY_SIDES; s++) {
        session_close(c.session[s]);
        free(c.logits[s]);
    }
    free(c.records);
    free(c.candidate);
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
    q->ppl = exp(-sum[QUALITY_TESTED] / (double)count);
    q->ppl_reference = exp(-sum[QUALITY_REFERENCE] / (double)count);
    q->ppl_ratio = exp(stat_mean(value, count));
    q->ppl_ratio_se = q->ppl_ratio * stat_sd(value, count) / sqrt((double)count);
    count = 0;
    for (size_t i = 0; i < n; i++)
        if (token[i].position >= first && token[i].position < end)
            value[count++] = token[i].kld;
    q->kld_mean = stat_mean(value, count);
    q->same_top = isnan(q->kld_mean) ? NAN : (double)same / (double)count;
    q->kld_median = stat_quantile(value, count, 0.5);
    q->kld_p99 = stat_quantile(value, count, 0.99);
    q->kld_p999 = stat_quantile(value, count, 0.999);
    q->kld_max = value[count - 1]; /* sorted now */
}

int quality_summarize(struct quality *quality, const struct quality_token *token, size_t n,
                      size_t first, size_t end, struct err *err)
{
    AUTO(free_auto) double *value = mem_alloc(n, sizeof *value);
    if (!value)
        return err_no_memory(err, "%zu tokens", n);
    summarize(quality, token, n, first, end, value);
    return 0;
}
