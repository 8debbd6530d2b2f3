/* Functions on drafts that all drafters use. */
#include "decode/spec/drafter.h"

#include <assert.h>

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
