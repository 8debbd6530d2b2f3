/* Front end of the KV cache: checks arguments, tracks sequences, keeps statistics. */
#include "kv/kv_policy.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kv/kv_rows.h"
#include "kv/kv_scales.h"
#include "kv/kv_state.h"
#include "quant/cache_types.h"
#include "quant/hadamard.h"

static void close_store(struct kv *kv)
{
    kv_close(kv->other);
    if (kv->policy->close)
        kv->policy->close(kv);
    state_close(kv->state);
    free(kv->range);
    free(kv->store);
    free(kv->seq);
    free(kv);
}

/* Copies the shared scales of these layers; those of layers of other sizes follow. */
static int copy_scales(struct kv *kv, const struct kv_scales *scales, struct err *err)
{
    struct kv_shape own = kv->setup.shape;
    const size_t all = kv_scales_count(&own);
    own.other_layers = 0;
    const size_t n = kv_scales_count(&own);
    if (!scales)
        return 0;
    if (!cache_type_shares_scales(kv->setup.shape.type))
        return err_set(err, "shared scales are for the cache types q8 and q4, not for %s",
                       cache_type_name(kv->setup.shape.type));
    if (scales->n != all)
        return err_set(
            err,
            "there are scales for %zu heads of K and V, this cache has %zu: they cannot be used with "
            "a model that is split",
            scales->n, all);
    kv->range = mem_alloc(n, sizeof *kv->range);
    if (!kv->range)
        return err_no_memory(err, "the scales of %zu heads", n);
    memcpy(kv->range, scales->range, n * sizeof *kv->range);
    kv->setup.scales = scales->id;
    return 0;
}

/* Opens the cache of layers whose KV heads have other sizes, if there are any. */
static int open_other(struct kv *kv, struct err *err)
{
    const struct kv_shape shape = kv_shape_other(&kv->setup.shape);
    struct kv_spec spec = kv->spec;
    if (!shape.layers)
        return 0;
    if (spec.offload.streaming)
        return err_set(err, "retrieval heads need layers whose KV heads have the same sizes: use "
                            "headwise without them");
    if (kv->policy->growth->share)
        kv->policy->growth->share(kv, &spec.offload, &shape);
    spec.windows = spec.windows ? spec.windows + kv->setup.shape.layers : NULL;
    spec.shards.layers = spec.shards.other_layers;
    spec.shards.kv_heads = spec.shards.other_kv_heads;
    spec.state = (struct state_options){0};
    struct kv_scales scales = {0};
    if (kv->range) {
        const size_t own = kv_scales_index(&kv->setup.shape, kv->setup.shape.layers, false, 0);
        scales = (struct kv_scales){spec.scales->id, spec.scales->n - own, spec.scales->range + own};
        spec.scales = &scales;
    }
    if (kv->policy->growth->in_steps) { /* both grow at the same lengths */
        spec.r = kv->setup.r;
        spec.T = 0;
        spec.tuned = false;
    }
    if (kv_open(&kv->other, &spec, &shape, kv->setup.n_seqs, err) < 0)
        return -1;
    const struct kv_setup *other = &kv->other->setup;
    kv->untrimmed_limit = size_min(kv->untrimmed_limit, kv->other->untrimmed_limit);
    kv->setup.step_rows = size_min(kv->setup.step_rows, other->step_rows);
    kv->setup.view_rows = size_max(kv->setup.view_rows, other->view_rows);
    return 0;
}

