/* Drafting level by level from a model's logits. */
#include "decode/spec/draft_levels.h"

#include "base/clock.h"
#include "base/mem.h"

static int child_sampler_open(struct child_sampler *c, size_t vocab, struct err *err)
{
    static const struct sampler_options greedy = {.repeat_penalty = 1}; /* requests replace it */
    c->vocab = vocab;
    return sampler_open(&c->sampler, &greedy, vocab, err);
}

static void child_sampler_close(struct child_sampler *c)
{
    ids_release(&c->history);
    sampler_close(&c->sampler);
    token_mask_release(&c->mask);
    free(c->list);
}

/* Sets c->history to the tokens of the sequence and of the draft's path from the root to a node; 0
 * stands for ids outside the vocabulary. */
static int make_history(struct child_sampler *c, const struct draft_request *request, size_t node,
                        struct err *err)
{
    const struct draft *draft = request->draft;
    const size_t depth = draft->depth[node];
    c->history.len = 0;
    for (size_t i = 0; i < request->n_ids + depth; i++) {
        const uint32_t id = i < request->n_ids ? request->ids[i] : 0;
        if (ids_add(&c->history, id < c->vocab ? id : 0, err) < 0)
            return -1;
    }
    for (size_t at = c->history.len; draft->depth[node] > 0; node = draft->parent[node])
        c->history.id[--at] = draft->token[node];
    return 0;
}

/* Sets the sampler's mask for the tokens after a node. */
static int constrain(struct child_sampler *c, const struct draft *draft, size_t node, struct err *err)
{
    c->sampler.allowed = NULL;
    if (!draft->constraint)
        return 0;
    if (token_mask_set(&c->mask, draft->constraint, draft->state[node], draft->ends, err) < 0)
        return -1;
    c->sampler.allowed = c->mask.bits;
    if (!c->list && !(c->list = mem_alloc(c->vocab, sizeof *c->list)))
        return err_no_memory(err, "%zu candidates", c->vocab);
    return 0;
}

/* The n most likely allowed tokens; returns their number. */
static size_t best_allowed(struct child_sampler *c, const float *logits, size_t n,
                           struct candidate *best)
{
    const size_t found =
        top_allowed(logits, c->vocab, n, c->sampler.allowed, c->sampler.allowed ? c->list : best);
    for (size_t i = 0; i < found && c->sampler.allowed; i++)
        best[i] = c->list[i];
    return found;
}

/* Stores in the draft the distribution q[0..n) that a node's children are drawn from. */
static int keep_pool(struct draft *draft, size_t node, const struct candidate *q, size_t n,
                     struct err *err)
{
    while (n > 1 && q[n - 1].p <= 0)
        n--; /* tokens that the model cannot draft */
    draft->q_at[node] = draft->pool_len;
    draft->q_n[node] = n;
    for (size_t i = 0; i < n; i++) {
        if (mem_grow(&draft->pool, &draft->pool_cap, draft->pool_len, sizeof *draft->pool, err) < 0)
            return -1;
        draft->pool[draft->pool_len++] = q[i];
    }
    return 0;
}

/* Sets the sampler to the tokens after a node. */
static int child_sampler_begin(struct child_sampler *c, const struct draft_request *request,
                               size_t node, struct err *err)
{
    c->history.len = 0;
    sampler_begin(&c->sampler, request->sampling, request->seed, request->stream,
                  (uint32_t)(request->n_ids + request->draft->depth[node]));
    c->sampler.mirostat_mu = request->mirostat_mu;
    return (sampler_uses_history(request->sampling) && make_history(c, request, node, err) < 0) ||
                   constrain(c, request->draft, node, err) < 0
               ? -1
               : 0;
}

/* Chooses up to n children of a node: with greedy decoding the most likely tokens, else draws. */
static int choose_children(struct child_sampler *c, const struct draft_request *request, size_t node,
                           const float *logits, size_t *n, struct draw *drawn, struct err *err)
{
    struct sampler *sampler = &c->sampler;
    if (sampler->options.temp <= 0) {
        struct candidate best[TREE_RANKS];
        const float *used = sampler_adjusted(sampler, logits, c->history.id, c->history.len);
        *n = best_allowed(c, used, *n, best);
        for (size_t i = 0; i < *n; i++)
            drawn[i].id = best[i].id;
        return 0;
    }
    sampler_candidates(sampler, logits, c->history.id, c->history.len);
    *n = sampler_draw(sampler, *n, drawn);
    return request->keep_q ? keep_pool(request->draft, node, sampler->candidate, sampler->n, err) : 0;
}

