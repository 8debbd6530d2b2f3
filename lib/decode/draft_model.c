/* Drafting with a smaller model. It has a session of its own; what its cache holds is compared with the sequence
 * at every step, and what differs is dropped, so that it needs no word of what was accepted.
 *
 * Its window may be shorter than the sequence: when it is full, the newer half is read again, in one pass. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "decode/drafter.h"

/* What the cache holds of one slot's sequence. */
struct window {
    size_t seq;     /* of the cache */
    struct ids fed; /* ids whose rows are in the cache */
    size_t start;   /* of the sequence, where the window begins */
    size_t logits;  /* index of its rows in `logits`: of the level just computed */
    uint32_t *tail; /* of a tree */
    size_t *tail_at, *depth;
};

struct model_drafter {
    struct drafter drafter;
    struct session *session;
    struct sampler sampler;
    struct verifier verifier;
    size_t vocab; /* of both models: candidates are below */
    struct window *window;
    float *logits; /* [rows][the draft's vocabulary] */
    size_t *row;
    size_t max_rows;
    struct ids history; /* with a repeat penalty: the sequence and a path */
};

static size_t stride(const struct model_drafter *d) { return d->session->model->config.vocab; }

/* What the draft reads for an id: the target may have more rows than the vocabulary that both share. */
static uint32_t known(const struct model_drafter *d, uint32_t id) { return id < d->vocab ? id : 0; }

/* ---- the history ---- */

/* Makes the window begin and end where the sequence's does, as far as the cache agrees with it. */
static int align(struct model_drafter *d, const struct draft_ask *ask, struct err *err)
{
    struct window *w = &d->window[ask->slot];
    const size_t context = d->session->options.context;
    const size_t more = size_max(ask->shape->n, ask->shape->levels);
    const size_t have = size_min(w->fed.len, session_rows(d->session, w->seq));
    size_t same = 0;
    if (more > context)
        return err_set(err, "%zu candidates do not fit the draft model's context of %zu", more - 1,
                       context);
    if (w->start < ask->n_ids && ask->n_ids - w->start + more <= context)
        while (same < have && w->start + same + 1 < ask->n_ids &&
               w->fed.id[same] == ask->ids[w->start + same])
            same++;
    if (same == 0)
        w->start = ask->n_ids + more <= context
                       ? 0
                       : ask->n_ids - size_min(ask->n_ids, size_max((context - more) / 2, 1));
    w->fed.len = same;
    session_cut(d->session, w->seq, same);
    return 0;
}

int draft_model_rc(int rc, struct err *err) { return rc < 0 ? err_prefix(err, "draft model") : rc; }

static int all_finite(const struct model_drafter *d, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++)
        if (!logits_finite(d->logits + i * stride(d), d->vocab))
            return err_set(err, "the draft model gives no finite logits: it may be damaged, see "
                                "bmc-convert --verify");
    return 0;
}

/* Adds what the caches lack, as much as one step takes; rows that end a sequence are listed. */
static int add_history(struct model_drafter *d, const struct draft_ask *ask, size_t n_asks,
                       size_t *n_rows, size_t *done, struct err *err)
{
    for (size_t a = 0; a < n_asks; a++) {
        struct window *w = &d->window[ask[a].slot];
        const size_t have = w->start + w->fed.len;
        const size_t n = size_min(ask[a].n_ids - have, session_space(d->session));
        if (n == 0)
            continue;
        const size_t first = session_add(d->session, w->seq, ask[a].ids + have, n);
        for (size_t i = 0; i < n; i++) {
            d->session->token[first + i] = known(d, ask[a].ids[have + i]);
            if (ids_add(&w->fed, ask[a].ids[have + i], err) < 0)
                return -1;
        }
        if (have + n == ask[a].n_ids) {
            w->logits = *done + *n_rows;
            d->row[(*n_rows)++] = first + n - 1;
        }
    }
    return 0;
}

