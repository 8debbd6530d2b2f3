/* Timing model steps of 1 to 64 rows. */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/stat.h"
#include "decode/rng.h"
#include "tune/calibrate.h"

/* Rows appended to sequence 0 and computed, then dropped unless they are to stay. */
static int step_of(struct session *s, const uint32_t *token, size_t rows, bool stay, float *logits,
                   double *ms, struct err *err)
{
    size_t row[64];
    const size_t before = session_rows(s, 0);
    const double start = clock_ms();
    const size_t first = session_add(s, 0, token, rows);
    if (session_run(s, s->options.threads, err) < 0)
        return -1;
    for (size_t i = 0; i < rows && i < ARRAY_LEN(row); i++)
        row[i] = first + i;
    if (logits && session_logits(s, row, rows, logits, err) < 0)
        return -1;
    *ms = clock_ms() - start;
    if (!stay)
        kv_truncate(s->kv, 0, before);
    return 0;
}

static int time_rounds(struct session *s, size_t rounds, const uint32_t *token, float *logits,
                       const volatile sig_atomic_t *interrupted, struct free_rows *rows,
                       struct err *err)
{
    double *time = mem_alloc(FREE_ROW_COUNTS * rounds, sizeof *time);
    double ms = 0;
    int rc = time ? 0 : err_set(err, "out of memory for times");
    for (size_t round = 0; rc == 0 && round <= rounds; round++)
        for (size_t i = 0; rc == 0 && i < rows->n; i++) {
            rc = step_of(s, token, free_row_counts[i], false, logits, &ms, err);
            if (rc == 0 && *interrupted)
                rc = err_set(err, "interrupted");
            if (round) /* the first does not count */
                time[i * rounds + round - 1] = ms;
        }
    for (size_t i = 0; rc == 0 && i < rows->n; i++) {
        double *x = time + i * rounds;
        const double middle = stat_quantile(x, rounds, 0.5);
        rows->spread[i] = (stat_quantile(x, rounds, 0.75) - stat_quantile(x, rounds, 0.25)) / middle;
        rows->step_ms[i] = stat_quantile(x, rounds, 0);
    }
    /* Other work can only make a step slower, and more rows cannot take less time than fewer. */
    for (size_t i = rows->n; rc == 0 && i-- > 1;)
        rows->step_ms[i - 1] = fmin(rows->step_ms[i - 1], rows->step_ms[i]);
    rows->samples = rounds;
    free(time);
    return rc;
}

int calibrate_free_rows(const struct model *model, const struct session_options *options,
                        size_t context, size_t rounds, const volatile sig_atomic_t *interrupted,
                        struct free_rows *rows, struct err *err)
{
    struct session s = {0};
    const size_t vocab = model->config.vocab, chunk = options->chunk;
    uint32_t *token = mem_alloc(size_max(chunk, 64), sizeof *token);
    float *logits = mem_alloc(64 * sizeof(float), vocab);
    double ms = 0;
    int rc = -1;
    *rows = (struct free_rows){0};
    while (rows->n < FREE_ROW_COUNTS && free_row_counts[rows->n] <= chunk &&
           context + free_row_counts[rows->n] <= options->context)
        rows->n++;
    if (!token || !logits) {
        err_set(err, "out of memory for steps of 64 rows");
        goto out;
    }
    if (rows->n < 1 || rounds < 1) {
        err_set(err, "a context of %zu holds no step after %zu rows", options->context, context);
        goto out;
    }
    for (size_t i = 0; i < size_max(chunk, 64); i++)
        token[i] = (uint32_t)(rng_uniform(1, 0, (uint32_t)i, 13) * (double)vocab);
    if (session_open(&s, model, options, err) < 0)
        goto out;
    for (size_t at = 0, n; at < context; at += n) {
        n = size_min(chunk, context - at);
        if (step_of(&s, token, n, true, NULL, &ms, err) < 0)
            goto out;
    }
    rc = time_rounds(&s, rounds, token, logits, interrupted, rows, err);
    if (rc == 0)
        free_rows_judge(rows);
out:
    if (s.model)
        session_close(&s);
    free(token);
    free(logits);
    return rc;
}
