/* headwise: a cache larger than memory (HeadInfer paper 4). KV heads that do not fit are offloaded
 * to a file; while attention computes one group of them, the next is read into the other of two
 * buffers. */
#include "base/clock.h"
#include "base/number.h"
#include "kv/offload/offload_heads.h"

/* ---- parameters: "ram=1G,dir=/var/tmp,group=auto", all optional ---- */

static bool parse_ram(struct kv_spec *spec, const char *value)
{
    return parse_bytes(value, &spec->offload.ram);
}

static bool parse_dir(struct kv_spec *spec, const char *value)
{
    memcpy(spec->offload.dir, value, strlen(value) + 1); /* kv_parse_params() checks the length */
    return *value;
}

static bool parse_group(struct kv_spec *spec, const char *value)
{
    size_t *group = &spec->offload.group;
    *group = 0;
    return strcmp(value, "auto") == 0 || (parse_size(value, group) && *group);
}

static int parse_options(struct kv_spec *spec, const char *text, const char *parameter, struct err *err)
{
    static const struct kv_param params[] = {
        {"ram=", parse_ram}, {"dir=", parse_dir}, {"group=", parse_group}};
    char expected[192];
    snprintf(expected, sizeof expected,
             "ram=BYTES, as 512M or 1G, dir=FOLDER of less than %d characters, and group=HEADS, or "
             "group=auto, are expected after the colon, with commas between them",
             OFFLOAD_DIR_SIZE - (int)strlen("dir="));
    return kv_parse_params(spec, text, parameter, params, ARRAY_LEN(params), expected, err);
}

/* Returns r, the rows per growth event; sets the defaults of ram= and dir=. */
static size_t capacity_step(struct kv *kv, const struct kv_spec *spec)
{
    struct offload_options *options = &kv->spec.offload;
    (void)spec;
    if (!options->ram)
        options->ram = (size_t)1 << 30;
    if (!*options->dir && !kv->memory->exchange)
        strcpy(options->dir, "/var/tmp");
    return size_min(OFFLOAD_STEP, kv->setup.shape.max_rows);
}

static const struct kv_growth growth = {.parse = parse_options, .rows = capacity_step};

/* ---- storage ---- */

static int ensure(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    struct kv_seq *s = &kv->seq[seq];
    struct offload *h = offload_of(kv);
    const double start = clock_ms();
    if (offload_reserve(kv, seq, err) < 0)
        return -1;
    offload_buffers_wait(kv, seq);
    offload_reopen_tail(kv, seq, s->n, false);
    offload_buffers_truncate(kv, seq, s->n);
    offload_drop_unseen(kv, seq);
    if (offload_budget(kv, seq, rows, err) < 0 || offload_report(kv, err) < 0)
        return -1;
    for (size_t l = 0; l < kv->setup.shape.layers && h->group; l++)
        offload_flush(kv, seq, l, s->n);
    offload_count(kv, seq, rows);
    /* rows of a long step, and of a fork, have memory when they come */
    const bool later = h->seq[seq].copying || rows > KV_CHUNK_ROWS;
    for (size_t l = 0; l < kv->setup.shape.layers; l++)
        offload_grow(kv, seq, l, s->n + rows, later);
    if (offload_report(kv, err) < 0)
        return -1;
    const size_t cap = size_min(round_up(s->n + rows, kv->setup.r), kv->setup.shape.max_rows);
    kv->stats.allocations += cap > s->cap;
    s->cap = size_max(s->cap, cap);
    kv->stats.alloc_ms += clock_ms() - start;
    return 0;
}

static struct device_addr row_at(const struct kv *kv, size_t seq, size_t head, size_t row)
{
    return addr_add(offload_head(kv, seq, head), row * kv->head[head].bytes);
}

static void headwise_append(struct kv *kv, size_t seq, size_t layer, size_t first, size_t rows,
                            struct device_addr k, struct device_addr v, size_t stride,
                            const struct kv_queries *queries)
{
    offload_grow(kv, seq, layer, kv->seq[seq].n + first + rows, false);
    if (offload_of(kv)->failed)
        return;
    kv_rows_append(kv, seq, layer, first, rows, k, v, stride, queries);
    if (rows <= KV_CHUNK_ROWS || !offload_of(kv)->group)
        return;
    offload_flush_wait(kv, seq);
    offload_flush(kv, seq, layer, kv->seq[seq].n + first + rows);
}

