/* Front end of the KV cache: checks arguments, tracks sequences, keeps statistics. */
#include "kv/kv_policy.h"

#include "base/mem.h"
#include "kv/kv_rows.h"
#include "kv/kv_scales.h"
#include "quant/cache_types.h"
#include "quant/kv_entries.h"
#include "quant/hadamard.h"

/* ---- shapes ---- */

struct kv_shape kv_shape_uniform(size_t layers, struct kv_sizes sizes, size_t max_rows, enum dtype type)
{
    sizes.type[KV_K] = sizes.type[KV_V] = type;
    return (struct kv_shape){.layers = layers, .max_rows = max_rows, .n_sizes = 1, .sizes = {sizes}};
}

static bool same_sizes(const struct kv_sizes *a, const struct kv_sizes *b)
{
    return a->kv_heads == b->kv_heads && a->head_dim == b->head_dim && a->v_dim == b->v_dim &&
           a->type[KV_K] == b->type[KV_K] && a->type[KV_V] == b->type[KV_V];
}

bool kv_shape_add(struct kv_shape *shape, struct kv_sizes sizes)
{
    size_t i = 0;
    if (sizes.v_dim)
        sizes.type[KV_V] = sizes.type[KV_K];
    while (i < shape->n_sizes && !same_sizes(&shape->sizes[i], &sizes))
        i++;
    if (shape->layers == KV_MAX_LAYERS || i == KV_MAX_SIZES)
        return false;
    if (i == shape->n_sizes)
        shape->sizes[shape->n_sizes++] = sizes;
    shape->size_of[shape->layers++] = (uint8_t)i;
    return true;
}

size_t kv_sizes_bytes(const struct kv_sizes *sizes)
{
    size_t bytes = 0;
    for (size_t m = 0; m < kv_matrices(sizes); m++)
        bytes += sizes->kv_heads * kv_sizes_row_bytes(sizes, m);
    return bytes;
}

size_t kv_shape_row_bytes(const struct kv_shape *shape)
{
    size_t bytes = 0;
    for (size_t l = 0; l < shape->layers; l++)
        bytes += kv_sizes_bytes(kv_sizes_of(shape, l));
    return bytes;
}

size_t kv_shape_matrix_bytes(const struct kv_shape *shape)
{
    size_t most = 0;
    for (size_t i = 0; i < shape->n_sizes; i++)
        for (size_t m = 0; m < kv_matrices(&shape->sizes[i]); m++)
            most = size_max(most, shape->sizes[i].kv_heads * kv_sizes_row_bytes(&shape->sizes[i], m));
    return most;
}

size_t kv_shape_width(const struct kv_shape *shape)
{
    size_t most = 0;
    for (size_t i = 0; i < shape->n_sizes; i++)
        most = size_max(most, shape->sizes[i].kv_heads * shape->sizes[i].head_dim);
    return most;
}

size_t kv_shape_heads(const struct kv_shape *shape)
{
    size_t most = 0;
    for (size_t i = 0; i < shape->n_sizes; i++)
        most = size_max(most, shape->sizes[i].kv_heads);
    return most;
}

size_t kv_shape_dim(const struct kv_shape *shape)
{
    size_t most = 0;
    for (size_t i = 0; i < shape->n_sizes; i++)
        most = size_max(most, shape->sizes[i].head_dim);
    return most;
}

bool kv_shape_any(const struct kv_shape *shape, bool (*is)(enum dtype type))
{
    bool any = false;
    for (size_t i = 0; i < shape->n_sizes; i++)
        any = any || is(shape->sizes[i].type[KV_K]) || is(shape->sizes[i].type[KV_V]);
    return any;
}

static int check_sizes(const struct kv_shape *shape, const struct kv_sizes *sizes, size_t n_seqs,
                       struct err *err)
{
    size_t bytes;
    if (n_seqs == 0 || shape->max_rows == 0 ||
        !size_mul(kv_sizes_bytes(sizes), shape->max_rows, &bytes) ||
        !size_mul(bytes, shape->layers, &bytes) || sizes->v_dim > sizes->head_dim)
        return err_set(err, "a KV cache of %zu sequences of %zu entries is impossible", n_seqs,
                       shape->max_rows);
    const bool rotated = kv_type_rotated(sizes->type[KV_K]) || kv_type_rotated(sizes->type[KV_V]);
    if (rotated && (sizes->v_dim % hadamard_block(sizes->head_dim) || sizes->head_dim > ROTATED_MOST))
        return err_set(
            err,
            "cache types q8, q6, q5, q4 and q4h rotate %zu of the %zu elements of keys together, which "
            "have to be at most %d and not only partly the %zu values: use q8_channel or q4_1",
            hadamard_block(sizes->head_dim), sizes->head_dim, (int)ROTATED_MOST, sizes->v_dim);
    return 0;
}

