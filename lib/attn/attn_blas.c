/* Eager attention in three BLAS-like steps: scores = Q K^T over all KV entries of the view, softmax
 * with a bias as mask, context = scores V (BMC paper V, contribution 4). Padding entries are
 * multiplied too; the mask gives them weight 0, and padding before the first entry gets it afterwards. */
#include "attn/attn.h"

#include <pthread.h>
#include <stdatomic.h>

#include "attn/attn_rows.h"
#include "attn/query_mask.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/threads.h"
#include "kernel/blas/blas.h"

#define MASKED (-1e30f)

enum {
    QUERY_TILE = 64,      /* query rows that one task multiplies at a time */
    DEQUANTIZE_TILE = 128 /* KV entries dequantised or gathered at a time */
};

struct blas_state {
    struct attn attn;
    size_t tile_rows; /* most rows of scores that a thread computes at a time */
    size_t stored_rows;
    size_t threads;
    float *scores;      /* [threads][tile_rows][stored_rows] */
    float *dequantized; /* [threads][DEQUANTIZE_TILE][d]: K or V as f32 */
    float *bias;        /* [threads][stored_rows]: the mask of a query row, 0 or MASKED */
};

/* A task: attention of query rows [from, to) of a sequence over one KV head. */
struct blas_task {
    const struct attn_query *query;
    size_t kv_head, from, to;
    struct mask_limits limits;
    const struct kv_view *view; /* view of the task's sequence and KV head */
    const float *sinks;         /* as in struct attn_layer */
};

static void close_state(struct attn *attn)
{
    struct blas_state *s = (struct blas_state *)attn;
    free(s->scores);
    free(s->dequantized);
    free(s->bias);
}

static int open_state(struct attn *attn, const struct attn_limits *limits, struct err *err)
{
    struct blas_state *s = (struct blas_state *)attn;
    if (blas_load(err) < 0)
        return -1;
    size_t d = 0;
    s->tile_rows = size_min(QUERY_TILE, limits->step_rows);
    for (size_t i = 0; i < attn->n_shapes; i++) {
        s->tile_rows = size_max(s->tile_rows, attn_gqa(&attn->shapes[i]));
        d = size_max(d, attn->shapes[i].head_dim);
    }
    s->stored_rows = round_up(limits->positions, TILE_ROWS);
    s->threads = (size_t)threads_allowed();
    s->threads = size_max(s->threads, (size_t)threads_max());
    size_t scores;
    if (size_mul(s->threads * s->tile_rows, s->stored_rows, &scores)) {
        s->scores = mem_alloc(scores, sizeof(float));
        s->dequantized = mem_alloc(s->threads * DEQUANTIZE_TILE, d * sizeof(float));
        s->bias = mem_alloc(s->threads * s->stored_rows, sizeof *s->bias);
    }
    if (!s->scores || !s->dequantized || !s->bias)
        return err_no_memory(err, "attention over %zu positions, %zu bytes", limits->positions,
                             s->threads * s->tile_rows * s->stored_rows * sizeof(float));
    return 0;
}

/* Returns n rows of K (KV_K) or V of one head as f32, *stride floats apart, from row `row` of a span on
 * (negative: padding before it): in place if BLAS can read them there, else dequantised or gathered
 * into `tile`. */
static const float *rows_f32(const struct attn_step *step, const struct kv_view *view, size_t d,
                             const struct kv_span *span, size_t matrix, ptrdiff_t row, size_t n,
                             float *tile, size_t *stride)
{
    const char *from = (matrix == KV_K ? span_k(span) : span_v(span)) + view->offset[matrix];
    const enum dtype type = view->type[matrix];
    const ptrdiff_t bytes = (ptrdiff_t)span->row_stride[matrix];
    if (!span->row && type == DTYPE_F32) {
        *stride = span->row_stride[matrix] / sizeof(float);
        return (const float *)(const void *)(from + row * bytes);
    }
    *stride = d;
    for (size_t i = 0; i < n; i++) {
        const ptrdiff_t at = row + (ptrdiff_t)i;
        const char *from_i = from + (span->row ? span->row[at] : at * bytes);
        if (type == DTYPE_BF16)
            step->kernels->to_f32(tile + i * d, (const bf16 *)(const void *)from_i, d);
        else
            dtype_to_f32(tile + i * d, type, from_i, d);
    }
    if (type == DTYPE_F32)
        kv_count_copied(step->kv, n * d * sizeof(float));
    return tile;
}

/* How the queries of a task form the left-hand matrices of products with the same K: a single query
 * row is one matrix, with the G heads of its GQA group as rows; several query rows are one matrix
 * per head. */
struct operand {
    size_t matrices, m; /* number of matrices, and rows of each */
    /* distance of matrices, and of rows, in q and out, in heads: of head_dim or v_dim elements */
    size_t step, row_stride;
};

