/* Chooses T and the shape of drafts by the expected time of a decode. */
#include "tune/spec_plan.h"

#include <math.h>

enum { LEVELS = 17 };

/* What a step gives and takes by the number of draft tokens that there is room for. */
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

/* Copying and allocation of one growth to `cap` entries (BMC paper, eq. 1 and 8). */
static double growth_s(const struct cost_config *c, double cap)
{
    const double sequences = (double)(c->layers * c->batch);
    return 4 * sequences * (double)c->width * cap /
               (rate_curve_at(c->copy, cap * c->row_bytes) * c->gq) +
           (c->alloc ? 2 * sequences * rate_curve_at(c->alloc, cap * c->row_bytes) : 0);
}

/* A decode with T allocations. Between two of them the expected number of free entries falls from r
 * to less than one. */
static double decode_s(const struct spec_costs *costs, const struct steps *steps, size_t T)
{
    const struct cost_config *c = &costs->cache;
    const size_t r = div_up(c->N, T);
    double sum = 0;
    for (size_t from = 0; from < c->N; from += r) {
        const double cap = (double)size_min(from + r, c->N);
        sum += growth_s(c, cap);
        for (double left = cap - (double)from; left > 1e-9;) {
            const size_t k = left < 2 ? 0 : size_min((size_t)left - 1, steps->most);
            sum += (steps->seconds[k] + cap * steps->entry_s[k]) * fmin(1, left / steps->tokens[k]);
            left -= steps->tokens[k];
        }
    }
    return sum;
}

/* The best power of two for T, and its time. */
static double best_T(const struct spec_costs *costs, const struct steps *steps, size_t *T)
{
    double least = INFINITY;
    for (size_t t = 1; t <= costs->cache.N; t *= 2) {
        const double seconds = decode_s(costs, steps, t);
        if (seconds < least) {
            least = seconds;
            *T = t;
        }
    }
    return least;
}

static void consider(struct spec_plan *plan, const struct spec_costs *costs, struct steps *steps,
                     bool tree, size_t levels)
{
    size_t T = 1;
    add_passes(steps, costs);
    const double seconds = best_T(costs, steps, &T);
    if (seconds >= plan->seconds)
        return;
    plan->seconds = seconds;
    plan->T = T;
    plan->shape = (struct spec_shape){steps->most, tree, tree ? levels : 0};
    plan->tokens = steps->tokens[steps->most];
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
    if (open_trees(&trees, costs, size_max(most, 1), err) < 0)
        return -1;
    *plan = (struct spec_plan){.seconds = INFINITY};
    fill_chain(&steps, costs, 0);
    consider(plan, costs, &steps, false, 0);
    plan->plain_T = plan->T;
    plan->plain_seconds = plan->seconds;
    for (size_t k = 1; k <= most; k++) {
        fill_chain(&steps, costs, k);
        consider(plan, costs, &steps, false, 0);
    }
    for (size_t k = 2; k <= most && costs->ranks > 1; k++)
        for (size_t levels = 2; levels <= size_min(trees.levels, k); levels++) {
            fill_tree(&steps, costs, &trees, k, levels);
            consider(plan, costs, &steps, true, levels);
        }
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
    *seconds = decode_s(costs, &steps, T);
    sequoia_close(&trees);
    return 0;
}
