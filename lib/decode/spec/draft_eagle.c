/* Drafting with a draft head (EAGLE, Li et al., 2024 and 2025): a model of one layer that reads the
 * target's hidden states, and so drafts better than a small model at a fraction of its cost.
 *
 * Entry i of the head's cache pairs the hidden state of the target at position i with the token at
 * i + 1; its output predicts the hidden state at i + 1, and its logits the token at i + 2. Hidden
 * states that the target has computed arrive by read_hidden(); while the head drafts on, its own output
 * takes their place, and these entries are dropped again.
 *
 * A parallel head (P-EAGLE) drafts all levels in one pass: mask tokens with a hidden state of their own
 * follow the sequence, and the logits of the i-th mask are those of level i + 1, whatever the levels
 * before drew.
 *
 * The target computes no hidden states for KV entries that it did not compute: those of a snapshot or
 * of a prefix that another request has computed. The head then begins where they do, in a window of
 * the sequence. A window also begins anew, with the last few hidden states, when the head's context is
 * full. A shorter window drafts worse, nothing else. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text_util.h"
#include "decode/spec/draft_levels.h"
#include "decode/spec/drafter.h"

/* ---- dynamic draft trees ---- */

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

static int dynamic_tree_alloc(struct dynamic_tree *tree, struct err *err)
{
    tree->candidate = mem_alloc(DYNAMIC_CANDIDATES, sizeof *tree->candidate);
    return tree->candidate ? 0 : err_no_memory(err, "a dynamic draft tree");
}

static void dynamic_tree_release(struct dynamic_tree *tree) { free(tree->candidate); }

/* Begins a tree with the size and number of levels of `shape`. */
static void dynamic_tree_begin(struct dynamic_tree *tree, const struct tree_shape *shape, uint32_t root)
{
    const size_t expanded_levels = shape->levels > 2 ? shape->levels - 2 : 1;
    tree->n = 0;
    tree->top = size_max(1, size_min(DYNAMIC_TOP, (shape->n - 1) / expanded_levels));
    tree->candidate_of[0] = DYNAMIC_ROOT;
    draft_begin(&tree->expanded, root);
}

/* Adds candidates below a node of `expanded`: tokens in order of their probabilities. */
static void dynamic_tree_add(struct dynamic_tree *tree, size_t node, const struct candidate *best,
                             size_t n)
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

/* Expands the best candidates of a level: adds them to tree->expanded. */
static void dynamic_tree_expand(struct dynamic_tree *tree, size_t depth)
{
    const size_t end = tree->expanded.n;
    choose(tree, depth, size_min(tree->top, TREE_NODES - end));
    for (size_t node = 0; node < end; node++)
        if (tree->expanded.depth[node] + (size_t)1 == depth)
            add_chosen(tree, tree->candidate_of[node], node, &tree->expanded, tree->candidate_of);
}

/* Adds the best n - 1 candidates to a draft that has its root; `probability` as in draft_request. */
static void dynamic_tree_finish(struct dynamic_tree *tree, size_t n, struct draft *draft,
                                float *probability)
{
    uint16_t candidate_of[TREE_NODES] = {DYNAMIC_ROOT};
    choose(tree, 0, n - 1);
    for (size_t node = 0; node < draft->n; node++)
        add_chosen(tree, candidate_of[node], node, draft, candidate_of);
    for (size_t node = 1; node < draft->n && probability; node++)
        probability[node] = tree->candidate[candidate_of[node]].probability;
}

/* Hidden states kept for a new window, and those that wait before read_hidden() feeds them to the
 * head. */
enum { KEEP_STATES = DRAFT_HEAD_PROMPT, MOST_WAITING = 256 };

/* The window of a slot's sequence that the head knows: positions from `start` on. */
struct head_window {
    size_t seq; /* sequence of the head's cache */
    size_t start;
    struct ids ids; /* tokens of the window: `known`, or one more when the last entry has been fed */
    size_t known;   /* positions whose hidden states have arrived */
    size_t fed;     /* entries in the head's cache; at most `known` */
    float *state;   /* [held][width] hidden states of positions known - held .. known */
    size_t held, states_cap;
    float *hidden;   /* [TREE_NODES][hidden] the head's output for each node of the draft */
    size_t logits;   /* first row in d->logits: of the level just computed */
    size_t last_row; /* of the pass, if it has the window's last entry; SIZE_MAX: not */
    struct draft_tree tree;
    struct dynamic_tree dynamic;
};