/* ---- opening ---- */

static void close_store(struct kv *kv)
{
    if (kv->policy->close)
        kv->policy->close(kv);
    kv_close(kv->smaller);
    free(kv->in_smaller);
    state_close(kv->state);
    free(kv->head);
    free(kv->first_head);
    free(kv->range);
    free(kv->store);
    free(kv->seq);
    free(kv);
}

static int copy_scales(struct kv *kv, const struct kv_scales *scales, struct err *err)
{
    const size_t n = kv->n_heads;
    if (!scales)
        return 0;
    for (size_t h = 0; h < n; h++)
        if (!cache_type_shares_scales(kv->head[h].type))
            return err_set(err, "shared scales are for the cache types q8 and q4, not for %s",
                           cache_type_name(kv->head[h].type));
    if (scales->n != n)
        return err_set(
            err,
            "there are scales for %zu heads of K and V, this cache has %zu: they cannot be used with "
            "a model that is split",
            scales->n, n);
    kv->range = mem_alloc(n, sizeof *kv->range);
    if (!kv->range)
        return err_no_memory(err, "the scales of %zu heads", n);
    memcpy(kv->range, scales->range, n * sizeof *kv->range);
    kv->setup.scales = scales->id;
    return 0;
}

/* Lists the heads of all layers. */
static int list_heads(struct kv *kv, struct err *err)
{
    const struct kv_shape *shape = &kv->setup.shape;
    kv->n_heads = kv_scales_count(shape);
    kv->head = mem_alloc(kv->n_heads + 1, sizeof *kv->head);
    kv->first_head = mem_alloc(3 * shape->layers + 2, sizeof *kv->first_head);
    if (!kv->head || !kv->first_head)
        return err_no_memory(err, "a cache of %zu layers", shape->layers);
    kv->matrix_head = kv->first_head + shape->layers + 1;
    size_t n = 0, before = 0;
    for (size_t l = 0; l < shape->layers; l++) {
        const struct kv_sizes *sizes = kv_layer_sizes(kv, l);
        kv->first_head[l] = n;
        for (size_t m = 0; m < kv_matrices(sizes); m++) {
            kv->matrix_head[kv->n_matrices] = n;
            const size_t bytes = kv_row_bytes(kv, l, m);
            for (size_t h = 0; h < sizes->kv_heads; h++, before += bytes)
                kv->head[n++] = (struct kv_head){l, kv->n_matrices, sizes->type[m], bytes, before};
            kv->n_matrices++;
        }
    }
    kv->head[n] = (struct kv_head){.layer = shape->layers, .matrix = kv->n_matrices, .before = before};
    kv->first_head[shape->layers] = kv->matrix_head[kv->n_matrices] = n;
    return 0;
}

/* Adds memory that the recurrent state has allocated or freed since the last call to the statistics. */
static void count_state(struct kv *kv)
{
    const size_t bytes = state_resident_bytes(kv->state), was = kv->state_bytes;
    kv_count_memory(kv, bytes - size_min(was, bytes), was - size_min(was, bytes));
    kv->state_bytes = bytes;
}

static int open_store(struct kv *kv, struct err *err)
{
    const struct kv_spec *spec = &kv->spec;
    const struct kv_growth *growth = spec->policy->growth;
    const size_t N = kv->setup.shape.max_rows;
    if (list_heads(kv, err) < 0 || copy_scales(kv, spec->scales, err) < 0)
        return -1;
    kv->setup.r = growth->rows ? growth->rows(kv, spec) : size_min(growth->fixed, N);
    if (!kv->spec.state.every)
        kv->spec.state.every =
            state_distance(&spec->state.shape, kv_token_bytes(kv), STATE_NEAREST, STATE_FARTHEST);
    kv->setup.T = div_up(N, kv->setup.r); /* <= T given: r was rounded up */
    if (kv->policy->open(kv, err) < 0 ||
        state_open(&kv->state, &kv->spec.state, kv->setup.n_seqs, err) < 0)
        return -1;
    count_state(kv);
    kv->spec.scales = NULL;
    return 0;
}

