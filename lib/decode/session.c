/* A model with a cache. */
#include "decode/session.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/threads.h"

/* The cache knows the layers' windows: it may keep no more than those. Its steps may be limited. */
static int open_cache(struct session *s, struct err *err)
{
    const struct config *c = &s->model->config;
    size_t *windows = mem_alloc(c->layers, sizeof *windows);
    if (!windows)
        return err_set(err, "out of memory for %zu layers", c->layers);
    for (size_t l = 0; l < c->layers; l++)
        windows[l] = config_window(c, l);
    const struct kv_shape shape = {c->layers, c->kv_heads, c->head_dim, s->options.context,
                                   s->options.kv_type};
    struct kv_spec spec = s->options.kv;
    spec.windows = windows;
    const int rc = kv_open(&s->kv, &spec, &shape, s->options.batch, err);
    free(windows);
    if (rc == 0 && kv_setup(s->kv)->step_rows)
        s->options.chunk = size_min(s->options.chunk, kv_setup(s->kv)->step_rows);
    return rc;
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
    forward_begin(&s->forward, seq, size_min(length, s->options.context));
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
        rc = forward_step(&s->forward, &step, err);
    s->n_rows = s->n_queries = 0;
    return rc;
}

void session_keep(struct session *s, size_t seq, const size_t *row, size_t n)
{
    size_t leading = 0;
    while (leading < n && row[leading] == leading)
        leading++;
    if (leading == n)
        kv_commit(s->kv, seq, n); /* nothing moves */
    else
        kv_keep(s->kv, seq, row, n);
}

int session_run(struct session *s, int threads, struct err *err)
{
    const size_t n = s->n_queries;
    if (session_compute(s, threads, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        kv_commit(s->kv, s->query[i].seq, s->query[i].rows);
    return 0;
}

void session_logits(struct session *s, const size_t *row, size_t n, float *logits)
{
    forward_logits(&s->forward, row, n, logits);
}

void session_release_mapped(struct session *s, size_t seq)
{
    if (!kv_fill(s->kv, seq).adopted)
        kvfile_unmap_rows(&s->mapped[seq]);
}

void session_cut(struct session *s, size_t seq, size_t rows)
{
    kv_truncate(s->kv, seq, rows);
    session_release_mapped(s, seq);
}

void session_drop(struct session *s, size_t seq) { session_cut(s, seq, 0); }