struct eagle_drafter {
    struct drafter drafter;
    struct excerpt name; /* the head's family */
    struct session *session, *target;
    struct child_sampler children;
    size_t width, hidden; /* of a hidden state from the target; of the head's own */
    struct head_window *window;
    struct draft_request *request; /* [batch] */
    float *logits;                 /* [rows][the head's vocabulary] */
    float *target_logits;          /* [the target's vocabulary]; NULL: both have the same */
    const float *offset;           /* of the target's ids; NULL: 0 */
    const float *mask; /* hidden state of the mask tokens of a parallel head; NULL: not parallel */
    uint32_t mask_token;
    size_t *row; /* [rows] */
};

static int eagle_error(int rc, struct err *err) { return rc < 0 ? err_prefix(err, "draft head") : rc; }

/* ---- hidden states from the target ---- */

static void reset(struct eagle_drafter *d, struct head_window *w, size_t start)
{
    w->start = start;
    w->ids.len = w->known = w->fed = w->held = 0;
    session_truncate(d->session, w->seq, 0);
}

/* Begins a new window with the last `n` hidden states. */
static void restart(struct eagle_drafter *d, struct head_window *w, size_t n)
{
    n = size_min(n, w->known);
    const size_t drop = w->known - n;
    memmove(w->ids.id, w->ids.id + drop, (w->ids.len - drop) * sizeof *w->ids.id);
    w->ids.len -= drop;
    w->start += drop;
    w->known = n;
    w->fed = 0;
    session_truncate(d->session, w->seq, 0);
}

/* The hidden state of a position of the window. */
static const float *state_of(const struct eagle_drafter *d, const struct head_window *w, size_t at)
{
    return w->state + (at - (w->known - w->held)) * d->width;
}

/* Makes room for another hidden state; first drops those that are fed and not kept. */
static int grow_states(struct eagle_drafter *d, struct head_window *w, struct err *err)
{
    if (w->held < w->states_cap)
        return 0;
    const size_t need = size_min(w->held, w->known - w->fed + KEEP_STATES), drop = w->held - need;
    if (drop)
        memmove(w->state, w->state + drop * d->width, need * d->width * sizeof *w->state);
    w->held = need;
    if (2 * w->held <= w->states_cap && w->states_cap)
        return 0;
    const size_t cap = size_max(2 * w->states_cap, 2 * KEEP_STATES);
    size_t floats;
    float *state = size_mul(cap, d->width, &floats) ? mem_alloc(floats, sizeof *state) : NULL;
    if (!state)
        return err_no_memory(err, "hidden states of %zu tokens", cap);
    if (w->held)
        memcpy(state, w->state, w->held * d->width * sizeof *state);
    free(w->state);
    w->state = state;
    w->states_cap = cap;
    return 0;
}

/* True if tokens from position `first` on continue the window, whose tokens are still the same. */
static bool continues(const struct head_window *w, const uint32_t *ids, size_t first)
{
    return w->known && first == w->start + w->known &&
           memcmp(w->ids.id, ids + w->start, w->ids.len * sizeof *ids) == 0;
}

/* ---- passes of the head over the sequence ---- */

/* Adds the window's missing entries below `end` to the batch, as far as they fit, and with the last one
 * `masks` mask tokens. Returns the number of entries. */
static size_t add_entries(struct eagle_drafter *d, struct head_window *w, size_t end, size_t masks)
{
    const size_t left = end - w->fed, space = batch_space(d->session);
    const bool last = left + masks <= space;
    const size_t n = last ? left : size_min(space, left - (masks > 0));
    w->last_row = SIZE_MAX;
    if (n == 0)
        return 0;
    const size_t first = batch_add(d->session, w->seq, w->ids.id + w->fed + 1, n + (last ? masks : 0));
    for (size_t i = 0; last && i < masks; i++)
        memcpy(session_feature(d->session, first + n + i, false), d->mask, d->width * sizeof(float));
    for (size_t i = 0; i < n; i++)
        memcpy(session_feature(d->session, first + i, false), state_of(d, w, w->fed + i),
               d->width * sizeof(float));
    w->fed += n;
    if (w->fed == end)
        w->last_row = first + n - 1;
    return n;
}

