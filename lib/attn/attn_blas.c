/* Eager attention in three BLAS-like steps: scores = Q K^T over all KV entries of the view, softmax
 * with a bias as mask, context = scores V (BMC paper V, contribution 4). Padding entries are
 * multiplied too; the mask gives them weight 0.
 *
 * All query rows of a sequence share one bias row, in all heads and layers: zeros for the positions
 * that its last query row attends to, then MASKED; query row i reads it from element rows - 1 - i
 * on. In draft trees each query row has its own. If a layer's sliding window differs from the layer
 * before, all bias rows are refilled. They begin at the first tile that the cache has not dropped;
 * padding before it has no bias: its weights are set to 0. */
#include "attn/attn.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

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

/* Where blas_state.bias has the bias rows of a query: bias[at] is for position `first`; rows are
 * `stride` apart. */
struct bias_rows {
    size_t at, stride, first;
};

struct blas_state {
    struct attn attn;
    size_t tile_rows; /* most rows of scores that a thread computes at a time */
    size_t stored_rows;
    size_t threads;
    float *scores;      /* [threads][tile_rows][stored_rows] */
    float *dequantized; /* [threads][DEQUANTIZE_TILE][d]: K or V as f32 */
    float *sparse_bias; /* [threads][stored_rows]: bias row of a streaming head */
    float *bias;
    size_t bias_cap;             /* allocated floats of `bias` */
    struct bias_rows *bias_rows; /* [queries] */
    /* window that `bias` was filled for; SIZE_MAX: none */
    size_t window;
};

/* A task: attention of query rows [from, to) of a sequence over one KV head. */
struct blas_task {
    const struct attn_query *query;
    const struct bias_rows *bias;
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
    free(s->sparse_bias);
    free(s->bias);
    free(s->bias_rows);
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
        s->sparse_bias = mem_alloc(s->threads * s->stored_rows, sizeof *s->sparse_bias);
        s->bias_rows = mem_alloc(limits->queries, sizeof *s->bias_rows);
    }
    if (!s->scores || !s->dequantized || !s->sparse_bias || !s->bias_rows)
        return err_no_memory(err, "attention over %zu positions, %zu bytes", limits->positions,
                             s->threads * s->tile_rows * s->stored_rows * sizeof(float));
    return 0;
}

/* Number of bias elements of a sequence: one row, extended by an element per query row, as all read
 * it with an offset; in a draft tree, a bias row per query row. */
static size_t bias_size(const struct attn_query *query, size_t stride)
{
    return query->ancestors ? query->rows * stride : stride + query->rows;
}

static void fill_bias(struct blas_state *s, const struct attn_step *step, size_t window)
{
    const struct mask_limits limits = {.window = window};
    for (size_t i = 0; i < step->n_queries; i++) {
        const struct attn_query *query = &step->query[i];
        const struct bias_rows *rows = &s->bias_rows[i];
        float *bias = s->bias + rows->at;
        const bool tree = query->ancestors != NULL;
        for (size_t row = tree ? 0 : query->rows - 1; row < query->rows; row++) {
            const struct query_mask mask = query_mask_of(step->kv, query, row, &limits);
            query_mask_bias(&mask, bias + (tree ? row * rows->stride : 0), rows->first,
                            tree ? rows->stride : bias_size(query, rows->stride), MASKED);
        }
    }
    s->window = window;
}

static int reserve_bias(struct blas_state *s, size_t need, struct err *err)
{
    if (need <= s->bias_cap)
        return 0;
    free(s->bias);
    s->bias = mem_alloc(need, 2 * sizeof *s->bias);
    s->bias_cap = s->bias ? 2 * need : 0; /* 0: a later, smaller pass may succeed */
    return s->bias ? 0
                   : err_no_memory(err, "an attention mask of %zu bytes", need * 2 * sizeof *s->bias);
}

static int begin(struct attn *attn, const struct attn_step *step, struct err *err)
{
    struct blas_state *s = (struct blas_state *)attn;
    size_t need = 0;
    for (size_t i = 0; i < step->n_queries; i++) {
        const size_t seq = step->query[i].seq;
        const size_t first = kv_seq_info(step->kv, seq).first / TILE_ROWS * TILE_ROWS;
        s->bias_rows[i] = (struct bias_rows){need, kv_attended_end(step->kv, seq) - first, first};
        need += bias_size(&step->query[i], s->bias_rows[i].stride);
    }
    s->window = SIZE_MAX;
    return reserve_bias(s, need, err);
}