int kv_open(struct kv **out, const struct kv_spec *spec, const struct kv_shape *shape, size_t n_seqs,
            struct err *err)
{
    *out = NULL;
    for (size_t i = 0; i < shape->n_sizes; i++)
        if (check_sizes(shape, &shape->sizes[i], n_seqs, err) < 0)
            return -1;
    if (spec->lockstep && !spec->policy->lockstep)
        return err_set(err, "cache policy %s cannot grow in lockstep", spec->policy->name);
    if (spec->layer_memory && !spec->policy->by_layer)
        return err_set(
            err, "layers on two backends need a cache whose layers are apart: use --kv bmc, upfront "
                 "or iterative");
    if (spec->offload.streaming && !spec->policy->prefetch)
        return err_set(err, "cache policy %s cannot drop entries of streaming heads: use headwise",
                       spec->policy->name);
    struct kv *kv = mem_zalloc(1, sizeof *kv);
    if (kv)
        kv->seq = mem_zalloc(n_seqs, sizeof *kv->seq);
    if (!kv || !kv->seq) {
        free(kv);
        return err_no_memory(err, "a cache of %zu sequences", n_seqs);
    }
    kv->spec = *spec;
    kv->spec.policy = shape->layers ? spec->policy : &kv_policy_none;
    kv->policy = kv->spec.policy;
    kv->memory = spec->memory;
    kv->spec.state.memory = spec->memory;
    kv->setup = (struct kv_setup){.policy = kv->policy->name,
                                  .memory = spec->memory,
                                  .shape = *shape,
                                  .n_seqs = n_seqs,
                                  .state = spec->state.shape};
    kv->largest = spec->shards.largest ? *spec->shards.largest : *shape;
    kv->untrimmed_limit = SIZE_MAX;
    kv->attend = spec->attend_valid ? KV_ATTEND_VALID : kv->policy->attend;
    if (open_store(kv, err) < 0) {
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
        kv_truncate(kv, s, 0); /* even empty ones may hold memory, after a failed growth event */
    close_store(kv);
}

const struct kv_setup *kv_setup(const struct kv *kv) { return &kv->setup; }

void kv_spec_format(const struct kv *kv, char *text, size_t size)
{
    const char *prefix = kv->policy->growth->r_prefix;
    if (prefix && kv->setup.sinks)
        snprintf(text, size, "%s:%s%zu,sinks=%zu", kv->policy->name, prefix, kv->setup.r,
                 kv->setup.sinks);
    else if (prefix)
        snprintf(text, size, "%s:%s%zu", kv->policy->name, prefix, kv->setup.r);
    else
        snprintf(text, size, "%s", kv->policy->name);
}

bool kv_overflowed(const struct kv *kv)
{
    return kv->overflowed || (kv->smaller && kv->smaller->overflowed);
}

struct kv_stats kv_stats(const struct kv *kv)
{
    struct kv_stats all = kv->stats;
    if (!kv->smaller)
        return all;
    const struct kv_stats *more = &kv->smaller->stats;
    all.allocations += more->allocations;
    all.copied_rows += more->copied_rows;
    all.copied_bytes += more->copied_bytes;
    all.padded_rows += more->padded_rows;
    all.rows_computed += more->rows_computed;
    all.alloc_ms += more->alloc_ms;
    all.copy_ms += more->copy_ms;
    return all;
}

const struct kv *kv_of_seq(const struct kv *kv, size_t seq)
{
    return kv->smaller && kv->in_smaller[seq] ? kv->smaller : kv;
}

void kv_stats_restore(struct kv *kv, const struct kv_stats *before)
{
    const size_t resident = kv->stats.resident_bytes;
    kv->stats = *before;
    if (kv->state) /* the passes may have allocated states that stay */
        kv->stats.resident_bytes = resident;
}

struct kv_seq_info kv_seq_info(const struct kv *kv, size_t seq)
{
    const struct kv_seq *s = &kv_of_seq(kv, seq)->seq[seq];
    return (struct kv_seq_info){s->first, s->n, s->pending, s->cap, s->attached};
}

size_t kv_position(const struct kv *kv, size_t seq)
{
    const struct kv_seq *s = &kv_of_seq(kv, seq)->seq[seq];
    return s->first + s->n;
}

bool kv_is_untrimmed(const struct kv *kv, size_t seq)
{
    return kv_position(kv, seq) <= kv->untrimmed_limit;
}

size_t kv_untrimmed_limit(const struct kv *kv) { return kv->untrimmed_limit; }

size_t kv_left(const struct kv *kv, size_t seq)
{
    return kv->policy->rolling ? SIZE_MAX : kv->setup.shape.max_rows - kv_of_seq(kv, seq)->seq[seq].n;
}

/* Adds zeros for rows [from, to) of one layer of a sequence, in the memory that the caller attached
 * (kv_attach()), which is the first span of its views. */
static int clear_rows(struct kv_copies *zeros, size_t seq, size_t layer, size_t from, size_t to,
                      struct err *err)
{
    struct kv *kv = zeros->kv;
    const struct kv_sizes *sizes = kv_layer_sizes(kv, layer);
    struct kv_view view;
    if (kv->policy->view(kv, seq, layer, 0, sizes->kv_heads, to, &view, err) < 0)
        return -1;
    const struct kv_span *span = view.span;
    for (size_t m = 0; m < kv_matrices(sizes); m++)
        for (size_t h = 0; h < sizes->kv_heads; h++) {
            const struct device_addr at =
                addr_add(m ? span->v : span->k,
                         view.offset[m] + h * span->head_stride[m] + from * span->row_stride[m]);
            kv_copies_add(zeros, at, at, 0, (to - from) * span->row_stride[m]);
        }
    return 0;
}

/* Makes the first `rows` rows of a sequence's attached memory usable (kv_attach()): zeroes tiles
 * that hold no token yet and raises the sequence's capacity. */
static int clean_attached(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    struct kv_seq *s = &kv->seq[seq];
    const size_t from = s->clean, to = size_min(round_up(rows, TILE_ROWS), s->stored);
    struct kv_copies zeros;
    kv_copies_begin(&zeros, kv);
    for (size_t l = 0; l < kv->setup.shape.layers && from < to; l++)
        if (clear_rows(&zeros, seq, l, from, to, err) < 0)
            return -1;
    kv_copies_end(&zeros);
    s->clean = size_max(from, to);
    s->cap = size_max(s->cap, size_min(s->clean, kv->setup.shape.max_rows));
    return 0;
}

int kv_ensure(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    kv = kv_home(kv, seq);
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
        (s->attached && clean_attached(kv, seq, s->n + rows, err) < 0)) {
        (void)memory_failed(kv->memory, err); /* a lost device is why, rather than a lack of memory */
        return -1;
    }
    const int rc = state_begin(kv->state, seq, kv_position(kv, seq), rows, err);
    count_state(kv);
    if (rc < 0)
        return -1;
    s->pending = rows;
    return 0;
}

