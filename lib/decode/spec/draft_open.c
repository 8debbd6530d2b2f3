/* Opens draft models and draft heads as drafters. */
#include "decode/spec/drafter.h"
#include "model/draft_head.h"
#include "model/forward.h"

struct session_options draft_session_options(const struct session_options *target,
                                             const struct model *draft, size_t context, size_t max,
                                             bool keep_precision)
{
    struct session_options s = *target;
    s.context = context;
    s.chunk = size_min(s.chunk, s.context);
    s.split = s.kv.lockstep = false;
    s.kept_states = 0;
    s.recent_states = max + 2; /* the drafter returns to where the draft was rejected */
    s.leader = NULL;           /* rank 0 runs the whole draft model */
    s.gpu_layers = 0;          /* they are the target's */
    s.prefix_store = NULL;
    s.stored_every = 0;
    s.kv.scales = NULL; /* they are the target's */
    s.kv_types.n = 0;   /* likewise the types of layers */
    if (!keep_precision)
        s.cpu.precision = precision_default(s.cpu.kernels, model_weights_class(draft), &s.kv_types);
    return s;
}

int draft_session_open(struct session **session, const struct model *draft, struct session_options *s,
                       struct err *err)
{
    if (kv_spec_rolling(&s->kv) && kv_spec_parse(&s->kv, DEFAULT_POLICY, err) < 0)
        return -1; /* the drafter has its own rolling window */
    return draft_model_error(session_open(session, draft, s, err), err);
}

/* The drafter of a draft model's or draft head's session. */
static int open_model_drafter(struct drafter **drafter, const struct drafter_plan *plan,
                              struct session *target, struct err *err)
{
    const struct model *draft = session_model(plan->session);
    const bool head = config_is_draft_head(&draft->config);
    struct op_counts own, all;
    const struct cache_types f32 = cache_types_alike(DTYPE_F32);
    if (model_counts(&own, draft, &f32, err) < 0 ||
        model_counts(&all, session_model(target), &f32, err) < 0)
        return -1;
    const double cost = (double)own.weight_bytes / (double)all.weight_bytes;
    if (head)
        return draft_eagle_open(drafter, plan->session, target, plan->layer, cost, err);
    if (draft_model_check(session_model(target), draft, err) == 0)
        return draft_model_open(drafter, plan->session, session_vocab(target), cost, err);
    return err->code == ERR_NO_MEMORY
               ? -1
               : draft_bridge_open(drafter, plan->session, session_model(target), cost, err);
}

/* The tokens that sequences may have, for which fewer bytes are initialised than for the most. */
static size_t default_pool(const struct session *target)
{
    enum { LEAST = 1 << 15 };
    const struct session_options *o = session_options(target);
    size_t tokens;
    return size_mul(o->batch, o->context, &tokens)
               ? size_min(size_max(tokens, LEAST), DEFAULT_SUFFIX_POOL)
               : DEFAULT_SUFFIX_POOL;
}

int drafter_open(struct drafter **drafter, const struct drafter_plan *plan, struct session *target,
                 struct err *err)
{
    const size_t slots = session_options(target)->batch;
    struct drafter *first = NULL, *model = NULL;
    int rc = 0;
    *drafter = NULL;
    switch (plan->kind) {
    case DRAFTER_LOOKUP:
        rc = draft_lookup_open(&first, DEFAULT_LOOKUP_MAX, DEFAULT_LOOKUP_MIN, plan->oldest, err);
        break;
    case DRAFTER_SUFFIX:
        rc = draft_suffix_open(&first, slots, plan->pool ? plan->pool : default_pool(target),
                               plan->corpus, err);
        break;
    case DRAFTER_RECYCLE: rc = draft_recycle_open(&first, session_vocab(target), err); break;
    case DRAFTER_NONE: break;
    }
    if (rc == 0 && plan->session)
        rc = open_model_drafter(&model, plan, target, err);
    if (rc < 0) {
        drafter_close(first);
        return -1;
    }
    if (first && model)
        return draft_combined_open(drafter, first, model, slots, err);
    *drafter = first ? first : model;
    return 0;
}

/* ---- checks that a draft model has the target's vocabulary ---- */

/* Formats a token in quotes, or "no token" for an id outside the vocabulary. */
static void quote_piece(const struct buf *piece, char text[80])
{
    if (piece->len)
        snprintf(text, 80, "\"%.60s\"", piece->data);
    else
        snprintf(text, 80, "no token");
}

/* Fails unless an id is the same token in both models, and special in both or in neither. */
static int check_id(const struct model *target, const struct model *draft, uint32_t id, struct buf *a,
                    struct buf *b, struct err *err)
{
    const bool special = tokenizer_is_special(target->tok, id);
    if (tokenizer_piece_printable(target->tok, id, a, err) < 0 ||
        tokenizer_piece_printable(draft->tok, id, b, err) < 0)
        return -1;
    char target_piece[80], draft_piece[80];
    quote_piece(a, target_piece);
    quote_piece(b, draft_piece);
    if (a->len != b->len || (a->len && memcmp(a->data, b->data, a->len) != 0))
        return err_set(err,
                       "the draft model %s has another vocabulary: id %u is %s there and %s in the "
                       "target",
                       draft->name, id, draft_piece, target_piece);
    if (special != tokenizer_is_special(draft->tok, id))
        return err_set(err,
                       "the draft model %s has another vocabulary: id %u, %s, is %s there and "
                       "%s in the target",
                       draft->name, id, target_piece, special ? "an ordinary token" : "a special token",
                       special ? "a special token" : "an ordinary token");
    return 0;
}

int draft_model_check(const struct model *target, const struct model *draft, struct err *err)
{
    const size_t n = size_max(tokenizer_vocab(target->tok), tokenizer_vocab(draft->tok));
    AUTO(buf_release) struct buf a = {0}, b = {0};
    int rc = 0;
    for (uint32_t id = 0; id < n && rc == 0; id++) {
        buf_clear(&a);
        buf_clear(&b);
        rc = check_id(target, draft, id, &a, &b, err);
    }
    return rc;
}

int draft_attach(struct model *draft, const struct model *target, size_t layer[MAX_FEATURES],
                 struct err *err)
{
    return config_is_draft_head(&draft->config) ? draft_head_attach(draft, target, layer, err) : 0;
}
