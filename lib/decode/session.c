/* A model with a cache. */
#include "decode/session.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/threads.h"

/* What the other ranks' caches are like; `windows` are those of all layers. */
static struct kv_others others_of(const struct model *model, const size_t *windows)
{
    const struct config most = part_largest(model);
    return model->ranks ? (struct kv_others){most.layers, most.kv_heads, windows, model->config.layers}
                        : (struct kv_others){0};
}

/* The cache knows the layers' windows: it may keep no more than those. Its steps may be limited. */
static int open_cache(struct session *s, struct err *err)
{
    const struct config own = part_config(s->model), *c = &own;
    const size_t layers = s->model->config.layers;
    size_t *windows = mem_alloc(layers, sizeof *windows);
    if (!windows)
        return err_set(err, "out of memory for %zu layers", layers);
    for (size_t l = 0; l < layers; l++)
        windows[l] = config_window(c, l);
    const struct kv_shape shape = {c->layers, c->kv_heads, c->head_dim, s->options.context,
                                   s->options.kv_type};
    struct kv_spec spec = s->options.kv;
    spec.windows = windows + s->model->first_layer;
    spec.others = others_of(s->model, windows);
    const int rc = kv_open(&s->kv, &spec, &shape, s->options.batch, err);
    free(windows);
    if (rc == 0 && kv_setup(s->kv)->step_rows)
        s->options.chunk = size_min(s->options.chunk, kv_setup(s->kv)->step_rows);
    return rc;
}

/* Rank 0 tells the others; alone it tells nobody. */
static void tell(struct session *s, enum order order, const size_t *word, size_t n)
{
    if (s->options.lead)
        lead_order(s->options.lead, order, word, n);
}
#define TELL(session, order, ...)                                                                      \
    tell(session, order, (const size_t[]){__VA_ARGS__},                                                \
         sizeof(const size_t[]){__VA_ARGS__} / sizeof(size_t))

static int tell_now(struct session *s, struct err *err)
{
    return s->options.lead ? lead_send(s->options.lead, err) : 0;
}

int session_open(struct session *s, const struct model *model, const struct session_options *options,
                 struct err *err)
{
    *s = (struct session){.model = model, .options = *options};
    s->max_rows = size_max(size_max(options->chunk, options->rows), options->batch);
    s->token = mem_alloc(s->max_rows, sizeof *s->token);
    s->position = mem_alloc(s->max_rows, sizeof *s->position);
    s->query = mem_alloc(options->batch, sizeof *s->query);
    s->mapped = mem_zalloc(options->batch, sizeof *s->mapped);
    if (!s->token || !s->position || !s->query || !s->mapped) {
        session_close(s);
        return err_set(err, "out of memory for steps of %zu rows", s->max_rows);
    }
    /* Buffers are made for the larger team. */
    threads_set(options->threads > options->threads_prefill ? options->threads
                                                            : options->threads_prefill);
    if (open_cache(s, err) < 0 || forward_open(&s->forward, model, options->kernels, options->precision,
                                               options->attn, s->kv, s->max_rows, err) < 0) {
        session_close(s);
        return -1;
    }
    s->forward.split = options->split;
    TELL(s, ORDER_OPEN, options->context, options->batch, options->chunk, options->rows, options->split,
         options->kv.lockstep);
    return 0;
}

void session_close(struct session *s)
{
    forward_close(&s->forward);
    kv_close(s->kv);
    for (size_t i = 0; s->mapped && i < s->options.batch; i++)
        kvfile_unmap_rows(&s->mapped[i]);
    free(s->mapped);
    free(s->token);
    free(s->position);
    free(s->query);
    *s = (struct session){0};
}

size_t session_rows(const struct session *s, size_t seq) { return kv_position(s->kv, seq); }

size_t session_left(const struct session *s, size_t seq)
{
    return session_ends(s) ? s->options.context - session_rows(s, seq) : SIZE_MAX;
}

bool session_ends(const struct session *s)
{
    return !kv_setup(s->kv)->window || s->options.recompute ||
           s->model->config.position == POSITION_LEARNED;
}

void session_begin(struct session *s, size_t seq, size_t length)
{
    TELL(s, ORDER_BEGIN, seq, length);
    forward_begin(&s->forward, seq, size_min(length, s->options.context));
    kv_expect(s->kv, seq, length, s->options.chunk);
}

size_t session_space(const struct session *s)
{
    const size_t most = kv_setup(s->kv)->step_rows, space = s->max_rows - s->n_rows;
    return most ? size_min(space, most) : space;
}

size_t session_add(struct session *s, size_t seq, const uint32_t *token, size_t n)
{
    assert(n <= session_space(s) && s->n_queries < s->options.batch);
    const size_t first = s->n_rows, position = session_rows(s, seq);
    for (size_t i = 0; i < n; i++) {
        s->token[first + i] = token[i];
        s->position[first + i] = position + i;
    }
    s->query[s->n_queries++] = (struct attn_query){.seq = seq, .first = first, .rows = n};
    s->n_rows += n;
    return first;
}