static int child_sampler_add(struct child_sampler *c, const struct draft_request *request, size_t node,
                             size_t max, const float *logits, struct err *err)
{
    struct draft *draft = request->draft;
    const size_t at = draft->shape_node[node];
    size_t n = size_min(request->shape->children[at], max);
    struct draw drawn[TREE_RANKS];
    if (n == 0)
        return 0;
    if (child_sampler_begin(c, request, node, err) < 0 ||
        choose_children(c, request, node, logits, &n, drawn, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        draft_add(draft, node, drawn[i].id, request->shape->first[at] + i);
    return 0;
}

/* The n first draws; for p the chance to be the target's draw: the target's order differs by errors of the drafter's
 * probabilities, and of numbers that are scaled by independent exponential errors the i-th is the least in
 * proportion to its inverse. */
static size_t likely_draws(struct child_sampler *c, const float *logits, size_t n,
                           struct candidate *best)
{
    struct draw drawn[TREE_RANKS];
    double sum = 0;
    sampler_candidates(&c->sampler, logits, c->history.id, c->history.len);
    const size_t found = sampler_draw(&c->sampler, n, drawn);
    for (size_t i = 0; i < found; i++)
        sum += 1 / fmax(drawn[i].order, 1e-300);
    for (size_t i = 0; i < found; i++)
        best[i] = (struct candidate){.id = drawn[i].id, .p = 1 / fmax(drawn[i].order, 1e-300) / sum};
    return found;
}

static int child_sampler_top(struct child_sampler *c, const struct draft_request *request, size_t node,
                             const float *logits, size_t *n, struct candidate *best, struct err *err)
{
    if (child_sampler_begin(c, request, node, err) < 0)
        return -1;
    if (request->sampling->temp > 0 && !request->keep_q) {
        *n = likely_draws(c, logits, *n, best);
        return 0;
    }
    logits = sampler_adjusted(&c->sampler, logits, c->history.id, c->history.len);
    const double sum = log_sum_exp_allowed(logits, c->vocab, c->sampler.allowed);
    *n = best_allowed(c, logits, *n, best);
    for (size_t i = 0; i < *n; i++)
        best[i].p = exp(best[i].logit - sum);
    return 0;
}

static size_t level_begin(const struct draft *draft, size_t level)
{
    size_t i = 0;
    while (i < draft->n && draft->depth[i] < level)
        i++;
    return i;
}

static bool has_children(const struct draft_request *request, size_t level)
{
    const struct draft *draft = request->draft;
    for (size_t i = level_begin(draft, level); i < draft->n; i++)
        if (request->shape->children[draft->shape_node[i]])
            return true;
    return false;
}

static size_t add_tree(struct draft_tree *tree, struct session *session, size_t seq,
                       const struct draft *draft)
{
    /* Node i is token i - 1 of the batch, at depth - 1. */
    uint16_t parent[TREE_NODES], depth[TREE_NODES];
    const size_t n = draft->n - 1;
    for (size_t i = 1; i <= n; i++) {
        parent[i - 1] = (uint16_t)(draft->parent[i] ? draft->parent[i] - 1 : 0);
        depth[i - 1] = (uint16_t)(draft->depth[i] - 1);
        tree->depth[i - 1] = depth[i - 1];
    }
    tree_ancestors(parent, depth, n, tree->ancestors, tree->ancestors_at);
    return batch_add_tree(session, seq, &draft->token[1], tree->depth, n, tree->ancestors,
                          tree->ancestors_at);
}

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

/* Sets `chosen` for the `max` best candidates of a depth, or, for depth 0, of all; of equal ones the
 * first. */
static void choose_candidates(struct dynamic_tree *tree, size_t depth, size_t max)
{
    for (size_t i = 0; i < tree->n; i++)
        tree->candidate[i].chosen = false;
    for (size_t k = 0; k < max; k++) {
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
    choose_candidates(tree, depth, size_min(tree->top, TREE_NODES - end));
    for (size_t node = 0; node < end; node++)
        if (tree->expanded.depth[node] + (size_t)1 == depth)
            add_chosen(tree, tree->candidate_of[node], node, &tree->expanded, tree->candidate_of);
}

/* Adds the best n - 1 candidates to a draft that has its root; `probability` as in draft_request. */
static void dynamic_tree_finish(struct dynamic_tree *tree, size_t n, struct draft *draft,
                                float *probability)
{
    uint16_t candidate_of[TREE_NODES] = {DYNAMIC_ROOT};
    choose_candidates(tree, 0, n - 1);
    for (size_t node = 0; node < draft->n; node++)
        add_chosen(tree, candidate_of[node], node, draft, candidate_of);
    for (size_t node = 1; node < draft->n && probability; node++)
        probability[node] = tree->candidate[candidate_of[node]].probability;
}

/* ---- levels ---- */

/* True if the shape of the tree follows the model's probabilities. */
static bool is_dynamic(const struct draft_request *request)
{
    return request->dynamic && !draft_is_chain(request);
}

/* True if the draft goes on below a level. */
static bool goes_on(const struct draft_request *request, size_t level)
{
    if (!is_dynamic(request))
        return has_children(request, level);
    return level + 1 < request->shape->levels && level_begin(request->draft, level) < request->draft->n;
}

static bool any_goes_on(const struct draft_request *request, size_t n_requests, size_t level)
{
    for (size_t a = 0; a < n_requests; a++)
        if (goes_on(&request[a], level))
            return true;
    return false;
}

/* Returns rc; if it is negative, prefixes the error by the name of the model. */
static int levels_error(const struct level_drafter *d, int rc, struct err *err)
{
    return rc < 0 ? err_prefix(err, "%s", d->model) : rc;
}

static int check_finite(const struct level_drafter *d, size_t n, struct err *err)
{
    const size_t stride = session_vocab(d->session);
    char whose[32];
    snprintf(whose, sizeof whose, "the %s", d->model);
    for (size_t i = 0; i < n; i++)
        if (!logits_finite(d->logits + i * stride, d->max))
            return session_refuse_output(d->session, whose, "logits", err);
    return 0;
}

int levels_pass(struct level_drafter *d, bool prefill, size_t tokens, size_t done, size_t n_rows,
                struct err *err)
{
    const struct session_options *o = session_options(d->session);
    const double start = clock_ms();
    if (session_run(d->session, prefill ? o->threads_prefill : o->threads, err) < 0 ||
        (n_rows && session_logits(d->session, d->row, n_rows,
                                  d->logits + done * session_vocab(d->session), err) < 0))
        return levels_error(d, -1, err);
    if (prefill) {
        d->drafter.prefill_ms += clock_ms() - start;
        d->drafter.prefill_tokens += tokens;
    }
    return 0;
}

/* Adds a level of the draft to the batch. A chain's token is committed after the pass. Of a tree
 * all levels so far are added again: a pass attends to committed entries and its own batch only. */
static int add_level(struct level_drafter *d, const struct draft_request *request, size_t level,
                     size_t *n_rows, struct err *err)
{
    struct level_slot *slot = &d->slot[request->slot];
    const struct draft *draft = request->draft;
    const bool chain = draft_is_chain(request);
    const size_t from = level_begin(draft, level);
    const size_t first = chain ? batch_add(d->session, request->slot, &draft->token[from], 1) - from
                               : add_tree(&slot->tree, d->session, request->slot, draft) - 1;
    slot->logits = *n_rows;
    for (size_t i = from; i < draft->n; i++)
        d->row[(*n_rows)++] = first + i;
    return d->added(d, request, chain ? from : 1, first, err);
}

/* Computes the logits of a level for all requests whose draft goes on below it. */
static int run_level(struct level_drafter *d, const struct draft_request *request, size_t n_requests,
                     size_t level, struct err *err)
{
    size_t n_rows = 0;
    for (size_t a = 0; a < n_requests; a++)
        if (goes_on(&request[a], level) && add_level(d, &request[a], level, &n_rows, err) < 0)
            return -1;
    if (session_forward(d->session, session_options(d->session)->threads, err) < 0 ||
        session_logits(d->session, d->row, n_rows, d->logits, err) < 0)
        return levels_error(d, -1, err);
    for (size_t a = 0; a < n_requests; a++) {
        if (!goes_on(&request[a], level))
            continue;
        if (d->computed)
            d->computed(d, &request[a], level_begin(request[a].draft, level));
        session_commit(d->session, request[a].slot, draft_is_chain(&request[a]));
    }
    return check_finite(d, n_rows, err);
}

/* The probabilities of a node's children, for callers that want them. */
static void set_probabilities(const struct level_drafter *d, const struct draft_request *request,
                              size_t node, const float *logits)
{
    const struct draft *draft = request->draft;
    const double sum = log_sum_exp(logits, d->children.vocab);
    for (size_t i = 0; i < draft->children[node]; i++) {
        const size_t child = draft->first[node] + i;
        request->probability[child] = (float)exp(logits[draft->token[child]] - sum);
    }
}

/* Adds candidates below a node of a dynamic tree. */
static int add_candidates(struct level_drafter *d, const struct draft_request *request, size_t node,
                          const float *logits, struct err *err)
{
    struct dynamic_tree *tree = d->slot[request->slot].dynamic;
    struct candidate best[DYNAMIC_TOP];
    size_t found = size_min(tree->top, d->max);
    if (child_sampler_top(&d->children, request, node, logits, &found, best, err) < 0)
        return -1;
    dynamic_tree_add(tree, node, best, found);
    return 0;
}

/* Adds children to all nodes of a level. With mask tokens the nodes of a level share its logits. */
static int extend_level(struct level_drafter *d, const struct draft_request *request, size_t level,
                        struct err *err)
{
    const struct level_slot *slot = &d->slot[request->slot];
    const size_t from = level_begin(request->draft, level), to = request->draft->n;
    if (!goes_on(request, level))
        return 0;
    for (size_t i = from; i < to; i++) {
        const size_t row = slot->logits + (d->parallel ? level : i - from);
        const float *logits = d->logits + row * session_vocab(d->session);
        if (d->by_target_id)
            logits = d->by_target_id(d, logits);
        if ((is_dynamic(request)
                 ? add_candidates(d, request, i, logits, err)
                 : child_sampler_add(&d->children, request, i, d->max, logits, err)) < 0)
            return -1;
        if (request->probability && !is_dynamic(request))
            set_probabilities(d, request, i, logits);
    }
    if (is_dynamic(request) && level + 2 < request->shape->levels)
        dynamic_tree_expand(slot->dynamic, level + 1);
    return 0;
}

/* The requests, of dynamic trees with the draft of their expanded nodes in place of the result. */
static const struct draft_request *begin_trees(struct level_drafter *d,
                                               const struct draft_request *request, size_t n_requests)
{
    for (size_t a = 0; a < n_requests; a++) {
        struct dynamic_tree *tree = d->slot[request[a].slot].dynamic;
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

int levels_propose(struct level_drafter *d, const struct draft_request *requests, size_t n_requests,
                   size_t done, struct err *err)
{
    if (check_finite(d, done, err) < 0)
        return -1;
    const struct draft_request *request = begin_trees(d, requests, n_requests);
    for (size_t level = 0; any_goes_on(request, n_requests, level); level++) {
        if (level > 0 && !d->parallel && run_level(d, request, n_requests, level, err) < 0)
            return -1;
        for (size_t a = 0; a < n_requests; a++)
            if (extend_level(d, &request[a], level, err) < 0)
                return -1;
    }
    for (size_t a = 0; a < n_requests; a++)
        if (is_dynamic(&requests[a]))
            dynamic_tree_finish(d->slot[requests[a].slot].dynamic, requests[a].shape->n,
                                requests[a].draft, requests[a].probability);
    return 0;
}

/* ---- opening and closing ---- */

static bool alloc_slot(struct level_slot *slot, bool dynamic)
{
    struct draft_tree *tree = &slot->tree;
    tree->ancestors =
        mem_alloc((size_t)TREE_NODES * TREE_NODES / 2 + TREE_NODES, sizeof *tree->ancestors);
    tree->ancestors_at = mem_alloc(TREE_NODES + 1, sizeof *tree->ancestors_at);
    tree->depth = mem_alloc(TREE_NODES, sizeof *tree->depth);
    if (dynamic && (slot->dynamic = mem_zalloc(1, sizeof *slot->dynamic)))
        slot->dynamic->candidate = mem_alloc(DYNAMIC_CANDIDATES, sizeof *slot->dynamic->candidate);
    return tree->ancestors && tree->ancestors_at && tree->depth &&
           (!dynamic || (slot->dynamic && slot->dynamic->candidate));
}

int levels_open(struct level_drafter *d, size_t vocab, struct err *err)
{
    const size_t batch = session_options(d->session)->batch, rows = session_max_tokens(d->session);
    size_t logits;
    d->slot = mem_zalloc(batch, sizeof *d->slot);
    d->request = mem_alloc(batch, sizeof *d->request);
    d->row = mem_alloc(rows, sizeof *d->row);
    if (size_mul(size_min(rows, batch * TREE_NODES), session_vocab(d->session), &logits))
        d->logits = mem_alloc(logits, sizeof *d->logits);
    bool ok = d->slot && d->request && d->row && d->logits;
    for (size_t i = 0; ok && i < batch; i++)
        ok = alloc_slot(&d->slot[i], d->drafter.dynamic);
    return ok ? child_sampler_open(&d->children, vocab, err)
              : err_no_memory(err, "drafts of %zu sequences", batch);
}

void levels_close(struct level_drafter *d)
{
    for (size_t i = 0; d->slot && i < session_options(d->session)->batch; i++) {
        struct level_slot *slot = &d->slot[i];
        free(slot->tree.ancestors);
        free(slot->tree.ancestors_at);
        free(slot->tree.depth);
        if (slot->dynamic)
            free(slot->dynamic->candidate);
        free(slot->dynamic);
    }
    free(d->slot);
    free(d->request);
    free(d->row);
    free(d->logits);
    child_sampler_close(&d->children);
}
