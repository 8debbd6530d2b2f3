/* Fused attention: one pass over K and V with online softmax; the score matrix is never stored.
 *
 * Positions are split into chunks of KV_CHUNK, counted from position 0. Each chunk is reduced to
 * softmax partials, which are merged in order of position. A task is a block
 * of query rows of one sequence, and one KV head; when there are too few tasks for all threads,
 * several threads share the chunks of a task, as in flash-decoding. The order of every sum is the
 * same either way.
 *
 * Sequences with a common prefix and one query row each form a prefix group: shared KV entries are
 * read once for the whole group. Query rows of a draft tree read the KV entries of their ancestors,
 * which are not contiguous, through row tables (struct attend, kernel.h). */
#include "attn/attn.h"

#include <stdatomic.h>

#include "attn/attn_rows.h"
#include "attn/query_mask.h"
#include "base/mem.h"
#include "base/repro_math.h"
#include "base/threads.h"
#include "quant/hadamard.h"
#include "quant/kv_entries.h"

/* ---- partial results of online softmax, and their merge ---- */

/* The results of fused attention over some of the positions, per query; struct attend describes the arrays. */
struct softmax_partials {
    float *max, *sum, *context; /* [queries], [queries][NR], [queries][d] */
};

/* The floats that the arrays of `queries` queries with heads of d elements take. */
static size_t softmax_partials_floats(size_t queries, size_t d) { return queries * (1 + NR + d); }

/* Places the arrays in such memory, from `at` on. */
static struct softmax_partials softmax_partials_at(size_t queries, float *at)
{
    return (struct softmax_partials){at, at + queries, at + queries * (1 + NR)};
}

/* Resets the first `queries` queries: no positions attended to yet. */
static void softmax_partials_clear(size_t d, const struct softmax_partials *partials, size_t queries)
{
    for (size_t i = 0; i < queries; i++)
        partials->max[i] = -INFINITY;
    memset(partials->sum, 0, queries * NR * sizeof(float));
    memset(partials->context, 0, queries * d * sizeof(float));
}

/* e^(max - to): the factor for sums of exponentials less `max` to become those less `to`. */
static float factor_to(float max, float to) { return max == to ? 1 : (float)repro_exp(max - to); }

/* Merges b into a, where b is for later positions than a. Queries that attended to none of b's
 * positions keep a's results bit for bit. */
static void softmax_partials_merge(size_t d, const struct softmax_partials *a,
                                   const struct softmax_partials *b, size_t queries)
{
    for (size_t i = 0; i < queries; i++) {
        if (!(b->max[i] > -INFINITY) && !isnan(b->max[i]))
            continue;
        const float max = fmaxf(a->max[i], b->max[i]);
        const float scale_a = factor_to(a->max[i], max), scale_b = factor_to(b->max[i], max);
        float *sum = a->sum + i * NR, *context = a->context + i * d;
        for (size_t j = 0; j < NR; j++)
            sum[j] = sum[j] * scale_a + b->sum[i * NR + j] * scale_b;
        for (size_t j = 0; j < d; j++)
            context[j] = context[j] * scale_a + b->context[i * d + j] * scale_b;
        a->max[i] = max;
    }
}

/* Writes the attention output of query i, its context divided by its sum, to out[d]. `sink` is the score
 * of its head's attention sink, whose exponential is a part of the sum; or NULL. */
static void softmax_partials_result(size_t d, const struct softmax_partials *partials, size_t i,
                                    const float *sink, float *out)
{
    float sum[NR];
    memcpy(sum, partials->sum + i * NR, sizeof sum);
    for (size_t half = NR / 2; half; half /= 2)
        for (size_t j = 0; j < half; j++)
            sum[j] += sum[j + half];
    float scale = 1 / sum[0];
    if (sink) {
        const float max = fmaxf(partials->max[i], *sink),
                    factor = (float)repro_exp(partials->max[i] - max);
        scale = factor / (sum[0] * factor + (float)repro_exp(*sink - max));
    }
    for (size_t j = 0; j < d; j++)
        out[j] = partials->context[i * d + j] * scale;
}

/* ---- prefix groups: queries whose sequences share a prefix, which attention reads once per group ---- */

/* One query with any number of rows; or n queries of one row each, sorted by position, whose
 * sequences share a prefix. Neighbours may share more than that: similar beams are adjacent. */
struct prefix_group {
    const struct attn_query **query;
    /* [n - 1]: KV entries that queries i and i + 1 share, a multiple of QUANT_BLOCK above 0 */
    const size_t *common;
    size_t n;
};

/* The prefix groups of a forward pass: each of its queries is in exactly one. */
struct prefix_groups {
    const struct attn_query **order; /* the pass's queries, sorted by group */
    size_t *common;
    struct prefix_group *group;
    size_t n;
};

/* Allocates groups for up to `queries` queries. False: out of memory; call prefix_groups_close()
 * then, too. */
static bool prefix_groups_open(struct prefix_groups *groups, size_t queries)
{
    groups->order = mem_alloc(queries, sizeof *groups->order);
    groups->common = mem_alloc(queries, sizeof *groups->common);
    groups->group = mem_alloc(queries, sizeof *groups->group);
    return groups->order && groups->common && groups->group;
}

static void prefix_groups_close(struct prefix_groups *groups)
{
    free(groups->order);
    free(groups->common);
    free(groups->group);
}

/* True for queries that may share a group: those of one row. A query of several rows, which read
 * the same sequence anyway, forms its own group. */
static bool is_single(const struct attn_query *query) { return query->rows == 1 && !query->ancestors; }