/* Finds the first offloaded head at or after head *head of layer *layer; false if there is none. */
static bool next_offloaded(const struct kv *kv, size_t *layer, size_t *head)
{
    const struct offload *h = offload_of(kv);
    for (; *layer < kv->setup.shape.layers; ++*layer, *head = 0)
        for (*head = size_max(*head, h->resident[*layer]); *head < kv_layer_sizes(kv, *layer)->kv_heads;
             ++*head)
            if (!offload_is_streaming(kv, *layer, *head))
                return true;
    return false;
}

/* Finds the first offloaded head at or after head `head` of `layer`, and starts to read the group
 * of heads that it belongs to from the file. */
static void prefetch(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads)
{
    const struct offload *h = offload_of(kv);
    (void)heads;
    if (!h->group || !next_offloaded(kv, &layer, &head))
        return;
    head = head / h->group * h->group;
    offload_buffers_fetch(kv, seq, layer, head,
                          size_min(h->group, kv_layer_sizes(kv, layer)->kv_heads - head));
}

static int view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                struct kv_view *out, struct err *err)
{
    struct offload *h = offload_of(kv);
    out->offset[KV_K] = out->offset[KV_V] = 0;
    out->n_spans = valid > 0;
    out->span = out->inline_span;
    if (!valid)
        return 0;
    const size_t k_head = kv_k_head(kv, layer, head), v_head = kv_v_head(kv, layer, head);
    struct device_addr k = offload_head(kv, seq, k_head), v = offload_head(kv, seq, v_head);
    size_t k_stride = h->at[k_head + 1] - h->at[k_head], v_stride = h->at[v_head + 1] - h->at[v_head];
    int rc = 0;
    if (offload_is_streaming(kv, layer, head)) {
        out->sink = h->streaming.sink;
        out->recent = h->streaming.recent;
    } else if (head + heads > h->resident[layer]) {
        k_stride = v_stride = h->widest;
        pthread_mutex_lock(&h->lock);
        rc = offload_report(kv, err) < 0 ||
                     offload_buffers_view(kv, seq, layer, head, heads, valid, &k, &v, err) < 0
                 ? -1
                 : 0;
        pthread_mutex_unlock(&h->lock);
    }
    out->inline_span[0] = (struct kv_span){
        .k = k,
        .v = v,
        .head_stride = {k_stride, v_stride},
        .row_stride = {kv_row_bytes(kv, layer, KV_K), kv_row_bytes(kv, layer, KV_V)},
        .rows = valid,
        .valid = valid,
    };
    return rc;
}

static void accept(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra)
{
    struct offload *h = offload_of(kv);
    if (!h->seq[seq].in_use)
        return;
    if (rows + n_extra) {
        offload_buffers_wait(kv, seq);
        offload_reopen_tail(kv, seq, rows, n_extra > 0);
        kv_rows_compact(kv, seq, rows, extra, n_extra);
        offload_buffers_truncate(kv, seq, rows);
        offload_shrink(kv, seq, rows + n_extra);
        return;
    }
    offload_buffers_clear(kv, seq);
    offload_clear(kv, seq);
    kv->seq[seq].cap = kv->seq[seq].n = kv->seq[seq].pending = 0;
    offload_count(kv, seq, 0);
    if (h->counted)
        return;
    /* all sequences are empty: start over with all heads in memory */
    for (size_t l = 0; l < kv->setup.shape.layers; l++)
        h->resident[l] = kv_layer_sizes(kv, l)->kv_heads;
    h->group = kv->offload.heads_at_once = 0;
}

static int fork_rows(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    bool *copying = &offload_of(kv)->seq[to].copying;
    *copying = true;
    int rc = ensure(kv, to, rows, err);
    if (rc == 0) {
        const double start = clock_ms();
        offload_copy(kv, to, from, rows);
        kv->stats.copied_rows += rows;
        kv->stats.copy_ms += clock_ms() - start;
        rc = offload_report(kv, err);
    }
    *copying = false;
    return rc;
}

const struct kv_policy kv_policy_headwise = {
    .name = "headwise",
    .growth = &growth,
    .attend = KV_ATTEND_VALID,
    .open = offload_open,
    .close = offload_close,
    .ensure = ensure,
    .row_at = row_at,
    .append = headwise_append,
    .view = view,
    .accept = accept,
    .fork = fork_rows,
    .bytes = offload_bytes,
    .prefetch = prefetch,
};