static int run_entries(struct eagle_drafter *d, size_t n, size_t n_requests, struct err *err)
{
    const struct session_options *o = session_options(d->session);
    const bool prefill = n > 8 * n_requests;
    const double start = clock_ms();
    const int rc = session_run(d->session, prefill ? o->threads_prefill : o->threads, err);
    if (prefill) {
        d->drafter.prefill_ms += clock_ms() - start;
        d->drafter.prefill_tokens += n;
    }
    return eagle_error(rc, err);
}

/* Hidden states of a long prompt are fed as they come, to bound their memory. */
static int feed_waiting(struct eagle_drafter *d, struct head_window *w, struct err *err)
{
    const size_t context = session_options(d->session)->context;
    if (w->known - w->fed <= MOST_WAITING)
        return 0;
    if (w->known > context)
        restart(d, w, size_min(w->held, size_min(KEEP_STATES, (context + 1) / 2)));
    while (w->fed + 1 < w->known)
        if (run_entries(d, add_entries(d, w, w->known - 1, 0), 1, err) < 0)
            return -1;
    return 0;
}

static int read_hidden(struct drafter *drafter, size_t slot, const uint32_t *ids, size_t first,
                       const size_t *row, size_t n, struct err *err)
{
    struct eagle_drafter *d = (struct eagle_drafter *)drafter;
    struct head_window *w = &d->window[slot];
    if (session_length(d->session, w->seq) < w->fed || !continues(w, ids, first))
        reset(d, w, first);
    w->ids.len = w->known;
    for (size_t i = 0; i < n; i++) {
        if (grow_states(d, w, err) < 0 || ids_add(&w->ids, ids[first + i], err) < 0)
            return -1;
        memcpy(w->state + w->held * d->width, session_hidden(d->target, row[i]),
               d->width * sizeof *w->state);
        w->held++;
        w->known++;
    }
    return feed_waiting(d, w, err);
}

/* ---- drafting ---- */

static int check_finite(const struct eagle_drafter *d, size_t n, struct err *err)
{
    const size_t vocab = session_vocab(d->session);
    for (size_t i = 0; i < n; i++)
        if (!logits_finite(d->logits + i * vocab, vocab))
            return session_refuse_output(d->session, "the draft head", "logits", err);
    return 0;
}

/* True if the hidden states of all tokens of the sequence but the newest have arrived. */
static bool is_ready(const struct eagle_drafter *d, const struct draft_request *request)
{
    const struct head_window *w = &d->window[request->slot];
    return w->known && w->start + w->known + 1 == request->n_ids;
}

/* Mask tokens that follow a sequence: one for each level below the first. */
static size_t count_masks(const struct eagle_drafter *d, const struct draft_request *request)
{
    return d->mask && request->shape->levels > 2 ? request->shape->levels - 2 : 0;
}

/* Appends the newest token to the window; begins a new window if the draft does not fit. */
static int align(struct eagle_drafter *d, const struct draft_request *request, struct err *err)
{
    struct head_window *w = &d->window[request->slot];
    const size_t context = session_options(d->session)->context,
                 more = size_max(request->shape->n, request->shape->levels);
    if (more > context)
        return err_set(err, "%zu draft tokens do not fit the draft head's context of %zu", more - 1,
                       context);
    w->ids.len = w->known;
    if (ids_add(&w->ids, request->ids[request->n_ids - 1], err) < 0)
        return -1;
    if (session_length(d->session, w->seq) < w->fed)
        restart(d, w, size_min(w->held, KEEP_STATES)); /* the cache was cleared */
    if (w->known + more > context)
        restart(d, w, size_min(w->held, size_min(KEEP_STATES, size_max((context - more) / 2, 1))));
    w->fed = size_min(w->fed, w->known - 1); /* the last entry is computed again, for its output */
    session_truncate(d->session, w->seq, w->fed);
    for (size_t i = 0; i < count_masks(d, request); i++) /* for add_entries(), behind the window's */
        if (ids_add(&w->ids, d->mask_token, err) < 0)
            return -1;
    w->ids.len = w->known + 1;
    return 0;
}

/* Completes the head's entries for all sequences; sets level 0's logits and hidden states, and with a
 * parallel head the logits of all levels. */