/* Returns the bias, 0 or MASKED, of query row `row` for the n KV entries of the task's view. */
static const float *bias_row(const struct blas_state *s, const struct blas_task *task,
                             const struct query_mask *mask, size_t row, size_t n)
{
    const size_t first = task->view->span[0].first;
    const float *bias = s->bias + task->bias->at + first - task->bias->first;
    /* streaming head: masked between sinks and recent window; chunks: no row is another one, shifted */
    if (mask->recent > mask->first || task->limits.chunk) {
        float *sparse = s->sparse_bias + (size_t)threads_self() * s->stored_rows;
        query_mask_bias(mask, sparse, first, n, MASKED);
        return sparse;
    }
    return task->query->ancestors ? bias + row * task->bias->stride
                                  : bias + task->query->rows - 1 - row;
}

/* Returns n rows of K or V (`base`) of one head as f32, *stride floats apart, from row `row` of a
 * span on (negative: padding before it): in place if BLAS can read them there, else dequantised or
 * gathered into `tile`. */
static const float *rows_f32(const struct attn_step *step, const struct kv_view *view, size_t d,
                             const struct kv_span *span, const char *base, ptrdiff_t row, size_t n,
                             float *tile, size_t *stride)
{
    const char *from = base + view->offset;
    if (!span->row && view->type == DTYPE_F32) {
        *stride = span->row_stride / sizeof(float);
        return (const float *)(const void *)(from + row * (ptrdiff_t)span->row_stride);
    }
    *stride = d;
    for (size_t i = 0; i < n; i++) {
        const ptrdiff_t at = row + (ptrdiff_t)i;
        const char *from_i = from + (span->row ? span->row[at] : at * (ptrdiff_t)span->row_stride);
        if (view->type == DTYPE_BF16)
            step->kernels->to_f32(tile + i * d, (const bf16 *)(const void *)from_i, d);
        else
            dtype_to_f32(tile + i * d, view->type, from_i, d);
    }
    if (view->type == DTYPE_F32)
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
    for (size_t at = first; shape->slopes && at <= mask->position; at++)
        scores[query_mask_entry(mask, at) - first] +=
            shape->slopes[head] * ((float)at - (float)mask->position);
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
    const size_t first = task->view->span[0].first;
    for (size_t i = 0; i < m; i++) {
        const size_t row = task->from + (heads ? 0 : i);
        const size_t head = task->kv_head * s->attn.gqa + (heads ? i : matrix);
        const struct query_mask mask = query_mask_of(step->kv, task->query, row, &task->limits);
        float *scores_i = scores + i * columns + padded;
        memset(scores_i - padded, 0, padded * sizeof *scores_i);
        if (scaled)
            softcap_alibi(shape, &mask, head, scores_i, first, n);
        const float *bias = bias_row(s, task, &mask, row, n);
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
static size_t run_rows(const struct kv_view *view, size_t span)
{
    return view->type == DTYPE_F32 && !view->span[span].row ? SIZE_MAX : DEQUANTIZE_TILE;
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
            n = size_min(run_rows(view, i), rows - row);
            const float *k = rows_f32(step, view, d, &view->span[i], span_k(&view->span[i]),
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
            n = size_min(run_rows(view, i), rows - row);
            const float *v = rows_f32(step, view, d, &view->span[i], span_v(&view->span[i]),
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
static struct blas_task find_task(const struct blas_state *s, const struct attn_step *step,
                                  const struct attn_slice *slice, size_t index)
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
                              .bias = &s->bias_rows[i],
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
    struct blas_task task = find_task(job->s, job->step, job->slice, index);
    struct err why;
    if (run_task(job->s, job->step, job->slice, &task, &why) < 0 &&
        !atomic_exchange(&job->failed, true))
        *job->err = why;
}

static int run(struct attn *attn, const struct attn_step *step, const struct attn_slice *slice,
               struct err *err)
{
    struct blas_state *s = (struct blas_state *)attn;
    if (slice->layer->window != s->window && !slice->layer->chunk)
        fill_bias(s, step, slice->layer->window);
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
    .state_size = sizeof(struct blas_state),
    .open = open_state,
    .begin = begin,
    .run = run,
    .close = close_state,
};
