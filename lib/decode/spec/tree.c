/* Shapes of token trees: chains, stars, and optimal trees by dynamic programming. */
#include "decode/spec/tree.h"

#include "base/mem.h"

/* Appends a child of an existing node. */
static void add_node(struct tree_shape *shape, size_t parent)
{
    const size_t i = shape->n++;
    shape->parent[i] = (uint16_t)parent;
    if (shape->children[parent] == 0)
        shape->first[parent] = (uint16_t)i;
    shape->rank[i] = shape->children[parent]++;
    shape->depth[i] = (uint16_t)(shape->depth[parent] + 1);
    shape->children[i] = 0;
    shape->levels = size_max(shape->levels, shape->depth[i] + 1u);
}

static void only_root(struct tree_shape *shape)
{
    shape->n = shape->levels = 1;
    shape->parent[0] = shape->rank[0] = shape->depth[0] = shape->children[0] = 0;
}

void tree_chain(struct tree_shape *shape, size_t k)
{
    only_root(shape);
    for (size_t i = 0; i < k; i++)
        add_node(shape, i);
}

void tree_star(struct tree_shape *shape, size_t k)
{
    only_root(shape);
    for (size_t i = 0; i < k; i++)
        add_node(shape, 0);
}

void tree_ancestors(const uint16_t *parent, const uint16_t *depth, size_t n, uint32_t *ancestors,
                    size_t *ancestors_at)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        ancestors_at[i] = at;
        at += depth[i] + 1u;
        size_t node = i;
        for (size_t t = at; t-- > ancestors_at[i]; node = parent[node])
            ancestors[t] = (uint32_t)node;
    }
    ancestors_at[n] = at;
}

static size_t plan_cell(const struct sequoia *plan, size_t nodes, size_t levels, size_t children)
{
    return (nodes * (plan->levels + 1) + levels) * (plan->ranks + 1) + children;
}

/* Expected tokens that differ by less are equal but for rounding. */
#define TIE 1e-12

/* Number of children of the root in the optimal tree of exactly `nodes` nodes in at most `levels`
 * levels; SIZE_MAX: there is no such tree. */
static size_t best_children(const struct sequoia *plan, size_t nodes, size_t levels)
{
    size_t best = SIZE_MAX;
    for (size_t b = 0; levels > 0 && b <= plan->ranks; b++) {
        const double tokens = plan->best[plan_cell(plan, nodes, levels, b)];
        if (tokens > 0 &&
            (best == SIZE_MAX || tokens > plan->best[plan_cell(plan, nodes, levels, best)] + TIE))
            best = b;
    }
    return best;
}

static double best_of(const struct sequoia *plan, size_t nodes, size_t levels)
{
    const size_t b = best_children(plan, nodes, levels);
    return b == SIZE_MAX ? 0 : plan->best[plan_cell(plan, nodes, levels, b)];
}

/* Fills the cell of m nodes, l levels and b children of the root by Sequoia's recurrence:
 * best[m][l][b] = max over y of best[y][l][b - 1] + accept[b - 1] * below[m - y], where below[] has
 * the optima of l - 1 levels. */
static void fill_cell(struct sequoia *plan, const double *below, size_t m, size_t l, size_t b)
{
    const size_t at = plan_cell(plan, m, l, b);
    for (size_t y = 1; y < m; y++) {
        const double rest = plan->best[plan_cell(plan, y, l, b - 1)];
        if (rest <= 0 || below[m - y] <= 0)
            continue;
        const double tokens = rest + plan->accept[b - 1] * below[m - y];
        if (tokens > plan->best[at] + TIE) { /* ties: prefer the largest last subtree */
            plan->best[at] = tokens;
            plan->split[at] = (uint16_t)y;
        }
    }
}

