/* Drafting level by level from a model's logits, shared by drafters that run a model: the children of a node are
 * chosen with the request's sampler settings, and a pass runs over each level of the drafts, or, with mask tokens
 * (parallel models), one over all. */
#pragma once

#include "decode/spec/drafter.h"

/* Chooses children with the sampler settings of the request. */
struct child_sampler {
    struct sampler sampler;
    size_t vocab;           /* draft tokens are below */
    struct token_mask mask; /* of a constrained draft: tokens allowed after a node */
    struct candidate *list; /* [vocab]: scratch */
    struct ids history;     /* for penalties: tokens of the sequence and of the path to a draft node */
};

/* Arguments of batch_add_tree() for one sequence; they must outlive the pass. */
struct draft_tree {
    uint32_t *ancestors;
    size_t *ancestors_at, *depth;
};

/* What a slot's sequence has in the drafter; its sequence in the model's session has the slot's index. */
struct level_slot {
    /* first row in d->logits: of the level just computed; of a parallel model, of level 0 */
    size_t logits;
    struct draft_tree tree;
    struct dynamic_tree *dynamic; /* if drafter.dynamic */
};

/* The first member of such a drafter. It sets the members up to `by_target_id` before levels_open(). */
struct level_drafter {
    struct drafter drafter;
    struct session *session;
    const char *model; /* "draft model", for errors */
    size_t max;        /* ids of the model's vocabulary that may be drafted are below */
    bool parallel;     /* all levels are drafted in one pass */
    /* After a level was added to the batch: node i, from `from` on, is row first + i. */
    int (*added)(struct level_drafter *d, const struct draft_request *request, size_t from,
                 size_t first, struct err *err);
    /* After the pass over the nodes of a level, which begins at node `from`; may be NULL. */
    void (*computed)(struct level_drafter *d, const struct draft_request *request, size_t from);
    /* Logits by the target's ids; NULL: the model's are. */
    const float *(*by_target_id)(struct level_drafter *d, const float *logits);
    struct child_sampler children;
    struct level_slot *slot;       /* [batch] */
    struct draft_request *request; /* [batch] scratch */
    float *logits;                 /* [rows][the model's vocabulary] */
    size_t *row;                   /* [rows] batch indices of tokens whose logits are needed */
};

/* `vocab` is that of draft tokens. levels_close() may follow an error. */
int levels_open(struct level_drafter *d, size_t vocab, struct err *err) MUST_USE;
void levels_close(struct level_drafter *d);

/* Runs a pass over the batch and commits it; sets d->logits from row `done` on to the logits of d->row[0..n_rows).
 * Times of passes that `prefill` count as such, with their tokens. */
int levels_pass(struct level_drafter *d, bool prefill, size_t tokens, size_t done, size_t n_rows,
                struct err *err) MUST_USE;

/* Fills the drafts of the requests, for which `done` rows of logits are there: those of level 0, of a parallel model
 * those of all levels. */
int levels_propose(struct level_drafter *d, const struct draft_request *request, size_t n_requests,
                   size_t done, struct err *err) MUST_USE;

/* Mask tokens that follow a sequence: one for each level below the first. */
static inline size_t levels_masks(const struct level_drafter *d, const struct draft_request *request)
{
    return d->parallel && request->shape->levels > 2 ? request->shape->levels - 2 : 0;
}

/* True if the requested shape is a chain. */
static inline bool draft_is_chain(const struct draft_request *request)
{
    return request->shape->n == request->shape->levels;
}