void kv_append(struct kv *kv, size_t seq, size_t layer, struct device_addr k, struct device_addr v,
               size_t stride, const struct kv_queries *queries)
{
    assert(layer < kv->setup.shape.layers);
    kv = kv_home(kv, seq);
    kv->policy->append(kv, seq, layer, 0, kv->seq[seq].pending, k, v, stride, queries);
}

void kv_prefetch(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads)
{
    if (kv->policy->prefetch)
        kv->policy->prefetch(kv, seq, layer, head, heads);
}

struct offload_limits kv_offload(const struct kv *kv) { return kv->offload; }

size_t kv_rows_bytes(const struct kv *kv, size_t rows) { return rows * kv_token_bytes(kv); }

int kv_view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, struct kv_view *view,
            struct err *err)
{
    kv = kv_home(kv, seq);
    const struct kv_seq *s = &kv->seq[seq];
    const struct kv_sizes *sizes = kv_layer_sizes(kv, layer);
    assert(head + heads <= sizes->kv_heads);
    view->seq = seq;
    view->layer = layer;
    view->head = head;
    view->heads = heads;
    memcpy(view->type, sizes->type, sizeof view->type);
    view->padded = view->sink = view->recent = 0;
    if (kv->policy->view(kv, seq, layer, head, heads, s->n + s->pending, view, err) < 0)
        return -1;
    assert(head > 0 ||
           !kv_view_problem(view, sizes, s->first + s->n + s->pending)); /* same for all heads */
    return 0;
}

