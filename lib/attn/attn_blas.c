/* Eager attention in three BLAS-like steps: scores = Q K^T over all rows of the view, softmax under a
 * bias mask, context = scores V (BMC paper V, contribution 4). The rows that the policy pads are
 * multiplied too; the mask gives them weight 0.
 *
 * The mask of a chain is one row for all its queries, heads and layers: zeros for n + rows positions,
 * then a large negative number; query i reads it (rows - 1 - i) further on. Trees have a row per query.
 * A layer with another window than the one before has the masks made anew. Masks begin where the first tile does that is not
 * dropped; padding on the left has none: its weights are 0. */
#include "attn/attn.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/threads.h"
#include "kernel/blas_load.h"
#include "kernel/gemm_blas.h"

#define MASKED (-1e30f)

enum {
    QUERY_TILE = 64, /* query rows that one task multiplies at a time */
    WIDEN_TILE = 128 /* cache rows widened to f32 at a time */
};

/* Where a query's mask lies: row i begins at mask + i * stride + shift_i, and with position `first`. */
struct mask {
    size_t at, stride, first;
};

struct blas_state {
    struct attn attn;
    size_t tile_rows; /* rows of scores per thread */
    size_t stored_rows;
    size_t threads;
    float *scores; /* [threads][tile_rows][stored_rows] */
    float *wide;   /* [threads][WIDEN_TILE][d] */
    float *sight;  /* [threads][stored_rows]: the mask of a row that sees a sparse head */
    float *bias;
    size_t bias_cap;   /* elements */
    struct mask *mask; /* [queries] */
    size_t window;     /* that the masks were made for; SIZE_MAX: not yet */
};

/* One task: query rows [from, to) of a sequence, one KV head. */
struct task {
    const struct attn_query *query;
    const struct mask *mask;
    size_t kv_head, from, to;
};

static void close_state(struct attn *attn)
{
    struct blas_state *s = (struct blas_state *)attn;
    free(s->scores);
    free(s->wide);
    free(s->sight);
    free(s->bias);
    free(s->mask);
}

static int open_state(struct attn *attn, const struct attn_limits *limits, struct err *err)
{
    struct blas_state *s = (struct blas_state *)attn;
    if (blas_load(err) < 0)
        return -1;
    s->tile_rows = size_max(attn->group, size_min(QUERY_TILE, limits->step_rows));
    s->stored_rows = round_up(limits->positions, TILE_ROWS);
    s->threads = (size_t)threads_allowed();
    s->threads = size_max(s->threads, (size_t)threads_most());
    size_t scores;
    if (size_mul(s->threads * s->tile_rows, s->stored_rows, &scores)) {
        s->scores = mem_alloc(scores, sizeof(float));
        s->wide = mem_alloc(s->threads * WIDEN_TILE, attn->shape.head_dim * sizeof(float));
        s->sight = mem_alloc(s->threads * s->stored_rows, sizeof *s->sight);
        s->mask = mem_alloc(limits->queries, sizeof *s->mask);
    }
    if (!s->scores || !s->wide || !s->sight || !s->mask)
        return err_set(err, "out of memory: attention over %zu rows needs %zu bytes", limits->positions,
                       s->threads * s->tile_rows * s->stored_rows * sizeof(float));
    return 0;
}

/* Elements of the mask of one query. */
static size_t mask_size(const struct attn_query *query, size_t rows)
{
    return query->tail ? query->rows * rows : rows + query->rows;
}

/* The first position that a query at `own` sees. */
static size_t window_start(size_t own, size_t window)
{
    return window && own >= window ? own + 1 - window : 0;
}

/* Zeros for [from, valid), and MASKED for the rest. */
static void fill_chain(float *bias, size_t from, size_t valid, size_t end)
{
    for (size_t j = 0; j < end; j++)
        bias[j] = j >= from && j < valid ? 0 : MASKED;
}

static void fill_tree(float *bias, const struct attn_query *query, size_t n, const struct mask *mask,
                      size_t window)
{
    const size_t rows = mask->stride, begun = n - mask->first;
    for (size_t i = 0; i < query->rows; i++) {
        float *bias_i = bias + i * rows;
        const size_t first = query->tail_at[i], last = query->tail_at[i + 1] - 1;
        const size_t from = window_start(n + last - first, window) - mask->first;
        fill_chain(bias_i, from, begun, rows);
        for (size_t t = first; t <= last; t++)
            bias_i[begun + query->tail[t]] = begun + t - first >= from ? 0 : MASKED;
    }
}

