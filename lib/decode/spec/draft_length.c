/* Chooses draft lengths to begin with, and adapts them by algorithm 1 of the BASS paper. */
#include "decode/spec/draft_length.h"

size_t draft_length_limit(size_t free_rows, size_t batch) { return size_max(free_rows / batch, 2) - 1; }

size_t draft_default_knee(const struct kernels *kernels, enum precision precision)
{
    enum { KNEE = 16, KNEE_BF16 = 24, KNEE_AMX = 32 };
    const bool bf16_products = precision == PRECISION_BF16;
    if (strcmp(kernels->isa, "amx") == 0 && (bf16_products || precision == PRECISION_BF16X2))
        return KNEE_AMX;
    return bf16_products ? KNEE_BF16 : KNEE;
}

struct draft_length draft_length_choose(const struct draft_length_params *p)
{
    struct draft_length length = {.increment = p->increment ? p->increment : 2,
                                  .modulus = p->modulus ? p->modulus : 10,
                                  .limit = p->k,
                                  .now = p->k,
                                  .fixed = p->fixed,
                                  .measured = !p->fixed && !p->bass && !p->tree};
    length.planned = length.measured && p->planned;
    if (p->fixed)
        return length;
    /* Lengths by measured gain stop where they cost too much. Those of algorithm 1 follow from
     * acceptance alone. */
    const size_t rows = length.measured && !p->knee_fixed ? DRAFT_KNEE_FACTOR * p->knee : p->knee;
    length.limit = size_min(p->limit, p->context - size_min(p->context, DRAFT_WINDOW_REST));
    length.now = p->start;
    if (length.planned)
        return length;
    if (p->batch > 1 || p->knee_measured || p->knee_fixed)
        length.limit = size_min(length.limit, draft_length_limit(rows, p->batch));
    if (p->batch > 1) /* batches begin at the knee */
        length.now = size_min(length.now, draft_length_limit(p->knee, p->batch));
    length.now = size_min(length.now, length.limit);
    return length;
}

void draft_length_update(struct draft_length *length, size_t offered, size_t accepted)
{
    const size_t l = length->now;
    if (length->fixed || offered == 0)
        return;
    if (accepted >= l) {
        length->now = size_min(l + length->increment, length->limit);
        length->shrank = false;
        return;
    }
    /* all of a draft shorter than `now` was accepted: says nothing about longer drafts */
    if (accepted >= offered)
        return;
    const size_t less = div_up(l, length->modulus) + length->shrank;
    length->now = size_max(size_max(1, accepted), l > less ? l - less : 0);
    length->shrank = true;
}

/* ---- pauses drafting while it is slower than plain decoding ---- */

static void begin_window(struct throttle *throttle)
{
    throttle->steps = 0;
    throttle->tokens = throttle->ms = 0;
}

static void begin_trial(struct throttle *throttle, size_t first)
{
    throttle->allowed = first;
    throttle->cold = true;
    throttle->windows = 0;
    begin_window(throttle);
}

void throttle_begin(struct throttle *throttle, bool always, size_t first)
{
    *throttle = (struct throttle){.always = always, .next_pause = THROTTLE_PAUSE};
    begin_trial(throttle, first);
}

size_t throttle_draft_limit(struct throttle *throttle, size_t busy)
{
    if (throttle->always)
        return SIZE_MAX;
    if (busy != throttle->busy) {
        throttle->plain = size_max(throttle->plain, THROTTLE_PLAIN_AGAIN);
        throttle->busy = busy;
        throttle->n_recent = 0;
        throttle->doubted = false;
        begin_window(throttle);
    }
    if (throttle->plain > 0)
        return 0;
    return throttle_is_ramping(throttle) ? throttle->allowed : SIZE_MAX;
}

bool throttle_is_ramping(const struct throttle *throttle)
{
    return !throttle->always && throttle->allowed <= THROTTLE_RAMP;
}