/* Number of leading KV entries that the sequences of both queries share, rounded down to whole
 * blocks, at which a run of positions may be split. */
static size_t common_rows(const struct kv *kv, const struct attn_query *a, const struct attn_query *b)
{
    const size_t rows = is_single(a) && is_single(b) ? kv_shared_rows(kv, a->seq, b->seq) : 0;
    return rows / QUANT_BLOCK * QUANT_BLOCK;
}

/* Inserts a query into query[n], sorted by position; among those at its own position, behind the
 * one with which it shares the most entries. */
static void insert(const struct attn_query **query, size_t n, const struct kv *kv,
                   const struct attn_query *added)
{
    const size_t position = kv_position(kv, added->seq);
    size_t at = n, most = 0;
    while (at && kv_position(kv, query[at - 1]->seq) > position)
        at--;
    for (size_t i = at; i-- > 0 && kv_position(kv, query[i]->seq) == position;) {
        const size_t rows = common_rows(kv, query[i], added);
        at = rows > most ? i + 1 : at;
        most = size_max(most, rows);
    }
    memmove(query + at + 1, query + at, (n - at) * sizeof *query);
    query[at] = added;
}

/* Makes a group of query[0] and those of the next left - 1 queries that share a prefix with it,
 * `most` queries in all at most, and moves these to the front. */
static struct prefix_group make_group(const struct kv *kv, const struct attn_query **query,
                                      size_t *common, size_t left, size_t most)
{
    const struct attn_query *first = query[0];
    size_t n = 1;
    for (size_t i = 1; i < left && n < most; i++) {
        const struct attn_query *added = query[i];
        if (!common_rows(kv, first, added))
            continue;
        query[i] = query[n];
        insert(query, n++, kv, added);
    }
    for (size_t i = 0; i + 1 < n; i++)
        common[i] = common_rows(kv, query[i], query[i + 1]);
    return (struct prefix_group){query, common, n};
}

/* Sorts the queries of a forward pass into groups of at most `most` queries. */
static void prefix_groups_make(struct prefix_groups *groups, const struct attn_step *step, size_t most)
{
    const size_t n = step->n_queries;
    for (size_t i = 0; i < n; i++)
        groups->order[i] = &step->query[i];
    groups->n = 0;
    for (size_t i = 0; i < n; i += groups->group[groups->n++].n)
        groups->group[groups->n] =
            make_group(step->kv, groups->order + i, groups->common + i, n - i, most);
}

/* Number of leading KV entries that queries [from, to) of a group all share. */
static size_t prefix_group_shared(const struct prefix_group *group, size_t from, size_t to)
{
    size_t least = SIZE_MAX;
    for (size_t i = from; i + 1 < to; i++)
        least = size_min(least, group->common[i]);
    return least;
}

/* Position behind the last one that attention reads in the group's longest sequence, padding
 * included. */
static size_t prefix_group_end(const struct kv *kv, const struct prefix_group *group)
{
    size_t end = 0;
    for (size_t i = 0; i < group->n; i++)
        end = size_max(end, kv_attended_end(kv, group->query[i]->seq));
    return end;
}

/* ---- quantised KV entries: queries quantised to int8, or entries dequantised ---- */

/* An array of queries (q vectors of one head) in int8: for each its elements, then its scales and
 * sums as in struct int8_rows. */
struct quant_queries {
    int8_t *q;
    float *rotated; /* [d]: scratch */
    /* head size; byte offsets of the scales and sums in a query; bytes of a query */
    size_t d, scale_at, sum_at, bytes, n;
};

/* Sets the head size, which is not above that of quant_queries_open(). */
static void quant_queries_resize(struct quant_queries *queries, size_t d)
{
    const size_t padded = round_up(d, QK_GROUP), groups = padded / QK_GROUP;
    if (queries->d == d)
        return;
    queries->d = d;
    queries->scale_at = padded;
    queries->sum_at = padded + groups * sizeof(float);
    queries->bytes = queries->sum_at + 2 * groups * sizeof(int32_t);
    if (queries->q && padded != d) /* padding behind d elements stays 0 */
        memset(queries->q, 0, queries->n * queries->bytes);
}

/* Allocates n queries of head size d; false: out of memory. */
static bool quant_queries_open(struct quant_queries *queries, size_t n, size_t d)
{
    *queries = (struct quant_queries){.n = n};
    quant_queries_resize(queries, d);
    queries->q = mem_zalloc(n, queries->bytes);
    queries->rotated = mem_alloc(d, sizeof *queries->rotated);
    return queries->q && queries->rotated;
}

static void quant_queries_close(struct quant_queries *queries)
{
    free(queries->q);
    free(queries->rotated);
    queries->q = NULL;
    queries->rotated = NULL;
}

/* Quantises x[d] as query i, for keys of a type, and multiplies its stored scale by `scale` (of the
 * softmax). */
static void quant_queries_set(const struct quant_queries *queries, size_t i, const float *x,
                              float scale, enum dtype type, const struct kernels *kernels)
{
    int8_t *q = queries->q + i * queries->bytes;
    float *own = (float *)(void *)(q + queries->scale_at);
    if (kv_type_rotated(type)) {
        memcpy(queries->rotated, x, queries->d * sizeof *x);
        hadamard(queries->rotated, queries->d, hadamard_block(queries->d));
        x = queries->rotated;
    }
    kernels->to_int8(q, own, (int32_t *)(void *)(q + queries->sum_at), x, queries->d, queries->d);
    *own *= scale;
}

/* Rotates the contexts of n queries back, context[n][d_v], if values of the type are rotated; d: head
 * size, whose hadamard_block() divides d_v (kv_open()). */
