/* The front end of the cache: the spec string, checks, statistics. */
#include "kv/kv.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/mem.h"
#include "kv/kv_rows.h"

size_t kv_default_T(size_t max_rows)
{
    const double exact = sqrt(0.1 * (double)max_rows);
    size_t T = 1;
    while ((double)T * 2 - exact <= exact - (double)T && T * 2 <= max_rows)
        T *= 2;
    return T;
}

static const struct kv_policy *find_policy(const char *name, size_t len)
{
    for (size_t i = 0; kv_policies[i]; i++)
        if (strlen(kv_policies[i]->name) == len && memcmp(kv_policies[i]->name, name, len) == 0)
            return kv_policies[i];
    return NULL;
}

static int unknown_policy(const char *text, struct err *err)
{
    char names[128] = "";
    for (size_t i = 0; kv_policies[i]; i++) {
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", kv_policies[i]->name);
    }
    return err_set(err, "cache policy \"%s\" is unknown; there are: %s", text, names);
}

/* What follows the colon. */
static int parse_parameter(struct kv_spec *spec, const char *text, const char *parameter,
                           struct err *err)
{
    switch (spec->policy->growth) {
    case KV_GROW_EVERY_ROW:
    case KV_GROW_ONCE:
        return err_set(err, "cache policy \"%s\": %s takes no parameter", text, spec->policy->name);
    case KV_GROW_IN_BLOCKS:
        if (!parse_size(parameter, &spec->r) || (spec->r != TILE_ROWS && spec->r != 2 * TILE_ROWS))
            return err_set(
                err, "cache policy \"%s\": 16 or 32 rows per block are expected after the colon", text);
        return 0;
    case KV_GROW_IN_STEPS: break;
    }
    size_t *target = strncmp(parameter, "T=", 2) == 0   ? &spec->T
                     : strncmp(parameter, "r=", 2) == 0 ? &spec->r
                                                        : NULL;
    if (!target || !parse_size(parameter + 2, target) || *target == 0)
        return err_set(err,
                       "cache policy \"%s\": T=COUNT or r=ROWS is expected after the colon, at least 1",
                       text);
    return 0;
}

int kv_spec_parse(struct kv_spec *spec, const char *text, struct err *err)
{
    const size_t len = strcspn(text, ":");
    *spec = (struct kv_spec){.policy = find_policy(text, len)};
    if (!spec->policy)
        return unknown_policy(text, err);
    if (!text[len])
        return 0;
    return parse_parameter(spec, text, text + len + 1, err);
}

const char *kv_T_from_name(enum kv_T_from from)
{
    static const char *const name[] = {"policy", "option", "profile", "formula", "default"};
    return name[from];
}

/* Only padded rows make T a trade. */
bool kv_spec_needs_T(const struct kv_spec *spec)
{
    return spec->policy->growth == KV_GROW_IN_STEPS && spec->policy->rows == KV_ROWS_CAP && !spec->T &&
           !spec->r;
}

/* T of a policy that grows in steps and was given none. */
static size_t choose_T(struct kv *kv, const struct kv_spec *spec)
{
    const struct kv_tuner *tuner = kv_spec_needs_T(spec) ? spec->tuner : NULL;
    const size_t T = tuner ? tuner->pick(tuner, &kv->shape, kv->n_seqs, &kv->T_from) : 0;
    if (T)
        return T;
    kv->T_from = KV_T_DEFAULT;
    return kv_default_T(kv->shape.max_rows);
}

