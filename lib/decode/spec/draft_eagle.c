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

#include "base/mem.h"
#include "base/text_util.h"
#include "decode/spec/draft_levels.h"

/* Hidden states kept for a new window, and those that wait before read_hidden() feeds them to the
 * head. */
enum { KEEP_STATES = DRAFT_HEAD_PROMPT, MOST_WAITING = 256 };

/* The window of a slot's sequence that the head knows: positions from `start` on. */
struct head_window {
    size_t seq; /* sequence of the head's cache: the slot */
    size_t start;
    struct ids ids; /* tokens of the window: `known`, or one more when the last entry has been fed */
    size_t known;   /* positions whose hidden states have arrived */
    size_t fed;     /* entries in the head's cache; at most `known` */
    float *state;   /* [held][width] hidden states of positions known - held .. known */
    size_t held, states_cap;
    float *hidden;   /* [TREE_NODES][hidden] the head's output for each node of the draft */
    size_t last_row; /* of the pass, if it has the window's last entry; SIZE_MAX: not */
};

struct eagle_drafter {
    struct level_drafter levels; /* first */
    struct excerpt name;         /* the head's family */
    struct session *session, *target;
    size_t width, hidden; /* of a hidden state from the target; of the head's own */
    struct head_window *window;
    float *target_logits; /* [the target's vocabulary]; NULL: both have the same */
    const float *offset;  /* of the target's ids; NULL: 0 */
    const float *mask;    /* hidden state of the mask tokens of a parallel head; NULL: not parallel */
    uint32_t mask_token;
};

/* ---- hidden states from the target ---- */

static void begin_window(struct eagle_drafter *d, struct head_window *w, size_t start)
{
    w->start = start;
    w->ids.len = w->known = w->fed = w->held = 0;
    session_truncate(d->session, w->seq, 0);
}

/* Begins a new window with the last `n` hidden states. */
static void shorten_window(struct eagle_drafter *d, struct head_window *w, size_t n)
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
static bool continues_window(const struct head_window *w, const uint32_t *ids, size_t first)
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
        session_set_feature(d->session, first + n + i, false, d->mask);
    for (size_t i = 0; i < n; i++)
        session_set_feature(d->session, first + i, false, state_of(d, w, w->fed + i));
    w->fed += n;
    if (w->fed == end)
        w->last_row = first + n - 1;
    return n;
}

/* Runs a pass over `n` entries; n_rows and done as for levels_pass(). */
static int feed_pass(struct eagle_drafter *d, size_t n, size_t n_requests, size_t done, size_t n_rows,
                     struct err *err)
{
    return levels_pass(&d->levels, n > 8 * n_requests, n, done, n_rows, err);
}

/* Hidden states of a long prompt are fed as they come, to bound their memory. */
static int feed_waiting(struct eagle_drafter *d, struct head_window *w, struct err *err)
{
    const size_t context = session_options(d->session)->context;
    if (w->known - w->fed <= MOST_WAITING)
        return 0;
    if (w->known > context)
        shorten_window(d, w, size_min(w->held, size_min(KEEP_STATES, (context + 1) / 2)));
    while (w->fed + 1 < w->known)
        if (feed_pass(d, add_entries(d, w, w->known - 1, 0), 1, 0, 0, err) < 0)
            return -1;
    return 0;
}

static int read_hidden(struct drafter *drafter, size_t slot, const uint32_t *ids, size_t first,
                       const size_t *row, size_t n, struct err *err)
{
    struct eagle_drafter *d = (struct eagle_drafter *)drafter;
    struct head_window *w = &d->window[slot];
    if (session_length(d->session, w->seq) < w->fed || !continues_window(w, ids, first))
        begin_window(d, w, first);
    w->ids.len = w->known;
    for (size_t i = 0; i < n; i++) {
        if (grow_states(d, w, err) < 0 || ids_add(&w->ids, ids[first + i], err) < 0)
            return -1;
        session_hidden(d->target, row[i], w->state + w->held * d->width);
        w->held++;
        w->known++;
    }
    return feed_waiting(d, w, err);
}

