/* Drafting level by level from a model's logits. */
#include "decode/spec/draft_levels.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

int child_sampler_open(struct child_sampler *c, size_t vocab, struct err *err)
{
    static const struct sampler_options greedy = {.repeat_penalty = 1}; /* requests replace it */
    c->vocab = vocab;
    return sampler_open(&c->sampler, &greedy, vocab, err) < 0 ? -1
                                                              : verifier_open(&c->verifier, vocab, err);
}

void child_sampler_close(struct child_sampler *c)
{
    ids_release(&c->history);
    sampler_close(&c->sampler);
    token_mask_release(&c->mask);
    free(c->list);
    verifier_close(&c->verifier);
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
    draft->q_at[node] = draft->pool_len;
    draft->q_n[node] = n;
    for (size_t i = 0; i < n; i++) {
        if (mem_grow(&draft->pool, &draft->pool_cap, draft->pool_len, sizeof *draft->pool, err) < 0)
            return -1;
        draft->pool[draft->pool_len++] = q[i];
    }
    return 0;
}

int child_sampler_add(struct child_sampler *c, const struct draft_request *request, size_t node,
                      size_t most, const float *logits, struct err *err)
{
    struct draft *draft = request->draft;
    struct sampler *sampler = &c->sampler;
    const size_t at = draft->shape_node[node];
    const size_t n = size_min(request->shape->children[at], most);
    uint32_t token[TREE_RANKS];
    size_t got = 0;
    if (n == 0)
        return 0;
    c->history.len = 0;
    sampler_begin(sampler, request->sampling, request->draws->seed, request->draws->line,
                  (uint32_t)(request->n_ids + draft->depth[node]));
    if ((sampler_uses_history(request->sampling) && make_history(c, request, node, err) < 0) ||
        constrain(c, draft, node, err) < 0)
        return -1;
    if (sampler->options.temp <= 0) {
        struct candidate best[TREE_RANKS];
        const float *used = sampler_adjusted(sampler, logits, c->history.id, c->history.len);
        const size_t found = best_allowed(c, used, n, best);
        for (; got < found; got++)
            token[got] = best[got].id;
    } else {
        sampler_sample(sampler, logits, c->history.id, c->history.len, 0);
        size_t n_q = sampler->n; /* tokens that the model cannot draft come last */
        if (n_q == 0)
            return 0;
        while (n_q > 1 && sampler->candidate[n_q - 1].p <= 0)
            n_q--;
        if (keep_pool(draft, node, sampler->candidate, n_q, err) < 0)
            return -1;
        got =
            sample_without_replacement(&c->verifier, sampler->candidate, n_q, n, request->draws, token);
    }
    for (size_t i = 0; i < got; i++)
        draft_add(draft, node, token[i], request->shape->first[at] + i);
    return 0;
}

int child_sampler_top(struct child_sampler *c, const struct draft_request *request, size_t node,
                      const float *logits, size_t *n, struct candidate *best, struct err *err)
{
    c->history.len = 0;
    c->sampler.options = *request->sampling;
    if ((sampler_uses_history(request->sampling) && make_history(c, request, node, err) < 0) ||
        constrain(c, request->draft, node, err) < 0)
        return -1;
    logits = sampler_adjusted(&c->sampler, logits, c->history.id, c->history.len);
    const double sum = log_sum_exp_allowed(logits, c->vocab, c->sampler.allowed);
    *n = best_allowed(c, logits, *n, best);
    for (size_t i = 0; i < *n; i++)
        best[i].p = exp(best[i].logit - sum);
    return 0;
}

size_t draft_level_begin(const struct draft *draft, size_t level)
{
    size_t i = 0;
    while (i < draft->n && draft->depth[i] < level)
        i++;
    return i;
}

bool draft_has_children(const struct draft_request *request, size_t level)
{
    const struct draft *draft = request->draft;
    for (size_t i = draft_level_begin(draft, level); i < draft->n; i++)
        if (request->shape->children[draft->shape_node[i]])
            return true;
    return false;
}

bool draft_any_children(const struct draft_request *request, size_t n_requests, size_t level)
{
    for (size_t a = 0; a < n_requests; a++)
        if (draft_has_children(&request[a], level))
            return true;
    return false;
}

bool draft_tree_alloc(struct draft_tree *tree)
{
    tree->ancestors =
        mem_alloc((size_t)TREE_NODES * TREE_NODES / 2 + TREE_NODES, sizeof *tree->ancestors);
    tree->ancestors_at = mem_alloc(TREE_NODES + 1, sizeof *tree->ancestors_at);
    tree->depth = mem_alloc(TREE_NODES, sizeof *tree->depth);
    return tree->ancestors && tree->ancestors_at && tree->depth;
}

void draft_tree_release(struct draft_tree *tree)
{
    free(tree->ancestors);
    free(tree->ancestors_at);
    free(tree->depth);
}

size_t draft_tree_add(struct draft_tree *tree, struct session *session, size_t seq,
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