/* T and r for N rows: r = ceil(N / T), and then T = ceil(N / r), the allocations that really happen. */
static void set_growth(struct kv *kv, const struct kv_spec *spec)
{
    const size_t N = kv->shape.max_rows;
    switch (spec->policy->growth) {
    case KV_GROW_EVERY_ROW: kv->r = 1; break;
    case KV_GROW_ONCE: kv->r = N; break;
    case KV_GROW_IN_BLOCKS: kv->r = spec->r ? spec->r : TILE_ROWS; break;
    case KV_GROW_IN_STEPS:
        kv->T_from = KV_T_OPTION;
        kv->r = spec->r ? size_min(spec->r, N)
                        : div_up(N, size_min(spec->T ? spec->T : choose_T(kv, spec), N));
        break;
    }
    kv->T = div_up(N, kv->r);
}

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
        !size_mul(shape->kv_heads * shape->head_dim, shape->max_rows, &bytes) ||
        !size_mul(bytes, 8 * shape->layers, &bytes))
        return err_set(err, "a cache of %zu sequences of %zu rows cannot be made", n_seqs,
                       shape->max_rows);
    if (spec->lockstep && !spec->policy->lockstep)
        return err_set(err, "cache policy %s cannot grow in lockstep", spec->policy->name);
    struct kv *kv = mem_zalloc(1, sizeof *kv);
    if (kv)
        kv->seq = mem_zalloc(n_seqs, sizeof *kv->seq);
    if (!kv || !kv->seq) {
        free(kv);
        return err_set(err, "out of memory for a cache of %zu sequences", n_seqs);
    }
    kv->policy = spec->policy;
    kv->shape = *shape;
    kv->n_seqs = n_seqs;
    kv->rows = spec->valid_rows_only ? KV_ROWS_VALID : spec->policy->rows;
    kv->alloc = spec->alloc;
    kv->lockstep = spec->lockstep;
    set_growth(kv, spec);
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
    for (size_t s = 0; s < kv->n_seqs; s++)
        kv_truncate(kv, s, 0); /* also gives back what a failed growth left */
    close_store(kv);
}

int kv_room(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    struct kv_seq *s = &kv->seq[seq];
    if (rows > kv->shape.max_rows - s->n)
        return err_set(err, "the context of %zu rows is full: %zu are used, %zu more are needed",
                       kv->shape.max_rows, s->n, rows);
    const bool inside = s->adopted && s->n + rows <= s->stored;
    if ((!inside && kv->policy->room(kv, seq, rows, err) < 0) ||
        (s->adopted && kv_clean_adopted(kv, seq, s->n + rows, err) < 0))
        return -1;
    s->pending = rows;
    return 0;
}

void kv_append(struct kv *kv, size_t seq, size_t layer, const float *k, const float *v, size_t stride)
{
    assert(layer < kv->shape.layers);
    kv->policy->append(kv, seq, layer, 0, kv->seq[seq].pending, k, v, stride);
}

int kv_view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, struct kv_view *view,
            struct err *err)
{
    const struct kv_seq *s = &kv->seq[seq];
    assert(head + heads <= kv->shape.kv_heads);
    view->type = kv->shape.type;
    return kv->policy->view(kv, seq, layer, head, heads, s->n + s->pending, view, err);
}

void kv_done(struct kv *kv, struct kv_view *view)
{
    if (kv->policy->done)
        kv->policy->done(kv, view);
}

size_t kv_storage_rows(const struct kv *kv, size_t seq)
{
    const struct kv_seq *s = &kv->seq[seq];
    return s->adopted ? size_max(s->cap, size_min(s->stored, kv->shape.max_rows)) : s->cap;
}

size_t kv_free_rows(const struct kv *kv, size_t seq)
{
    const struct kv_seq *s = &kv->seq[seq];
    const size_t N = kv->shape.max_rows;
    if (kv->policy->growth != KV_GROW_IN_STEPS || s->n == N)
        return N - s->n;
    return size_max(kv_storage_rows(kv, seq), size_min(round_up(s->n + 1, kv->r), N)) - s->n;
}

size_t kv_rows_now(const struct kv *kv, size_t seq)
{
    const struct kv_seq *s = &kv->seq[seq];
    return kv->rows == KV_ROWS_CAP ? s->cap : s->n + s->pending;
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
}

void kv_truncate(struct kv *kv, size_t seq, size_t rows)
{
    struct kv_seq *s = &kv->seq[seq];
    assert(rows <= s->n);
    kv->policy->keep(kv, seq, rows, NULL, 0);
    s->n = rows;
    s->pending = 0;
    s->adopted = s->adopted && rows;
}

int kv_fork(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    assert(to != from && rows <= kv->seq[from].n && kv->seq[to].n == 0);
    if (rows && kv->policy->fork(kv, to, from, rows, err) < 0)
        return -1;
    kv->seq[to].n = rows;
    return 0;
}