int kv_open(struct kv **out, const struct kv_spec *spec, const struct kv_shape *shape, size_t n_seqs,
            struct err *err)
{
    *out = NULL;
    size_t bytes;
    if (n_seqs == 0 || shape->max_rows == 0 ||
        !size_mul(shape->kv_heads * dtype_row_bytes(shape->type, shape->head_dim), shape->max_rows,
                  &bytes) ||
        !size_mul(bytes, 2 * shape->layers, &bytes) || shape->v_dim > shape->head_dim)
        return err_set(err, "a KV cache of %zu sequences of %zu entries is impossible", n_seqs,
                       shape->max_rows);
    if (shape->type == DTYPE_Q4_1_ROTATED && shape->v_dim % hadamard_block(shape->head_dim))
        return err_set(
            err,
            "cache type q4h rotates %zu elements of keys together, but only %zu of these are "
            "values in this model: use q4 or q8",
            hadamard_block(shape->head_dim), shape->v_dim % hadamard_block(shape->head_dim));
    if (spec->lockstep && !spec->policy->lockstep)
        return err_set(err, "cache policy %s cannot grow in lockstep", spec->policy->name);
    if (spec->offload.streaming && !spec->policy->prefetch)
        return err_set(err, "cache policy %s cannot drop entries of streaming heads: use headwise",
                       spec->policy->name);
    const struct kv_growth *growth = spec->policy->growth;
    struct kv *kv = mem_zalloc(1, sizeof *kv);
    if (kv)
        kv->seq = mem_zalloc(n_seqs, sizeof *kv->seq);
    if (!kv || !kv->seq) {
        free(kv);
        return err_no_memory(err, "a cache of %zu sequences", n_seqs);
    }
    kv->policy = spec->policy;
    kv->spec = *spec;
    kv->setup = (struct kv_setup){
        .policy = spec->policy->name, .shape = *shape, .n_seqs = n_seqs, .state = spec->state.shape};
    if (copy_scales(kv, spec->scales, err) < 0) {
        free(kv->seq);
        free(kv);
        return -1;
    }
    kv->untrimmed_limit = SIZE_MAX;
    kv->attend = spec->attend_valid ? KV_ATTEND_VALID : spec->policy->attend;
    kv->setup.r = growth->rows ? growth->rows(kv, spec) : size_min(growth->fixed, shape->max_rows);
    if (!kv->spec.state.every)
        kv->spec.state.every = state_distance(&spec->state.shape, kv_rows_bytes(kv, 1));
    kv->setup.T = div_up(shape->max_rows, kv->setup.r); /* <= T given: r was rounded up */
    if (kv->policy->open(kv, err) < 0 || state_open(&kv->state, &kv->spec.state, n_seqs, err) < 0 ||
        open_other(kv, err) < 0) {
        close_store(kv);
        return -1;
    }
    kv_count_state(kv);
    kv->spec.scales = NULL;
    *out = kv;
    return 0;
}

void kv_close(struct kv *kv)
{
    if (!kv)
        return;
    for (size_t s = 0; s < kv->setup.n_seqs; s++)
        kv_truncate(kv, s, 0); /* even empty ones may hold memory, after a failed growth event */
    close_store(kv);
}

const struct kv_setup *kv_setup(const struct kv *kv) { return &kv->setup; }

void kv_spec_format(const struct kv *kv, char *text, size_t size)
{
    const char *prefix = kv->policy->growth->r_prefix;
    if (prefix)
        snprintf(text, size, "%s:%s%zu", kv->policy->name, prefix, kv->setup.r);
    else
        snprintf(text, size, "%s", kv->policy->name);
}

void kv_count_copied(struct kv *kv, size_t bytes)
{
    __atomic_fetch_add(&kv->stats.copied_bytes, bytes, __ATOMIC_RELAXED);
}

struct kv_seq_info kv_seq_info(const struct kv *kv, size_t seq)
{
    const struct kv_seq *s = &kv->seq[seq];
    const bool attached = s->attached || (kv->other && kv->other->seq[seq].attached);
    return (struct kv_seq_info){s->first, s->n, s->pending, s->cap, attached};
}

size_t kv_position(const struct kv *kv, size_t seq) { return kv->seq[seq].first + kv->seq[seq].n; }

bool kv_is_untrimmed(const struct kv *kv, size_t seq)
{
    return kv_position(kv, seq) <= kv->untrimmed_limit;
}

size_t kv_untrimmed_limit(const struct kv *kv) { return kv->untrimmed_limit; }

size_t kv_left(const struct kv *kv, size_t seq)
{
    return kv->policy->rolling ? SIZE_MAX : kv->setup.shape.max_rows - kv->seq[seq].n;
}

/* Zeroes rows [from, to) of one layer of a sequence in the memory that the caller attached
 * (kv_attach()), which is the first span of its views. */
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

/* Makes the first `rows` rows of a sequence's attached memory usable (kv_attach()): zeroes tiles
 * that hold no token yet and raises the sequence's capacity. */
static int clean_attached(struct kv *kv, size_t seq, size_t rows, struct err *err)
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

