/* The front end of the cache: checks and statistics. */
#include "kv/kv_policy.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kv/kv_rows.h"

static void close_store(struct kv *kv)
{
    kv->policy->close(kv);
    free(kv->seq);
    free(kv);
}

int kv_open(struct kv **out, const struct kv_spec *spec, const struct kv_shape *shape, size_t n_seqs,
            struct err *err)
{
    *out = NULL;
    size_t bytes;
    if (n_seqs == 0 || shape->max_rows == 0 ||
        !size_mul(shape->kv_heads * dtype_row_bytes(shape->type, shape->head_dim), shape->max_rows,
                  &bytes) ||
        !size_mul(bytes, 2 * shape->layers, &bytes))
        return err_set(err, "a cache of %zu sequences of %zu rows cannot be made", n_seqs,
                       shape->max_rows);
    if (spec->lockstep && !spec->policy->lockstep)
        return err_set(err, "cache policy %s cannot grow in lockstep", spec->policy->name);
    if (spec->sparse && !spec->policy->sparse)
        return err_set(err, "cache policy %s knows no sparse heads: headwise does", spec->policy->name);
    struct kv *kv = mem_zalloc(1, sizeof *kv);
    if (kv)
        kv->seq = mem_zalloc(n_seqs, sizeof *kv->seq);
    if (!kv || !kv->seq) {
        free(kv);
        return err_set(err, "out of memory for a cache of %zu sequences", n_seqs);
    }
    kv->policy = spec->policy;
    kv->spec = *spec;
    kv->setup = (struct kv_setup){
        .policy = spec->policy->name, .shape = *shape, .n_seqs = n_seqs, .cut_rows = SIZE_MAX};
    kv->rows = spec->valid_rows_only ? KV_ROWS_VALID : spec->policy->rows;
    kv->alloc = spec->alloc;
    kv->lockstep = spec->lockstep;
    kv->setup.r = spec->policy->growth->rows(kv, spec);
    kv->setup.T = div_up(shape->max_rows, kv->setup.r); /* the allocations that really happen */
    if (kv->policy->open(kv, err) < 0) {
        close_store(kv);
        return -1;
    }
    *out = kv;
    return 0;
}

void kv_close(struct kv *kv)
{
    if (!kv)
        return;
    for (size_t s = 0; s < kv->setup.n_seqs; s++)
        kv_truncate(kv, s, 0); /* also gives back what a failed growth left */
    close_store(kv);
}

const struct kv_setup *kv_setup(const struct kv *kv) { return &kv->setup; }

void kv_spelling(const struct kv *kv, char *text, size_t size)
{
    const char *before = kv->policy->growth->before_r;
    if (before)
        snprintf(text, size, "%s:%s%zu", kv->policy->name, before, kv->setup.r);
    else
        snprintf(text, size, "%s", kv->policy->name);
}

const struct kv_stats *kv_stats(const struct kv *kv) { return &kv->stats; }

void kv_count_copied(struct kv *kv, size_t bytes)
{
    __atomic_fetch_add(&kv->stats.copied_bytes, bytes, __ATOMIC_RELAXED);
}

void kv_uncount(struct kv *kv, const struct kv_stats *before) { kv->stats = *before; }

struct kv_fill kv_fill(const struct kv *kv, size_t seq)
{
    const struct kv_seq *s = &kv->seq[seq];
    return (struct kv_fill){s->first, s->n, s->pending, s->cap, s->adopted};
}

void kv_expect(struct kv *kv, size_t seq, size_t rows, size_t step)
{
    kv->seq[seq].expected = size_min(rows, kv->setup.shape.max_rows);
    kv->seq[seq].step = size_min(rows, step);
}

size_t kv_position(const struct kv *kv, size_t seq) { return kv->seq[seq].first + kv->seq[seq].n; }

bool kv_whole(const struct kv *kv, size_t seq) { return kv_position(kv, seq) <= kv->setup.cut_rows; }

size_t kv_left(const struct kv *kv, size_t seq)
{
    return kv->policy->endless ? SIZE_MAX : kv->setup.shape.max_rows - kv->seq[seq].n;
}

/* ---- rows that were adopted ---- */