static void quant_contexts_finish(float *context, size_t n, size_t d_v, enum dtype type, size_t d)
{
    if (kv_type_rotated(type))
        hadamard(context, n * d_v, hadamard_block(d));
}

/* The queries from number `first` on, as an argument for attention kernels. */
static struct int8_rows quant_queries_from(const struct quant_queries *queries, size_t first)
{
    const int8_t *q = queries->q + first * queries->bytes;
    return (struct int8_rows){
        .q = q,
        .scale = (const void *)(q + queries->scale_at),
        .sum = (const void *)(q + queries->sum_at),
        .row_bytes = queries->bytes,
    };
}

/* ---- buffers and tasks ---- */

enum {
    KV_CHUNK = RUN_TILES * ATTEND_TILE, /* 256 positions; a multiple of QUANT_BLOCK */
    /* maximum of query rows x GQA group size in a task, which has at least one row */
    TASK_QUERIES = 64
};

/* Buffers of one thread. A task's queries are the vectors of its query rows in all heads of the GQA
 * group: head g of row i is query i * gqa + g. */
struct scratch {
    float *q;                  /* [d][queries]: transposed queries; or bf16, [queries][q_stride] */
    struct query_mask *mask;   /* [task_rows]: one per query row */
    size_t *kv_begin, *kv_end; /* [queries]: arguments of struct attend */
    float *slope, *position;   /* [queries]: arguments of struct attend for ALiBi */
    struct softmax_partials chunk, merged; /* of the current chunk; of all chunks before */
    float *kernel_scratch;
    float *converted; /* [2][KV_CHUNK][d]: K and V in f32; NULL if none is dequantised */
    struct quant_queries q_int8;
    struct tiles tiles;
    size_t entry[KV_CHUNK]; /* draft trees: indices in the view of a run's KV entries */
    struct row_tables tables;
};

struct fused {
    struct attn attn;
    /* of the current layer: copies of attn.gqa, head_dim and v_dim; upper limits of a task's query rows and queries */
    size_t gqa, d, d_v, task_rows, queries;
    size_t threads;
    struct scratch *scratch; /* [threads] */
    float *buffer;           /* memory for the arrays in `scratch` */
    /* [2 * threads][chunks]: results of chunks, when threads share tasks */
    struct softmax_partials *partials;
    float *partials_buffer;
    size_t chunks;
    struct prefix_groups *shape_groups; /* [n_shapes]: prefix groups of the forward pass */
    const struct prefix_groups *groups; /* those of the current layer */
};

/* Attention over one KV head of query rows [first_row, first_row + rows) of a sequence, or of the
 * single rows of all queries of a prefix group. */
struct fused_task {
    const struct prefix_group *group;
    size_t kv_head, first_row, rows;
};

struct fused_job {
    struct fused *f;
    const struct attn_step *step;
    const struct attn_slice *slice;
    size_t chunks;      /* chunks of the longest sequence */
    atomic_bool failed; /* the first thread that fails fills err */
    struct err err;
};

/* A task, with the view and the buffers that a thread computes it with. */
struct fused_work {
    struct fused_job *job;
    const struct fused_task *task;
    const struct kv_view *view;
    struct scratch *s;
    const struct softmax_partials *partials; /* receives the result of the current chunk */
};

static void close_state(struct attn *attn)
{
    struct fused *f = (struct fused *)attn;
    for (size_t t = 0; f->scratch && t < f->threads; t++) {
        free(f->scratch[t].mask);
        free(f->scratch[t].kv_begin);
        free(f->scratch[t].slope);
        free(f->scratch[t].converted);
        quant_queries_close(&f->scratch[t].q_int8);
    }
    free(f->scratch);
    free(f->buffer);
    free(f->partials);
    free(f->partials_buffer);
    for (size_t i = 0; f->shape_groups && i < attn->n_shapes; i++)
        prefix_groups_close(&f->shape_groups[i]);
    free(f->shape_groups);
}

/* Floats of scratch memory for kernels, in whole cache lines. */
static size_t kernel_scratch_floats(const struct fused *f)
{
    return round_up(
        size_max(attend_bf16_space(f->queries, f->d),
                 size_max(attend_space(f->queries, f->d), attend_quant_space(f->queries, f->d))),
        16);
}

/* Elements from one bf16 query of d to the next. */
static size_t bf16_query_stride(size_t d) { return round_up(d, 32); }

/* Floats of memory for the queries of a task. */
static size_t query_floats(const struct fused *f)
{
    return size_max(f->queries * f->d, (f->queries + PANEL_PADDED_ROWS) * bf16_query_stride(f->d) / 2);
}

static size_t scratch_floats(const struct fused *f)
{
    return round_up(2 * softmax_partials_floats(f->queries, f->d_v) + query_floats(f), 16) +
           kernel_scratch_floats(f);
}

