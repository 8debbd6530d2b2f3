/* Measures forward passes and chooses the fastest of plain decoding, chains and trees. */
#include "decode/spec/draft_autotune.h"

#include "base/clock.h"
#include "base/mem.h"
#include "report/stat.h"

enum { MOST_RUNS = 5, LEAST_RUNS = 2 };
#define ENOUGH_MS 1000.0 /* then no more runs than the least */

/* Times a forward pass of `rows` tokens per sequence, all with id 0, and drops their KV entries. */
static int run_once(struct session *s, size_t rows, size_t *row, float *logits, bool with_logits,
                    double *ms, struct err *err)
{
    const size_t batch = session_options(s)->batch;
    uint32_t token[TREE_NODES] = {0};
    const double start = clock_ms();
    for (size_t b = 0; b < batch; b++)
        batch_add(s, b, token, rows);
    if (session_forward(s, session_options(s)->threads, err) < 0 ||
        session_logits(s, row, with_logits ? batch * rows : batch, logits, err) < 0)
        return -1;
    *ms = clock_ms() - start;
    for (size_t b = 0; b < batch; b++)
        session_commit(s, b, 0);
    return 0;
}

/* The least time of a few passes of one size in a row: the pass before had another size, and left
 * other weights in the processor's caches, which matters to small models. */
static int time_size(struct session *s, size_t rows, size_t *row, float *logits, bool with_logits,
                     double *ms, struct err *err)
{
    enum { LONG_MS = 5, LONG = 2, SHORT = 6 };
    double least = INFINITY, sum = 0;
    for (size_t i = 0; i < (sum > LONG_MS ? LONG : SHORT); i++) {
        if (run_once(s, rows, row, logits, with_logits, ms, err) < 0)
            return -1;
        sum += *ms;
        least = fmin(least, *ms);
    }
    *ms = least;
    return 0;
}

static const size_t points[] = {1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48, 64};
_Static_assert(ARRAY_LEN(points) < AUTOTUNE_POINTS, "one more for the largest pass");

int row_times_measure(struct row_times *times, struct session *s, size_t max, bool with_logits,
                      struct err *err)
{
    const size_t total = session_options(s)->batch * max, vocab = session_vocab(s);
    const struct kv_stats before = kv_stats(session_kv(s));
    size_t *row = mem_alloc(total, sizeof *row), logits_size;
    AUTO(free_auto)
    float *logits =
        size_mul(total, vocab, &logits_size) ? mem_alloc(logits_size, sizeof *logits) : NULL;
    int rc = row && logits ? 0 : err_no_memory(err, "passes of %zu tokens", total);
    double ms;
    for (size_t i = 0; rc == 0 && i < total; i++)
        row[i] = i;
    times->n = 0;
    for (size_t i = 0; i < ARRAY_LEN(points) && points[i] < max; i++)
        times->rows[times->n++] = points[i];
    times->rows[times->n++] = max;
    for (size_t i = 0; i < times->n; i++)
        times->ms[i] = INFINITY;
    if (rc == 0)
        rc = run_once(s, max, row, logits, with_logits, &ms, err); /* warm-up */
    const double start = clock_ms();
    for (size_t run = 0; run < LEAST_RUNS || (run < MOST_RUNS && clock_ms() - start < ENOUGH_MS); run++)
        for (size_t i = 0; i < times->n && rc == 0; i++) {
            rc = time_size(s, times->rows[i], row, logits, with_logits, &ms, err);
            times->ms[i] = fmin(times->ms[i], ms);
        }
    /* noise only makes passes slower: a time above that of a larger pass is replaced by it */
    for (size_t i = times->n; i-- > 1;)
        times->ms[i - 1] = fmin(times->ms[i - 1], times->ms[i]);
    for (size_t b = 0; b < session_options(s)->batch; b++)
        session_clear(s, b);
    kv_stats_restore(session_kv(s), &before);
    free(row);
    return rc;
}

double row_times_at(const struct row_times *t, size_t rows)
{
    size_t i = 0;
    while (i + 1 < t->n && t->rows[i + 1] < rows)
        i++;
    if (i + 1 >= t->n || rows <= t->rows[0])
        return t->ms[i] * (rows > t->rows[i] ? (double)rows / (double)t->rows[i] : 1);
    const double at = (double)(rows - t->rows[i]) / (double)(t->rows[i + 1] - t->rows[i]);
    return t->ms[i] + at * (t->ms[i + 1] - t->ms[i]);
}

double row_times_drafting(const struct row_times *draft, size_t levels, size_t width)
{
    if (!draft)
        return 0;
    return draft->parallel ? row_times_at(draft, levels) : (double)levels * row_times_at(draft, width);
}

static void try_chains(struct draft_choice *best, const struct row_times *target,
                       const struct row_times *draft, double accept, size_t max)
{
    double tokens = 1, power = 1;
    for (size_t k = 1; k <= max; k++) {
        tokens += power *= accept;
        const double ms = row_times_at(target, k + 1) + row_times_drafting(draft, k, 1);
        const double gain = tokens * best->plain_ms / ms;
        if (gain <= best->chain_gain)
            continue;
        best->chain_gain = gain;
        best->chain = k;
        if (gain > 1) {
            best->draft_tokens = k;
            best->tokens = tokens;
            best->ms = ms;
        }
    }
}

static void try_trees(struct draft_choice *best, const struct sequoia *plan,
                      const struct row_times *target, const struct row_times *draft)
{
    for (size_t nodes = 2; nodes < plan->nodes; nodes++)
        for (size_t l = 2; l <= plan->levels; l++) {
            const double tokens = sequoia_tokens(plan, nodes + 1, l);
            const double ms = row_times_at(target, nodes + 1) + row_times_drafting(draft, l - 1, nodes);
            const double gain = tokens * best->plain_ms / ms;
            if (gain <= best->tree_gain)
                continue;
            best->tree_gain = gain;
            best->nodes = nodes;
            if (gain > 1 && gain > best->chain_gain) {
                best->tree = true;
                best->levels = l;
                best->draft_tokens = nodes;
                best->tokens = tokens;
                best->ms = ms;
            }
        }
}

int draft_autotune(struct draft_choice *best, const struct row_times *target,
                   const struct row_times *draft, const double *accept, size_t ranks, size_t chain,
                   size_t nodes, struct err *err)
{
    enum { LEVELS = 17 };
    struct sequoia plan;
    if (sequoia_open(&plan, accept, ranks, nodes + 1, size_min(nodes + 1, LEVELS), err) < 0)
        return -1;
    *best = (struct draft_choice){.plain_ms = row_times_at(target, 1), .tokens = 1};
    best->ms = best->plain_ms;
    try_chains(best, target, draft, accept[0], chain);
    try_trees(best, &plan, target, draft);
    sequoia_close(&plan);
    return 0;
}