static void fill_masks(struct blas_state *s, const struct attn_step *step, size_t window)
{
    for (size_t i = 0; i < step->n_queries; i++) {
        const struct attn_query *query = &step->query[i];
        const struct mask *mask = &s->mask[i];
        const size_t n = kv_position(step->kv, query->seq);
        const size_t end = n + query->rows; /* one behind the last query's own position */
        if (query->tail)
            fill_tree(s->bias + mask->at, query, n, mask, window);
        else
            fill_chain(s->bias + mask->at, window_start(end - 1, window) - mask->first,
                       end - mask->first, mask->stride + query->rows);
    }
    s->window = window;
}

/* Room for `need` elements of masks. */
static int reserve_bias(struct blas_state *s, size_t need, struct err *err)
{
    if (need <= s->bias_cap)
        return 0;
    free(s->bias);
    s->bias = mem_alloc(need, 2 * sizeof *s->bias);
    s->bias_cap = s->bias ? 2 * need : 0; /* a later, smaller step may succeed */
    return s->bias ? 0
                   : err_set(err, "out of memory: the attention mask needs %zu bytes",
                             need * 2 * sizeof *s->bias);
}

static int begin(struct attn *attn, const struct attn_step *step, struct err *err)
{
    struct blas_state *s = (struct blas_state *)attn;
    size_t need = 0;
    for (size_t i = 0; i < step->n_queries; i++) {
        const size_t seq = step->query[i].seq;
        const size_t first = kv_fill(step->kv, seq).first / TILE_ROWS * TILE_ROWS;
        s->mask[i] = (struct mask){need, kv_rows_end(step->kv, seq) - first, first};
        need += mask_size(&step->query[i], s->mask[i].stride);
    }
    s->window = SIZE_MAX;
    return reserve_bias(s, need, err);
}

/* Row i of a query's mask, from the first position of a view on. */
static const float *mask_row(const struct blas_state *s, const struct task *task,
                             const struct kv_view *view, size_t i)
{
    const float *bias = s->bias + task->mask->at + view->span[0].first - task->mask->first;
    return task->query->tail ? bias + i * task->mask->stride : bias + task->query->rows - 1 - i;
}

/* A run of f32 rows of one head, from row `row` of a span on, which is negative for padding: in place, or dequantised or gathered
 * into the thread's tile. */
static const float *rows_f32(const struct attn_step *step, const struct kv_view *view,
                             const struct kv_span *span, const void *base, ptrdiff_t row, size_t n,
                             float *wide, size_t *stride)
{
    const size_t d = kv_setup(step->kv)->shape.head_dim;
    const char *from = (const char *)base + view->offset;
    if (!span->row && view->type == DTYPE_F32) {
        *stride = span->row_stride / sizeof(float);
        return (const float *)(const void *)(from + row * (ptrdiff_t)span->row_stride);
    }
    *stride = d;
    for (size_t i = 0; i < n; i++) {
        const ptrdiff_t at = row + (ptrdiff_t)i;
        const char *from_i = from + (span->row ? span->row[at] : at * (ptrdiff_t)span->row_stride);
        if (view->type == DTYPE_BF16)
            step->kernels->to_f32(wide + i * d, (const bf16 *)(const void *)from_i, d);
        else
            dtype_widen(wide + i * d, view->type, from_i, d);
    }
    if (view->type == DTYPE_F32)
        kv_count_copied(step->kv, n * d * sizeof(float));
    return wide;
}

/* The queries of a task as matrices that share one K: with one query row the G heads of the group are
 * the rows; with more, each head of the group is a matrix of query rows. */
struct operand {
    size_t matrices, m;      /* how many, and rows of each */
    size_t step, row_stride; /* elements from matrix to matrix, and from row to row, in q and out */
};