static bool open_scratch(struct fused *f, bool dequantize)
{
    const size_t partials = softmax_partials_floats(f->queries, f->d_v);
    for (size_t i = 0; i < f->attn.n_shapes; i++)
        dequantize = dequantize || f->attn.shapes[i].dequantize;
    f->buffer = mem_alloc(f->threads, scratch_floats(f) * sizeof(float));
    f->scratch = mem_zalloc(f->threads, sizeof *f->scratch);
    bool ok = f->buffer && f->scratch;
    for (size_t t = 0; ok && t < f->threads; t++) {
        struct scratch *s = &f->scratch[t];
        s->kernel_scratch = f->buffer + t * scratch_floats(f);
        s->chunk = softmax_partials_at(f->queries, s->kernel_scratch + kernel_scratch_floats(f));
        s->merged = softmax_partials_at(f->queries, s->chunk.max + partials);
        s->q = s->merged.max + partials;
        s->mask = mem_alloc(f->task_rows, sizeof *s->mask);
        s->kv_begin = mem_alloc(f->queries, 2 * sizeof *s->kv_begin);
        s->slope = mem_alloc(f->queries, 2 * sizeof *s->slope);
        s->converted = dequantize ? mem_alloc(2 * KV_CHUNK, f->d * sizeof *s->converted) : NULL;
        ok = s->mask && s->kv_begin && s->slope && (s->converted || !dequantize) &&
             quant_queries_open(&s->q_int8, f->queries, f->d);
        s->kv_end = ok ? s->kv_begin + f->queries : NULL;
        s->position = ok ? s->slope + f->queries : NULL;
    }
    return ok;
}

/* Upper limit of a task's query rows. */
static size_t task_rows_of(const struct attn_shape *shape)
{
    return size_max(1, TASK_QUERIES / attn_gqa(shape));
}

static bool open_groups(struct fused *f, size_t queries)
{
    f->shape_groups = mem_zalloc(f->attn.n_shapes, sizeof *f->shape_groups);
    bool ok = f->shape_groups != NULL;
    for (size_t i = 0; ok && i < f->attn.n_shapes; i++)
        ok = prefix_groups_open(&f->shape_groups[i], queries);
    return ok;
}

/* Allocates for the largest of the shapes: f->d and so on are sizes of buffers here. */
static int open_state(struct attn *attn, const struct attn_limits *limits, struct err *err)
{
    struct fused *f = (struct fused *)attn;
    for (size_t i = 0; i < attn->n_shapes; i++) {
        const struct attn_shape *shape = &attn->shapes[i];
        f->d = size_max(f->d, shape->head_dim);
        f->d_v = size_max(f->d_v, shape->v_dim);
        f->task_rows = size_max(f->task_rows, task_rows_of(shape));
        f->queries = size_max(f->queries, task_rows_of(shape) * attn_gqa(shape));
    }
    f->threads = (size_t)threads_max();
    /* + 2: after KV entries were dropped, the first chunk may be incomplete, and sinks are in one of their own */
    f->chunks = div_up(limits->positions, KV_CHUNK) + 2;
    const size_t n = 2 * f->threads * f->chunks, each = softmax_partials_floats(f->queries, f->d_v);
    size_t floats = 0;
    if (size_mul(n, each, &floats)) {
        f->partials = mem_alloc(n, sizeof *f->partials);
        f->partials_buffer = mem_alloc(floats, sizeof(float));
    }
    if (!f->partials || !f->partials_buffer || !open_groups(f, limits->queries) ||
        !open_scratch(f, limits->dequantize))
        return err_no_memory(err, "attention over %zu positions, %zu bytes", limits->positions,
                             (floats + f->threads * scratch_floats(f)) * sizeof(float));
    for (size_t i = 0; i < n; i++)
        f->partials[i] = softmax_partials_at(f->queries, f->partials_buffer + i * each);
    return 0;
}

static int fused_begin_step(struct attn *attn, const struct attn_step *step, struct err *err)
{
    struct fused *f = (struct fused *)attn;
    (void)err;
    for (size_t i = 0; i < attn->n_shapes; i++)
        prefix_groups_make(&f->shape_groups[i], step, task_rows_of(&attn->shapes[i]));
    return 0;
}

static size_t count_tasks(const struct fused *f, const struct attn_slice *slice,
                          const struct prefix_group *group)
{
    return div_up(group->query[0]->rows, f->task_rows) * slice->heads;
}

static struct fused_task find_task(const struct fused_job *job, size_t index)
{
    const struct fused *f = job->f;
    const struct attn_slice *slice = job->slice;
    const struct prefix_group *group = f->groups->group;
    for (; index >= count_tasks(f, slice, group); group++)
        index -= count_tasks(f, slice, group);
    const size_t row = index / slice->heads * f->task_rows;
    const size_t rows = group->n > 1 ? group->n : size_min(f->task_rows, group->query[0]->rows - row);
    return (struct fused_task){group, slice->head + index % slice->heads, row, rows};
}

/* query_of(): the query (sequence) that row i of a task belongs to; row_of(): the row's number in
 * that query. */
static const struct attn_query *query_of(const struct fused_task *task, size_t i)
{
    return task->group->query[task->group->n > 1 ? i : 0];
}

static size_t row_of(const struct fused_task *task, size_t i)
{
    return task->group->n > 1 ? 0 : task->first_row + i;
}

/* Index of row i of a task in q and out, which are arrays of heads: of the first query head that uses
 * the task's KV head. */
static size_t heads_at(const struct fused *f, const struct fused_task *task, size_t i)
{
    return (query_of(task, i)->first + row_of(task, i)) * f->attn.shape->heads + task->kv_head * f->gqa;
}

/* True if KV entries of these types of K and V are quantised and multiplied by int8 queries, not dequantised. */
static bool in_int8(const struct fused *f, const enum dtype type[2])
{
    return dtype_is_quantized(type[KV_K]) && dtype_is_quantized(type[KV_V]) &&
           !f->attn.shape->dequantize;
}

/* True if queries and probabilities are rounded to bf16, which KV entries of these types are. */
static bool in_bf16(const struct fused *f, const enum dtype type[2])
{
    return f->attn.shape->bf16 && type[KV_K] == DTYPE_BF16 && type[KV_V] == DTYPE_BF16;
}

