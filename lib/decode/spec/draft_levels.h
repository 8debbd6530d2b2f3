/* Drafting level by level from a model's logits: choosing the children of a node, and passes over the
 * tree drafted so far. Used by drafters that run a model. */
#ifndef BMC_DRAFT_LEVELS_H
#define BMC_DRAFT_LEVELS_H

#include "decode/spec/drafter.h"

/* Chooses children with the sampler settings of the request. */
struct child_sampler {
    struct sampler sampler;
    struct verifier verifier;
    size_t vocab;           /* draft tokens are below */
    struct token_mask mask; /* of a constrained draft: tokens allowed after a node */
    struct candidate *list; /* [vocab]: scratch */
    struct ids history;     /* for penalties: tokens of the sequence and of the path to a draft node */
};

int child_sampler_open(struct child_sampler *children, size_t vocab, struct err *err) MUST_USE;
void child_sampler_close(struct child_sampler *children);

/* Adds as many children to a node as the requested shape has there, at most `most`: the most likely
 * ones of logits[vocab], or, when sampling, tokens drawn without replacement. A constrained draft gets
 * tokens that are allowed, and fewer if there are not as many. */
int child_sampler_add(struct child_sampler *children, const struct draft_request *request, size_t node,
                      size_t most, const float *logits, struct err *err) MUST_USE;

/* The *n most likely tokens after a node and their probabilities, with the request's penalties and
 * biases; fewer if the draft's constraint does not allow as many. */
int child_sampler_top(struct child_sampler *children, const struct draft_request *request, size_t node,
                      const float *logits, size_t *n, struct candidate *best, struct err *err) MUST_USE;

/* The first node of a level; draft->n if there is none. */
size_t draft_level_begin(const struct draft *draft, size_t level);

/* True if the requested shape gives children to a node of this level of the draft; of any request's. */
bool draft_has_children(const struct draft_request *request, size_t level);
bool draft_any_children(const struct draft_request *request, size_t n_requests, size_t level);

/* True if the requested shape is a chain. */
static inline bool draft_is_chain(const struct draft_request *request)
{
    return request->shape->n == request->shape->levels;
}

/* Arguments of batch_add_tree() for one sequence; they must outlive the pass. */
struct draft_tree {
    uint32_t *ancestors;
    size_t *ancestors_at, *depth;
};

/* False if memory is short. */
bool draft_tree_alloc(struct draft_tree *tree);
void draft_tree_release(struct draft_tree *tree);

/* Adds all nodes but the root, which has its KV entry, to the batch. Returns the row of node 1. */
size_t draft_tree_add(struct draft_tree *tree, struct session *session, size_t seq,
                      const struct draft *draft);

#endif