static struct operand shape_operand(const struct blas_state *s, const struct blas_task *task)
{
    const size_t gqa = s->attn.gqa;
    if (task->to - task->from == 1)
        return (struct operand){1, gqa, 0, 1};
    return (struct operand){gqa, task->to - task->from, 1, s->attn.shape->heads};
}

static void add_times(struct attn_times *times, double scores_ms, double softmax_ms, double values_ms)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    times->scores_ms += scores_ms;
    times->softmax_ms += softmax_ms;
    times->values_ms += values_ms;
    pthread_mutex_unlock(&lock);
}

/* Scales and soft-caps the scores of a query head for entries [first, first + n), and adds
 * ALiBi. */
static void softcap_alibi(const struct attn_shape *shape, const struct query_mask *mask, size_t head,
                          float *scores, size_t first, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        scores[j] *= shape->scale;
        if (shape->softcap > 0)
            scores[j] = shape->softcap * tanhf(scores[j] / shape->softcap);
    }
    /* in a draft tree, entries of the forward pass are not in the order of their positions */
    const size_t begin = mask->ancestors ? size_min(first, mask->committed) : first,
                 end = mask->ancestors ? SIZE_MAX : first + n;
    for (size_t at = begin; shape->slopes && at <= mask->position && at < end; at++) {
        const size_t entry = query_mask_entry(mask, at) - first;
        if (entry < n)
            scores[entry] += shape->slopes[head] * ((float)at - (float)mask->position);
    }
}

/* Softmax of n scores under a bias with an attention sink, a score beside them: their weights without it
 * are divided by 1 + exp(sink - max) / sum, where 1 / sum is the largest of these weights. */
static void softmax_sink(const struct attn_step *step, float *scores, size_t n, float scale,
                         const float *bias, float sink)
{
    float max = -INFINITY, most = 0;
    for (size_t j = 0; j < n; j++)
        max = fmaxf(max, scores[j] * scale + bias[j]);
    step->kernels->softmax(scores, n, scale, bias);
    for (size_t j = 0; j < n; j++)
        most = fmaxf(most, scores[j]);
    const float factor = 1 / (1 + expf(sink - max) * most);
    for (size_t j = 0; j < n; j++)
        scores[j] *= factor;
}

/* Applies softmax in place to the m rows of scores of the task's matrix number `matrix`. */
static void softmax_rows(const struct blas_state *s, const struct attn_step *step,
                         const struct blas_task *task, size_t matrix, size_t m, float *scores,
                         size_t columns)
{
    const struct attn_shape *shape = s->attn.shape;
    const bool heads = task->to - task->from == 1; /* rows of scores are heads, not positions */
    const bool scaled = shape->softcap > 0 || shape->slopes;
    const size_t padded = task->view->padded, n = columns - padded;
    float *bias = s->bias + (size_t)threads_self() * s->stored_rows;
    for (size_t i = 0; i < m; i++) {
        const size_t row = task->from + (heads ? 0 : i);
        const size_t head = task->kv_head * s->attn.gqa + (heads ? i : matrix);
        const struct query_mask mask = query_mask_of(step->kv, task->query, row, &task->limits);
        float *scores_i = scores + i * columns + padded;
        memset(scores_i - padded, 0, padded * sizeof *scores_i);
        for (size_t j = 0, at = 0; j < task->view->n_spans; at += task->view->span[j++].rows) {
            const struct kv_span *span = &task->view->span[j];
            if (scaled)
                softcap_alibi(shape, &mask, head, scores_i + at, span->first, span->rows);
            if (i == 0 || !heads)
                query_mask_bias(&mask, bias + at, span->first, span->rows, MASKED);
        }
        const float scale = scaled ? 1 : shape->scale;
        if (task->sinks)
            softmax_sink(step, scores_i, n, scale, bias, task->sinks[head]);
        else
            step->kernels->softmax(scores_i, n, scale, bias);
    }
}

/* Number of padding entries before a span; only the first span has any. */
static size_t padded_of(const struct kv_view *view, size_t span) { return span ? 0 : view->padded; }

/* Most KV entries per BLAS call: all of a span, if BLAS can read them in place. */
static size_t run_rows(const struct kv_view *view, size_t matrix, size_t span)
{
    return view->type[matrix] == DTYPE_F32 && !view->span[span].row ? SIZE_MAX : DEQUANTIZE_TILE;
}