/* Rows [from, to) of one layer become zeros: they lie in adopted memory, the first span. */
static int clear_rows(struct kv *kv, size_t seq, size_t layer, size_t from, size_t to, struct err *err)
{
    struct kv_view view;
    if (kv->policy->view(kv, seq, layer, 0, kv->setup.shape.kv_heads, to, &view, err) < 0)
        return -1;
    const struct kv_span *span = view.span;
    const size_t bytes = (to - from) * span->row_stride;
    for (size_t h = 0; h < kv->setup.shape.kv_heads; h++) {
        const size_t at = view.offset + h * span->head_stride + from * span->row_stride;
        memset(kv_mutable(span->k) + at, 0, bytes);
        memset(kv_mutable(span->v) + at, 0, bytes);
    }
    return 0;
}

static int clean_adopted(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    struct kv_seq *s = &kv->seq[seq];
    const size_t from = s->clean, to = size_min(round_up(rows, TILE_ROWS), s->stored);
    for (size_t l = 0; l < kv->setup.shape.layers && from < to; l++)
        if (clear_rows(kv, seq, l, from, to, err) < 0)
            return -1;
    s->clean = size_max(from, to);
    s->cap = size_max(s->cap, size_min(s->clean, kv->setup.shape.max_rows));
    return 0;
}

/* ---- steps ---- */

int kv_room(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    struct kv_seq *s = &kv->seq[seq];
    if (rows > kv_left(kv, seq))
        return err_set(err, "the context of %zu rows is full: %zu are used, %zu more are needed",
                       kv->setup.shape.max_rows, s->n, rows);
    if (kv->policy->endless && rows > kv->setup.step_rows)
        return err_set(err, "a step of %zu rows is more than the %zu that the window's room takes",
                       rows, kv->setup.step_rows);
    const bool inside = s->adopted && s->n + rows <= s->stored;
    if ((!inside && kv->policy->room(kv, seq, rows, err) < 0) ||
        (s->adopted && clean_adopted(kv, seq, s->n + rows, err) < 0))
        return -1;
    s->pending = rows;
    return 0;
}

void kv_append(struct kv *kv, size_t seq, size_t layer, const float *k, const float *v, size_t stride)
{
    assert(layer < kv->setup.shape.layers);
    kv->policy->append(kv, seq, layer, 0, kv->seq[seq].pending, k, v, stride);
}

void kv_announce(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads)
{
    const struct kv_reading *reading = kv->policy->reading;
    if (reading && reading->announce)
        reading->announce(kv, seq, layer, head, heads);
}

size_t kv_shared_rows(const struct kv *kv, size_t a, size_t b)
{
    const struct kv_reading *reading = kv->policy->reading;
    return reading && reading->shared ? reading->shared(kv, a, b) : 0;
}

size_t kv_rows_bytes(const struct kv *kv, size_t rows)
{
    return rows * 2 * kv->setup.shape.layers * kv->setup.shape.kv_heads * kv_row_bytes(kv);
}

int kv_view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, struct kv_view *view,
            struct err *err)
{
    const struct kv_seq *s = &kv->seq[seq];
    assert(head + heads <= kv->setup.shape.kv_heads);
    view->seq = seq;
    view->layer = layer;
    view->head = head;
    view->heads = heads;
    view->type = kv->setup.shape.type;
    view->padded = view->sink = view->recent = 0;
    if (kv->policy->view(kv, seq, layer, head, heads, s->n + s->pending, view, err) < 0)
        return -1;
    assert(head > 0 || !kv_view_problem(view, kv_row_bytes(kv),
                                        s->first + s->n + s->pending)); /* once for all heads */
    return 0;
}

const char *kv_view_problem(const struct kv_view *view, size_t row_bytes, size_t end)
{
    size_t at = view->n_spans ? view->span[0].first : 0, tokens = at;
    for (size_t i = 0; i < view->n_spans; i++) {
        const struct kv_span *span = &view->span[i];
        if (span->first != at)
            return "a span does not begin where the one before ended";
        if (span->first % TILE_ROWS)
            return "a span begins within a tile";
        if (span->rows && (!span->k || !span->v))
            return "a span without memory";
        if (span->row_stride < row_bytes)
            return "rows that overlap";
        if (span->valid > span->rows || (span->valid < span->rows && i + 1 < view->n_spans))
            return "padding before the last span's end";
        at += span->rows;
        tokens += span->valid;
    }
    return tokens == end ? NULL : "another number of tokens than the sequence has";
}