/* Loads a query times `scale`, as query `at` in bf16: a row if the kernel set has attend_bf16(), else a column in f32. */
static void load_rounded(const struct fused_work *w, size_t at, const float *from, float scale)
{
    const struct fused *f = w->job->f;
    const struct kernels *kernels = w->job->step->kernels;
    const size_t stride = bf16_query_stride(f->d);
    float *scaled = w->s->kernel_scratch;
    bf16 *row = (bf16 *)(void *)w->s->q + at * stride;
    for (size_t j = 0; j < f->d; j++)
        scaled[j] = from[j] * scale;
    if (kernels->attend_bf16) {
        kernels->to_bf16(row, scaled, f->d);
        memset(row + f->d, 0, (stride - f->d) * sizeof *row);
        return;
    }
    for (size_t j = 0; j < f->d; j++)
        w->s->q[j * f->queries + at] = bf16_to_f32(bf16_from_f32(scaled[j]));
}

/* Loads the task's queries, multiplied by the softmax scale: as columns of q[d][queries], in bf16, or in
 * int8 with the factor in their scales. */
static void load_queries(const struct fused_work *w)
{
    const struct fused *f = w->job->f;
    const float scale = f->attn.shape->scale;
    const bool int8 = in_int8(f, w->view->type), rounded = in_bf16(f, w->view->type);
    for (size_t i = 0; i < w->task->rows; i++) {
        const float *from = w->job->slice->q + heads_at(f, w->task, i) * f->d;
        for (size_t g = 0; g < f->gqa; g++, from += f->d) {
            const size_t at = i * f->gqa + g;
            if (int8)
                quant_queries_set(&w->s->q_int8, at, from, scale, w->view->type[KV_K],
                                  w->job->step->kernels);
            else if (rounded)
                load_rounded(w, at, from, scale);
            else
                for (size_t j = 0; j < f->d; j++)
                    w->s->q[j * f->queries + at] = from[j] * scale;
        }
    }
}

static void store_context(const struct fused_job *job, const struct fused_task *task,
                          const struct softmax_partials *partials)
{
    const struct fused *f = job->f;
    const float *sinks = job->slice->layer->sinks;
    const struct kv_sizes *sizes = kv_sizes_of(
        &kv_setup(kv_of_seq(job->step->kv, query_of(task, 0)->seq))->shape, job->slice->layer->index);
    for (size_t i = 0; i < task->rows; i++) {
        float *to = job->slice->out + heads_at(f, task, i) * f->d_v;
        for (size_t g = 0; g < f->gqa; g++)
            softmax_partials_result(f->d_v, partials, i * f->gqa + g,
                                    sinks ? sinks + task->kv_head * f->gqa + g : NULL, to + g * f->d_v);
        if (in_int8(f, sizes->type))
            quant_contexts_finish(to, f->gqa, f->d_v, sizes->type[KV_V], f->d);
    }
}

static bool open_view(struct fused_job *job, const struct fused_task *task, size_t seq,
                      struct kv_view *view)
{
    struct err err;
    if (kv_view(job->step->kv, seq, job->slice->layer->index, task->kv_head, 1, view, &err) == 0)
        return true;
    if (!atomic_exchange(&job->failed, true))
        job->err = err;
    return false;
}

/* Opens the view of the task's sequence (of the first, in a prefix group), computes the masks of
 * its query rows, and loads the queries. False: error. */
static bool begin_task(const struct fused_work *w, struct kv_view *view)
{
    const struct fused_task *task = w->task;
    if (!open_view(w->job, task, query_of(task, 0)->seq, view))
        return false;
    const struct mask_limits limits = {w->job->slice->layer->window, w->job->slice->layer->chunk,
                                       w->job->slice->layer->ahead, view->sink, view->recent};
    for (size_t i = 0; i < task->rows; i++)
        w->s->mask[i] = query_mask_of(w->job->step->kv, query_of(task, i), row_of(task, i), &limits);
    load_queries(w);
    return true;
}

/* ---- kernel calls for runs of positions ---- */

/* Sets the kernel arguments by which query row `row` of the task, in all heads, attends to
 * positions [from, to); `run` is the first position of the run that the kernel is called for. */
static void set_range(const struct fused_work *w, size_t row, size_t from, size_t to, size_t run)
{
    const struct fused *f = w->job->f;
    struct scratch *s = w->s;
    for (size_t i = row * f->gqa, g = 0; g < f->gqa; i++, g++) {
        s->kv_begin[i] = from > run ? from - run : 0;
        s->kv_end[i] = to > run ? to - run : 0;
        s->position[i] = (float)s->mask[row].position - (float)run;
        if (f->attn.shape->slopes)
            s->slope[i] = f->attn.shape->slopes[w->task->kv_head * f->gqa + g];
    }
}

/* Lets no query row attend to any position, for runs of padding: computed without effect. */
static void set_no_range(const struct fused_work *w)
{
    for (size_t i = 0; i < w->task->rows; i++)
        set_range(w, i, 0, 0, 0);
}

/* Dequantises tiles of K or V of a type, at tile[t] with row tables rows[t] as in struct attend, to `to`, and sets
 * tile[t] and rows[t] to that; those of other types remain. Returns the tiles' type then. */
static enum dtype dequantize_tiles(size_t d, float *to, const char **tile, const ptrdiff_t **rows,
                                   size_t tiles, enum dtype from)
{
    const size_t bytes = dtype_row_bytes(from, d);
    if (!dtype_is_quantized(from))
        return from;
    for (size_t t = 0; t < tiles; t++, to += ATTEND_TILE * d) {
        for (size_t i = 0; i < ATTEND_TILE; i++)
            dtype_to_f32(to + i * d, from, tile[t] + (rows[t] ? rows[t][i] : (ptrdiff_t)(i * bytes)),
                         d);
        tile[t] = (const char *)to;
        rows[t] = NULL;
    }
    return DTYPE_F32;
}

