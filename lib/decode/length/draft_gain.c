/* Chooses draft lengths by measured acceptance rates and step times. */
#include "decode/length/draft_gain.h"

#include <math.h>
#include <string.h>

enum {
    STALE = 256, /* steps after which a time is forgotten */
    EXPLORE = 32 /* every so often a neighbouring length is tried */
};

#define DECAY     0.99  /* of counts, per step of a sequence */
#define PRIOR     16.0  /* weight of the rate one level above, in draft tokens */
#define FEW       2.0   /* the same, where the highest rate is wanted that is likely */
#define LIKELY    1.6   /* standard deviations of such a rate above the mean */
#define FIRST     0.75  /* rate expected at depth 1 */
#define SMOOTHING 0.125 /* weight of a step's time in the mean of its length */
#define OUTLIER   1.2   /* a step counts as no slower than so many times the mean: it was interrupted */
#define OPTIMISM  0.7   /* of the mean time per draft token, expected of longer drafts */
#define TOKEN     0.1   /* of a plain step, expected of a draft token if only one length is known */
#define UNSURE    0.1   /* of a time measured once, which may be too long; less when measured again */

void draft_gain_accepted(struct draft_gain *g, size_t offered, size_t accepted)
{
    for (size_t d = 1; d <= offered; d++) {
        g->reached[d] *= DECAY;
        g->accepted[d] *= DECAY;
        g->reached[d] += d <= accepted + 1;
        g->accepted[d] += d <= accepted;
    }
}

static bool is_known(const struct draft_gain *g, size_t k)
{
    return g->time[k].ms > 0 && g->steps - g->time[k].at < STALE;
}

void draft_gain_timed(struct draft_gain *g, size_t busy, size_t drafted, double ms)
{
    if (busy != g->busy)
        memset(g->time, 0, sizeof g->time);
    g->busy = busy;
    g->steps++;
    struct draft_time *t = &g->time[drafted];
    if (!is_known(g, drafted))
        *t = (struct draft_time){.ms = ms};
    t->n++;
    t->ms += fmax(SMOOTHING, 1 / (double)t->n) * (fmin(ms, OUTLIER * t->ms) - t->ms);
    t->at = g->steps;
}

/* Expected times of all lengths measured of late; 0: not measured. Interruptions and cold memory only make
 * steps slower, so a time above that of a longer draft is replaced by it, and one measured few times
 * is expected to be shorter, so that it is measured again before it is given up. */
static void expect_times(const struct draft_gain *g, double *ms)
{
    double least = INFINITY;
    for (size_t k = TREE_NODES; k-- > 0;) {
        ms[k] = 0;
        if (!is_known(g, k))
            continue;
        least = fmin(least, g->time[k].ms * (1 - UNSURE / (double)g->time[k].n));
        ms[k] = least;
    }
}

/* Expected time of a step with k draft tokens, given those of some lengths, of which `known` is the
 * longest, and `first` the shortest. */
static double expected_ms(const double *ms, size_t k, size_t first, size_t known)
{
    size_t lo = k, hi = k;
    while (lo > first && ms[lo] == 0)
        lo--;
    while (hi < known && ms[hi] == 0)
        hi++;
    if (k <= first || first == known)
        return ms[first] * (1 + TOKEN * (double)k) / (1 + TOKEN * (double)first);
    if (k > known) {
        const double rise = (ms[known] - ms[first]) / (double)(known - first);
        return ms[known] + (double)(k - known) * fmax(OPTIMISM * rise, 0);
    }
    const double share = hi > lo ? (double)(k - lo) / (double)(hi - lo) : 0;
    return ms[lo] + share * (ms[hi] - ms[lo]);
}

/* The shortest and the longest length measured of late; false if there is none. */
static bool known_range(const struct draft_gain *g, size_t *first, size_t *known)
{
    *first = 0;
    *known = TREE_NODES - 1;
    while (*first < TREE_NODES && !is_known(g, *first))
        ++*first;
    while (*known > *first && !is_known(g, *known))
        --*known;
    return *first < TREE_NODES;
}

/* The length of most expected tokens per ms, of 1 to `limit`, and these. */
static size_t best_length(const struct draft_gain *g, size_t first, size_t known, size_t limit,
                          bool optimistic, double *most)
{
    const double prior = optimistic ? FEW : PRIOR;
    double ms[TREE_NODES], rate = FIRST, likely = 1, path = 1, tokens = 1;
    size_t best = 1;
    *most = 0;
    expect_times(g, ms);
    for (size_t k = 1; k <= limit; k++) {
        const double n = g->reached[k] + prior;
        rate = (g->accepted[k] + prior * rate) / n;
        /* a depth that was reached seldom is not better than the one above it */
        likely = fmin(rate + LIKELY * sqrt(rate * (1 - rate) / n), fmax(likely, rate));
        path *= optimistic ? likely : rate;
        tokens += path;
        const double gain = tokens / expected_ms(ms, k, first, known);
        if (gain > *most) {
            *most = gain;
            best = k;
        }
    }
    return best;
}

size_t draft_gain_length(const struct draft_gain *g, size_t now, size_t limit)
{
    size_t first, known;
    double gain;
    limit = size_min(limit, TREE_NODES - 1);
    if (!known_range(g, &first, &known))
        return size_max(1, size_min(now, limit));
    const size_t most = size_min(limit, size_max(g->busy > 1 ? known + 1 : 2 * known + 1, now)),
                 best = best_length(g, first, known, most, false, &gain);
    if (g->steps % EXPLORE)
        return best;
    return g->steps / EXPLORE % 2 ? size_min(best + 1, most) : size_max(best, 2) - 1;
}

double draft_gain_most(const struct draft_gain *g, size_t limit)
{
    size_t first, known;
    double most = INFINITY;
    if (known_range(g, &first, &known))
        best_length(g, first, known, size_min(limit, TREE_NODES - 1), true, &most);
    return most;
}
