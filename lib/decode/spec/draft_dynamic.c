/* Dynamic draft trees. */
#include "decode/spec/draft_dynamic.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

int dynamic_tree_alloc(struct dynamic_tree *tree, struct err *err)
{
    tree->candidate = mem_alloc(DYNAMIC_CANDIDATES, sizeof *tree->candidate);
    return tree->candidate ? 0 : err_no_memory(err, "a dynamic draft tree");
}

void dynamic_tree_release(struct dynamic_tree *tree) { free(tree->candidate); }

void dynamic_tree_begin(struct dynamic_tree *tree, const struct tree_shape *shape, uint32_t root)
{
    const size_t expanded_levels = shape->levels > 2 ? shape->levels - 2 : 1;
    tree->n = 0;
    tree->top = size_max(1, size_min(DYNAMIC_TOP, (shape->n - 1) / expanded_levels));
    tree->candidate_of[0] = DYNAMIC_ROOT;
    draft_begin(&tree->expanded, root);
}

void dynamic_tree_add(struct dynamic_tree *tree, size_t node, const struct candidate *best, size_t n)
{
    const uint16_t parent = tree->candidate_of[node];
    const double score = parent == DYNAMIC_ROOT ? 0 : tree->candidate[parent].score;
    for (size_t i = 0; i < n && tree->n < DYNAMIC_CANDIDATES; i++)
        tree->candidate[tree->n++] =
            (struct dynamic_candidate){.score = score + log(best[i].p),
                                       .probability = (float)best[i].p,
                                       .token = best[i].id,
                                       .parent = parent,
                                       .depth = (uint16_t)(tree->expanded.depth[node] + 1)};
}

/* Sets `chosen` for the `most` best candidates of a depth, or, for depth 0, of all; of equal ones the
 * first. */
static void choose(struct dynamic_tree *tree, size_t depth, size_t most)
{
    for (size_t i = 0; i < tree->n; i++)
        tree->candidate[i].chosen = false;
    for (size_t k = 0; k < most; k++) {
        struct dynamic_candidate *best = NULL;
        for (size_t i = 0; i < tree->n; i++) {
            struct dynamic_candidate *c = &tree->candidate[i];
            if (!c->chosen && (depth == 0 || c->depth == depth) && (!best || c->score > best->score))
                best = c;
        }
        if (!best)
            return;
        best->chosen = true;
    }
}

/* Adds the chosen candidates below a node that is the candidate `parent`. */
static void add_chosen(const struct dynamic_tree *tree, size_t parent, size_t node, struct draft *draft,
                       uint16_t *candidate_of)
{
    for (size_t i = 0; i < tree->n; i++) {
        if (!tree->candidate[i].chosen || tree->candidate[i].parent != parent)
            continue;
        candidate_of[draft->n] = (uint16_t)i;
        draft_add(draft, node, tree->candidate[i].token, 0);
    }
}

void dynamic_tree_expand(struct dynamic_tree *tree, size_t depth)
{
    const size_t end = tree->expanded.n;
    choose(tree, depth, size_min(tree->top, TREE_NODES - end));
    for (size_t node = 0; node < end; node++)
        if (tree->expanded.depth[node] + (size_t)1 == depth)
            add_chosen(tree, tree->candidate_of[node], node, &tree->expanded, tree->candidate_of);
}

void dynamic_tree_finish(struct dynamic_tree *tree, size_t n, struct draft *draft, float *probability)
{
    uint16_t candidate_of[TREE_NODES] = {DYNAMIC_ROOT};
    choose(tree, 0, n - 1);
    for (size_t node = 0; node < draft->n; node++)
        add_chosen(tree, candidate_of[node], node, draft, candidate_of);
    for (size_t node = 1; node < draft->n && probability; node++)
        probability[node] = tree->candidate[candidate_of[node]].probability;
}