size_t session_add_tree(struct session *s, size_t seq, const uint32_t *token, const size_t *depth,
                        size_t n, const uint32_t *tail, const size_t *tail_at)
{
    const size_t first = session_add(s, seq, token, n), position = session_rows(s, seq);
    for (size_t i = 0; i < n; i++)
        s->position[first + i] = position + depth[i];
    s->query[s->n_queries - 1].tail = tail;
    s->query[s->n_queries - 1].tail_at = tail_at;
    return first;
}

static void tell_step(struct session *s, const struct step *step, int threads)
{
    struct lead *lead = s->options.lead;
    if (!lead)
        return;
    TELL(s, ORDER_STEP, step->rows, step->n_queries, threads == s->options.threads_prefill);
    lead_ids(lead, step->token, step->rows);
    lead_words(lead, step->position, step->rows);
    for (const struct attn_query *q = step->query; q < step->query + step->n_queries; q++) {
        lead_words(lead, (const size_t[]){q->seq, q->rows, q->tail != NULL}, 3);
        if (q->tail) {
            lead_words(lead, q->tail_at, q->rows + 1);
            lead_ids(lead, q->tail, q->tail_at[q->rows]);
        }
    }
}

int session_compute(struct session *s, int threads, struct err *err)
{
    const struct step step = {s->n_rows, s->token, s->position, s->query, s->n_queries};
    int rc = 0;
    threads_set(threads);
    for (size_t i = 0; i < step.n_queries && rc == 0; i++) {
        rc = kv_room(s->kv, step.query[i].seq, step.query[i].rows, err);
        session_release_mapped(s, step.query[i].seq); /* growth may have copied the rows */
    }
    if (rc == 0)
        tell_step(s, &step, threads);
    if (rc == 0)
        rc = tell_now(s, err);
    if (rc == 0)
        rc = forward_step(&s->forward, &step, err);
    s->n_rows = s->n_queries = 0;
    return rc;
}

static void commit(struct session *s, size_t seq, size_t rows)
{
    TELL(s, ORDER_COMMIT, seq, rows);
    kv_commit(s->kv, seq, rows);
}

void session_keep(struct session *s, size_t seq, const size_t *row, size_t n)
{
    size_t leading = 0;
    while (leading < n && row[leading] == leading)
        leading++;
    if (leading == n) { /* nothing moves */
        commit(s, seq, n);
        return;
    }
    TELL(s, ORDER_KEEP, seq, n);
    if (s->options.lead)
        lead_words(s->options.lead, row, n);
    kv_keep(s->kv, seq, row, n);
}

int session_run(struct session *s, int threads, struct err *err)
{
    const size_t n = s->n_queries;
    if (session_compute(s, threads, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        commit(s, s->query[i].seq, s->query[i].rows);
    return 0;
}

static void tell_logits(struct session *s, const size_t *row, size_t n)
{
    TELL(s, ORDER_LOGITS, n);
    if (s->options.lead)
        lead_words(s->options.lead, row, n);
}

bool session_flies(const struct session *s)
{
    return s->options.lead && !chain_last(&s->forward.chain);
}

int session_ask(struct session *s, const size_t *row, size_t n, size_t *question, struct err *err)
{
    *question = s->forward.chain.questions;
    for (size_t from = 0; from < n; from += LEAD_LOGITS) {
        tell_logits(s, row + from, size_min(LEAD_LOGITS, n - from));
        forward_ask(&s->forward);
    }
    return tell_now(s, err);
}

int session_take(struct session *s, size_t question, size_t n, float *logits, struct err *err)
{
    for (size_t from = 0; from < n; from += LEAD_LOGITS)
        if (forward_take(&s->forward, question++, size_min(LEAD_LOGITS, n - from),
                         logits + from * s->model->config.vocab, err) < 0)
            return -1;
    return 0;
}

int session_logits(struct session *s, const size_t *row, size_t n, float *logits, struct err *err)
{
    const size_t vocab = s->model->config.vocab, most = s->options.lead ? LEAD_LOGITS : n;
    for (size_t from = 0, some; from < n; from += some) {
        some = size_min(most, n - from);
        tell_logits(s, row + from, some);
        if (tell_now(s, err) < 0 ||
            forward_logits(&s->forward, row + from, some, logits + from * vocab, err) < 0)
            return -1;
    }
    return 0;
}

void session_release_mapped(struct session *s, size_t seq)
{
    if (!kv_fill(s->kv, seq).adopted)
        kvfile_unmap_rows(&s->mapped[seq]);
}

void session_cut(struct session *s, size_t seq, size_t rows)
{
    TELL(s, ORDER_CUT, seq, rows);
    kv_truncate(s->kv, seq, rows);
    session_release_mapped(s, seq);
}

void session_drop(struct session *s, size_t seq) { session_cut(s, seq, 0); }

int session_fork(struct session *s, size_t to, size_t from, size_t rows, struct err *err)
{
    TELL(s, ORDER_FORK, to, from, rows);
    return kv_fork(s->kv, to, from, rows, err);
}

int session_reorder(struct session *s, size_t *seq, const size_t *parent, size_t n, struct err *err)
{
    TELL(s, ORDER_REORDER, n);
    if (s->options.lead) {
        lead_words(s->options.lead, seq, n);
        lead_words(s->options.lead, parent, n);
    }
    return kv_reorder(s->kv, seq, parent, n, err);
}
