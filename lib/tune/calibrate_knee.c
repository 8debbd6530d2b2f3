/* Measures the batch knee: times of model steps of 1 to 64 tokens. */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "report/stat.h"
#include "decode/sample/rng.h"
#include "tune/calibrate.h"

/* Times a forward pass of `rows` tokens of sequence 0, then drops their KV entries unless
 * `stay`. */
static int step_of(struct session *s, const uint32_t *token, size_t rows, bool stay, float *logits,
                   double *ms, struct err *err)
{
    size_t row[64];
    const size_t before = session_length(s, 0);
    const double start = clock_ms();
    session_mark(s, 0, before);
    const size_t first = batch_add(s, 0, token, rows);
    if (session_run(s, session_options(s)->threads, err) < 0)
        return -1;
    for (size_t i = 0; i < rows && i < ARRAY_LEN(row); i++)
        row[i] = first + i;
    if (logits && session_logits(s, row, rows, logits, err) < 0)
        return -1;
    *ms = clock_ms() - start;
    if (!stay)
        session_truncate(s, 0, before);
    return 0;
}

static int time_rounds(struct session *s, size_t rounds, const uint32_t *token, float *logits,
                       const volatile sig_atomic_t *interrupted, struct batch_knee *knee,
                       struct err *err)
{
    double *time = mem_alloc(KNEE_COUNTS * rounds, sizeof *time);
    double ms = 0;
    int rc = time ? 0 : err_no_memory(err, "times");
    for (size_t round = 0; rc == 0 && round <= rounds; round++)
        for (size_t i = 0; rc == 0 && i < knee->n; i++) {
            rc = step_of(s, token, knee_counts[i], false, logits, &ms, err);
            if (rc == 0 && *interrupted)
                rc = err_code(err, ERR_INTERRUPTED, "interrupted");
            if (round) /* the first round is a warm-up */
                time[i * rounds + round - 1] = ms;
        }
    for (size_t i = 0; rc == 0 && i < knee->n; i++) {
        double *x = time + i * rounds;
        const double middle = stat_quantile(x, rounds, 0.5);
        knee->spread[i] = (stat_quantile(x, rounds, 0.75) - stat_quantile(x, rounds, 0.25)) / middle;
        knee->step_ms[i] = stat_quantile(x, rounds, 0);
    }
    /* Lowers times to those of larger counts: interference only slows steps down, and fewer tokens
     * cannot take longer than more. */
    for (size_t i = knee->n; rc == 0 && i-- > 1;)
        knee->step_ms[i - 1] = fmin(knee->step_ms[i - 1], knee->step_ms[i]);
    knee->samples = rounds;
    free(time);
    return rc;
}

int calibrate_batch_knee(const struct model *model, const struct session_options *options,
                         size_t context, size_t rounds, const volatile sig_atomic_t *interrupted,
                         struct batch_knee *knee, struct err *err)
{
    struct session *s = NULL;
    const size_t vocab = model->config.vocab, chunk = options->chunk;
    uint32_t *token = mem_alloc(size_max(chunk, 64), sizeof *token);
    float *logits = mem_alloc(64 * sizeof(float), vocab);
    double ms = 0;
    int rc = -1;
    *knee = (struct batch_knee){0};
    while (knee->n < KNEE_COUNTS && knee_counts[knee->n] <= chunk &&
           context + knee_counts[knee->n] <= options->context)
        knee->n++;
    if (!token || !logits) {
        err_no_memory(err, "steps of 64 rows");
        goto out;
    }
    if (knee->n < 1 || rounds < 1) {
        err_set(err, "a context of %zu holds no step after %zu rows", options->context, context);
        goto out;
    }
    for (size_t i = 0; i < size_max(chunk, 64); i++)
        token[i] = (uint32_t)(rng_uniform(1, 0, (uint32_t)i, 13) * (double)vocab);
    if (session_open(&s, model, options, err) < 0)
        goto out;
    for (size_t at = 0, n; at < context; at += n) {
        n = size_min(chunk, context - at);
        if (step_of(s, token, n, true, NULL, &ms, err) < 0)
            goto out;
    }
    rc = time_rounds(s, rounds, token, logits, interrupted, knee, err);
    if (rc == 0)
        batch_knee_judge(knee);
out:
    session_close(s);
    free(token);
    free(logits);
    return rc;
}
