/* Executes the command stream of rank 0. Arguments are validated although both run one program. */
#include "decode/replica.h"

#include "base/mem.h"
#include "decode/leader.h"

struct replica {
    struct session *session; /* NULL before COMMAND_OPEN */
    const struct model *model;
    struct session_options options;
    bool ended;
    struct buf words;         /* the current message of rank 0 */
    size_t at;                /* index of the next word to take from `words` */
    bool malformed;           /* a word was missing or out of range */
    struct attn_query *query; /* [batch]: the sequences of the current forward pass */
    float *logits;            /* [LEADER_LOGITS][vocab]: of the last request */
};

/* Takes the next n words of the message, without copying them; NULL if it has fewer. */
static size_t *take_list(struct replica *r, size_t n)
{
    size_t *list = (void *)(r->words.data + r->at * sizeof *list);
    r->malformed |= n > r->words.len / sizeof *list - r->at;
    if (r->malformed)
        return NULL;
    r->at += n;
    return list;
}

static size_t take_word(struct replica *r)
{
    const size_t *word = take_list(r, 1);
    return word ? *word : 0;
}

/* Takes the next word, which must be below `limit`; else returns 0 and sets r->malformed. */
static size_t take_below(struct replica *r, size_t limit)
{
    const size_t word = take_word(r);
    r->malformed |= word >= limit;
    return r->malformed ? 0 : word;
}

static size_t take_seq(struct replica *r) { return take_below(r, r->session ? r->options.batch : 0); }

/* Takes the next n words, without copying; NULL, and r->malformed, unless all are below `limit`. */
static size_t *take_list_below(struct replica *r, size_t n, size_t limit)
{
    size_t *list = take_list(r, n);
    for (size_t i = 0; list && i < n; i++)
        r->malformed |= list[i] >= limit;
    return r->malformed ? NULL : list;
}

/* take_list_below() for token ids or node indices: converts the words to 32 bits in place. */
static const uint32_t *take_ids(struct replica *r, size_t n, size_t limit)
{
    const size_t *list = take_list_below(r, n, limit);
    char *ids = (char *)(uintptr_t)list;
    for (size_t i = 0; list && i < n; i++)
        memcpy(ids + i * sizeof(uint32_t), &(uint32_t){(uint32_t)list[i]}, sizeof(uint32_t));
    return (const void *)ids;
}

/* Takes the length to which a sequence is truncated or forked. If the cache has evicted some of its
 * KV entries, only all or none of the others can be kept; recurrent state exists at some positions
 * only. */
static size_t take_length(struct replica *r, size_t seq)
{
    const size_t rows = take_word(r);
    if (r->malformed)
        return 0;
    const struct kv *kv = session_kv(r->session);
    const size_t all = kv_position(kv, seq);
    r->malformed = rows > all || (rows && rows < all && !kv_is_untrimmed(kv, seq)) ||
                   kv_rewind(kv, seq, rows) != rows;
    return rows;
}

/* Number of pending KV entries of a sequence: neither accepted nor dropped yet. */
static size_t pending_entries(const struct replica *r, size_t seq)
{
    return r->malformed ? 0 : kv_seq_info(session_kv(r->session), seq).pending;
}

static int do_open(struct replica *r, struct err *err)
{
    struct session_options *o = &r->options;
    o->context = take_word(r);
    o->batch = take_word(r);
    o->chunk = take_word(r);
    o->rows = take_word(r);
    o->split = take_word(r);
    o->kv.lockstep = take_word(r);
    o->kept_states = take_word(r);
    o->recent_states = take_word(r);
    if (r->malformed)
        return 0;
    session_close(r->session);
    r->session = NULL;
    free(r->logits);
    free(r->query);
    r->logits = mem_alloc(LEADER_LOGITS, r->model->config.vocab * sizeof *r->logits);
    r->query = mem_alloc(o->batch, sizeof *r->query);
    if (!r->logits || !r->query)
        return err_no_memory(err, "logits");
    return session_open(&r->session, r->model, o, err);
}

static int do_begin(struct replica *r, struct err *err)
{
    (void)err;
    const size_t seq = take_seq(r), tokens = take_word(r), length = take_word(r);
    if (!r->malformed)
        session_begin(r->session, seq, tokens, length);
    return 0;
}

/* Takes the attention query of one sequence, with ancestor lists if its tokens form a tree. Of the
 * forward pass's `rows` tokens, the first `first` belong to earlier queries. */
static struct attn_query take_query(struct replica *r, size_t first, size_t rows)
{
    struct attn_query query = {.seq = take_seq(r), .first = first};
    query.rows = take_below(r, rows - first + 1);
    if (take_word(r)) {
        query.ancestors_at = take_list(r, query.rows + 1);
        for (size_t i = 0; !r->malformed && i < query.rows; i++)
            r->malformed = query.ancestors_at[i] > query.ancestors_at[i + 1];
        query.ancestors = take_ids(r, r->malformed ? 0 : query.ancestors_at[query.rows], query.rows);
    }
    return query;
}

