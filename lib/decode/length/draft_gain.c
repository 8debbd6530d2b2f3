/* The speedup that draft lengths promise, by measured acceptance rates and times. */
#include "decode/length/draft_gain.h"

#include <math.h>

enum { EXPLORE = 32 }; /* every so often a neighbouring length is tried */

#define DECAY  0.99 /* of counts, per step of a sequence */
#define PRIOR  16.0 /* weight of the rate one level above, in draft tokens */
#define FEW    2.0  /* the same at depth 1, and where the highest rate is wanted that is likely */
#define LIKELY 1.6  /* standard deviations of such a rate above the mean */
#define FIRST  0.75 /* rate expected at depth 1 */
#define KEPT   1.0  /* drafts that count for those forgotten */

void draft_gain_accepted(struct draft_gain *g, size_t offered, size_t accepted)
{
    for (size_t d = 1; d <= offered; d++) {
        g->reached[d] *= DECAY;
        g->accepted[d] *= DECAY;
        g->reached[d] += d <= accepted + 1;
        g->accepted[d] += d <= accepted;
    }
}

void draft_gain_forget(struct draft_gain *g)
{
    const double share = fmin(1, KEPT / fmax(g->reached[1], KEPT));
    for (size_t d = 1; d < TREE_NODES; d++) {
        g->reached[d] *= share;
        g->accepted[d] *= share;
    }
}

void draft_gain_timed(struct draft_gain *g, const struct draft_step *step)
{
    g->steps++;
    time_curve_add(&g->pass, step->rows, step->pass_ms);
    if (!step->drafted || step->draft_ms < 0)
        return;
    if (step->busy != g->busy)
        g->draft.n = 0;
    g->busy = step->busy;
    const size_t k = step->drafted;
    double ms = step->draft_ms;
    if (step->drafting == step->busy) {
        time_curve_add(&g->draft, k, ms);
        ms = time_curve_at(&g->draft, k);
    } else { /* drafting for the others would take far less than as long for each */
        ms *= 1 + (double)(step->busy - step->drafting) / (double)step->drafting / 4;
    }
    g->cost = ms / (double)k / time_curve_at(&g->pass, step->busy);
}

void draft_gain_prefill(struct draft_gain *g, size_t rows, double ms)
{
    const double slope = ms / (double)rows;
    g->pass.slope = g->pass.slope > 0 ? fmin(g->pass.slope, slope) : slope;
}

/* Expected time of a step with k draft tokens per sequence. */
static double step_ms(const struct draft_gain *g, size_t busy, size_t k)
{
    const double pass = time_curve_at(&g->pass, busy * (k + 1));
    if (g->draft.n && g->busy == busy)
        return pass + time_curve_at(&g->draft, k);
    return pass + g->cost * (double)k * time_curve_at(&g->pass, busy);
}

/* The length of most expected tokens per ms, of 1 to `limit`, and these. */
static size_t best_length(const struct draft_gain *g, size_t busy, size_t limit, bool optimistic,
                          double *most)
{
    double rate = FIRST, likely = 1, path = 1, tokens = 1;
    size_t best = 1;
    *most = 0;
    for (size_t k = 1; k <= limit; k++) {
        const double prior = optimistic || k == 1 ? FEW : PRIOR, n = g->reached[k] + prior;
        rate = (g->accepted[k] + prior * rate) / n;
        /* a depth that was reached seldom is not better than the one above it */
        likely = fmin(rate + LIKELY * sqrt(rate * (1 - rate) / n), fmax(likely, rate));
        path *= optimistic ? likely : rate;
        tokens += path;
        const double gain = tokens / step_ms(g, busy, k);
        if (gain > *most) {
            *most = gain;
            best = k;
        }
    }
    return best;
}

/* Tokens per sequence of the longest pass that was measured; 1: none had drafts. */
static size_t known_tokens(const struct draft_gain *g, size_t busy)
{
    return time_curve_last(&g->pass) / busy;
}

/* The longest draft to try. */
static size_t longest(const struct draft_gain *g, size_t busy)
{
    const size_t known = known_tokens(g, busy), most = known < 2  ? g->start
                                                       : busy > 1 ? known
                                                                  : 2 * known - 1;
    return size_max(1, size_min(most, size_min(g->limit, TREE_NODES - 1)));
}

size_t draft_gain_length(const struct draft_gain *g, size_t busy)
{
    const size_t most = longest(g, busy);
    double gain;
    if (g->pass.n == 0)
        return most;
    const size_t best = best_length(g, busy, most, false, &gain);
    if (known_tokens(g, busy) < 2 || g->steps % EXPLORE)
        return best;
    return g->steps / EXPLORE % 2 ? size_min(best + 1, most) : size_max(best, 2) - 1;
}

double draft_gain_speedup(const struct draft_gain *g, size_t busy, bool most)
{
    double gain;
    if (g->pass.n == 0)
        return 0;
    best_length(g, busy, longest(g, busy), most, &gain);
    return gain * time_curve_at(&g->pass, busy);
}
