/* Opens draft models and draft heads as drafters. */
#include "decode/spec/drafter.h"
#include "model/draft_head.h"

struct session_options draft_session_options(const struct session_options *target,
                                             const struct model *draft, size_t context, size_t most,
                                             bool keep_precision)
{
    struct session_options s = *target;
    s.context = context;
    s.chunk = size_min(s.chunk, s.context);
    s.split = s.kv.lockstep = false;
    s.kept_states = 0;
    s.recent_states = most + 2; /* the drafter returns to where the draft was rejected */
    s.leader = NULL;            /* rank 0 runs the whole draft model */
    s.prefix_store = NULL;
    s.kv.scales = NULL; /* they are the target's */
    if (!keep_precision && model_is_quantized(draft))
        s.precision = precision_default(s.kernels, true); /* the target's may be for bf16 weights */
    return s;
}

int draft_session_open(struct session **session, const struct model *draft, struct session_options *s,
                       struct err *err)
{
    if (kv_spec_rolling(&s->kv) && kv_spec_parse(&s->kv, DEFAULT_POLICY, err) < 0)
        return -1; /* the drafter has its own rolling window */
    return draft_model_error(session_open(session, draft, s, err), err);
}

int draft_session_drafter(struct drafter **drafter, struct session *session, struct session *target,
                          const size_t *layer, struct err *err)
{
    const struct model *draft = session_model(session);
    const bool head = config_is_draft_head(&draft->config);
    const size_t bytes = head ? draft_head_step_bytes(draft) : model_step_bytes(draft);
    const double cost = (double)bytes / (double)model_step_bytes(session_model(target));
    return head ? draft_eagle_open(drafter, session, target, layer, cost, err)
                : draft_model_open(drafter, session, session_vocab(target), cost, err);
}

int draft_add_fallback(struct drafter **drafter, struct drafter *fallback, size_t slots,
                       struct err *err)
{
    struct drafter *first = *drafter;
    *drafter = first ? NULL : fallback;
    return first ? draft_combined_open(drafter, first, fallback, slots, err) : 0;
}
