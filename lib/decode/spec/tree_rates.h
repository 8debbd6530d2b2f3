/* Acceptance rates of a node's first, second, .. child, learnt while drafting trees. They do not depend
 * on times: greedy decoding learns the same on every machine. */
#ifndef BMC_TREE_RATES_H
#define BMC_TREE_RATES_H

#include "decode/spec/tree.h"

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

#endif
