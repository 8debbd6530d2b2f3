/* Drafters propose draft tokens for speculative decoding: one interface, a file each
 * (draft_NAME.c).
 *
 * To add one: write draft_NAME.c with its struct drafter and an open function, declare that below,
 * and give bmc-spec an option that opens it. */
#pragma once

#include "decode/sample/token_mask.h"
#include "decode/session.h"
#include "decode/spec/tree.h"
#include "decode/sample/rejection.h"

/* The draft tokens of one sequence, as a tree whose root is the newest token of the sequence. Nodes
 * are in the order of tree.h; a node's children are consecutive. */
struct draft {
    size_t n; /* nodes, including the root */
    uint32_t token[TREE_NODES];
    uint16_t parent[TREE_NODES], depth[TREE_NODES], first[TREE_NODES], children[TREE_NODES];
    uint16_t shape_node[TREE_NODES]; /* node of the requested shape that node i fills */
    /* With keep_q, the distribution that a node's children were drawn from is pool[q_at .. q_at + q_n);
     * q_n == 0: they are deterministic. */
    size_t q_at[TREE_NODES], q_n[TREE_NODES];
    struct candidate *pool;
    size_t pool_len, pool_cap;
    /* Of a constrained request: its constraint, end tokens, and the state after each node; NULL: anything
     * is allowed. draft_begin() keeps the first two, and state[0]. */
    struct constraint *constraint;
    const struct ids *ends;
    uint32_t state[TREE_NODES];
};

/* A request for draft tokens of one sequence. */
struct draft_request {
    size_t slot;         /* index of the slot, as in the generation loop */
    const uint32_t *ids; /* prompt and generated tokens; the last one is the root */
    size_t n_ids;
    const struct tree_shape *shape; /* requested shape; may be filled in part */
    struct draft *draft;            /* output; holds the root already */
    /* Settings and random numbers of the sequence: a draft model draws with them from its own logits; Mirostat's
     * state after the root. */
    const struct sampler_options *sampling;
    uint64_t seed, stream;
    double mirostat_mu;
    bool keep_q; /* rejection sampling needs the distributions that children were drawn from */
    /* [TREE_NODES] output of draft heads and of suffix decoding: probability of each draft token after its parent;
     * NULL: not wanted */
    float *probability;
    /* The drafter chooses a tree of at most the size and number of levels of `shape`, by its own
     * probabilities (EAGLE-2); only where drafter.dynamic is set. */
    bool dynamic;
};

struct drafter {
    const char *name;
    size_t ranks; /* maximum number of children of a node */
    double cost;  /* time to draft a tree level / time of a target pass: ratio of bytes read */
    /* Fills the drafts. Tokens that a draft's constraint does not allow are removed afterwards. */
    int (*propose)(struct drafter *drafter, const struct draft_request *request, size_t n,
                   struct err *err);
    /* Learns from the target's logits[n][vocab], one vector per node of the draft; may be NULL. */
    void (*observe)(struct drafter *drafter, const struct draft *draft, const float *logits);
    /* Called for every sequence before each step, also without drafting: ids[0..n_ids) are its prompt
     * and generated tokens. May be NULL. */
    void (*learn)(struct drafter *drafter, size_t slot, const uint32_t *ids, size_t n_ids);
    /* Called after verification with the number of accepted draft tokens; may be NULL. */
    void (*verified)(struct drafter *drafter, size_t slot, const struct draft *draft, size_t accepted);
    /* Called after a pass of the target: its rows row[0..n) are the tokens ids[first .. first + n) of the
     * slot's sequence, from the prompt or accepted. NULL: hidden states are not needed. */
    int (*read_hidden)(struct drafter *drafter, size_t slot, const uint32_t *ids, size_t first,
                       const size_t *row, size_t n, struct err *err);
    bool dynamic; /* draft_request.dynamic is supported */
    void (*close)(struct drafter *drafter);
    /* The draft model's session, or NULL. Its sequence i belongs to slot i; the generation loop may
     * clear it. */
    struct session *session;
    double prefill_ms; /* spent by propose() and read_hidden() on prefilling the draft model's cache */
    size_t prefill_tokens;
};

void drafter_close(struct drafter *drafter); /* NULL is accepted */

void draft_begin(struct draft *draft, uint32_t root); /* resets the draft to its root */

void draft_cut(struct draft *draft, size_t n); /* keeps the first n tokens of a chain, at most all */

/* Adds to node `parent` a child that fills node `shape_node` of the requested shape. Calls must
 * have `parent` in ascending order. */
void draft_add(struct draft *draft, size_t parent, uint32_t token, size_t shape_node);

/* Drafts with a smaller model that has the same tokenizer; with a parallel draft model (a mask_token
 * in its configuration) all levels in one pass. `session` is borrowed; it needs a
 * sequence for every slot and passes of batch * nodes tokens. */
int draft_model_open(struct drafter **drafter, struct session *session, size_t target_vocab,
                     double cost, struct err *err) MUST_USE;

