/* Chooses draft lengths by measured acceptance rates and step times. */
#include "decode/spec/draft_gain.h"

#include <math.h>
#include <string.h>

enum {
    STALE = 256, /* steps after which a time is forgotten */
    EXPLORE = 32 /* every so often a neighbouring length is tried */
};

#define DECAY     0.99  /* of counts, per step of a sequence */
#define PRIOR     16.0  /* weight of the rate one level above, in draft tokens */
#define FIRST     0.7   /* rate expected at depth 1 */
#define SMOOTHING 0.125 /* weight of a step's time in the mean of its length */
#define OUTLIER   1.2   /* a step counts as no slower than so many times the mean: it was interrupted */
#define OPTIMISM  0.5   /* of the mean time per draft token, expected of longer drafts */
#define TOKEN     0.1   /* of a plain step, expected of a draft token if only one length is known */

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
    double *mean = &g->time[drafted].ms;
    *mean = is_known(g, drafted) ? *mean + SMOOTHING * (fmin(ms, OUTLIER * *mean) - *mean) : ms;
    g->time[drafted].at = g->steps;
}

/* Expected time of a step with k draft tokens, of which `known` is the longest known length, and
 * `first` the shortest. */
static double expected_ms(const struct draft_gain *g, size_t k, size_t first, size_t known)
{
    size_t lo = k, hi = k;
    while (lo > first && !is_known(g, lo))
        lo--;
    while (hi < known && !is_known(g, hi))
        hi++;
    if (k <= first || first == known)
        return g->time[first].ms * (1 + TOKEN * (double)k) / (1 + TOKEN * (double)first);
    if (k > known) {
        const double rise = (g->time[known].ms - g->time[first].ms) / (double)(known - first);
        return g->time[known].ms + (double)(k - known) * fmax(OPTIMISM * rise, 0);
    }
    const double share = hi > lo ? (double)(k - lo) / (double)(hi - lo) : 0;
    return g->time[lo].ms + share * (g->time[hi].ms - g->time[lo].ms);
}

/* The length of most expected tokens per time, of 1 to `limit`. */
static size_t best_length(const struct draft_gain *g, size_t first, size_t known, size_t limit)
{
    double rate = FIRST, path = 1, tokens = 1, most = 0;
    size_t best = 1;
    for (size_t k = 1; k <= limit; k++) {
        rate = (g->accepted[k] + PRIOR * rate) / (g->reached[k] + PRIOR);
        path *= rate;
        tokens += path;
        const double gain = tokens / expected_ms(g, k, first, known);
        if (gain > most) {
            most = gain;
            best = k;
        }
    }
    return best;
}

size_t draft_gain_length(const struct draft_gain *g, size_t now, size_t limit)
{
    size_t first = 0, known = TREE_NODES - 1;
    limit = size_min(limit, TREE_NODES - 1);
    while (first < TREE_NODES && !is_known(g, first))
        first++;
    if (first == TREE_NODES)
        return size_max(1, size_min(now, limit));
    while (!is_known(g, known))
        known--;
    const size_t most = size_min(limit, size_max(2 * known + 1, now)),
                 best = best_length(g, first, known, most);
    if (g->steps % EXPLORE)
        return best;
    return g->steps / EXPLORE % 2 ? size_min(best + 1, most) : size_max(best, 2) - 1;
}
