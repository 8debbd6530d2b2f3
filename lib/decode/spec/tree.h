/* Token trees: shapes of drafts, and the optimal shape for measured acceptance rates.
 *
 * Nodes are numbered level by level, parents before children; node 0 is the root, the newest token
 * of the sequence. A chain is a tree in which every node has one child. */
#pragma once

#include "base/err.h"

enum {
    TREE_NODES = 257, /* maximum number of nodes, including the root */
    TREE_RANKS = 32   /* maximum number of children of a node */
};

struct tree_shape {
    size_t n;      /* nodes, including the root */
    size_t levels; /* including the root's */
    uint16_t parent[TREE_NODES];
    uint16_t rank[TREE_NODES];     /* index among the parent's children */
    uint16_t depth[TREE_NODES];    /* 0: the root */
    uint16_t children[TREE_NODES]; /* number of children */
    uint16_t first[TREE_NODES];    /* index of the first child; the next ones follow */
};

/* Make the shape of k draft tokens in a chain, k < TREE_NODES, or in a star, where all of them are
 * children of the root, k <= TREE_RANKS. */
void tree_chain(struct tree_shape *shape, size_t k);
void tree_star(struct tree_shape *shape, size_t k);

/* Lists the ancestors of each node i, ascending, and i itself last, for batch_add_tree(): they are
 * ancestors[ancestors_at[i] .. ancestors_at[i + 1]). `ancestors` must hold n * (n + 1) / 2 entries,
 * ancestors_at n + 1. */
void tree_ancestors(const uint16_t *parent, const uint16_t *depth, size_t n, uint32_t *ancestors,
                    size_t *ancestors_at);

/* Sequoia's dynamic program (Chen et al., 2024): the expected number of tokens per step for
 * trees of up to `nodes` nodes and `levels` levels, the root counted in both, if the child of
 * rank i is accepted, and all of lower rank rejected, with probability accept[i] at every node. */
struct sequoia {
    size_t nodes, levels, ranks;
    double accept[TREE_RANKS];
    /* [nodes + 1][levels + 1][ranks + 1]: most expected tokens of a tree with exactly that many
     * nodes and children of the root, in at most that many levels; and `split`, the number of nodes
     * of that tree without the subtree of the root's last child. */
    double *best;
    uint16_t *split;
};

int sequoia_open(struct sequoia *plan, const double *accept, size_t ranks, size_t nodes, size_t levels,
                 struct err *err) MUST_USE;
void sequoia_close(struct sequoia *plan);

/* The optimal tree of at most `nodes` nodes and `levels` levels, at least 1 and at most those of
 * the plan: its expected number of tokens per step, and its shape. */
double sequoia_tokens(const struct sequoia *plan, size_t nodes, size_t levels);
void sequoia_shape(const struct sequoia *plan, size_t nodes, size_t levels, struct tree_shape *shape);

/* The number of levels, from `least` on as far as the plan has them, that gives the most tokens/s with
 * `nodes` nodes. A step takes a target pass and a draft pass per level; `draft` is the time of a draft
 * pass relative to a target pass. One level is the root's: nothing is drafted. */
size_t sequoia_levels(const struct sequoia *plan, size_t nodes, double draft, size_t least);

/* Acceptance rates of a node's first, second, .. child, learnt while drafting trees. They do not depend
 * on times: greedy decoding learns the same on every machine. */

struct tree_rates {
    size_t ranks;
    double prior[TREE_RANKS];    /* rates to begin with, */
    double weight;               /* which count for so many nodes */
    double visited[TREE_RANKS];  /* verified nodes with a child of this rank */
    double accepted[TREE_RANKS]; /* those whose child of this rank was accepted */
    size_t nodes, due;           /* verified nodes, and when a new plan is due */
};

/* `rates` are those to begin with: recorded ones, or typical ones, which count less. */
void tree_rates_begin(struct tree_rates *r, const double *rates, size_t ranks, bool recorded);

/* After the verification of a node with `children` children, of which number `accepted` was
 * accepted; `children` or more: none. */
void tree_rates_add(struct tree_rates *r, size_t children, size_t accepted);

/* True if enough was learnt since the last time for new trees: when the nodes have doubled. */
bool tree_rates_due(struct tree_rates *r);

/* Sets rates[r->ranks], with a sum of at most 1. */
void tree_rates_get(const struct tree_rates *r, double *rates);