int sequoia_open(struct sequoia *plan, const double *accept, size_t ranks, size_t nodes, size_t levels,
                 struct err *err)
{
    *plan = (struct sequoia){.nodes = nodes, .levels = levels, .ranks = ranks};
    for (size_t i = 0; i < ranks; i++)
        plan->accept[i] = accept[i];
    const size_t cells = plan_cell(plan, nodes, levels, ranks) + 1;
    double *below = mem_zalloc(nodes + 1, sizeof *below);
    plan->best = mem_zalloc(cells, sizeof *plan->best);
    plan->split = mem_zalloc(cells, sizeof *plan->split);
    if (!plan->best || !plan->split || !below) {
        free(below);
        sequoia_close(plan);
        return err_no_memory(err, "trees of %zu nodes", nodes);
    }
    for (size_t l = 1; l <= levels; l++) {
        plan->best[plan_cell(plan, 1, l, 0)] = 1;
        for (size_t m = 1; m <= nodes; m++)
            below[m] = best_of(plan, m, l - 1);
        for (size_t b = 1; b <= ranks && l > 1; b++)
            for (size_t m = 2; m <= nodes; m++)
                fill_cell(plan, below, m, l, b);
    }
    free(below);
    return 0;
}

void sequoia_close(struct sequoia *plan)
{
    free(plan->best);
    free(plan->split);
    *plan = (struct sequoia){0};
}

/* The largest number of nodes, up to `nodes`, that a tree of `levels` levels can have. */
static size_t usable_nodes(const struct sequoia *plan, size_t nodes, size_t levels)
{
    while (nodes > 1 && best_of(plan, nodes, levels) <= 0)
        nodes--;
    return nodes;
}

double sequoia_tokens(const struct sequoia *plan, size_t nodes, size_t levels)
{
    return best_of(plan, usable_nodes(plan, nodes, levels), levels);
}

/* Size of the optimal subtree at a node, including that node, which is still to be built. */
struct subtree {
    size_t nodes, levels;
};

void sequoia_shape(const struct sequoia *plan, size_t nodes, size_t levels, struct tree_shape *shape)
{
    struct subtree todo[TREE_NODES];
    only_root(shape);
    todo[0] = (struct subtree){usable_nodes(plan, nodes, levels), levels};
    for (size_t i = 0; i < shape->n; i++) {
        size_t m = todo[i].nodes;
        const size_t l = todo[i].levels, first = shape->n, b = best_children(plan, m, l);
        /* plan->split gives the subtree of the last child first. */
        for (size_t c = b; c > 0; c--)
            add_node(shape, i);
        for (size_t c = b; c > 0; c--) {
            const size_t rest = plan->split[plan_cell(plan, m, l, c)];
            todo[first + c - 1] = (struct subtree){m - rest, l - 1};
            m = rest;
        }
    }
}

size_t sequoia_levels(const struct sequoia *plan, size_t nodes, double draft, size_t least)
{
    const size_t first = size_min(least, plan->levels);
    size_t best = first;
    double best_rate = 0;
    for (size_t l = first; l <= plan->levels; l++) {
        const double rate = sequoia_tokens(plan, nodes, l) / (1 + draft * (double)(l - 1));
        if (rate > best_rate * (1 + 1e-12)) {
            best_rate = rate;
            best = l;
        }
    }
    return best;
}

/* ---- learns acceptance rates by rank ---- */

enum { FIRST_DUE = 32, TYPICAL_WEIGHT = 8, RECORDED_WEIGHT = 256 };

void tree_rates_begin(struct tree_rates *r, const double *rates, size_t ranks, bool recorded)
{
    *r = (struct tree_rates){
        .ranks = ranks, .weight = recorded ? RECORDED_WEIGHT : TYPICAL_WEIGHT, .due = FIRST_DUE};
    memcpy(r->prior, rates, ranks * sizeof *rates);
}

void tree_rates_add(struct tree_rates *r, size_t children, size_t accepted)
{
    children = size_min(children, r->ranks);
    r->nodes += children > 0;
    for (size_t i = 0; i < children; i++)
        r->visited[i]++;
    if (accepted < children)
        r->accepted[accepted]++;
}

bool tree_rates_due(struct tree_rates *r)
{
    if (r->nodes < r->due)
        return false;
    r->due *= 2;
    return true;
}

void tree_rates_get(const struct tree_rates *r, double *rates)
{
    double sum = 0;
    for (size_t i = 0; i < r->ranks; i++) {
        rates[i] = (r->accepted[i] + r->weight * r->prior[i]) / (r->visited[i] + r->weight);
        sum += rates[i];
    }
    for (size_t i = 0; i < r->ranks && sum > 1; i++)
        rates[i] /= sum;
}