int kv_ensure(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    struct kv_seq *s = &kv->seq[seq];
    if (rows > kv_left(kv, seq))
        return err_set(err, "the context of %zu tokens is full: it has %zu, and %zu more are needed",
                       kv->setup.shape.max_rows, s->n, rows);
    if (kv->policy->rolling && rows > kv->setup.step_rows)
        return err_set(err,
                       "a forward pass of %zu tokens exceeds the %zu that the rolling cache can take",
                       rows, kv->setup.step_rows);
    const bool inside = s->attached && s->n + rows <= s->stored;
    if ((!inside && kv->policy->ensure(kv, seq, rows, err) < 0) ||
        (s->attached && clean_attached(kv, seq, s->n + rows, err) < 0) ||
        kv_state_begin(kv, seq, rows, err) < 0)
        return -1;
    if (kv->other && kv_ensure(kv->other, seq, rows, err) < 0)
        return -1;
    s->pending = rows;
    return 0;
}

void kv_append(struct kv *kv, size_t seq, size_t layer, const float *k, const float *v, size_t stride)
{
    kv = kv_of_layer(kv, &layer);
    assert(layer < kv->setup.shape.layers);
    kv->policy->append(kv, seq, layer, 0, kv->seq[seq].pending, k, v, stride);
}

void kv_prefetch(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads)
{
    if (kv->policy->prefetch)
        kv->policy->prefetch(kv, seq, layer, head, heads);
}

struct offload_limits kv_offload(const struct kv *kv) { return kv->offload; }

size_t kv_rows_bytes(const struct kv *kv, size_t rows)
{
    return rows * kv_shape_row_bytes(&kv->setup.shape) +
           (kv->other ? kv_rows_bytes(kv->other, rows) : 0);
}

int kv_view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, struct kv_view *view,
            struct err *err)
{
    kv = kv_of_layer(kv, &layer);
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
                                        s->first + s->n + s->pending)); /* same for all heads */
    return 0;
}

const char *kv_view_problem(const struct kv_view *view, size_t row_bytes, size_t end)
{
    size_t at = view->n_spans ? view->span[0].first : 0, tokens = at;
    for (size_t i = 0; i < view->n_spans; i++) {
        const struct kv_span *span = &view->span[i];
        if (span->first != at)
            return "gap between spans";
        if (span->first % TILE_ROWS)
            return "span not aligned to tiles";
        if (span->rows && (!span->k || !span->v))
            return "span without memory";
        if (span->row_stride < row_bytes)
            return "overlapping rows";
        if (span->valid > span->rows || (span->valid < span->rows && i + 1 < view->n_spans))
            return "padding before the last span";
        at += span->rows;
        tokens += span->valid;
    }
    return tokens == end ? NULL : "wrong number of tokens";
}

static const void *row_address(const struct kv_view *view, size_t row)
{
    const struct kv_span *span = view->span;
    while (row >= span->first + span->rows)
        span++;
    return (const char *)span->k + view->offset + kv_span_row(span, row - span->first);
}

bool kv_shares_prefix(const struct kv *kv) { return kv->policy->shares_prefix; }

size_t kv_shared_rows(const struct kv *kv, size_t a, size_t b)
{
    /* view() of policies that share prefixes modifies nothing */
    struct kv *mutable = (struct kv *)(uintptr_t)kv;
    const size_t n = size_min(kv->seq[a].n, kv->seq[b].n);
    struct kv_view view[2];
    struct err err;
    if (!kv_shares_prefix(kv) || !n ||
        kv->policy->view(mutable, a, 0, 0, 1, kv->seq[a].n, &view[0], &err) < 0 ||
        kv->policy->view(mutable, b, 0, 0, 1, kv->seq[b].n, &view[1], &err) < 0)
        return 0;
    size_t shared = 0;
    for (size_t end = n; shared < end;) {
        const size_t middle = shared + (end - shared) / 2;
        if (row_address(&view[0], middle) == row_address(&view[1], middle))
            shared = middle + 1;
        else
            end = middle;
    }
    return shared;
}

size_t kv_storage_rows(const struct kv *kv, size_t seq)
{
    const struct kv_seq *s = &kv->seq[seq];
    return s->attached ? size_max(s->cap, size_min(s->stored, kv->setup.shape.max_rows)) : s->cap;
}