static int feed_all(struct eagle_drafter *d, const struct draft_request *request, size_t n_requests,
                    struct err *err)
{
    const size_t vocab = session_vocab(d->session);
    size_t done = 0, n_done = 0;
    while (n_done < n_requests) {
        size_t n = 0, n_rows = 0;
        for (size_t a = 0; a < n_requests; a++) {
            struct head_window *w = &d->window[request[a].slot];
            const size_t masks = count_masks(d, &request[a]);
            n += add_entries(d, w, w->known, masks);
            if (w->last_row == SIZE_MAX)
                continue;
            w->logits = done + n_rows;
            for (size_t i = 0; i <= masks; i++)
                d->row[n_rows++] = w->last_row + i;
            n_done++;
        }
        if (n_requests == 1 && n_rows > 0)
            session_skip_outputs(d->session, d->row[0]);
        if (run_entries(d, n, n_requests, err) < 0 ||
            session_logits(d->session, d->row, n_rows, d->logits + done * vocab, err) < 0)
            return -1;
        for (size_t a = 0; a < n_requests; a++) {
            struct head_window *w = &d->window[request[a].slot];
            if (w->last_row != SIZE_MAX)
                memcpy(w->hidden, session_hidden(d->session, w->last_row),
                       d->hidden * sizeof *w->hidden);
        }
        done += n_rows;
    }
    return check_finite(d, done, err);
}

/* True if the shape of the tree follows the head's probabilities. */
static bool is_dynamic(const struct draft_request *request)
{
    return request->dynamic && !draft_is_chain(request);
}

/* True if the draft goes on below a level. */
static bool goes_on(const struct draft_request *request, size_t level)
{
    if (!is_dynamic(request))
        return draft_has_children(request, level);
    return level + 1 < request->shape->levels &&
           draft_level_begin(request->draft, level) < request->draft->n;
}

static bool any_goes_on(const struct draft_request *request, size_t n_requests, size_t level)
{
    for (size_t a = 0; a < n_requests; a++)
        if (goes_on(&request[a], level))
            return true;
    return false;
}

/* Adds a level of the draft to the batch, a tree with all levels before it, as a pass attends to
 * committed entries and its own batch only. */
static void add_level(struct eagle_drafter *d, const struct draft_request *request, size_t level,
                      size_t *n_rows)
{
    struct head_window *w = &d->window[request->slot];
    const struct draft *draft = request->draft;
    const size_t from = draft_level_begin(draft, level);
    const size_t first = draft_is_chain(request)
                             ? batch_add(d->session, w->seq, &draft->token[from], 1) - from
                             : draft_tree_add(&w->tree, d->session, w->seq, draft) - 1;
    for (size_t i = draft_is_chain(request) ? from : 1; i < draft->n; i++)
        memcpy(session_feature(d->session, first + i, true), w->hidden + draft->parent[i] * d->hidden,
               d->hidden * sizeof(float));
    w->logits = *n_rows;
    for (size_t i = from; i < draft->n; i++)
        d->row[(*n_rows)++] = first + i;
}

/* Keeps the head's output for the nodes of a level. A chain's entry is committed until the draft is
 * complete. */
static void end_level(struct eagle_drafter *d, const struct draft_request *request, size_t level)
{
    struct head_window *w = &d->window[request->slot];
    const struct draft *draft = request->draft;
    const size_t from = draft_level_begin(draft, level);
    for (size_t i = from; i < draft->n; i++)
        memcpy(w->hidden + i * d->hidden, session_hidden(d->session, d->row[w->logits + i - from]),
               d->hidden * sizeof *w->hidden);
    session_accept(d->session, w->seq, &(size_t){0}, draft_is_chain(request));
}

/* Computes logits and hidden states of a level for all requests whose shape goes on below it. */
static int run_level(struct eagle_drafter *d, const struct draft_request *request, size_t n_requests,
                     size_t level, struct err *err)
{
    size_t n_rows = 0;
    for (size_t a = 0; a < n_requests; a++)
        if (goes_on(&request[a], level))
            add_level(d, &request[a], level, &n_rows);
    if (session_forward(d->session, session_options(d->session)->threads, err) < 0 ||
        session_logits(d->session, d->row, n_rows, d->logits, err) < 0)
        return eagle_error(-1, err);
    for (size_t a = 0; a < n_requests; a++)
        if (goes_on(&request[a], level))
            end_level(d, &request[a], level);
    return check_finite(d, n_rows, err);
}