static struct operand shape_operand(const struct blas_state *s, const struct task *task)
{
    const struct attn_shape *shape = &s->attn.shape;
    const size_t group = s->attn.group, width = shape->heads * shape->head_dim;
    if (task->to - task->from == 1)
        return (struct operand){1, group, 0, shape->head_dim};
    return (struct operand){group, task->to - task->from, shape->head_dim, width};
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

/* The position of row j, as query row i of the task's sequence sees it. */
static size_t position_of(const struct attn_query *query, size_t i, size_t n, size_t j)
{
    for (size_t t = 0; query->tail && j >= n && t < query->tail_at[i + 1] - query->tail_at[i]; t++)
        if (n + query->tail[query->tail_at[i] + t] == j)
            return n + t;
    return j;
}

/* What a shape asks for beyond the scale: scores are capped, then biased by distance: those of query row `row` and head `head`,
 * from position `first` on. Where that is done the scale is done, too. */
static void bend(const struct blas_state *s, const struct attn_step *step, const struct task *task,
                 size_t row, size_t head, float *scores, size_t first, size_t columns)
{
    const struct attn_shape *shape = &s->attn.shape;
    const struct attn_query *query = task->query;
    const size_t n = kv_position(step->kv, query->seq);
    const size_t own = n + (query->tail ? query->tail_at[row + 1] - query->tail_at[row] - 1 : row);
    for (size_t j = 0; j < columns; j++) {
        scores[j] *= shape->scale;
        if (shape->softcap > 0)
            scores[j] = shape->softcap * tanhf(scores[j] / shape->softcap);
        if (shape->slopes)
            scores[j] +=
                shape->slopes[head] * ((float)position_of(query, row, n, first + j) - (float)own);
    }
}

/* The mask of query row `row`, of the n columns of a view: of a sparse head only the first and the last rows are seen. */
static const float *sight_row(const struct blas_state *s, const struct attn_step *step,
                              const struct task *task, const struct kv_view *view, size_t row, size_t n)
{
    const float *mask = mask_row(s, task, view, row);
    const struct attn_query *query = task->query;
    const size_t begun = kv_position(step->kv, query->seq);
    const size_t own = begun + (query->tail ? query->tail_at[row + 1] - query->tail_at[row] - 1 : row);
    const size_t from = kv_recent_start(own, view->recent);
    float *sight = s->sight + (size_t)threads_self() * s->stored_rows;
    if (from <= view->sink)
        return mask;
    for (size_t j = 0; j < n; j++) {
        const size_t at = position_of(query, row, begun, view->span[0].first + j);
        sight[j] = at < view->sink || at >= from ? mask[j] : MASKED;
    }
    return sight;
}

/* Scores become weights: `m` rows of matrix `matrix` of the task. */
static void weigh(const struct blas_state *s, const struct attn_step *step, const struct task *task,
                  const struct kv_view *view, size_t matrix, size_t m, float *scores, size_t columns)
{
    const struct attn_shape *shape = &s->attn.shape;
    const bool grouped = task->to - task->from == 1; /* all rows are heads of one query */
    const bool bent = shape->softcap > 0 || shape->slopes;
    const size_t padded = view->padded, n = columns - padded;
    for (size_t i = 0; i < m; i++) {
        const size_t row = task->from + (grouped ? 0 : i);
        const size_t head = task->kv_head * s->attn.group + (grouped ? i : matrix);
        float *scores_i = scores + i * columns + padded;
        memset(scores_i - padded, 0, padded * sizeof *scores_i);
        if (bent)
            bend(s, step, task, row, head, scores_i, view->span[0].first, n);
        step->kernels->softmax(scores_i, n, bent ? 1 : shape->scale,
                               sight_row(s, step, task, view, row, n));
    }
}

/* Rows before a span that are padding. */
static size_t padded_of(const struct kv_view *view, size_t span) { return span ? 0 : view->padded; }

/* Rows of a span that one product takes: all, if BLAS can read them in place. */
static size_t run_rows(const struct kv_view *view, size_t span)
{
    return view->type == DTYPE_F32 && !view->span[span].row ? SIZE_MAX : WIDEN_TILE;
}

static void run_matrix(struct blas_state *s, const struct attn_step *step, const struct kv_view *view,
                       const struct task *task, const struct operand *operand, size_t matrix,
                       const float *q, float *out)
{
    const size_t d = s->attn.shape.head_dim, self = (size_t)threads_self();
    float *scores = s->scores + self * s->tile_rows * s->stored_rows,
          *wide = s->wide + self * WIDEN_TILE * d;
    size_t columns = view->padded, stride;
    for (size_t i = 0; i < view->n_spans; i++)
        columns += view->span[i].rows;
    size_t at = 0;
    const double start = step->times ? clock_ms() : 0;
    for (size_t i = 0; i < view->n_spans; i++) {
        const size_t padded = padded_of(view, i), rows = padded + view->span[i].rows;
        for (size_t row = 0, n; row < rows; row += n, at += n) {
            n = size_min(run_rows(view, i), rows - row);
            const float *k = rows_f32(step, view, &view->span[i], view->span[i].k,
                                      (ptrdiff_t)row - (ptrdiff_t)padded, n, wide, &stride);
            gemm_blas_nt(scores + at, columns, q, operand->row_stride, k, stride, operand->m, n, d,
                         false);
        }
    }
    const double scored = step->times ? clock_ms() : 0;
    weigh(s, step, task, view, matrix, operand->m, scores, columns);
    const double weighed = step->times ? clock_ms() : 0;
    at = 0;
    for (size_t i = 0; i < view->n_spans; i++) {
        const size_t padded = padded_of(view, i), rows = padded + view->span[i].rows;
        for (size_t row = 0, n; row < rows; row += n, at += n) {
            n = size_min(run_rows(view, i), rows - row);
            const float *v = rows_f32(step, view, &view->span[i], view->span[i].v,
                                      (ptrdiff_t)row - (ptrdiff_t)padded, n, wide, &stride);
            gemm_blas_nn(out, operand->row_stride, scores + at, columns, v, stride, operand->m, d, n,
                         at > 0);
        }
    }
    if (step->times)
        add_times(step->times, scored - start, weighed - scored, clock_ms() - weighed);
}

static int run_task(struct blas_state *s, const struct attn_step *step, const struct attn_part *part,
                    const struct task *task, struct err *err)
{
    struct kv_view view;
    if (kv_view(step->kv, task->query->seq, part->layer->index, task->kv_head, 1, &view, err) < 0)
        return -1;
    const struct operand operand = shape_operand(s, task);
    const struct attn_shape *shape = &s->attn.shape;
    const size_t at =
        ((task->query->first + task->from) * shape->heads + task->kv_head * s->attn.group) *
        shape->head_dim;
    for (size_t i = 0; i < operand.matrices; i++)
        run_matrix(s, step, &view, task, &operand, i, part->q + at + i * operand.step,
                   part->out + at + i * operand.step);
    return 0;
}

/* Task `index` of the part: queries in order, each with tiles x KV heads. */
static struct task find_task(const struct blas_state *s, const struct attn_step *step,
                             const struct attn_part *part, size_t index)
{
    size_t i = 0;
    for (;; i++) {
        const size_t tasks = div_up(step->query[i].rows, QUERY_TILE) * part->heads;
        if (index < tasks)
            break;
        index -= tasks;
    }
    const size_t from = index / part->heads * QUERY_TILE;
    return (struct task){&step->query[i], &s->mask[i], part->head + index % part->heads, from,
                         size_min(from + QUERY_TILE, step->query[i].rows)};
}

/* The tasks of a step in one part of a layer. */
struct tasks {
    struct blas_state *s;
    const struct attn_step *step;
    const struct attn_part *part;
    struct err *err; /* the first that failed fills it */
    atomic_bool failed;
};

static void each_task(void *arg, size_t index)
{
    struct tasks *t = arg;
    const struct task task = find_task(t->s, t->step, t->part, index);
    struct err why;
    if (run_task(t->s, t->step, t->part, &task, &why) < 0 && !atomic_exchange(&t->failed, true))
        *t->err = why;
}

static int run(struct attn *attn, const struct attn_step *step, const struct attn_part *part,
               struct err *err)
{
    struct blas_state *s = (struct blas_state *)attn;
    if (part->layer->window != s->window)
        fill_masks(s, step, part->layer->window);
    size_t tasks = 0, work = 0;
    for (size_t i = 0; i < step->n_queries; i++) {
        tasks += div_up(step->query[i].rows, QUERY_TILE) * part->heads;
        work += step->query[i].rows * kv_rows_now(step->kv, step->query[i].seq) * 2 * attn->group *
                part->heads * attn->shape.head_dim;
    }
    struct tasks t = {s, step, part, err, false};
    threads_each(tasks, work, each_task, &t);
    return t.failed ? -1 : 0;
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