static int do_forward(struct replica *r, struct err *err)
{
    const struct session_options *o = &r->options;
    const size_t rows = take_below(r, r->session ? session_max_tokens(r->session) + 1 : 0);
    const size_t queries = take_below(r, r->session ? o->batch + 1 : 0);
    const bool prefill = take_word(r);
    const uint32_t *token = take_ids(r, rows, r->model->config.vocab);
    const size_t limit = r->session && session_is_bounded(r->session) ? o->context : SIZE_MAX;
    const size_t *position = take_list_below(r, rows, limit);
    for (size_t i = 0, first = 0; i < queries && !r->malformed; first += r->query[i++].rows)
        r->query[i] = take_query(r, first, rows);
    const struct step step = {rows, token, position, r->query, queries};
    return r->malformed ? 0
                        : session_forward_step(r->session, &step,
                                               prefill ? o->threads_prefill : o->threads, err);
}

static int do_commit(struct replica *r, struct err *err)
{
    (void)err;
    const size_t seq = take_seq(r), rows = take_below(r, pending_entries(r, seq) + 1);
    if (!r->malformed)
        kv_commit(session_kv(r->session), seq, rows);
    return 0;
}

static int do_accept(struct replica *r, struct err *err)
{
    (void)err;
    const size_t seq = take_seq(r), n = take_below(r, pending_entries(r, seq) + 1);
    const size_t *row = take_list_below(r, n, pending_entries(r, seq));
    if (!r->malformed)
        session_accept(r->session, seq, row, n);
    return 0;
}

static int do_truncate(struct replica *r, struct err *err)
{
    (void)err;
    const size_t seq = take_seq(r), rows = take_length(r, seq);
    if (!r->malformed)
        session_truncate(r->session, seq, rows);
    return 0;
}

static int do_fork(struct replica *r, struct err *err)
{
    const size_t to = take_seq(r), from = take_seq(r), rows = take_length(r, from);
    r->malformed = r->malformed || to == from || kv_seq_info(session_kv(r->session), to).n;
    return r->malformed ? 0 : session_fork(r->session, to, from, rows, err);
}

static int do_reorder(struct replica *r, struct err *err)
{
    const size_t batch = r->session ? r->options.batch : 0, n = take_below(r, batch + 1);
    size_t *seq = take_list_below(r, n, batch);
    const size_t *parent = take_list_below(r, n, n);
    return r->malformed ? 0 : session_reorder(r->session, seq, parent, n, err);
}

static int do_mark(struct replica *r, struct err *err)
{
    (void)err;
    const size_t seq = take_seq(r), position = take_word(r);
    if (!r->malformed)
        session_mark(r->session, seq, position);
    return 0;
}

static int do_logits(struct replica *r, struct err *err)
{
    const size_t n = take_below(r, r->session ? LEADER_LOGITS + 1 : 0);
    const size_t *row = take_list_below(r, n, r->session ? session_max_tokens(r->session) : 0);
    return r->malformed ? 0 : session_logits(r->session, row, n, r->logits, err);
}

static int do_statistics(struct replica *r, struct err *err)
{
    struct leader_stats all;
    return leader_gather_stats(r->model->ranks, r->session ? session_wait_ms(r->session) : 0, &all,
                               err);
}

static int do_end(struct replica *r, struct err *err)
{
    (void)err;
    r->ended = true;
    return 0;
}

static int do_next(struct replica *r, struct err *err)
{
    static int (*const commands[])(struct replica *, struct err *) = {
        [COMMAND_OPEN] = do_open,
        [COMMAND_BEGIN] = do_begin,
        [COMMAND_FORWARD] = do_forward,
        [COMMAND_COMMIT] = do_commit,
        [COMMAND_ACCEPT] = do_accept,
        [COMMAND_TRUNCATE] = do_truncate,
        [COMMAND_FORK] = do_fork,
        [COMMAND_REORDER] = do_reorder,
        [COMMAND_MARK] = do_mark,
        [COMMAND_LOGITS] = do_logits,
        [COMMAND_STATISTICS] = do_statistics,
        [COMMAND_END] = do_end,
    };
    const size_t command = take_below(r, ARRAY_LEN(commands));
    if (!r->malformed && commands[command](r, err) < 0)
        return -1;
    return r->malformed ? err_set(err, "rank 0 sent a malformed command: all ranks must run the same "
                                       "version of the program")
                        : 0;
}

int replicate(const struct model *model, const struct session_options *options, struct err *err)
{
    struct replica replica = {.model = model, .options = *options};
    int rc = 0;
    while (rc == 0 && !replica.ended) {
        replica.at = 0;
        rc = leader_receive(model->ranks, &replica.words, err);
        while (rc == 0 && replica.at < replica.words.len / sizeof(uint64_t))
            rc = do_next(&replica, err);
    }
    session_close(replica.session);
    buf_release(&replica.words);
    free(replica.logits);
    free(replica.query);
    return rc;
}