static void run_matrix(struct blas_state *s, const struct attn_step *step, const struct blas_task *task,
                       const struct operand *operand, size_t matrix, const float *q, float *out)
{
    const struct kv_view *view = task->view;
    const size_t d = s->attn.shape->head_dim, d_v = s->attn.shape->v_dim;
    const size_t self = (size_t)threads_self();
    float *scores = s->scores + self * s->tile_rows * s->stored_rows,
          *tile = s->dequantized + self * DEQUANTIZE_TILE * d;
    size_t columns = view->padded, stride;
    for (size_t i = 0; i < view->n_spans; i++)
        columns += view->span[i].rows;
    size_t at = 0;
    const double start = step->times ? clock_ms() : 0;
    for (size_t i = 0; i < view->n_spans; i++) {
        const size_t padded = padded_of(view, i), rows = padded + view->span[i].rows;
        for (size_t row = 0, n; row < rows; row += n, at += n) {
            n = size_min(run_rows(view, KV_K, i), rows - row);
            const float *k = rows_f32(step, view, d, &view->span[i], KV_K,
                                      (ptrdiff_t)row - (ptrdiff_t)padded, n, tile, &stride);
            gemm_blas_nt(scores + at, columns, q, operand->row_stride * d, k, stride, operand->m, n, d,
                         false);
        }
    }
    const double scored = step->times ? clock_ms() : 0;
    softmax_rows(s, step, task, matrix, operand->m, scores, columns);
    const double normalised = step->times ? clock_ms() : 0;
    at = 0;
    for (size_t i = 0; i < view->n_spans; i++) {
        const size_t padded = padded_of(view, i), rows = padded + view->span[i].rows;
        for (size_t row = 0, n; row < rows; row += n, at += n) {
            n = size_min(run_rows(view, KV_V, i), rows - row);
            const float *v = rows_f32(step, view, d, &view->span[i], KV_V,
                                      (ptrdiff_t)row - (ptrdiff_t)padded, n, tile, &stride);
            gemm_blas_nn(out, operand->row_stride * d_v, scores + at, columns, v, stride, operand->m,
                         d_v, n, at > 0);
        }
    }
    if (step->times)
        add_times(step->times, scored - start, normalised - scored, clock_ms() - normalised);
}

static int run_task(struct blas_state *s, const struct attn_step *step, const struct attn_slice *slice,
                    struct blas_task *task, struct err *err)
{
    struct kv_view view;
    if (kv_view(step->kv, task->query->seq, slice->layer->index, task->kv_head, 1, &view, err) < 0)
        return -1;
    task->view = &view;
    task->sinks = slice->layer->sinks;
    task->limits =
        (struct mask_limits){slice->layer->window, slice->layer->chunk, view.sink, view.recent};
    const struct operand operand = shape_operand(s, task);
    const struct attn_shape *shape = s->attn.shape;
    const size_t at = (task->query->first + task->from) * shape->heads + task->kv_head * s->attn.gqa;
    for (size_t i = 0; i < operand.matrices; i++)
        run_matrix(s, step, task, &operand, i, slice->q + (at + i * operand.step) * shape->head_dim,
                   slice->out + (at + i * operand.step) * shape->v_dim);
    return 0;
}

/* Returns task `index` of a slice: tasks are ordered by sequence, tile of query rows, KV head. */
static struct blas_task find_task(const struct attn_step *step, const struct attn_slice *slice,
                                  size_t index)
{
    size_t i = 0;
    for (;; i++) {
        const size_t tasks = div_up(step->query[i].rows, QUERY_TILE) * slice->heads;
        if (index < tasks)
            break;
        index -= tasks;
    }
    const size_t from = index / slice->heads * QUERY_TILE;
    return (struct blas_task){.query = &step->query[i],
                              .kv_head = slice->head + index % slice->heads,
                              .from = from,
                              .to = size_min(from + QUERY_TILE, step->query[i].rows)};
}

struct blas_job {
    struct blas_state *s;
    const struct attn_step *step;
    const struct attn_slice *slice;
    struct err *err; /* filled by the first task that fails */
    atomic_bool failed;
};

static void each_task(void *arg, size_t index)
{
    struct blas_job *job = arg;
    struct blas_task task = find_task(job->step, job->slice, index);
    struct err why;
    if (run_task(job->s, job->step, job->slice, &task, &why) < 0 &&
        !atomic_exchange(&job->failed, true))
        *job->err = why;
}

static int blas_attend(struct attn *attn, const struct attn_step *step, const struct attn_slice *slice,
                       struct err *err)
{
    struct blas_state *s = (struct blas_state *)attn;
    size_t tasks = 0, work = 0;
    for (size_t i = 0; i < step->n_queries; i++) {
        tasks += div_up(step->query[i].rows, QUERY_TILE) * slice->heads;
        work += step->query[i].rows * kv_attended_rows(step->kv, step->query[i].seq) * attn->gqa *
                slice->heads * (attn->shape->head_dim + attn->shape->v_dim);
    }
    struct blas_job job = {s, step, slice, err, false};
    parallel_for(tasks, work, each_task, &job);
    return job.failed ? -1 : 0;
}

const struct attn_backend attn_blas = {
    .name = "blas",
    .summary = "eager: scores, softmax under a bias mask, context, through OpenBLAS",
    .foreign_sums = true,
    .state_size = sizeof(struct blas_state),
    .open = open_state,
    .run = blas_attend,
    .close = close_state,
};