/* Drafts with a model that has another vocabulary, through text: chains of deterministic draft tokens. `session` as for
 * draft_model_open(); it and `target` are borrowed. */
int draft_bridge_open(struct drafter **drafter, struct session *session, const struct model *target,
                      double cost, struct err *err) MUST_USE;

/* Tokens at the end of a prompt that the target computes for a draft head, even if their KV entries
 * are known, so that the head does not begin without context. */
enum { DRAFT_HEAD_PROMPT = 64 };

/* Drafts with a draft head (EAGLE), which reads the hidden states layer[] of the target; both come from
 * draft_head_attach(). The sessions, the head's and the target's, are borrowed; `session` as for
 * draft_model_open(). */
int draft_eagle_open(struct drafter **drafter, struct session *session, struct session *target,
                     const size_t *layer, double cost, struct err *err) MUST_USE;

/* Options of the session of a draft model or head, of `context` tokens, for drafts of up to `max` tokens, from
 * those of a target's session. A quantised draft has the precision of quantised weights, unless `keep_precision`. */
struct session_options draft_session_options(const struct session_options *target,
                                             const struct model *draft, size_t context, size_t max,
                                             bool keep_precision);

/* Opens that session, for which *s is adjusted: the drafter rolls the cache itself. */
int draft_session_open(struct session **session, const struct model *draft, struct session_options *s,
                       struct err *err) MUST_USE;

/* Returns rc; if it is negative, prefixes the error message by "draft model". For callers that use
 * the draft model themselves: draft_model_open() and the drafter add the prefix already. */
int draft_model_error(int rc, struct err *err) MUST_USE;

/* Fails, naming the first id that differs, unless both vocabularies have the same tokens. A draft model with another one is
 * opened by draft_bridge_open(). */
int draft_model_check(const struct model *target, const struct model *draft, struct err *err) MUST_USE;

/* Prepares an open draft for a target: draft_head_attach() for a draft head, which sets `layer`; a draft model needs
 * nothing. */
int draft_attach(struct model *draft, const struct model *target, size_t layer[MAX_FEATURES],
                 struct err *err) MUST_USE;

/* Defaults of the drafters below. */
enum { DEFAULT_LOOKUP_MAX = 4, DEFAULT_LOOKUP_MIN = 2 };
#define DEFAULT_SUFFIX_POOL_KI 256
#define DEFAULT_SUFFIX_POOL    (DEFAULT_SUFFIX_POOL_KI << 10)

/* Prompt lookup decoding: drafts the tokens that followed an earlier occurrence of the last n
 * tokens, for the largest n in [min_n, max_n] that has one: the newest occurrence, or with `oldest`
 * the oldest. */
int draft_lookup_open(struct drafter **drafter, size_t max_n, size_t min_n, bool oldest,
                      struct err *err) MUST_USE;

/* Suffix decoding (Oliaro et al., 2024): drafts what followed earlier occurrences of the last tokens,
 * in all sequences of the run, of which the last `pool` tokens are kept, and in the corpus. The corpus
 * may be NULL, and is copied. Slots of requests are below `slots`; pool and corpus have at most 2^27
 * tokens. */
int draft_suffix_open(struct drafter **drafter, size_t slots, size_t pool, const struct ids *corpus,
                      struct err *err) MUST_USE;

/* Combines two drafters: `first`, which drafts at no cost, and `second`, with a draft model. For each
 * sequence the second drafts where the first finds nothing, or where measured acceptance rates
 * promise more tokens per time. Owns both from the call on: closes them on failure, too. */
int draft_combined_open(struct drafter **drafter, struct drafter *first, struct drafter *second,
                        size_t slots, struct err *err) MUST_USE;

/* Token recycling (Luo et al., 2024): drafts, after each token, those that the target predicted as
 * most likely when it last processed the same token. */
int draft_recycle_open(struct drafter **drafter, size_t vocab, struct err *err) MUST_USE;

/* The drafter of a run: one without a model, the draft model's, or both combined. */
enum drafter_kind { DRAFTER_LOOKUP, DRAFTER_SUFFIX, DRAFTER_RECYCLE, DRAFTER_NONE };

struct drafter_plan {
    enum drafter_kind kind; /* drafts without a model */
    bool oldest;            /* draft_lookup_open() */
    size_t pool; /* draft_suffix_open(); 0: by the session's contexts, at most DEFAULT_SUFFIX_POOL */
    const struct ids *corpus; /* the same; NULL: none */
    struct session *session;  /* of the draft model or head, borrowed; NULL: none */
    const size_t *layer;      /* of a draft head, set by draft_attach() */
};

/* Opens it for a target's session, which is borrowed, too. After an error *drafter is NULL. */
int drafter_open(struct drafter **drafter, const struct drafter_plan *plan, struct session *target,
                 struct err *err) MUST_USE;

/* ---- removing draft tokens that a constraint does not allow ---- */

/* Removes the nodes whose tokens are not allowed, and those below them. */
void draft_prune(struct draft *draft);