/* Dequantises the first `tiles` tiles of w->s->tiles: V with K where it is a part of K. Sets type[] to the types of the
 * tiles. */
static void dequantize_kv(const struct fused_work *w, size_t tiles, enum dtype *type)
{
    struct tiles *at = &w->s->tiles;
    const enum dtype *from = w->view->type;
    const size_t d = w->job->f->d;
    const bool part_of_k = at->v[0] == at->k[0];
    float *to = w->s->converted;
    type[KV_K] = dequantize_tiles(d, to, at->k, at->k_rows, tiles, from[KV_K]);
    if (!part_of_k) {
        type[KV_V] = dequantize_tiles(d, to + KV_CHUNK * d, at->v, at->v_rows, tiles, from[KV_V]);
        return;
    }
    memcpy(at->v, at->k, tiles * sizeof *at->v);
    memcpy(at->v_rows, at->k_rows, tiles * sizeof *at->v_rows);
    type[KV_V] = type[KV_K];
}

/* Calls the attention kernel for query rows [row, row + rows) of the task and the first `tiles`
 * tiles of w->s->tiles; `skippable` is as in struct attend. */
static void attend_tiles(const struct fused_work *w, size_t tiles, size_t skippable, size_t row,
                         size_t rows)
{
    const struct fused *f = w->job->f;
    struct scratch *s = w->s;
    struct tiles *at = &s->tiles;
    const struct softmax_partials *partials = w->partials;
    const bool sloped = f->attn.shape->slopes != NULL, int8 = in_int8(f, w->view->type),
               rounded = in_bf16(f, w->view->type),
               rows_of_q = rounded && w->job->step->kernels->attend_bf16;
    enum dtype type[2] = {kv_type_multiplied(w->view->type[KV_K]),
                          kv_type_multiplied(w->view->type[KV_V])};
    const size_t first = row * f->gqa;
    const struct kernels *kernels = w->job->step->kernels;
    const struct int8_rows q_int8 = quant_queries_from(&s->q_int8, first);
    if (!int8)
        dequantize_kv(w, tiles, type);
    (int8        ? kernels->attend_quant
     : rows_of_q ? kernels->attend_bf16
                 : kernels->attend)(&(struct attend){
        .d = f->d,
        .d_v = f->d_v,
        .k_type = type[KV_K],
        .v_type = type[KV_V],
        .k_stride = dtype_row_bytes(type[KV_K], f->d),
        .v_stride = dtype_row_bytes(type[KV_V], f->d),
        .tiles = tiles,
        .k = at->k,
        .v = at->v,
        .k_rows = at->k_rows,
        .v_rows = at->v_rows,
        .skippable = skippable,
        .queries = rows * f->gqa,
        .q = s->q + first,
        .q_bf16 = (const bf16 *)(const void *)s->q + first * bf16_query_stride(f->d),
        .q_stride = rows_of_q ? bf16_query_stride(f->d) : f->queries,
        .rounded = rounded,
        .q_int8 = &q_int8,
        .kv_end = s->kv_end + first,
        .kv_begin = w->job->slice->layer->window || w->view->recent ? s->kv_begin + first : NULL,
        .softcap = f->attn.shape->softcap,
        .slope = sloped ? s->slope + first : NULL,
        .position = sloped ? s->position + first : NULL,
        .max = partials->max + first,
        .sum = partials->sum + first * NR,
        .context = partials->context + first * f->d_v,
        .scratch = s->kernel_scratch,
    });
}

/* Computes attention of query rows [row, row + rows) over positions [from, to) of the view as far
 * as each row's mask allows, without attention sinks. Blocks from position from + `skippable` on are
 * computed even if no row attends to them. */
static void attend_run(const struct fused_work *w, size_t row, size_t rows, size_t from, size_t to,
                       size_t skippable)
{
    if (from >= to)
        return;
    for (size_t i = row; i < row + rows; i++) {
        const struct query_mask *mask = &w->s->mask[i];
        set_range(w, i, mask->recent, size_min(mask->end, to), from);
    }
    attend_tiles(w, view_tiles(w->view, from, to, &w->s->tiles), skippable, row, rows);
}

/* attend_run() for the last query rows of a sequence, without a draft tree. Padding behind the
 * sequence is computed too, without effect. */
static void attend_chain(const struct fused_work *w, size_t row, size_t rows, size_t from, size_t to)
{
    const struct kv *kv = w->job->step->kv;
    const size_t end = kv_position(kv, w->view->seq) + kv_seq_info(kv, w->view->seq).pending;
    attend_run(w, row, rows, from, to, end > from ? end - from : 0);
}

/* Computes attention of a draft tree's query rows over positions [from, to): of all rows together
 * over blocks of committed positions, then of each row over its ancestors, root first, then over
 * the padding behind, without effect. */
