/* Functions on drafts that all drafters use. */
#include "decode/spec/drafter.h"

void drafter_close(struct drafter *drafter)
{
    if (drafter)
        drafter->close(drafter);
}

void draft_begin(struct draft *draft, uint32_t root)
{
    draft->n = 1;
    draft->token[0] = root;
    draft->parent[0] = draft->depth[0] = draft->children[0] = draft->shape_node[0] = 0;
    draft->q_n[0] = 0;
    draft->pool_len = 0;
}

void draft_cut(struct draft *draft, size_t n)
{
    draft->n = size_min(draft->n, n + 1);
    draft->children[draft->n - 1] = 0;
}

void draft_add(struct draft *draft, size_t parent, uint32_t token, size_t shape_node)
{
    const size_t i = draft->n++;
    assert(i < TREE_NODES);
    if (draft->children[parent]++ == 0)
        draft->first[parent] = (uint16_t)i;
    assert(draft->first[parent] + draft->children[parent] == draft->n);
    draft->token[i] = token;
    draft->parent[i] = (uint16_t)parent;
    draft->depth[i] = (uint16_t)(draft->depth[parent] + 1);
    draft->shape_node[i] = (uint16_t)shape_node;
    draft->children[i] = 0;
    draft->q_n[i] = 0;
    if (draft->constraint)
        draft->state[i] = constraint_next(draft->constraint, draft->state[parent], token);
}

/* ---- removing draft tokens that a constraint does not allow ---- */

void draft_prune(struct draft *draft)
{
    uint16_t moved[TREE_NODES] = {0}; /* new index of each node that is kept */
    bool kept[TREE_NODES] = {true};
    size_t n = 1;
    if (!draft->constraint)
        return;
    draft->children[0] = 0;
    for (size_t i = 1; i < draft->n; i++) {
        const uint16_t parent = draft->parent[i], above = moved[parent];
        kept[i] = kept[parent] && token_is_allowed(draft->constraint, draft->state[above], draft->ends,
                                                   draft->token[i]);
        if (!kept[i])
            continue;
        const uint16_t to = (uint16_t)n++;
        moved[i] = to;
        draft->token[to] = draft->token[i];
        draft->state[to] = draft->state[i];
        draft->depth[to] = draft->depth[i];
        draft->shape_node[to] = draft->shape_node[i];
        draft->q_at[to] = draft->q_at[i];
        draft->q_n[to] = draft->q_n[i];
        draft->parent[to] = above;
        draft->children[to] = 0;
        if (draft->children[above]++ == 0)
            draft->first[above] = to;
    }
    draft->n = n;
}
