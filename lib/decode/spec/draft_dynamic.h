/* Dynamic draft trees (EAGLE-2, Li et al., 2024): their shape follows the drafter's probabilities. At each
 * level the candidates with the highest joint probability are expanded; at the end the best of all
 * candidates form the tree. A candidate's ancestors are at least as likely, so it is one tree. */
#ifndef BMC_DRAFT_DYNAMIC_H
#define BMC_DRAFT_DYNAMIC_H

#include "decode/spec/drafter.h"

enum {
    DYNAMIC_TOP = 10, /* most nodes expanded per level, and most candidates below each */
    DYNAMIC_CANDIDATES = DYNAMIC_TOP * TREE_NODES,
    DYNAMIC_ROOT = UINT16_MAX /* in dynamic_candidate.parent */
};

struct dynamic_candidate {
    double score; /* logarithm of the joint probability of the path from the root */
    float probability;
    uint32_t token;
    uint16_t parent; /* a candidate, or DYNAMIC_ROOT */
    uint16_t depth;
    bool chosen; /* scratch */
};

struct dynamic_tree {
    struct dynamic_candidate *candidate; /* [DYNAMIC_CANDIDATES], children after their parents */
    size_t n;
    size_t top;                        /* nodes expanded per level, and children of each */
    struct draft expanded;             /* the root and the expanded candidates */
    uint16_t candidate_of[TREE_NODES]; /* of a node of `expanded` */
};

int dynamic_tree_alloc(struct dynamic_tree *tree, struct err *err) MUST_USE;
void dynamic_tree_release(struct dynamic_tree *tree);

/* Begins a tree with the size and number of levels of `shape`. */
void dynamic_tree_begin(struct dynamic_tree *tree, const struct tree_shape *shape, uint32_t root);

/* Adds candidates below a node of `expanded`: tokens in order of their probabilities. */
void dynamic_tree_add(struct dynamic_tree *tree, size_t node, const struct candidate *best, size_t n);

/* Expands the best candidates of a level: adds them to tree->expanded. */
void dynamic_tree_expand(struct dynamic_tree *tree, size_t depth);

/* Adds the best n - 1 candidates to a draft that has its root; `probability` as in draft_request. */
void dynamic_tree_finish(struct dynamic_tree *tree, size_t n, struct draft *draft, float *probability);

#endif