/* Afterwards every sequence is in the cache, and the logits after its last token are there. */
static int feed_history(struct model_drafter *d, const struct draft_ask *ask, size_t n_asks,
                        struct err *err)
{
    struct session *s = d->session;
    for (size_t a = 0; a < n_asks; a++)
        if (align(d, &ask[a], err) < 0)
            return -1;
    for (size_t done = 0; done < n_asks;) {
        const double start = clock_ms();
        size_t n_rows = 0;
        if (add_history(d, ask, n_asks, &n_rows, &done, err) < 0)
            return -1;
        const size_t rows = s->n_rows;
        const bool prefill = rows > 8 * n_asks;
        if (session_run(s, prefill ? s->options.threads_prefill : s->options.threads, err) < 0 ||
            session_logits(s, d->row, n_rows, d->logits + done * stride(d), err) < 0)
            return draft_model_rc(-1, err);
        done += n_rows;
        if (prefill) {
            d->drafter.prefill_ms += clock_ms() - start;
            d->drafter.prefill_tokens += rows;
        }
    }
    return all_finite(d, n_asks, err);
}

/* ---- candidates ---- */

/* The sequence and the path to a node, for the penalties. */
static int make_history(struct model_drafter *d, const struct draft_ask *ask, size_t node,
                        struct err *err)
{
    const struct draft *draft = ask->draft;
    const size_t depth = draft->depth[node];
    d->history.len = 0;
    for (size_t i = 0; i < ask->n_ids + depth; i++)
        if (ids_add(&d->history, i < ask->n_ids ? known(d, ask->ids[i]) : 0, err) < 0)
            return -1;
    for (size_t at = d->history.len; draft->depth[node] > 0; node = draft->parent[node])
        d->history.id[--at] = draft->token[node];
    return 0;
}

/* Keeps the distribution that a node's children come from. */
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

/* Gives a node the children that the shape has for it. */
static int add_children(struct model_drafter *d, const struct draft_ask *ask, size_t node,
                        const float *logits, struct err *err)
{
    struct draft *draft = ask->draft;
    const size_t place = draft->place[node];
    const size_t n = size_min(ask->shape->children[place], d->vocab);
    uint32_t token[TREE_RANKS];
    size_t got = 0;
    if (n == 0)
        return 0;
    d->history.len = 0;
    d->sampler.options = *ask->sampling;
    if (sampler_looks_back(ask->sampling) && make_history(d, ask, node, err) < 0)
        return -1;
    if (d->sampler.options.temp <= 0) {
        struct candidate best[TREE_RANKS];
        const float *used = sampler_adjusted(&d->sampler, logits, d->history.id, d->history.len);
        top_logits(used, d->vocab, n, best);
        for (; got < n; got++)
            token[got] = best[got].id;
    } else {
        sampler_choose(&d->sampler, logits, d->history.id, d->history.len, 0);
        if (keep_pool(draft, node, d->sampler.candidate, d->sampler.n, err) < 0)
            return -1;
        got = draw_children(&d->verifier, d->sampler.candidate, d->sampler.n, n, ask->draws, token);
    }
    for (size_t c = 0; c < got; c++)
        draft_add(draft, node, token[c], ask->shape->first[place] + c);
    return 0;
}

/* The nodes of one level of a draft: [from, to). */
static size_t level_begin(const struct draft *draft, size_t level)
{
    size_t i = 0;
    while (i < draft->n && draft->depth[i] < level)
        i++;
    return i;
}

/* True when a node of the level may have children. */
static bool goes_on(const struct draft_ask *ask, size_t level)
{
    const struct draft *draft = ask->draft;
    for (size_t i = level_begin(draft, level); i < draft->n; i++)
        if (ask->shape->children[draft->place[i]])
            return true;
    return false;
}

/* Adds the rows of a level to the step. A chain's row is committed; of a tree all nodes so far are computed again,
 * since a step sees no rows of its own kind but its own. */