/* True if the hidden states of all tokens of the sequence but the newest have arrived. */
static bool is_ready(const struct eagle_drafter *d, const struct draft_request *request)
{
    const struct head_window *w = &d->window[request->slot];
    return w->known && w->start + w->known + 1 == request->n_ids;
}

/* Appends the newest token to the window; begins a new window if the draft does not fit. */
static int align_window(struct eagle_drafter *d, const struct draft_request *request, struct err *err)
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
        shorten_window(d, w, size_min(w->held, KEEP_STATES)); /* the cache was cleared */
    if (w->known + more > context)
        shorten_window(d, w,
                       size_min(w->held, size_min(KEEP_STATES, size_max((context - more) / 2, 1))));
    w->fed = size_min(w->fed, w->known - 1); /* the last entry is computed again, for its output */
    session_truncate(d->session, w->seq, w->fed);
    for (size_t i = 0; i < levels_masks(&d->levels, request);
         i++) /* for add_entries(), behind the window's */
        if (ids_add(&w->ids, d->mask_token, err) < 0)
            return -1;
    w->ids.len = w->known + 1;
    return 0;
}

/* Completes the head's entries for all sequences; sets level 0's logits and hidden states, and with a
 * parallel head the logits of all levels. */
static int feed_all(struct eagle_drafter *d, const struct draft_request *request, size_t n_requests,
                    size_t *done, struct err *err)
{
    size_t *row = d->levels.row, n_done = 0;
    while (n_done < n_requests) {
        size_t n = 0, n_rows = 0;
        for (size_t a = 0; a < n_requests; a++) {
            struct head_window *w = &d->window[request[a].slot];
            const size_t masks = levels_masks(&d->levels, &request[a]);
            n += add_entries(d, w, w->known, masks);
            if (w->last_row == SIZE_MAX)
                continue;
            d->levels.slot[request[a].slot].logits = *done + n_rows;
            for (size_t i = 0; i <= masks; i++)
                row[n_rows++] = w->last_row + i;
            n_done++;
        }
        if (n_requests == 1 && n_rows > 0)
            session_skip_outputs(d->session, row[0]);
        if (feed_pass(d, n, n_requests, *done, n_rows, err) < 0)
            return -1;
        for (size_t a = 0; a < n_requests; a++) {
            struct head_window *w = &d->window[request[a].slot];
            if (w->last_row != SIZE_MAX)
                session_hidden(d->session, w->last_row, w->hidden);
        }
        *done += n_rows;
    }
    return 0;
}

static const float *by_target_id(struct level_drafter *levels, const float *logits)
{
    struct eagle_drafter *d = (struct eagle_drafter *)levels;
    for (size_t i = 0; i < session_vocab(d->target); i++)
        d->target_logits[i] = -FLT_MAX; /* tokens that the head cannot draft */
    for (size_t i = 0; i < session_vocab(d->session); i++)
        d->target_logits[i + (size_t)(ptrdiff_t)d->offset[i]] = logits[i];
    return d->target_logits;
}

/* Nodes read the head's output for their parents. */
static int set_features(struct level_drafter *levels, const struct draft_request *request, size_t from,
                        size_t first, struct err *err)
{
    struct eagle_drafter *d = (struct eagle_drafter *)levels;
    const struct draft *draft = request->draft;
    (void)err;
    for (size_t i = from; i < draft->n; i++)
        session_set_feature(d->session, first + i, true,
                            d->window[request->slot].hidden + draft->parent[i] * d->hidden);
    return 0;
}

