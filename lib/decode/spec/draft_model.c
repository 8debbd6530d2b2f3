/* Drafting with a smaller model, which has its own session. At every step the tokens in its KV
 * cache are compared with the sequence and the cache is truncated where they differ, so it need not
 * be told which draft tokens were accepted.
 *
 * A parallel draft model (PARD, An et al., 2025) drafts all levels in one pass: mask tokens follow the
 * sequence, and the logits of the i-th mask are those of level i + 1, whatever the levels before drew.
 *
 * Its context may be shorter than the sequence: when it is full, BOS and the newer half of the sequence
 * are computed again in one pass. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "decode/spec/draft_levels.h"

/* The window of a slot's sequence whose KV entries the draft model's cache holds. */
struct window {
    size_t seq;     /* KV cache sequence of the draft model */
    struct ids fed; /* tokens of the window that have KV entries */
    /* The window is the first `kept` tokens of the slot's sequence, then those behind `skipped` others. */
    size_t kept, skipped;
    /* Index in model_drafter.logits: of the level just computed, or, with mask tokens, of level 0. */
    size_t logits;
    struct draft_tree tree;
};

struct model_drafter {
    struct drafter drafter;
    struct session *session;
    struct child_sampler children;
    size_t vocab;  /* the smaller vocabulary size of both models: draft tokens are below it */
    uint32_t mask; /* mask token of a parallel draft model; 0: levels are drafted one by one */
    struct window *window;
    float *logits;   /* [tokens][draft model's vocabulary]: of the last pass */
    size_t *row;     /* [max_rows]: batch indices of tokens whose logits are needed */
    uint32_t *token; /* [max_rows]: ids to add to the batch */
    size_t max_rows;
};

static size_t stride(const struct model_drafter *d) { return session_vocab(d->session); }

/* The id to give to the draft model: 0 for ids of the target that the draft model lacks. */
static uint32_t draft_id(const struct model_drafter *d, uint32_t id) { return id < d->vocab ? id : 0; }

/* The index in the slot's sequence of token i of the window. */
static size_t index_of(const struct window *w, size_t i) { return i < w->kept ? i : i + w->skipped; }

/* Begins a window that leaves room for `more` tokens. */
static void place(const struct model_drafter *d, struct window *w, const struct draft_request *request,
                  size_t more)
{
    const size_t context = session_options(d->session)->context, space = context - more;
    const size_t kept = session_kept_tokens(d->session, request->ids, request->n_ids);
    const bool whole = request->n_ids <= space;
    w->kept = size_min(kept, space);
    w->skipped = whole ? 0
                       : request->n_ids - w->kept -
                             size_min(request->n_ids - w->kept, size_max((space - w->kept) / 2, 1));
    session_begin(d->session, w->seq, request->n_ids - w->skipped + more - 1, context);
}

/* Truncates the draft model's KV cache where its tokens differ from the slot's sequence; moves the
 * window to later tokens if the draft model's context is full. */
static int align(struct model_drafter *d, const struct draft_request *request, struct err *err)
{
    struct window *w = &d->window[request->slot];
    const size_t context = session_options(d->session)->context;
    const size_t more = size_max(request->shape->n, request->shape->levels);
    const size_t have = size_min(w->fed.len, session_length(d->session, w->seq));
    size_t same = 0;
    if (more > context)
        return err_set(err, "%zu draft tokens do not fit the draft model's context of %zu", more - 1,
                       context);
    if (w->skipped < request->n_ids && request->n_ids - w->skipped + more <= context)
        while (same < have && index_of(w, same) + 1 < request->n_ids &&
               w->fed.id[same] == request->ids[index_of(w, same)])
            same++;
    same = session_rewind(d->session, w->seq, same);
    if (same <= w->kept && w->skipped) /* BOS alone: of another sequence */
        same = 0;
    const size_t left = session_unscaled(d->session, w->seq);
    if (left < SIZE_MAX &&
        request->n_ids - w->skipped + more - 1 > session_length(d->session, w->seq) + left)
        same = 0; /* its rotary frequencies change */
    if (same == 0)
        place(d, w, request, more);
    w->fed.len = same;
    session_truncate(d->session, w->seq, same);
    return 0;
}

int draft_model_error(int rc, struct err *err) { return rc < 0 ? err_prefix(err, "draft model") : rc; }

static int check_finite(const struct model_drafter *d, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++)
        if (!logits_finite(d->logits + i * stride(d), d->vocab))
            return session_refuse_output(d->session, "the draft model", "logits", err);
    return 0;
}

/* Mask tokens that follow a sequence: one for each level below the first. */
static size_t count_masks(const struct model_drafter *d, const struct draft_request *request)
{
    return d->mask ? request->shape->levels - 2 : 0;
}

