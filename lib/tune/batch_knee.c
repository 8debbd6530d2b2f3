/* The batch knee (most tokens per step at no extra latency), measured by steps of 1 to 64 tokens, and the draft length
 * that follows from their times. */
#include "base/clock.h"
#include "base/mem.h"
#include "report/stat.h"
#include "decode/sample/rng.h"
#include "tune/calibrate.h"

const size_t knee_counts[KNEE_COUNTS] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64};
const double knee_acceptance[KNEE_ACCEPTANCES] = {0.5, 0.6, 0.7, 0.8, 0.9};

void batch_knee_judge(struct batch_knee *knee)
{
    knee->tokens = 0;
    for (size_t i = 0; i < knee->n && knee->step_ms[i] <= 1.15 * knee->step_ms[0]; i++)
        knee->tokens = knee_counts[i];
}

/* Time of a step of `count` tokens, interpolated linearly between the measured token counts. */
static double step_ms(const struct batch_knee *knee, size_t count)
{
    size_t i = 0;
    while (i + 1 < knee->n && knee_counts[i + 1] < count)
        i++;
    if (i + 1 >= knee->n || count <= knee_counts[0])
        return knee->step_ms[i];
    const double from = (double)knee_counts[i], to = (double)knee_counts[i + 1];
    return knee->step_ms[i] +
           ((double)count - from) / (to - from) * (knee->step_ms[i + 1] - knee->step_ms[i]);
}

size_t batch_knee_k(const struct batch_knee *knee, double acceptance, double *speedup)
{
    size_t best = 0;
    double tokens = 1, power = 1;
    *speedup = 1;
    if (knee->n == 0)
        return 0;
    for (size_t k = 1; k < knee_counts[knee->n - 1]; k++) {
        power *= acceptance;
        tokens += power; /* expected tokens per step: 1 + a + .. + a^k */
        const double gain = tokens * knee->step_ms[0] / step_ms(knee, k + 1);
        if (gain > *speedup * 1.000001) {
            best = k;
            *speedup = gain;
        }
    }
    return best;
}

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
    AUTO(free_auto) double *time = mem_alloc(KNEE_COUNTS * rounds, sizeof *time);
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