static void take_plain(struct throttle *throttle, double ms)
{
    throttle->plain -= throttle->plain > 0;
    const double faster = throttle->doubted ? THROTTLE_FASTER : THROTTLE_COLD;
    if (throttle->n_recent > 0 && ms < faster * throttle->plain_ms)
        throttle->plain = size_max(throttle->plain, THROTTLE_PLAIN_AGAIN);
    throttle->recent[throttle->n_recent++ % THROTTLE_PLAIN] = ms;
    throttle->plain_ms = throttle->recent[0];
    for (size_t i = 1; i < size_min(throttle->n_recent, THROTTLE_PLAIN); i++)
        throttle->plain_ms =
            throttle->recent[i] < throttle->plain_ms ? throttle->recent[i] : throttle->plain_ms;
}

static void pause_drafting(struct throttle *throttle)
{
    throttle->plain = throttle->next_pause;
    throttle->next_pause = size_min(2 * throttle->next_pause, THROTTLE_PAUSE_MAX);
    throttle->pauses++;
    begin_trial(throttle, THROTTLE_FIRST);
}

/* Has more plain steps timed if drafting is not clearly faster than those so far. */
static void doubt(struct throttle *throttle, double lost)
{
    if (throttle->doubted ||
        (throttle->steps < THROTTLE_SURE && lost < THROTTLE_LOSS * throttle->plain_ms) ||
        throttle->tokens * throttle->plain_ms > THROTTLE_CLEAR * throttle->ms)
        return;
    throttle->doubted = true;
    throttle->plain =
        size_max(THROTTLE_PLAIN - size_min(throttle->n_recent, THROTTLE_PLAIN), THROTTLE_PLAIN_AGAIN);
}

void throttle_update(struct throttle *throttle, bool drafted, double tokens, double ms, double max)
{
    if (throttle->always)
        return;
    if (!drafted) {
        take_plain(throttle, ms);
        return;
    }
    if (!throttle->cold) { /* a trial's first step warms up the drafter's memory */
        throttle->steps++;
        throttle->tokens += tokens;
        throttle->ms += ms;
    }
    throttle->cold = false;
    const double lost = throttle->ms - throttle->tokens * throttle->plain_ms,
                 most_lost = isinf(max) ? THROTTLE_LOSS : THROTTLE_LUCK;
    const bool hopeless = throttle->steps > 0 && max * throttle->plain_ms < 1;
    doubt(throttle, lost);
    if (hopeless || lost > most_lost * throttle->plain_ms ||
        (throttle->steps >= THROTTLE_STEPS && lost > 0)) {
        pause_drafting(throttle);
        return;
    }
    if (throttle_is_ramping(throttle) && lost <= 0)
        throttle->allowed *= 2;
    if (throttle->steps >= THROTTLE_STEPS) {
        throttle->next_pause = THROTTLE_PAUSE;
        if (++throttle->windows % THROTTLE_RECHECK == 0)
            throttle->plain = THROTTLE_PLAIN_AGAIN;
        begin_window(throttle);
    }
}

/* ---- chooses draft lengths by measured acceptance rates and step times ---- */

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
                          bool optimistic, double *max)
{
    const double prior = optimistic ? FEW : PRIOR;
    double ms[TREE_NODES], rate = FIRST, likely = 1, path = 1, tokens = 1;
    size_t best = 1;
    *max = 0;
    expect_times(g, ms);
    for (size_t k = 1; k <= limit; k++) {
        const double n = g->reached[k] + prior;
        rate = (g->accepted[k] + prior * rate) / n;
        /* a depth that was reached seldom is not better than the one above it */
        likely = fmin(rate + LIKELY * sqrt(rate * (1 - rate) / n), fmax(likely, rate));
        path *= optimistic ? likely : rate;
        tokens += path;
        const double gain = tokens / expected_ms(ms, k, first, known);
        if (gain > *max) {
            *max = gain;
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
    const size_t max = size_min(limit, size_max(g->busy > 1 ? known + 1 : 2 * known + 1, now)),
                 best = best_length(g, first, known, max, false, &gain);
    if (g->steps % EXPLORE)
        return best;
    return g->steps / EXPLORE % 2 ? size_min(best + 1, max) : size_max(best, 2) - 1;
}

double draft_gain_most(const struct draft_gain *g, size_t limit)
{
    size_t first, known;
    double max = INFINITY;
    if (known_range(g, &first, &known))
        best_length(g, first, known, size_min(limit, TREE_NODES - 1), true, &max);
    return max;
}