static int add_level(struct model_drafter *d, const struct draft_ask *ask, size_t level, size_t *n_rows,
                     struct err *err)
{
    struct window *w = &d->window[ask->slot];
    const struct draft *draft = ask->draft;
    const size_t from = level_begin(draft, level), n = draft->n - 1;
    size_t first;
    if (ask->shape->n == ask->shape->levels) {
        first = session_add(d->session, w->seq, &draft->token[from], 1);
        if (ids_add(&w->fed, draft->token[from], err) < 0)
            return -1;
        first -= from;
    } else {
        /* The root is in the cache already: node i is the tree's row i - 1, one level up. */
        uint16_t parent[TREE_NODES], depth[TREE_NODES];
        for (size_t i = 1; i <= n; i++) {
            parent[i - 1] = (uint16_t)(draft->parent[i] ? draft->parent[i] - 1 : 0);
            depth[i - 1] = (uint16_t)(draft->depth[i] - 1);
            w->depth[i - 1] = depth[i - 1];
        }
        tree_tails(parent, depth, n, w->tail, w->tail_at);
        first =
            session_add_tree(d->session, w->seq, &draft->token[1], w->depth, n, w->tail, w->tail_at) -
            1;
    }
    w->logits = *n_rows;
    for (size_t i = from; i < draft->n; i++)
        d->row[(*n_rows)++] = first + i;
    return 0;
}

/* Computes the logits of a level for all sequences that have one. */
static int run_level(struct model_drafter *d, const struct draft_ask *ask, size_t n_asks, size_t level,
                     struct err *err)
{
    size_t n_rows = 0;
    for (size_t a = 0; a < n_asks; a++)
        if (goes_on(&ask[a], level) && add_level(d, &ask[a], level, &n_rows, err) < 0)
            return -1;
    if (session_compute(d->session, d->session->options.threads, err) < 0 ||
        session_logits(d->session, d->row, n_rows, d->logits, err) < 0)
        return draft_model_rc(-1, err);
    for (size_t a = 0; a < n_asks; a++)
        if (goes_on(&ask[a], level)) {
            const bool chain = ask[a].shape->n == ask[a].shape->levels;
            session_keep(d->session, d->window[ask[a].slot].seq, &(size_t){0}, chain);
        }
    return all_finite(d, n_rows, err);
}

static bool any_goes_on(const struct draft_ask *ask, size_t n_asks, size_t level)
{
    for (size_t a = 0; a < n_asks; a++)
        if (goes_on(&ask[a], level))
            return true;
    return false;
}

static int propose(struct drafter *drafter, const struct draft_ask *ask, size_t n_asks, struct err *err)
{
    struct model_drafter *d = (struct model_drafter *)drafter;
    if (n_asks == 0)
        return 0;
    if (feed_history(d, ask, n_asks, err) < 0)
        return -1;
    for (size_t level = 0; any_goes_on(ask, n_asks, level); level++) {
        if (level > 0 && run_level(d, ask, n_asks, level, err) < 0)
            return -1;
        for (size_t a = 0; a < n_asks; a++) {
            struct draft *draft = ask[a].draft;
            const size_t from = level_begin(draft, level), to = draft->n;
            const float *logits = d->logits + d->window[ask[a].slot].logits * stride(d);
            for (size_t i = from; i < to && goes_on(&ask[a], level); i++)
                if (add_children(d, &ask[a], i, logits + (i - from) * stride(d), err) < 0)
                    return -1;
        }
    }
    return 0;
}

/* ---- opening ---- */

static void close_model(struct drafter *drafter)
{
    struct model_drafter *d = (struct model_drafter *)drafter;
    for (size_t i = 0; d->window && i < d->session->options.batch; i++) {
        ids_release(&d->window[i].fed);
        free(d->window[i].tail);
        free(d->window[i].tail_at);
        free(d->window[i].depth);
    }
    free(d->window);
    free(d->logits);
    free(d->row);
    ids_release(&d->history);
    sampler_close(&d->sampler);
    verifier_close(&d->verifier);
    free(d);
}