/* Logits by the target's ids. */
static const float *by_target_id(struct eagle_drafter *d, const float *logits)
{
    if (!d->target_logits)
        return logits;
    for (size_t i = 0; i < d->children.vocab; i++)
        d->target_logits[i] = -FLT_MAX; /* tokens that the head cannot draft */
    for (size_t i = 0; i < session_vocab(d->session); i++)
        d->target_logits[i + (size_t)(ptrdiff_t)d->offset[i]] = logits[i];
    return d->target_logits;
}

/* The probabilities of a node's children, for callers that want them. */
static void set_probabilities(const struct eagle_drafter *d, const struct draft_request *request,
                              size_t node, const float *logits)
{
    const struct draft *draft = request->draft;
    const double sum = log_sum_exp(logits, d->children.vocab);
    for (size_t i = 0; i < draft->children[node]; i++) {
        const size_t child = draft->first[node] + i;
        request->probability[child] = (float)exp(logits[draft->token[child]] - sum);
    }
}

/* Logits of the i-th node of a level, by the target's ids. With a parallel head a level's nodes share them. */
static const float *logits_of(struct eagle_drafter *d, const struct head_window *w, size_t level,
                              size_t i)
{
    return by_target_id(d, d->logits + (w->logits + (d->mask ? level : i)) * session_vocab(d->session));
}

/* Adds candidates below all nodes of a level of a dynamic tree, and expands the best of them. */
static int extend_dynamic(struct eagle_drafter *d, const struct draft_request *request, size_t level,
                          struct err *err)
{
    struct head_window *w = &d->window[request->slot];
    const size_t vocab = session_vocab(d->session);
    const size_t from = draft_level_begin(request->draft, level), to = request->draft->n;
    const size_t n = size_min(w->dynamic.top, vocab);
    struct candidate best[DYNAMIC_TOP];
    if (!goes_on(request, level))
        return 0;
    for (size_t i = from; i < to; i++) {
        const float *logits = logits_of(d, w, level, i - from);
        size_t found = n;
        if (child_sampler_top(&d->children, request, i, logits, &found, best, err) < 0)
            return -1;
        dynamic_tree_add(&w->dynamic, i, best, found);
    }
    if (level + 2 < request->shape->levels)
        dynamic_tree_expand(&w->dynamic, level + 1);
    return 0;
}

/* Adds children to all nodes of a level. */
static int extend_level(struct eagle_drafter *d, const struct draft_request *request, size_t level,
                        struct err *err)
{
    if (is_dynamic(request))
        return extend_dynamic(d, request, level, err);
    const size_t vocab = session_vocab(d->session);
    const size_t from = draft_level_begin(request->draft, level), to = request->draft->n;
    const struct head_window *w = &d->window[request->slot];
    for (size_t i = from; i < to && draft_has_children(request, level); i++) {
        const float *logits = logits_of(d, w, level, i - from);
        if (child_sampler_add(&d->children, request, i, vocab, logits, err) < 0)
            return -1;
        if (request->probability)
            set_probabilities(d, request, i, logits);
    }
    return 0;
}

static int draft_levels(struct eagle_drafter *d, const struct draft_request *request, size_t n_requests,
                        struct err *err)
{
    for (size_t level = 0; any_goes_on(request, n_requests, level); level++) {
        if (level > 0 && !d->mask && run_level(d, request, n_requests, level, err) < 0)
            return -1;
        for (size_t a = 0; a < n_requests; a++)
            if (extend_level(d, &request[a], level, err) < 0)
                return -1;
    }
    return 0;
}

/* The requests, of dynamic trees with the draft of their expanded nodes in place of the result. */
static const struct draft_request *begin_trees(struct eagle_drafter *d,
                                               const struct draft_request *request, size_t n_requests)
{
    for (size_t a = 0; a < n_requests; a++) {
        struct dynamic_tree *tree = &d->window[request[a].slot].dynamic;
        d->request[a] = request[a];
        if (!is_dynamic(&request[a]))
            continue;
        tree->expanded.constraint = request[a].draft->constraint;
        tree->expanded.ends = request[a].draft->ends;
        tree->expanded.state[0] = request[a].draft->state[0];
        dynamic_tree_begin(tree, request[a].shape, request[a].draft->token[0]);
        d->request[a].draft = &tree->expanded;
    }
    return d->request;
}

