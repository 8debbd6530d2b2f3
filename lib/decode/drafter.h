/* Who proposes candidates: one small interface, one file per drafter (draft_NAME.c).
 *
 * To add one: write draft_NAME.c with its struct drafter and an open function, declare that below, and give
 * bmc-spec an option that opens it. */
#ifndef BMC_DRAFTER_H
#define BMC_DRAFTER_H

#include "decode/session.h"
#include "decode/tree.h"
#include "decode/rejection.h"

/* Candidates of one sequence. Nodes are in the order of tree.h; a node's children are consecutive. */
struct draft {
    size_t n; /* nodes, with the root */
    uint32_t token[TREE_NODES];
    uint16_t parent[TREE_NODES], depth[TREE_NODES], first[TREE_NODES], children[TREE_NODES];
    uint16_t place[TREE_NODES]; /* the node of the shape that it is */
    /* What a node's children were drawn from: pool[q_at .. q_at + q_n); q_n == 0: they were chosen. */
    size_t q_at[TREE_NODES], q_n[TREE_NODES];
    struct candidate *pool;
    size_t pool_len, pool_cap;
};

/* One sequence that wants candidates. */
struct draft_ask {
    size_t slot;         /* its place in the batch */
    const uint32_t *ids; /* prompt and generated tokens; the last one is the root */
    size_t n_ids;
    const struct tree_shape *shape; /* what is wanted: less may be given, but nothing else */
    struct draws *draws;
    struct draft *draft; /* out; holds the root already */
    const struct sampler_options
        *sampling; /* of the sequence: what a model's distributions go through */
};

struct drafter {
    const char *name;
    size_t ranks; /* children that a node can have */
    double cost;  /* of a level, a target's pass being 1: the ratio of the bytes that are read */
    int (*propose)(struct drafter *drafter, const struct draft_ask *ask, size_t n, struct err *err);
    /* The target's logits of all nodes of a draft, [n][vocab]; NULL where nothing is learnt from them. */
    void (*observe)(struct drafter *drafter, const struct draft *draft, const float *logits);
    void (*close)(struct drafter *drafter);
    /* Whose sequences are the slots'; what it holds of one may be dropped; NULL: there is none. */
    struct session *session;
    double prefill_ms; /* of propose(), what reading of history took that was not read step by step */
    size_t prefill_tokens;
};

void drafter_close(struct drafter *drafter); /* NULL is accepted */

/* The draft with its root only. */
void draft_begin(struct draft *draft, uint32_t root);

/* Adds a child of `parent`, at `place` of the shape; parents come in ascending order. */
void draft_add(struct draft *draft, size_t parent, uint32_t token, size_t place);

/* A smaller model with the same tokenizer. `session` stays the caller's; it needs a place for every slot, and room
 * for batch * nodes rows a step. */
int draft_model_open(struct drafter **drafter, struct session *session, size_t target_vocab,
                     double cost, struct err *err) MUST_USE;

/* `rc`; below 0 the error says that it is the draft model's, for there are two. draft_model_open() and what it makes say so themselves. */
int draft_model_rc(int rc, struct err *err) MUST_USE;

/* 0 when both give the same text for every id; otherwise the sentence names the first id that differs. */
int draft_model_check(const struct model *target, const struct model *draft, struct err *err) MUST_USE;

/* What followed the last n tokens elsewhere in the sequence, for the largest n in [min_n, max_n] that is found:
 * at its newest occurrence, or its oldest. */
int draft_lookup_open(struct drafter **drafter, size_t max_n, size_t min_n, bool oldest,
                      struct err *err) MUST_USE;

/* Token recycling (Luo et al., 2024): the best successors that the target once gave for a token. */
int draft_recycle_open(struct drafter **drafter, size_t vocab, struct err *err) MUST_USE;

#endif