static int alloc_buffers(struct model_drafter *d, struct err *err)
{
    const size_t batch = d->session->options.batch;
    d->max_rows = d->session->max_rows;
    d->window = mem_zalloc(batch, sizeof *d->window);
    d->row = mem_alloc(d->max_rows, sizeof *d->row);
    size_t logits;
    if (size_mul(size_min(d->max_rows, batch * TREE_NODES), stride(d), &logits))
        d->logits = mem_alloc(logits, sizeof *d->logits);
    bool ok = d->window && d->row && d->logits;
    for (size_t i = 0; ok && i < batch; i++) {
        struct window *w = &d->window[i];
        w->seq = i;
        w->tail = mem_alloc((size_t)TREE_NODES * TREE_NODES / 2 + TREE_NODES, sizeof *w->tail);
        w->tail_at = mem_alloc(TREE_NODES + 1, sizeof *w->tail_at);
        w->depth = mem_alloc(TREE_NODES, sizeof *w->depth);
        ok = w->tail && w->tail_at && w->depth;
    }
    return ok ? 0 : err_set(err, "out of memory for drafts of %zu sequences", batch);
}

/* A step of the empty session. The first touch of memory takes longer than a step of a small draft: it belongs to
 * opening, as it does for the target, whose prompt comes first. */
static int touch(struct model_drafter *d, struct err *err)
{
    enum { ROWS = 16 };
    static const uint32_t token[ROWS];
    struct session *s = d->session;
    const size_t n = size_min(ROWS, size_min(session_space(s), s->options.context));
    const size_t first = session_add(s, 0, token, n);
    if (session_run(s, s->options.threads, err) < 0 || session_logits(s, &first, 1, d->logits, err) < 0)
        return draft_model_rc(-1, err);
    session_drop(s, 0);
    return 0;
}

int draft_model_open(struct drafter **out, struct session *session, size_t target_vocab, double cost,
                     struct err *err)
{
    static const struct sampler_options greedy = {.repeat_penalty = 1}; /* until a sequence asks */
    struct model_drafter *d = mem_zalloc(1, sizeof *d);
    if (!d)
        return err_set(err, "out of memory");
    d->drafter = (struct drafter){.name = "model",
                                  .ranks = TREE_RANKS,
                                  .cost = cost,
                                  .propose = propose,
                                  .close = close_model,
                                  .session = session};
    d->session = session;
    d->vocab = size_min(target_vocab, session->model->config.vocab);
    if (alloc_buffers(d, err) < 0 || sampler_open(&d->sampler, &greedy, d->vocab, err) < 0 ||
        verifier_open(&d->verifier, d->vocab, err) < 0 || touch(d, err) < 0) {
        close_model(&d->drafter);
        return -1;
    }
    *out = &d->drafter;
    return 0;
}

/* A piece in quotes; an id that a vocabulary lacks has none. */
static void quote_piece(const struct buf *piece, char text[80])
{
    if (piece->len)
        snprintf(text, 80, "\"%.60s\"", piece->data);
    else
        snprintf(text, 80, "no token");
}

/* Fails where the id's piece, or whether it is special, differs. */
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
                       "target; choose a draft made for this model",
                       draft->path, id, draft_piece, target_piece);
    if (special != tokenizer_is_special(draft->tok, id))
        return err_set(err,
                       "the draft model %s has another vocabulary: id %u, %s, is %s there and "
                       "%s in the target; choose a draft made for this model, or convert both anew "
                       "from files that agree",
                       draft->path, id, target_piece, special ? "an ordinary token" : "a special token",
                       special ? "a special token" : "an ordinary token");
    return 0;
}

int draft_model_check(const struct model *target, const struct model *draft, struct err *err)
{
    const size_t n = size_max(tokenizer_vocab(target->tok), tokenizer_vocab(draft->tok));
    struct buf a = {0}, b = {0};
    int rc = 0;
    for (uint32_t id = 0; id < n && rc == 0; id++) {
        buf_clear(&a);
        buf_clear(&b);
        rc = check_id(target, draft, id, &a, &b, err);
    }
    buf_release(&a);
    buf_release(&b);
    return rc;
}
