/* Following rank 0. What it sends comes from a program of the same version: what does not fit is an error all the same. */
#include "decode/follow.h"

#include <stdlib.h>

#include "base/mem.h"
#include "decode/lead.h"

struct follower {
    struct session session;
    const struct model *model;
    struct session_options options;
    bool open, ended;
    struct buf words; /* of one message */
    size_t at;        /* of them, taken */
    bool amiss;       /* they are not what was expected */
    float *logits;    /* [LEAD_LOGITS][vocab] */
};

/* ---- words ---- */

/* The next n words, in place; NULL when there are fewer. */
static size_t *take_list(struct follower *f, size_t n)
{
    size_t *list = (void *)(f->words.data + f->at * sizeof *list);
    f->amiss |= n > f->words.len / sizeof *list - f->at;
    if (f->amiss)
        return NULL;
    f->at += n;
    return list;
}

static size_t take(struct follower *f)
{
    const size_t *word = take_list(f, 1);
    return word ? *word : 0;
}

/* A number below `limit`; 0 when it is not. */
static size_t take_below(struct follower *f, size_t limit)
{
    const size_t word = take(f);
    f->amiss |= word >= limit;
    return f->amiss ? 0 : word;
}

static size_t take_seq(struct follower *f)
{
    return take_below(f, f->open ? f->session.options.batch : 0);
}

/* The next n words, each below `limit`, in place; NULL when one is not. */
static size_t *take_list_below(struct follower *f, size_t n, size_t limit)
{
    size_t *list = take_list(f, n);
    for (size_t i = 0; list && i < n; i++)
        f->amiss |= list[i] >= limit;
    return f->amiss ? NULL : list;
}

/* The same as numbers of 32 bits. */
static const uint32_t *take_ids(struct follower *f, size_t n, size_t limit)
{
    const size_t *list = take_list_below(f, n, limit);
    char *ids = (char *)(uintptr_t)list;
    for (size_t i = 0; list && i < n; i++)
        memcpy(ids + i * sizeof(uint32_t), &(uint32_t){(uint32_t)list[i]}, sizeof(uint32_t));
    return (const void *)ids;
}

/* Rows that a sequence can be cut to: where some were dropped, all or none. */
static size_t take_cut(struct follower *f, size_t seq)
{
    const size_t rows = take(f);
    if (f->amiss)
        return 0;
    const struct kv *kv = f->session.kv;
    const size_t all = kv_position(kv, seq);
    f->amiss = rows > all || (rows && rows < all && !kv_whole(kv, seq));
    return rows;
}

/* Rows of the step that a sequence has not kept or dropped yet. */
static size_t pending(const struct follower *f, size_t seq)
{
    return f->amiss ? 0 : kv_fill(f->session.kv, seq).pending;
}

/* ---- orders ---- */

static int do_open(struct follower *f, struct err *err)
{
    struct session_options *o = &f->options;
    o->context = take(f);
    o->batch = take(f);
    o->chunk = take(f);
    o->rows = take(f);
    o->split = take(f);
    o->kv.lockstep = take(f);
    if (f->amiss)
        return 0;
    if (f->open)
        session_close(&f->session);
    f->open = false;
    free(f->logits);
    f->logits = mem_alloc(LEAD_LOGITS, f->model->config.vocab * sizeof *f->logits);
    if (!f->logits)
        return err_set(err, "out of memory for logits");
    if (session_open(&f->session, f->model, o, err) < 0)
        return -1;
    f->open = true;
    return 0;
}

static int do_begin(struct follower *f, struct err *err)
{
    (void)err;
    const size_t seq = take_seq(f), length = take(f);
    if (!f->amiss)
        session_begin(&f->session, seq, length);
    return 0;
}

/* A query, and its tree. */
static void take_query(struct follower *f, size_t first)
{
    struct session *s = &f->session;
    struct attn_query query = {.seq = take_seq(f), .first = first};
    query.rows = take_below(f, s->n_rows - first + 1);
    if (take(f)) {
        query.tail_at = take_list(f, query.rows + 1);
        for (size_t i = 0; !f->amiss && i < query.rows; i++)
            f->amiss = query.tail_at[i] > query.tail_at[i + 1];
        query.tail = take_ids(f, f->amiss ? 0 : query.tail_at[query.rows], query.rows);
    }
    s->query[s->n_queries++] = query;
}