/* Keeps the head's output for the nodes of a level. */
static void keep_outputs(struct level_drafter *levels, const struct draft_request *request, size_t from)
{
    struct eagle_drafter *d = (struct eagle_drafter *)levels;
    const size_t *row = levels->row + levels->slot[request->slot].logits;
    for (size_t i = from; i < request->draft->n; i++)
        session_hidden(d->session, row[i - from], d->window[request->slot].hidden + i * d->hidden);
}

static int propose_by_head(struct drafter *drafter, const struct draft_request *request,
                           size_t n_requests, struct err *err)
{
    struct eagle_drafter *d = (struct eagle_drafter *)drafter;
    size_t done = 0;
    for (size_t a = 0; a < n_requests; a++)
        if (!is_ready(d, &request[a]))
            return err_set(err,
                           "the draft head lacks hidden states of slot %zu: this is a bug in bmc, "
                           "please report it with the command and its input",
                           request[a].slot);
    for (size_t a = 0; a < n_requests; a++)
        if (align_window(d, &request[a], err) < 0)
            return -1;
    if (n_requests && (feed_all(d, request, n_requests, &done, err) < 0 ||
                       levels_propose(&d->levels, request, n_requests, done, err) < 0))
        return -1;
    for (size_t a = 0; a < n_requests; a++) /* entries of chains */
        session_truncate(d->session, d->window[request[a].slot].seq, d->window[request[a].slot].fed);
    return 0;
}

/* ---- opening and closing ---- */

static void close_eagle(struct drafter *drafter)
{
    AUTO(free_auto) struct eagle_drafter *d = (struct eagle_drafter *)drafter;
    for (size_t i = 0; d->window && i < session_options(d->session)->batch; i++) {
        struct head_window *w = &d->window[i];
        ids_release(&w->ids);
        free(w->state);
        free(w->hidden);
    }
    free(d->window);
    free(d->target_logits);
    levels_close(&d->levels);
}

static int alloc_windows(struct eagle_drafter *d, struct err *err)
{
    const size_t batch = session_options(d->session)->batch;
    d->window = mem_zalloc(batch, sizeof *d->window);
    if (d->offset)
        d->target_logits = mem_alloc(session_vocab(d->target), sizeof *d->target_logits);
    bool ok = d->window && (d->target_logits || !d->offset);
    for (size_t i = 0; ok && i < batch; i++) {
        d->window[i].seq = i;
        d->window[i].hidden = mem_alloc(TREE_NODES, d->hidden * sizeof *d->window[i].hidden);
        ok = d->window[i].hidden != NULL;
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
    const struct weights *weights = &session_model(session)->weights;
    *d = (struct eagle_drafter){.levels = {.drafter = {.name = d->name.text,
                                                       .ranks = TREE_RANKS,
                                                       .cost = weights->mask_feature ? 0 : cost,
                                                       .propose = propose_by_head,
                                                       .read_hidden = read_hidden,
                                                       .dynamic = true,
                                                       .close = close_eagle,
                                                       .session = session},
                                           .session = session,
                                           .model = "draft head",
                                           .max = session_vocab(session),
                                           .parallel = weights->mask_feature != NULL,
                                           .added = set_features,
                                           .computed = keep_outputs,
                                           .by_target_id = weights->draft_offset ? by_target_id : NULL},
                                .name = excerpt_of(c->family, strlen(c->family)),
                                .session = session,
                                .target = target,
                                .width = config_feature_width(c),
                                .hidden = c->hidden,
                                .offset = weights->draft_offset,
                                .mask = weights->mask_feature,
                                .mask_token = (uint32_t)c->mask_token};
    if (session_tap(target, layer, c->draft->features, err) < 0 ||
        session_tap(session, (const size_t[]){c->draft->norm_output ? HIDDEN_FINAL : c->layers}, 1,
                    err) < 0 ||
        levels_open(&d->levels, session_vocab(target), err) < 0 || alloc_windows(d, err) < 0) {
        close_eagle(&d->levels.drafter);
        return -1;
    }
    *out = &d->levels.drafter;
    return 0;
}