size_t kv_rows_before_growth(const struct kv *kv, size_t seq)
{
    const struct kv_seq *s = &kv->seq[seq];
    const size_t N = kv->setup.shape.max_rows;
    if (kv->policy->rolling)
        return kv->setup.step_rows;
    if (!kv->policy->growth->in_steps || s->n == N)
        return kv_left(kv, seq);
    return size_max(kv_storage_rows(kv, seq), size_min(round_up(s->n + 1, kv->setup.r), N)) - s->n;
}

size_t kv_attended_rows(const struct kv *kv, size_t seq)
{
    const struct kv_seq *s = &kv->seq[seq];
    switch (kv->attend) {
    case KV_ATTEND_PADDED: return s->cap;
    case KV_ATTEND_WINDOW: return size_max(kv->setup.window - 1, s->n) + s->pending;
    case KV_ATTEND_VALID: break;
    }
    return s->n + s->pending;
}

size_t kv_attended_end(const struct kv *kv, size_t seq)
{
    const struct kv_seq *s = &kv->seq[seq];
    return kv->attend == KV_ATTEND_PADDED ? s->cap : s->first + s->n + s->pending;
}

/* In a rolling cache, drops the sequence's oldest rows, which the next token will not attend to. */
static void drop_oldest(struct kv *kv, struct kv_seq *s)
{
    const size_t most = kv->policy->rolling ? kv->setup.window - 1 : s->n;
    const size_t dropped = s->n - size_min(s->n, most);
    s->first += dropped;
    s->n -= dropped;
}

static void count_pass(struct kv *kv, size_t seq)
{
    const struct kv_seq *s = &kv->seq[seq];
    kv->stats.rows_computed += kv_attended_rows(kv, seq);
    kv->stats.padded_rows += kv_attended_rows(kv, seq) - (s->n + s->pending);
}

void kv_commit(struct kv *kv, size_t seq, size_t rows)
{
    struct kv_seq *s = &kv->seq[seq];
    assert(rows <= s->pending);
    count_pass(kv, seq);
    kv_state_accept(kv, seq, NULL, rows);
    s->n += rows;
    s->pending = 0;
    drop_oldest(kv, s);
    if (kv->other)
        kv_commit(kv->other, seq, rows);
}

void kv_accept(struct kv *kv, size_t seq, const size_t *offset, size_t n)
{
    struct kv_seq *s = &kv->seq[seq];
    size_t extra[256];
    count_pass(kv, seq);
    kv_state_accept(kv, seq, offset, n);
    s->pending = 0;
    /* in chunks that fit the array */
    for (size_t from = 0; from < n; from += ARRAY_LEN(extra)) {
        const size_t count = size_min(ARRAY_LEN(extra), n - from);
        const size_t base = s->n - from;
        for (size_t i = 0; i < count; i++)
            extra[i] = base + offset[from + i];
        kv->policy->accept(kv, seq, s->n, extra, count);
        s->n += count;
    }
    drop_oldest(kv, s);
    if (kv->other)
        kv_accept(kv->other, seq, offset, n);
}

/* Returns the number of a sequence's rows that remain if it is truncated or forked at position
 * `end`. */
static size_t rows_before(const struct kv *kv, size_t seq, size_t end)
{
    assert(!end || end == kv_position(kv, seq) ||
           (end < kv_position(kv, seq) && kv_is_untrimmed(kv, seq)));
    assert(kv_rewind(kv, seq, end) == end);
    return end ? end - kv->seq[seq].first : 0;
}

void kv_truncate(struct kv *kv, size_t seq, size_t rows)
{
    struct kv_seq *s = &kv->seq[seq];
    const size_t kept = rows_before(kv, seq, rows);
    kv_state_truncate(kv, seq, rows);
    kv->policy->accept(kv, seq, kept, NULL, 0);
    s->n = kept;
    s->first = kept ? s->first : 0;
    s->pending = 0;
    s->attached = s->attached && kept;
    if (kv->other)
        kv_truncate(kv->other, seq, rows);
}

int kv_fork(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    const size_t kept = rows_before(kv, from, rows);
    assert(to != from && kv->seq[to].n == 0);
    if (kept && kv->policy->fork(kv, to, from, kept, err) < 0)
        return -1;
    kv_state_fork(kv, to, from, rows);
    kv->seq[to].n = kept;
    kv->seq[to].first = kept ? kv->seq[from].first : 0;
    if (!kv->other || kv_fork(kv->other, to, from, rows, err) == 0)
        return 0;
    kv_truncate(kv, to, 0);
    return -1;
}