static int do_step(struct follower *f, struct err *err)
{
    struct session *s = &f->session;
    const size_t rows = take_below(f, f->open ? s->max_rows + 1 : 0);
    const size_t queries = take_below(f, f->open ? s->options.batch + 1 : 0);
    const bool prefill = take(f);
    const uint32_t *token = take_ids(f, rows, f->model->config.vocab);
    const size_t most = f->open && session_ends(s) ? s->options.context : SIZE_MAX;
    const size_t *position = take_list_below(f, rows, most);
    if (f->amiss)
        return 0;
    memcpy(s->token, token, rows * sizeof *token);
    memcpy(s->position, position, rows * sizeof *position);
    s->n_rows = rows;
    for (size_t i = 0, first = 0; i < queries && !f->amiss; first += s->query[i++].rows)
        take_query(f, first);
    const struct session_options *o = &s->options;
    return f->amiss ? 0 : session_compute(s, prefill ? o->threads_prefill : o->threads, err);
}

static int do_commit(struct follower *f, struct err *err)
{
    (void)err;
    const size_t seq = take_seq(f), rows = take_below(f, pending(f, seq) + 1);
    if (!f->amiss)
        kv_commit(f->session.kv, seq, rows);
    return 0;
}

static int do_keep(struct follower *f, struct err *err)
{
    (void)err;
    const size_t seq = take_seq(f), n = take_below(f, pending(f, seq) + 1);
    const size_t *row = take_list_below(f, n, pending(f, seq));
    if (!f->amiss)
        session_keep(&f->session, seq, row, n);
    return 0;
}

static int do_cut(struct follower *f, struct err *err)
{
    (void)err;
    const size_t seq = take_seq(f), rows = take_cut(f, seq);
    if (!f->amiss)
        session_cut(&f->session, seq, rows);
    return 0;
}

static int do_fork(struct follower *f, struct err *err)
{
    const size_t to = take_seq(f), from = take_seq(f), rows = take_cut(f, from);
    f->amiss = f->amiss || to == from || kv_fill(f->session.kv, to).n;
    return f->amiss ? 0 : session_fork(&f->session, to, from, rows, err);
}

static int do_reorder(struct follower *f, struct err *err)
{
    const size_t batch = f->open ? f->session.options.batch : 0, n = take_below(f, batch + 1);
    size_t *seq = take_list_below(f, n, batch);
    const size_t *parent = take_list_below(f, n, n);
    return f->amiss ? 0 : session_reorder(&f->session, seq, parent, n, err);
}

static int do_logits(struct follower *f, struct err *err)
{
    const size_t n = take_below(f, f->open ? LEAD_LOGITS + 1 : 0);
    const size_t *row = take_list_below(f, n, f->open ? f->session.max_rows : 0);
    return f->amiss ? 0 : session_logits(&f->session, row, n, f->logits, err);
}

static int do_count(struct follower *f, struct err *err)
{
    struct lead_counts all;
    return lead_count(f->model->ranks, f->open ? forward_waited_ms(&f->session.forward) : 0, &all, err);
}

static int do_end(struct follower *f, struct err *err)
{
    (void)err;
    f->ended = true;
    return 0;
}

static int do_next(struct follower *f, struct err *err)
{
    static int (*const orders[])(struct follower *, struct err *) = {
        [ORDER_OPEN] = do_open,     [ORDER_BEGIN] = do_begin,     [ORDER_STEP] = do_step,
        [ORDER_COMMIT] = do_commit, [ORDER_KEEP] = do_keep,       [ORDER_CUT] = do_cut,
        [ORDER_FORK] = do_fork,     [ORDER_REORDER] = do_reorder, [ORDER_LOGITS] = do_logits,
        [ORDER_COUNT] = do_count,   [ORDER_END] = do_end,
    };
    const size_t order = take_below(f, ARRAY_LEN(orders));
    if (!f->amiss && orders[order](f, err) < 0)
        return -1;
    return f->amiss ? err_set(err, "what rank 0 sent cannot be followed: it is another program") : 0;
}

int follow(const struct model *model, const struct session_options *options, struct err *err)
{
    struct follower f = {.model = model, .options = *options};
    int rc = 0;
    while (rc == 0 && !f.ended) {
        f.at = 0;
        rc = lead_receive(model->ranks, &f.words, err);
        while (rc == 0 && f.at < f.words.len / sizeof(uint64_t))
            rc = do_next(&f, err);
    }
    if (f.open)
        session_close(&f.session);
    buf_release(&f.words);
    free(f.logits);
    return rc;
}