size_t kv_storage_rows(const struct kv *kv, size_t seq)
{
    const struct kv_seq *s = &kv->seq[seq];
    return s->adopted ? size_max(s->cap, size_min(s->stored, kv->setup.shape.max_rows)) : s->cap;
}

size_t kv_free_rows(const struct kv *kv, size_t seq)
{
    const struct kv_seq *s = &kv->seq[seq];
    const size_t N = kv->setup.shape.max_rows;
    if (kv->policy->endless)
        return kv->setup.step_rows;
    if (!kv->policy->growth->in_steps || s->n == N)
        return kv_left(kv, seq);
    return size_max(kv_storage_rows(kv, seq), size_min(round_up(s->n + 1, kv->setup.r), N)) - s->n;
}

size_t kv_rows_now(const struct kv *kv, size_t seq)
{
    const struct kv_seq *s = &kv->seq[seq];
    switch (kv->rows) {
    case KV_ROWS_CAP: return s->cap;
    case KV_ROWS_WINDOW: return size_max(kv->setup.window - 1, s->n) + s->pending;
    case KV_ROWS_VALID: break;
    }
    return s->n + s->pending;
}

size_t kv_rows_end(const struct kv *kv, size_t seq)
{
    const struct kv_seq *s = &kv->seq[seq];
    return kv->rows == KV_ROWS_CAP ? s->cap : s->first + s->n + s->pending;
}

size_t kv_rows_padded(const struct kv *kv, size_t seq)
{
    const struct kv_seq *s = &kv->seq[seq];
    const bool full = kv->rows != KV_ROWS_WINDOW || s->first || s->n >= kv->setup.window - 1;
    return full ? 0 : round_up(kv->setup.window - 1 - s->n, TILE_ROWS);
}

/* Of an endless sequence no more rows stay than the next one sees. */
static void settle(struct kv *kv, struct kv_seq *s)
{
    const size_t most = kv->policy->endless ? kv->setup.window - 1 : s->n;
    const size_t dropped = s->n - size_min(s->n, most);
    s->first += dropped;
    s->n -= dropped;
}

/* A step of one sequence is over: rows counted once, not per layer or head. */
static void count_step(struct kv *kv, size_t seq)
{
    const struct kv_seq *s = &kv->seq[seq];
    kv->stats.rows_computed += kv_rows_now(kv, seq);
    kv->stats.padded_rows += kv_rows_now(kv, seq) - (s->n + s->pending);
}

void kv_commit(struct kv *kv, size_t seq, size_t rows)
{
    struct kv_seq *s = &kv->seq[seq];
    assert(rows <= s->pending);
    count_step(kv, seq);
    s->n += rows;
    s->pending = 0;
    settle(kv, s);
}

void kv_keep(struct kv *kv, size_t seq, const size_t *offset, size_t n)
{
    struct kv_seq *s = &kv->seq[seq];
    size_t extra[256];
    count_step(kv, seq);
    s->pending = 0;
    /* In pieces, so that the list needs no memory of its own. */
    for (size_t from = 0; from < n; from += ARRAY_LEN(extra)) {
        const size_t count = size_min(ARRAY_LEN(extra), n - from);
        const size_t base = s->n - from;
        for (size_t i = 0; i < count; i++)
            extra[i] = base + offset[from + i];
        kv->policy->keep(kv, seq, s->n, extra, count);
        s->n += count;
    }
    settle(kv, s);
}

/* Rows that stay when a sequence is cut, or forked, at position `end`. */
static size_t rows_before(const struct kv *kv, size_t seq, size_t end)
{
    assert(!end || end == kv_position(kv, seq) || (end < kv_position(kv, seq) && kv_whole(kv, seq)));
    return end ? end - kv->seq[seq].first : 0;
}

void kv_truncate(struct kv *kv, size_t seq, size_t rows)
{
    struct kv_seq *s = &kv->seq[seq];
    const size_t kept = rows_before(kv, seq, rows);
    kv->policy->keep(kv, seq, kept, NULL, 0);
    s->n = kept;
    s->first = kept ? s->first : 0;
    s->pending = 0;
    s->adopted = s->adopted && kept;
}

int kv_fork(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    const size_t kept = rows_before(kv, from, rows);
    assert(to != from && kv->seq[to].n == 0);
    if (kept && kv->policy->fork(kv, to, from, kept, err) < 0)
        return -1;
    kv->seq[to].n = kept;
    kv->seq[to].first = kept ? kv->seq[from].first : 0;
    return 0;
}
