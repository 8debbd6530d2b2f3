/* Chooses T and the shape of drafts by the expected time of a decode. */
#include "tune/spec_plan.h"

enum { LEVELS = 17 };

/* A plan with drafts must be faster by this factor: sampling and the drafter's own work are not in the
 * times of passes. */
#define LEAST_GAIN 1.1

/* Expected tokens and time of a step, by the number of draft tokens that fit. */
struct steps {
    size_t most;
    double tokens[TREE_NODES];
    double seconds[TREE_NODES], entry_s[TREE_NODES]; /* without attention, and per entry attended to */
};

static void fill_chain(struct steps *steps, const struct spec_costs *costs, size_t most)
{
    double path = 1;
    *steps = (struct steps){.most = most, .tokens = {1}};
    for (size_t k = 1; k <= most; k++) {
        steps->tokens[k] = steps->tokens[k - 1] + (path *= costs->accept[0]);
        steps->seconds[k] = row_times_drafting(costs->draft, k, 1) / 1e3;
    }
}

static void fill_tree(struct steps *steps, const struct spec_costs *costs, const struct sequoia *trees,
                      size_t most, size_t levels)
{
    *steps = (struct steps){.most = most, .tokens = {1}};
    for (size_t k = 1; k <= most; k++) {
        const size_t deep = size_min(levels, k + 1);
        steps->tokens[k] = sequoia_tokens(trees, k + 1, deep);
        steps->seconds[k] = row_times_drafting(costs->draft, deep - 1, k) / 1e3;
    }
}

/* Adds the target's passes to the times of drafting. */
static void add_passes(struct steps *steps, const struct spec_costs *costs)
{
    const double few = (double)costs->attended[0], many = (double)costs->attended[1];
    for (size_t k = 0; k <= steps->most; k++) {
        const double first = row_times_at(&costs->target[0], k + 1) / 1e3;
        const double second = row_times_at(&costs->target[1], k + 1) / 1e3;
        steps->entry_s[k] = many > few ? fmax(0, (second - first) / (many - few)) : 0;
        steps->seconds[k] += fmax(0, first - few * steps->entry_s[k]);
    }
}

/* All growths of a decode with T allocations. */
static double growths_s(const struct spec_costs *costs, size_t T)
{
    const size_t N = costs->cache.N, r = div_up(N, T);
    double sum = 0;
    for (size_t from = 0; from < N; from += r)
        sum += cost_growth_seconds(&costs->cache, (double)size_min(from + r, N));
    return sum;
}

static double step_s(const struct steps *steps, size_t k, double cap)
{
    return steps->seconds[k] + cap * steps->entry_s[k];
}

/* The steps at the end of a context of `cap` entries, of which `left` are free: drafts are cut short. */
static double last_steps_s(const struct steps *steps, double cap, double left)
{
    double sum = 0;
    while (left > 1e-9) {
        const size_t k = left < 2 ? 0 : size_min((size_t)left - 1, steps->most);
        sum += step_s(steps, k, cap) * fmin(1, left / steps->tokens[k]);
        left -= steps->tokens[k];
    }
    return sum;
}

/* The steps of a decode with T allocations. Between two of them the expected number of free entries
 * falls from r to less than one; a draft for which they are too few makes the cache grow. */
static double steps_s(const struct steps *steps, size_t N, size_t T)
{
    const size_t r = div_up(N, T), most = steps->most;
    const double whole = (double)most + 1, tokens = steps->tokens[most]; /* of a draft as a whole */
    double sum = 0;
    for (size_t from = 0; from < N; from += r) {
        const double cap = (double)size_min(from + r, N);
        double left = cap - (double)from;
        if (left >= whole) {
            const double n = floor((left - whole) / tokens) + 1;
            sum += n * step_s(steps, most, cap);
            left -= n * tokens;
        }
        const size_t needed = round_up((size_t)(cap - left + whole), r);
        sum += from + r >= N ? last_steps_s(steps, cap, left)
                             : left / tokens * step_s(steps, most, (double)size_min(needed, N));
    }
    return sum;
}

enum { POWERS = 64 };

/* The time of all growths for T = 1, 2, 4 .. N: the same for every shape. */
static void fill_growths(double growths[POWERS], const struct spec_costs *costs)
{
    size_t i = 0;
    for (size_t T = 1; T <= costs->cache.N; T *= 2)
        growths[i++] = growths_s(costs, T);
}

/* Tries a shape with all T that are powers of two. */
static void consider(struct spec_plan *plan, const struct spec_costs *costs, const double *growths,
                     struct steps *steps, size_t levels)
{
    size_t i = 0;
    add_passes(steps, costs);
    for (size_t T = 1; T <= costs->cache.N; T *= 2) {
        const double seconds = growths[i++] + steps_s(steps, costs->cache.N, T);
        if (seconds >= plan->seconds)
            continue;
        plan->seconds = seconds;
        plan->T = T;
        plan->shape = (struct spec_shape){steps->most, levels > 0, levels};
        plan->tokens = steps->tokens[steps->most];
    }
}

static int open_trees(struct sequoia *trees, const struct spec_costs *costs, size_t most,
                      struct err *err)
{
    return cost_config_check(&costs->cache, err) < 0
               ? -1
               : sequoia_open(trees, costs->accept, costs->ranks, most + 1, size_min(most + 1, LEVELS),
                              err);
}

int spec_plan(struct spec_plan *plan, const struct spec_costs *costs, size_t most, struct err *err)
{
    struct steps steps;
    struct sequoia trees;
    double growths[POWERS];
    if (open_trees(&trees, costs, size_max(most, 1), err) < 0)
        return -1;
    fill_growths(growths, costs);
    *plan = (struct spec_plan){.seconds = INFINITY};
    fill_chain(&steps, costs, 0);
    consider(plan, costs, growths, &steps, 0);
    const struct spec_plan plain = *plan;
    for (size_t k = 1; k <= most; k++) {
        fill_chain(&steps, costs, k);
        consider(plan, costs, growths, &steps, 0);
    }
    for (size_t k = 2; k <= most && costs->ranks > 1; k++)
        for (size_t levels = 2; levels <= size_min(trees.levels, k); levels++) {
            fill_tree(&steps, costs, &trees, k, levels);
            consider(plan, costs, growths, &steps, levels);
        }
    if (plain.seconds < LEAST_GAIN * plan->seconds)
        *plan = plain;
    plan->plain_T = plain.T;
    plan->plain_seconds = plain.seconds;
    sequoia_close(&trees);
    return 0;
}

int spec_plan_seconds(double *seconds, const struct spec_costs *costs, size_t T,
                      const struct spec_shape *shape, struct err *err)
{
    struct steps steps;
    struct sequoia trees;
    if (open_trees(&trees, costs, size_max(shape->draft_tokens, 1), err) < 0)
        return -1;
    if (shape->tree)
        fill_tree(&steps, costs, &trees, shape->draft_tokens, shape->levels);
    else
        fill_chain(&steps, costs, shape->draft_tokens);
    add_passes(&steps, costs);
    *seconds = growths_s(costs, T) + steps_s(&steps, costs->cache.N, T);
    sequoia_close(&trees);
    return 0;
}
