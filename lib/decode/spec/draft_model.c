/* Drafting with a smaller model, which has its own session. At every step the tokens in its KV
 * cache are compared with the sequence and the cache is truncated where they differ, so it need not
 * be told which draft tokens were accepted.
 *
 * A parallel draft model (PARD, An et al., 2025) drafts all levels in one pass: mask tokens follow the
 * sequence, and the logits of the i-th mask are those of level i + 1, whatever the levels before drew.
 *
 * Its context may be shorter than the sequence: when it is full, BOS and the newer half of the sequence
 * are computed again in one pass. */
#include "base/mem.h"
#include "decode/spec/draft_levels.h"

/* The window of a slot's sequence whose KV entries the draft model's cache holds. */
struct window {
    size_t seq;     /* KV cache sequence of the draft model: the slot */
    struct ids fed; /* tokens of the window that have KV entries */
    /* The window is the first `kept` tokens of the slot's sequence, then those behind `skipped` others. */
    size_t kept, skipped;
};

struct model_drafter {
    struct level_drafter levels; /* first; levels.most: draft tokens are in both vocabularies */
    struct session *session;
    uint32_t mask; /* mask token of a parallel draft model */
    struct window *window;
    uint32_t *token; /* [rows of a pass] ids to add to the batch */
};

/* The id to give to the draft model: 0 for ids of the target that the draft model lacks. */
static uint32_t draft_id(const struct model_drafter *d, uint32_t id)
{
    return id < d->levels.max ? id : 0;
}

/* The index in the slot's sequence of token i of the window. */
static size_t index_of(const struct window *w, size_t i) { return i < w->kept ? i : i + w->skipped; }

/* Begins a window that leaves room for `more` tokens. */
static void place_window(const struct model_drafter *d, struct window *w,
                         const struct draft_request *request, size_t more)
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
static int align_window(struct model_drafter *d, const struct draft_request *request, struct err *err)
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
        place_window(d, w, request, more);
    w->fed.len = same;
    session_truncate(d->session, w->seq, same);
    return 0;
}

int draft_model_error(int rc, struct err *err) { return rc < 0 ? err_prefix(err, "draft model") : rc; }

/* Adds to the batch the tokens of a sequence that the draft model's cache lacks, as far as they fit,
 * and mask tokens after the last one; sets *n_rows to the rows of the batch whose logits are drafts,
 * the last one's and the masks', and lists them in `row`. */
static int add_tokens(struct model_drafter *d, const struct draft_request *request, size_t *row,
                      size_t *n_rows, struct err *err)
{
    struct window *w = &d->window[request->slot];
    const size_t have = w->fed.len, left = request->n_ids - w->skipped - have;
    const size_t masks = levels_masks(&d->levels, request), space = batch_space(d->session);
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
    size_t *row = d->levels.row;
    size_t n_rows = 0, fed = 0;
    for (size_t a = 0; a < n_requests; a++) {
        struct window *w = &d->window[request[a].slot];
        const size_t before = w->fed.len;
        size_t n;
        if (add_tokens(d, &request[a], row + n_rows, &n, err) < 0)
            return -1;
        if (n > 0) {
            d->levels.slot[request[a].slot].logits = *done + n_rows;
            (*left)--;
        }
        n_rows += n;
        fed += w->fed.len - before;
    }
    if (n_requests == 1 && n_rows > 0)
        session_skip_outputs(s, row[0]);
    if (levels_pass(&d->levels, prefill, fed, *done, n_rows, err) < 0)
        return -1;
    for (size_t a = 0; a < n_requests && d->levels.parallel; a++)
        session_truncate(s, d->window[request[a].slot].seq, d->window[request[a].slot].fed.len);
    *done += n_rows;
    return 0;
}

/* Prefills the draft model's cache with all tokens of the requests; sets d->logits to the logits after
 * the last token of each, and after the mask tokens behind it. */
static int feed_history(struct model_drafter *d, const struct draft_request *request, size_t n_requests,
                        size_t *done, struct err *err)
{
    size_t missing = 0;
    for (size_t a = 0; a < n_requests; a++) {
        const struct window *w = &d->window[request[a].slot];
        if (align_window(d, &request[a], err) < 0)
            return -1;
        missing += request[a].n_ids - w->skipped - w->fed.len;
    }
    /* in one pass or several */
    const bool prefill = missing > 8 * n_requests;
    for (size_t left = n_requests; left > 0;)
        if (feed_pass(d, request, n_requests, prefill, done, &left, err) < 0)
            return -1;
    return 0;
}

/* A chain's token is committed after the pass. */
static int count_fed(struct level_drafter *levels, const struct draft_request *request, size_t from,
                     size_t first, struct err *err)
{
    struct model_drafter *d = (struct model_drafter *)levels;
    (void)first;
    return draft_is_chain(request)
               ? ids_add(&d->window[request->slot].fed, request->draft->token[from], err)
               : 0;
}

static int propose_by_model(struct drafter *drafter, const struct draft_request *request,
                            size_t n_requests, struct err *err)
{
    struct model_drafter *d = (struct model_drafter *)drafter;
    size_t done = 0;
    return n_requests && (feed_history(d, request, n_requests, &done, err) < 0 ||
                          levels_propose(&d->levels, request, n_requests, done, err) < 0)
               ? -1
               : 0;
}

static void close_model(struct drafter *drafter)
{
    AUTO(free_auto) struct model_drafter *d = (struct model_drafter *)drafter;
    for (size_t i = 0; d->window && i < session_options(d->session)->batch; i++)
        ids_release(&d->window[i].fed);
    free(d->window);
    free(d->token);
    levels_close(&d->levels);
}

static int alloc_windows(struct model_drafter *d, struct err *err)
{
    const size_t batch = session_options(d->session)->batch;
    d->window = mem_zalloc(batch, sizeof *d->window);
    d->token = mem_alloc(session_max_tokens(d->session), sizeof *d->token);
    if (!d->window || !d->token)
        return err_no_memory(err, "drafts of %zu sequences", batch);
    for (size_t i = 0; i < batch; i++)
        d->window[i].seq = i;
    return 0;
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
        session_logits(s, &first, 1, d->levels.logits, err) < 0)
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
    const uint32_t mask = (uint32_t)session_model(session)->config.mask_token;
    const size_t vocab = size_min(target_vocab, session_vocab(session));
    *d = (struct model_drafter){.levels = {.drafter = {.name = mask ? "parallel" : "model",
                                                       .ranks = TREE_RANKS,
                                                       .cost = mask ? 0 : cost,
                                                       .propose = propose_by_model,
                                                       .close = close_model,
                                                       .session = session},
                                           .session = session,
                                           .model = "draft model",
                                           .max = vocab,
                                           .parallel = mask != 0,
                                           .added = count_fed},
                                .session = session,
                                .mask = mask};
    if (levels_open(&d->levels, vocab, err) < 0 || alloc_windows(d, err) < 0 || warm_up(d, err) < 0) {
        close_model(&d->levels.drafter);
        return -1;
    }
    *out = &d->levels.drafter;
    return 0;
}