/* Adds to the batch the tokens of a sequence that the draft model's cache lacks, as far as they fit,
 * and mask tokens after the last one; sets *n_rows to the rows of the batch whose logits are drafts,
 * the last one's and the masks', and lists them in `row`. */
static int add_tokens(struct model_drafter *d, const struct draft_request *request, size_t *row,
                      size_t *n_rows, struct err *err)
{
    struct window *w = &d->window[request->slot];
    const size_t have = w->fed.len, left = request->n_ids - w->skipped - have;
    const size_t masks = count_masks(d, request), space = batch_space(d->session);
    const bool last = left > 0 && left + masks <= space;
    const size_t n = last ? left : size_min(space, left - (left > 0 && masks > 0));
    *n_rows = 0;
    if (n == 0)
        return 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t id = request->ids[index_of(w, have + i)];
        d->token[i] = draft_id(d, id);
        if (ids_add(&w->fed, id, err) < 0)
            return -1;
    }
    for (size_t i = 0; last && i < masks; i++)
        d->token[n + i] = d->mask;
    session_mark(d->session, w->seq, w->fed.len); /* masks are dropped after the pass */
    const size_t first = batch_add(d->session, w->seq, d->token, n + (last ? masks : 0));
    for (size_t i = 0; last && i <= masks; i++)
        row[(*n_rows)++] = first + n - 1 + i;
    return 0;
}

/* One pass of the draft model over the requests' missing tokens, as far as they fit; *done counts
 * rows of logits, *left the requests that need another pass. */
static int feed_pass(struct model_drafter *d, const struct draft_request *request, size_t n_requests,
                     bool prefill, size_t *done, size_t *left, struct err *err)
{
    struct session *s = d->session;
    const double start = clock_ms();
    size_t n_rows = 0, fed = 0;
    for (size_t a = 0; a < n_requests; a++) {
        struct window *w = &d->window[request[a].slot];
        const size_t before = w->fed.len;
        size_t n;
        if (add_tokens(d, &request[a], d->row + n_rows, &n, err) < 0)
            return -1;
        if (n > 0) {
            w->logits = *done + n_rows;
            (*left)--;
        }
        n_rows += n;
        fed += w->fed.len - before;
    }
    if (n_requests == 1 && n_rows > 0)
        session_skip_outputs(s, d->row[0]);
    if (session_run(s, prefill ? session_options(s)->threads_prefill : session_options(s)->threads,
                    err) < 0 ||
        session_logits(s, d->row, n_rows, d->logits + *done * stride(d), err) < 0)
        return draft_model_error(-1, err);
    for (size_t a = 0; a < n_requests && d->mask; a++)
        session_truncate(s, d->window[request[a].slot].seq, d->window[request[a].slot].fed.len);
    *done += n_rows;
    if (prefill) {
        d->drafter.prefill_ms += clock_ms() - start;
        d->drafter.prefill_tokens += fed;
    }
    return 0;
}

/* Prefills the draft model's cache with all tokens of the requests; sets d->logits to the logits after
 * the last token of each, and after the mask tokens behind it. */
static int feed_history(struct model_drafter *d, const struct draft_request *request, size_t n_requests,
                        struct err *err)
{
    size_t done = 0, missing = 0;
    for (size_t a = 0; a < n_requests; a++) {
        const struct window *w = &d->window[request[a].slot];
        if (align(d, &request[a], err) < 0)
            return -1;
        missing += request[a].n_ids - w->skipped - w->fed.len;
    }
    /* in one pass or several */
    const bool prefill = missing > 8 * n_requests;
    for (size_t left = n_requests; left > 0;)
        if (feed_pass(d, request, n_requests, prefill, &done, &left, err) < 0)
            return -1;
    return check_finite(d, done, err);
}

/* Adds a level of the draft to the batch. A chain's token is committed after the pass. Of a tree
 * all levels so far are added again: a pass attends to committed entries and its own batch only. */
static int add_level(struct model_drafter *d, const struct draft_request *request, size_t level,
                     size_t *n_rows, struct err *err)
{
    struct window *w = &d->window[request->slot];
    const struct draft *draft = request->draft;
    const size_t from = draft_level_begin(draft, level);
    size_t first;
    if (draft_is_chain(request)) {
        first = batch_add(d->session, w->seq, &draft->token[from], 1);
        if (ids_add(&w->fed, draft->token[from], err) < 0)
            return -1;
        first -= from;
    } else {
        first = draft_tree_add(&w->tree, d->session, w->seq, draft) - 1;
    }
    w->logits = *n_rows;
    for (size_t i = from; i < draft->n; i++)
        d->row[(*n_rows)++] = first + i;
    return 0;
}

/* Computes the draft model's logits after the nodes of a level, for all requests whose draft gets
 * another level. */
