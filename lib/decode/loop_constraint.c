/* Constraints of requests in flight. */
#include "decode/loop.h"

/* The tokens that end the request: the model's and its own, or none with ignore_eos. */
static int collect_ends(const struct loop *loop, struct slot *slot, struct err *err)
{
    const struct gen_request *request = slot->request;
    const struct config *config = &session_model(loop->session)->config;
    slot->ends.len = 0;
    for (size_t i = 0; i < config->n_eos && !request->ignore_eos; i++)
        if (ids_add(&slot->ends, config->eos[i], err) < 0)
            return -1;
    for (size_t i = 0; i < request->turn_end.n_ids && !request->ignore_eos; i++)
        if (ids_add(&slot->ends, request->turn_end.id[i], err) < 0)
            return -1;
    return 0;
}

int loop_constraint_begin(struct loop *loop, struct slot *slot, struct err *err)
{
    struct constraint *constraint = slot->request->constraint;
    if (constraint_begin(&slot->constrained, constraint, err) < 0 ||
        (constraint && collect_ends(loop, slot, err) < 0))
        return -1;
    if (constraint && constraint_is_complete(constraint, slot->constrained.state))
        return err_set(err, "the constraint allows the empty text only: nothing can be generated");
    return 0;
}

int loop_constrain(struct loop *loop, const struct slot *slot, struct err *err)
{
    const struct constraint_cursor *at = &slot->constrained;
    loop->sampler.allowed = NULL;
    if (!at->constraint)
        return 0;
    if (token_mask_set(&loop->mask, at->constraint, at->state, &slot->ends, err) < 0)
        return -1;
    if (!loop->mask.any)
        return err_set(err, "no token of the vocabulary continues the text as the constraint asks for");
    loop->sampler.allowed = loop->mask.bits;
    return 0;
}

int loop_constraint_advance(struct slot *slot, uint32_t id, bool *complete, struct err *err)
{
    struct constraint_cursor *at = &slot->constrained;
    *complete = false;
    if (!at->constraint)
        return 0;
    if (constraint_advance(at, id, err) < 0)
        return -1;
    *complete = constraint_is_complete(at->constraint, at->state);
    return 0;
}