static int propose(struct drafter *drafter, const struct draft_request *request, size_t n_requests,
                   struct err *err)
{
    struct eagle_drafter *d = (struct eagle_drafter *)drafter;
    for (size_t a = 0; a < n_requests; a++)
        if (!is_ready(d, &request[a]))
            return err_set(err,
                           "the draft head lacks hidden states of slot %zu: this is a bug in bmc, "
                           "please report it with the command and its input",
                           request[a].slot);
    for (size_t a = 0; a < n_requests; a++)
        if (align(d, &request[a], err) < 0)
            return -1;
    if (n_requests && (feed_all(d, request, n_requests, err) < 0 ||
                       draft_levels(d, begin_trees(d, request, n_requests), n_requests, err) < 0))
        return -1;
    for (size_t a = 0; a < n_requests; a++)
        if (is_dynamic(&request[a]))
            dynamic_tree_finish(&d->window[request[a].slot].dynamic, request[a].shape->n,
                                request[a].draft, request[a].probability);
    for (size_t a = 0; a < n_requests; a++) /* entries of chains */
        session_truncate(d->session, d->window[request[a].slot].seq, d->window[request[a].slot].fed);
    return 0;
}

/* ---- opening and closing ---- */

static void close_eagle(struct drafter *drafter)
{
    struct eagle_drafter *d = (struct eagle_drafter *)drafter;
    for (size_t i = 0; d->window && i < session_options(d->session)->batch; i++) {
        struct head_window *w = &d->window[i];
        ids_release(&w->ids);
        free(w->state);
        free(w->hidden);
        draft_tree_release(&w->tree);
        dynamic_tree_release(&w->dynamic);
    }
    free(d->window);
    free(d->logits);
    free(d->target_logits);
    free(d->row);
    free(d->request);
    child_sampler_close(&d->children);
    free(d);
}

static int alloc_buffers(struct eagle_drafter *d, struct err *err)
{
    const size_t batch = session_options(d->session)->batch;
    const size_t rows = size_min(session_max_tokens(d->session), batch * TREE_NODES);
    size_t logits;
    d->window = mem_zalloc(batch, sizeof *d->window);
    d->row = mem_alloc(rows, sizeof *d->row);
    if (size_mul(rows, session_vocab(d->session), &logits))
        d->logits = mem_alloc(logits, sizeof *d->logits);
    d->request = mem_alloc(batch, sizeof *d->request);
    bool ok = d->window && d->row && d->logits && d->request;
    if (ok && d->offset)
        ok = (d->target_logits = mem_alloc(d->children.vocab, sizeof(float))) != NULL;
    for (size_t i = 0; ok && i < batch; i++) {
        struct head_window *w = &d->window[i];
        w->seq = i;
        w->hidden = mem_alloc(TREE_NODES, d->hidden * sizeof *w->hidden);
        ok = w->hidden && draft_tree_alloc(&w->tree) && dynamic_tree_alloc(&w->dynamic, err) == 0;
    }
    return ok ? 0 : err_no_memory(err, "drafts of %zu sequences", batch);
}

int draft_eagle_open(struct drafter **out, struct session *session, struct session *target,
                     const size_t *layer, double cost, struct err *err)
{
    const struct config *c = &session_model(session)->config;
    struct eagle_drafter *d = mem_zalloc(1, sizeof *d);
    if (!d)
        return err_no_memory(err, "a drafter");
    *d = (struct eagle_drafter){
        .drafter = {.name = d->name.text,
                    .ranks = TREE_RANKS,
                    .cost = session_model(session)->weights.mask_feature ? 0 : cost,
                    .propose = propose,
                    .read_hidden = read_hidden,
                    .dynamic = true,
                    .close = close_eagle,
                    .session = session},
        .name = excerpt_of(c->family, strlen(c->family)),
        .session = session,
        .target = target,
        .width = config_feature_width(c),
        .hidden = c->hidden,
        .offset = session_model(session)->weights.draft_offset,
        .mask = session_model(session)->weights.mask_feature,
        .mask_token = (uint32_t)c->mask_token};
    if (session_tap(target, layer, c->draft->features, err) < 0 ||
        session_tap(session, (const size_t[]){c->draft->norm_output ? HIDDEN_FINAL : c->layers}, 1,
                    err) < 0 ||
        child_sampler_open(&d->children, session_vocab(target), err) < 0 || alloc_buffers(d, err) < 0) {
        close_eagle(&d->drafter);
        return -1;
    }
    *out = &d->drafter;
    return 0;
}
