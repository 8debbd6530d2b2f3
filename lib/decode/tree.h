/* Token trees: the shape that candidates take, and the best shape for measured acceptance.
 *
 * Nodes are numbered level by level, parents before children; node 0 is the root, the newest token. A chain is
 * a tree in which every node has one child. */
#ifndef BMC_TREE_H
#define BMC_TREE_H

#include "base/err.h"

enum {
    TREE_NODES = 257, /* at most, with the root */
    TREE_RANKS = 32   /* children of a node at most */
};

struct tree_shape {
    size_t n;      /* nodes, with the root */
    size_t levels; /* with the root's */
    uint16_t parent[TREE_NODES];
    uint16_t rank[TREE_NODES];     /* which child of its parent it is, from 0 */
    uint16_t depth[TREE_NODES];    /* 0: the root */
    uint16_t children[TREE_NODES]; /* how many */
    uint16_t first[TREE_NODES];    /* the first of them; the others follow it */
};

/* A chain of k candidates; k < TREE_NODES. */
void tree_chain(struct tree_shape *shape, size_t k);

/* k candidates beside each other; k <= TREE_RANKS. */
void tree_fan(struct tree_shape *shape, size_t k);

/* Rows that each node sees, itself last: tail[tail_at[i] .. tail_at[i + 1]), ascending. `tail` has
 * room for n * (n + 1) / 2 entries, tail_at for n + 1. */
void tree_tails(const uint16_t *parent, const uint16_t *depth, size_t n, uint32_t *tail,
                size_t *tail_at);

/* Sequoia's dynamic program (Chen et al., 2024): the expected number of tokens that a step gives, for trees of up
 * to `nodes` nodes and `levels` levels, the root counted in both, when the child of rank i is accepted with
 * probability accept[i] (children of lower rank rejected), the same at every node. */
struct sequoia {
    size_t nodes, levels, ranks;
    double accept[TREE_RANKS];
    double *
        best; /* [nodes + 1][levels + 1][ranks + 1]: with exactly that many nodes and children of the root */
    uint16_t *split; /* the same: nodes left to the root without its last child */
};

int sequoia_open(struct sequoia *plan, const double *accept, size_t ranks, size_t nodes, size_t levels,
                 struct err *err) MUST_USE;
void sequoia_close(struct sequoia *plan);

/* Expected tokens per step of the best tree; 1 <= nodes, levels <= those of the plan. */
double sequoia_tokens(const struct sequoia *plan, size_t nodes, size_t levels);

/* That tree. */
void sequoia_shape(const struct sequoia *plan, size_t nodes, size_t levels, struct tree_shape *shape);

/* The number of levels for `nodes` nodes that gives most tokens for the time of one target pass and a draft pass
 * per level; `draft` is the time of a draft pass, the target's pass being 1. */
size_t sequoia_levels(const struct sequoia *plan, size_t nodes, double draft);

#endif
