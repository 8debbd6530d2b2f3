/* Removing draft tokens that a constraint does not allow. */
#include "decode/spec/draft_constraint.h"

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