static void attend_tree(const struct fused_work *w, size_t from, size_t to)
{
    const struct attn_query *query = query_of(w->task, 0);
    const size_t n = kv_position(w->job->step->kv, query->seq);
    const size_t common = size_min(to, n / QUANT_BLOCK * QUANT_BLOCK);
    const size_t padding = size_max(from, round_up(n + query->rows, QUANT_BLOCK));
    const size_t rest = size_max(from, common);
    struct scratch *s = w->s;
    attend_run(w, 0, w->task->rows, from, common, SIZE_MAX);
    for (size_t i = 0; i < w->task->rows; i++) {
        const struct query_mask *mask = &s->mask[i];
        const size_t end = size_min(mask->end, from + KV_CHUNK);
        if (end <= rest)
            continue;
        for (size_t at = rest; at < end; at++)
            s->entry[at - rest] = query_mask_entry(mask, at);
        set_range(w, i, mask->recent, end, rest);
        attend_tiles(w, view_scattered(w->view, s->entry, end - rest, &s->tiles, &s->tables), SIZE_MAX,
                     i, 1);
    }
    set_no_range(w);
    if (to > padding)
        attend_tiles(w, view_tiles(w->view, padding, to, &s->tiles), 0, 0, w->task->rows);
}

/* Computes attention of query rows [row, end) of a prefix group, which share all KV entries before
 * `from`, over positions [from, to): together as far as all share them, then recursively in
 * subgroups that share more. */
static void attend_group(const struct fused_work *w, size_t row, size_t end, size_t from, size_t to)
{
    const struct prefix_group *group = w->task->group;
    const size_t seq = group->query[row]->seq;
    struct fused_work own = *w;
    struct kv_view view;
    if (from >= to || (row && !open_view(w->job, w->task, seq, &view)))
        return;
    if (row)
        own.view = &view;
    if (end - row == 1) {
        attend_chain(&own, row, 1, from, size_min(to, kv_attended_end(w->job->step->kv, seq)));
        return;
    }
    const size_t shared = prefix_group_shared(group, row, end);
    const size_t common = size_max(from, size_min(to, shared));
    attend_run(&own, row, end - row, from, common, SIZE_MAX);
    for (size_t i = row, next; i < end; i = next) {
        for (next = i + 1; next < end && group->common[next - 1] > shared;)
            next++;
        attend_group(w, i, next, common, to);
    }
}

/* Computes the padding before the view's first KV entry (view->padded), without effect. */
static void attend_padding(const struct fused_work *w)
{
    const struct kv_span *first = &w->view->span[0];
    const size_t back = w->view->padded;
    set_no_range(w);
    for (size_t at = 0, tiles; at < back; at += tiles * ATTEND_TILE) {
        struct tiles *to = &w->s->tiles;
        tiles = size_min(RUN_TILES, (back - at) / ATTEND_TILE);
        for (size_t t = 0; t < tiles; t++) {
            const size_t before = back - at - t * ATTEND_TILE;
            to->k[t] = span_k(first) + w->view->offset[KV_K] - before * first->row_stride[KV_K];
            to->v[t] = span_v(first) + w->view->offset[KV_V] - before * first->row_stride[KV_V];
            to->k_rows[t] = to->v_rows[t] = NULL;
        }
        attend_tiles(w, tiles, 0, 0, w->task->rows);
    }
}

/* Computes attention over the sinks of a streaming head in positions [from, to). Query rows whose
 * recent window reaches the sinks skip this: attend_run() then includes the sinks, so that their
 * sums equal those of a head with full attention. */
static void attend_sinks(const struct fused_work *w, size_t from, size_t to)
{
    const size_t end = size_min(to, w->view->sink);
    for (size_t i = 0; i < w->task->rows; i++) {
        const struct query_mask *mask = &w->s->mask[i];
        set_range(w, i, mask->first, size_min(mask->sink_end, end), from);
    }
    attend_tiles(w, view_tiles(w->view, from, end, &w->s->tiles), SIZE_MAX, 0, w->task->rows);
}

/* Computes attention of each query row over those of its chosen positions that are in [from, to). */
static void attend_chosen(const struct fused_work *w, size_t from, size_t to)
{
    const struct attn_layer *layer = w->job->slice->layer;
    struct scratch *s = w->s;
    struct fused_work own = *w;
    struct kv_view view;
    for (size_t i = 0; i < w->task->rows; i++) {
        const struct query_mask *mask = &s->mask[i];
        const struct attn_query *query = query_of(w->task, i);
        const uint32_t *chosen = layer->chosen + (query->first + row_of(w->task, i)) * layer->stride;
        const size_t all = size_min(layer->most, mask->position + 1);
        size_t at = 0, n = 0;
        for (size_t end = all; at < end;) { /* the first position from `from` on */
            const size_t middle = (at + end) / 2;
            *(chosen[middle] < from ? &at : &end) = middle + (chosen[middle] < from);
        }
        for (; at < all && chosen[at] < to; at++)
            s->entry[n++] = query_mask_entry(mask, chosen[at]);
        if (!n)
            continue;
        if (query->seq != own.view->seq) {
            if (!open_view(w->job, w->task, query->seq, &view))
                return;
            own.view = &view;
        }
        set_range(w, i, 0, n, 0);
        attend_tiles(&own, view_scattered(own.view, s->entry, n, &s->tiles, &s->tables), SIZE_MAX, i,
                     1);
    }
}

/* True if no query row attends to [from, to), between a streaming head's sinks and recent
 * window. */
static bool in_gap(const struct fused_work *w, size_t from, size_t to)
{
    bool gap = w->view->recent && from >= w->view->sink;
    for (size_t i = 0; gap && i < w->task->rows; i++)
        gap = to <= w->s->mask[i].recent;
    return gap;
}