const char *kv_view_problem(const struct kv_view *view, const struct kv_sizes *sizes, size_t end)
{
    size_t at = view->n_spans ? view->span[0].first : 0, tokens = at;
    for (size_t i = 0; i < view->n_spans; i++) {
        const struct kv_span *span = &view->span[i];
        if (span->first < at || (span->first > at && !view->recent))
            return "gap between spans";
        if (span->first % TILE_ROWS)
            return "span not aligned to tiles";
        if (span->rows && (addr_is_null(span->k) || addr_is_null(span->v)))
            return "span without memory";
        if (span->row_stride[KV_K] < kv_sizes_row_bytes(sizes, KV_K) ||
            span->row_stride[KV_V] < kv_sizes_row_bytes(sizes, KV_V))
            return "overlapping rows";
        if (span->valid > span->rows || (span->valid < span->rows && i + 1 < view->n_spans))
            return "padding before the last span";
        tokens += span->first - at + span->valid;
        at = span->first + span->rows;
    }
    return tokens == end ? NULL : "wrong number of tokens";
}

static struct device_addr row_address(const struct kv_view *view, size_t row)
{
    const struct kv_span *span = view->span;
    while (row >= span->first + span->rows)
        span++;
    return addr_add(span->k, view->offset[KV_K] + (size_t)kv_span_row(span, KV_K, row - span->first));
}

bool kv_shares_prefix(const struct kv *kv) { return kv->policy->shares_prefix; }

size_t kv_shared_rows(const struct kv *kv, size_t a, size_t b)
{
    /* view() of policies that share prefixes modifies nothing */
    struct kv *mutable = (struct kv *)(uintptr_t)kv;
    const size_t n = size_min(kv->seq[a].n, kv->seq[b].n);
    struct kv_view view[2];
    struct err err;
    if (!kv_shares_prefix(kv) || !n || /* converted sequences have no rows here */
        kv->policy->view(mutable, a, 0, 0, 1, kv->seq[a].n, &view[0], &err) < 0 ||
        kv->policy->view(mutable, b, 0, 0, 1, kv->seq[b].n, &view[1], &err) < 0)
        return 0;
    size_t shared = 0;
    for (size_t end = n; shared < end;) {
        const size_t middle = shared + (end - shared) / 2;
        if (addr_equal(row_address(&view[0], middle), row_address(&view[1], middle)))
            shared = middle + 1;
        else
            end = middle;
    }
    return shared;
}

size_t kv_storage_rows(const struct kv *kv, size_t seq)
{
    kv = kv_of_seq(kv, seq);
    const struct kv_seq *s = &kv->seq[seq];
    return s->attached ? size_max(s->cap, size_min(s->stored, kv->setup.shape.max_rows)) : s->cap;
}

size_t kv_rows_before_growth(const struct kv *kv, size_t seq)
{
    kv = kv_of_seq(kv, seq);
    const struct kv_seq *s = &kv->seq[seq];
    const size_t N = kv->setup.shape.max_rows;
    if (kv->policy->rolling)
        return kv->setup.step_rows;
    if (!kv->policy->growth->in_steps || s->n == N)
        return kv_left(kv, seq);
    return size_max(kv_storage_rows(kv, seq), size_min(round_up(s->n + 1, kv->setup.r), N)) - s->n;
}

/* Rows with tokens that a sequence attends to: attention sinks that are not in the window any more, too. */
static size_t seen_rows(const struct kv *kv, const struct kv_seq *s)
{
    return size_min(kv->setup.sinks, s->first) + s->n + s->pending;
}

size_t kv_attended_rows(const struct kv *kv, size_t seq)
{
    kv = kv_of_seq(kv, seq);
    const struct kv_seq *s = &kv->seq[seq];
    switch (kv->attend) {
    case KV_ATTEND_PADDED: return s->cap;
    case KV_ATTEND_WINDOW: return size_max(kv->setup.window - 1 + s->pending, seen_rows(kv, s));
    case KV_ATTEND_VALID: break;
    }
    return seen_rows(kv, s);
}

size_t kv_attended_end(const struct kv *kv, size_t seq)
{
    kv = kv_of_seq(kv, seq);
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
    kv->stats.padded_rows += kv_attended_rows(kv, seq) - seen_rows(kv, s);
}