static int run_level(struct model_drafter *d, const struct draft_request *request, size_t n_requests,
                     size_t level, struct err *err)
{
    size_t n_rows = 0;
    for (size_t a = 0; a < n_requests; a++)
        if (draft_has_children(&request[a], level) &&
            add_level(d, &request[a], level, &n_rows, err) < 0)
            return -1;
    if (session_forward(d->session, session_options(d->session)->threads, err) < 0 ||
        session_logits(d->session, d->row, n_rows, d->logits, err) < 0)
        return draft_model_error(-1, err);
    for (size_t a = 0; a < n_requests; a++)
        if (draft_has_children(&request[a], level)) {
            session_accept(d->session, d->window[request[a].slot].seq, &(size_t){0},
                           draft_is_chain(&request[a]));
        }
    return check_finite(d, n_rows, err);
}

/* Adds children to all nodes of a level. With mask tokens the nodes of a level share its logits. */
static int extend_level(struct model_drafter *d, const struct draft_request *request, size_t level,
                        struct err *err)
{
    const size_t from = draft_level_begin(request->draft, level), to = request->draft->n;
    const size_t first = d->window[request->slot].logits + (d->mask ? level : 0);
    for (size_t i = from; i < to && draft_has_children(request, level); i++)
        if (child_sampler_add(&d->children, request, i, d->vocab,
                              d->logits + (first + (d->mask ? 0 : i - from)) * stride(d), err) < 0)
            return -1;
    return 0;
}

static int propose(struct drafter *drafter, const struct draft_request *request, size_t n_requests,
                   struct err *err)
{
    struct model_drafter *d = (struct model_drafter *)drafter;
    if (n_requests == 0)
        return 0;
    if (feed_history(d, request, n_requests, err) < 0)
        return -1;
    for (size_t level = 0; draft_any_children(request, n_requests, level); level++) {
        if (level > 0 && !d->mask && run_level(d, request, n_requests, level, err) < 0)
            return -1;
        for (size_t a = 0; a < n_requests; a++)
            if (extend_level(d, &request[a], level, err) < 0)
                return -1;
    }
    return 0;
}

static void close_model(struct drafter *drafter)
{
    struct model_drafter *d = (struct model_drafter *)drafter;
    for (size_t i = 0; d->window && i < session_options(d->session)->batch; i++) {
        ids_release(&d->window[i].fed);
        draft_tree_release(&d->window[i].tree);
    }
    free(d->window);
    free(d->logits);
    free(d->row);
    free(d->token);
    child_sampler_close(&d->children);
    free(d);
}

static int alloc_buffers(struct model_drafter *d, struct err *err)
{
    const size_t batch = session_options(d->session)->batch;
    d->max_rows = session_max_tokens(d->session);
    d->window = mem_zalloc(batch, sizeof *d->window);
    d->row = mem_alloc(d->max_rows, sizeof *d->row);
    d->token = mem_alloc(d->max_rows, sizeof *d->token);
    size_t logits;
    if (size_mul(size_min(d->max_rows, batch * TREE_NODES), stride(d), &logits))
        d->logits = mem_alloc(logits, sizeof *d->logits);
    bool ok = d->window && d->row && d->token && d->logits;
    for (size_t i = 0; ok && i < batch; i++) {
        struct window *w = &d->window[i];
        w->seq = i;
        ok = draft_tree_alloc(&w->tree);
    }
    return ok ? 0 : err_no_memory(err, "drafts of %zu sequences", batch);
}

/* Runs a pass to fault in memory: page faults take longer than a pass of a small draft model, and
 * the throttle would take their time for a loss. */
static int warm_up(struct model_drafter *d, struct err *err)
{
    enum { ROWS = 16 };
    static const uint32_t token[ROWS];
    struct session *s = d->session;
    const size_t n = size_min(ROWS, size_min(batch_space(s), session_options(s)->context));
    const size_t first = batch_add(s, 0, token, n);
    if (session_run(s, session_options(s)->threads, err) < 0 ||
        session_logits(s, &first, 1, d->logits, err) < 0)
        return draft_model_error(-1, err);
    session_clear(s, 0);
    return 0;
}

int draft_model_open(struct drafter **out, struct session *session, size_t target_vocab, double cost,
                     struct err *err)
{
    struct model_drafter *d = mem_zalloc(1, sizeof *d);
    if (!d)
        return err_no_memory(err, "a drafter");
    d->mask = (uint32_t)session_model(session)->config.mask_token;
    d->drafter = (struct drafter){.name = d->mask ? "parallel" : "model",
                                  .ranks = TREE_RANKS,
                                  .cost = d->mask ? 0 : cost,
                                  .propose = propose,
                                  .close = close_model,
                                  .session = session};
    d->session = session;
    d->vocab = size_min(target_vocab, session_vocab(session));
    if (alloc_buffers(d, err) < 0 || child_sampler_open(&d->children, d->vocab, err) < 0 ||
        warm_up(d, err) < 0) {
        close_model(&d->drafter);
        return -1;
    }
    *out = &d->drafter;
    return 0;
}