/* Reduces one chunk of a task to softmax partials; false if it begins after the last entry. */
static bool attend_chunk(const struct fused_work *w, size_t chunk)
{
    const struct fused_task *task = w->task;
    const struct fused *f = w->job->f;
    const size_t from = chunk * KV_CHUNK;
    const size_t to = size_min(from + KV_CHUNK, prefix_group_end(w->job->step->kv, task->group));
    if (from >= to)
        return false;
    softmax_partials_clear(f->d_v, w->partials, task->rows * f->gqa);
    if (to <= w->view->span[0].first || in_gap(w, from, to))
        return true;
    if (chunk == 0 && w->view->padded)
        attend_padding(w);
    if (w->view->recent && from < w->view->sink)
        attend_sinks(w, from, to);
    if (w->job->slice->layer->chosen)
        attend_chosen(w, from, to);
    else if (task->group->n > 1)
        attend_group(w, 0, task->rows, from, to);
    else if (query_of(task, 0)->ancestors)
        attend_tree(w, from, to);
    else
        attend_chain(w, 0, task->rows, from, to);
    return true;
}

/* Chunks that a rolling cache has dropped from a sequence: the first, but not that of attention sinks. */
static size_t dropped_chunks(const struct kv *kv, size_t seq)
{
    const size_t first = kv_seq_info(kv, seq).first / KV_CHUNK;
    return first - (first && kv_setup(kv)->sinks);
}

/* Number of the i-th chunk with entries that the cache has not dropped from the task's sequence. */
static size_t kept_chunk(const struct fused_job *job, const struct fused_task *task, size_t i)
{
    const struct kv *kv = job->step->kv;
    return i || !kv_setup(kv)->sinks ? dropped_chunks(kv, query_of(task, 0)->seq) + i : 0;
}

/* Runs a whole task, chunk by chunk. */
static void run_task(void *arg, size_t index)
{
    struct fused_job *job = arg;
    struct fused *f = job->f;
    struct scratch *s = &f->scratch[threads_self()];
    const struct fused_task task = find_task(job, index);
    struct kv_view view;
    struct fused_work work = {job, &task, &view, s, &s->merged};
    if (!begin_task(&work, &view))
        return;
    size_t i = 0;
    attend_chunk(&work, kept_chunk(job, &task, i));
    work.partials = &s->chunk;
    while (attend_chunk(&work, kept_chunk(job, &task, ++i)))
        softmax_partials_merge(f->d_v, &s->merged, &s->chunk, task.rows * f->gqa);
    store_context(job, &task, &s->merged);
}

/* Runs one chunk of a task, when there are too few tasks for all threads; merge_chunks()
 * follows. */
static void run_chunk(void *arg, size_t index)
{
    struct fused_job *job = arg;
    struct fused *f = job->f;
    struct scratch *s = &f->scratch[threads_self()];
    const struct fused_task task = find_task(job, index / job->chunks);
    struct kv_view view;
    const struct fused_work work = {job, &task, &view, s, &f->partials[index]};
    if (!begin_task(&work, &view))
        return;
    if (!attend_chunk(&work, kept_chunk(job, &task, index % job->chunks)))
        softmax_partials_clear(f->d_v, work.partials, task.rows * f->gqa);
}

static void merge_chunks(void *arg, size_t index)
{
    struct fused_job *job = arg;
    const struct softmax_partials *chunk = job->f->partials + index * job->chunks;
    const struct fused_task task = find_task(job, index);
    for (size_t i = 1; i < job->chunks; i++)
        softmax_partials_merge(job->f->d_v, &chunk[0], &chunk[i], task.rows * job->f->gqa);
    store_context(job, &task, &chunk[0]);
}

/* Sets the sizes of the layer to be computed. */
static void set_sizes(struct fused *f, size_t index)
{
    const struct attn_shape *shape = &f->attn.shapes[index];
    f->gqa = attn_gqa(shape);
    f->d = shape->head_dim;
    f->d_v = shape->v_dim;
    f->task_rows = task_rows_of(shape);
    f->queries = f->task_rows * f->gqa;
    f->groups = &f->shape_groups[index];
    for (size_t t = 0; t < f->threads; t++)
        quant_queries_resize(&f->scratch[t].q_int8, f->d);
}

static int fused_attend(struct attn *attn, const struct attn_step *step, const struct attn_slice *slice,
                        struct err *err)
{
    struct fused *f = (struct fused *)attn;
    struct fused_job job = {.f = f, .step = step, .slice = slice};
    set_sizes(f, slice->layer->shape);
    size_t tasks = 0, work = 0;
    for (size_t i = 0; i < f->groups->n; i++) {
        const struct prefix_group *group = &f->groups->group[i];
        const size_t first = kv_seq_info(step->kv, group->query[0]->seq).first;
        const size_t end = prefix_group_end(step->kv, group);
        tasks += count_tasks(f, slice, group);
        work +=
            group->n * group->query[0]->rows * (end - first) * slice->heads * f->gqa * (f->d + f->d_v);
        job.chunks = size_max(job.chunks,
                              div_up(end, KV_CHUNK) - dropped_chunks(step->kv, group->query[0]->seq));
    }
    if (tasks >= 2 * (size_t)threads_now() || job.chunks == 1) {
        parallel_for(tasks, work, run_task, &job);
    } else {
        parallel_for(tasks * job.chunks, work, run_chunk, &job);
        parallel_for(tasks, tasks * job.chunks * softmax_partials_floats(f->queries, f->d_v),
                     merge_chunks, &job);
    }
    if (job.failed)
        *err = job.err;
    return job.failed ? -1 : 0;
}

const struct attn_backend attn_fused = {
    .name = "fused",
    .summary = "one pass, running maximum and sum, our own kernels",
    .state_size = sizeof(struct fused),
    .chooses = true,
    .open = open_state,
    .begin = fused_begin_step,
    .run = fused_attend,
    .close = close_state,
};