void kv_commit(struct kv *kv, size_t seq, size_t rows)
{
    kv = kv_home(kv, seq);
    struct kv_seq *s = &kv->seq[seq];
    assert(rows <= s->pending);
    count_pass(kv, seq);
    state_accept(kv->state, seq, NULL, rows);
    count_state(kv);
    s->n += rows;
    s->pending = 0;
    drop_oldest(kv, s);
}

void kv_accept(struct kv *kv, size_t seq, const size_t *offset, size_t n)
{
    kv = kv_home(kv, seq);
    struct kv_seq *s = &kv->seq[seq];
    size_t extra[256];
    count_pass(kv, seq);
    state_accept(kv->state, seq, offset, n);
    count_state(kv);
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

/* Frees memory behind the sequence's rows. */
static void shrink(struct kv *kv, size_t seq)
{
    if (kv->policy->shrink && kv->seq[seq].n && !kv->seq[seq].attached)
        kv->policy->shrink(kv, seq);
}

/* Lets freed blocks leave the heap, if they are worth the time. */
static void trim_heap(struct kv *kv)
{
    enum { WORTH = 8 << 20 };
    kv = kv->owner ? kv->owner : kv;
    if (kv->freed < WORTH)
        return;
    vm_trim_heap();
    kv->freed = 0;
}

void kv_give_back(struct kv *kv)
{
    for (size_t s = 0; s < kv->setup.n_seqs; s++)
        shrink(kv_home(kv, s), s);
    trim_heap(kv);
}

void kv_truncate(struct kv *kv, size_t seq, size_t rows)
{
    struct kv *const owner = kv;
    kv = kv_home(kv, seq);
    if (!rows && owner->smaller)
        owner->in_smaller[seq] = false;
    struct kv_seq *s = &kv->seq[seq];
    const size_t kept = rows_before(kv, seq, rows), was = s->n;
    state_truncate(kv->state, seq, kv_position(kv, seq), rows);
    count_state(kv);
    kv->policy->accept(kv, seq, kept, NULL, 0);
    s->n = kept;
    s->first = kept ? s->first : 0;
    s->pending = 0;
    s->attached = s->attached && kept;
    if (!kept || was - kept <= size_max(kept, TILE_ROWS))
        return;
    shrink(kv, seq);
    trim_heap(kv);
}

int kv_fork(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    const size_t kept = rows_before(kv, from, rows);
    assert(to != from && kv->seq[to].n == 0 && kv_of_seq(kv, from) == kv && kv_of_seq(kv, to) == kv);
    if (kept && kv->policy->fork(kv, to, from, kept, err) < 0)
        return -1;
    state_fork(kv->state, to, from, kv_position(kv, from), rows);
    kv->seq[to].n = kept;
    kv->seq[to].first = kept ? kv->seq[from].first : 0;
    return 0;
}

/* ---- recurrent state ---- */

size_t kv_rewind(const struct kv *kv, size_t seq, size_t end)
{
    return kv->state ? state_rewind(kv->state, seq, kv_position(kv, seq), end) : end;
}

void kv_mark(struct kv *kv, size_t seq, size_t position)
{
    if (kv->state)
        state_mark(kv->state, seq, kv_position(kv, seq), position);
}

void kv_state_view(struct kv *kv, size_t seq, size_t layer, bool tree, struct state_view *view)
{
    assert(kv->state && layer < kv->setup.state.layers);
    state_view(kv->state, seq, layer, tree, view);
}

bool kv_has_state(const struct kv *kv) { return kv->state != NULL; }

size_t kv_state_bytes(const struct kv *kv) { return kv->state ? state_bytes(&kv->setup.state) : 0; }

size_t kv_state_held_bytes(const struct kv *kv, size_t seq) { return state_held_bytes(kv->state, seq); }

size_t kv_state_positions(const struct kv *kv, size_t seq, size_t *list)
{
    return kv->state ? state_positions(kv->state, seq, kv_position(kv, seq), list) : 0;
}

bool kv_state_is_at(const struct kv *kv, size_t seq, size_t position)
{
    return kv->state && state_is_at(kv->state, seq, kv_position(kv, seq), position);
}

void kv_state_read(const struct kv *kv, size_t seq, size_t position, void *to)
{
    state_read(kv->state, seq, kv_position(kv, seq), position, to);
}

int kv_state_load(struct kv *kv, size_t seq, size_t position, const void *state, struct err *err)
{
    const int rc = state_load(kv->state, seq, position, state, err);
    count_state(kv);
    return rc;
}
