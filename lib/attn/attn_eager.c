/* Eager attention in three steps: scores = Q K^T over all KV entries of the view, softmax with a bias as mask,
 * context = scores V (BMC paper V, contribution 4). A library multiplies: OpenBLAS a matrix at a time, oneDNN a batch over
 * sequences and KV heads, where the cache stores them as one tensor. Padding entries are multiplied too; the mask gives
 * them weight 0, and padding before the first entry gets it afterwards. */
#include "attn/attn.h"

#include <pthread.h>
#include <stdatomic.h>

#include "attn/attn_rows.h"
#include "attn/eager_product.h"
#include "attn/query_mask.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/threads.h"

#define MASKED (-1e30f)

enum {
    QUERY_TILE = 64,      /* query rows that one task multiplies at a time */
    DEQUANTIZE_TILE = 128 /* KV entries dequantised or gathered at a time */
};

struct eager_state {
    struct attn attn;
    const struct eager_library *library;
    size_t score_rows; /* most rows of scores that a thread computes at a time */
    size_t stored_rows;
    size_t threads;
    float *scores;      /* [threads][score_rows][stored_rows] */
    float *dequantized; /* [threads][DEQUANTIZE_TILE][d]: K or V as f32 */
    float *bias;        /* [threads][stored_rows]: the mask of a query row, 0 or MASKED */
};

/* Attention of query rows [from, to) of each of some sequences, which have their rows one after the other, over KV heads
 * [kv_head, kv_head + heads). More than one sequence or KV head only of sequences of one row. */
struct eager_task {
    const struct attn_query *query; /* [sequences] */
    size_t sequences, kv_head, heads, from, to;
};

/* The part of a task that is computed by the same products. */
struct eager_part {
    struct eager_task what;
    struct mask_limits limits;
    struct kv_view view; /* of the first sequence and KV head; others are a batch's step behind it */
    const float *sinks;  /* as in struct attn_layer */
};

static void close_state(struct attn *attn)
{
    struct eager_state *s = (struct eager_state *)attn;
    free(s->scores);
    free(s->dequantized);
    free(s->bias);
    if (s->library && s->library->close)
        s->library->close();
}

static int open_state(struct attn *attn, const struct eager_library *library,
                      const struct attn_limits *limits, struct err *err)
{
    struct eager_state *s = (struct eager_state *)attn;
    size_t d = 0;
    if (library->open(err) < 0)
        return -1;
    s->library = library;
    s->threads = (size_t)threads_allowed();
    s->threads = size_max(s->threads, (size_t)threads_max());
    s->score_rows = size_min(QUERY_TILE, limits->step_rows);
    for (size_t i = 0; i < attn->n_shapes; i++) {
        const struct attn_shape *shape = &attn->shapes[i];
        const size_t batch = library->batched ? limits->queries : 1;
        s->score_rows = size_max(s->score_rows, batch * attn_gqa(shape));
        if (library->batched)
            s->score_rows = size_max(s->score_rows, div_up(batch * shape->heads, s->threads));
        d = size_max(d, shape->head_dim);
    }
    s->stored_rows = round_up(limits->positions, TILE_ROWS);
    size_t scores;
    if (size_mul(s->threads * s->score_rows, s->stored_rows, &scores)) {
        s->scores = mem_alloc(scores, sizeof(float));
        s->dequantized = mem_alloc(s->threads * DEQUANTIZE_TILE, d * sizeof(float));
        s->bias = mem_alloc(s->threads * s->stored_rows, sizeof *s->bias);
    }
    if (!s->scores || !s->dequantized || !s->bias)
        return err_no_memory(err, "attention over %zu positions, %zu bytes", limits->positions,
                             s->threads * s->score_rows * s->stored_rows * sizeof(float));
    return 0;
}

static int open_blas(struct attn *attn, const struct attn_limits *limits, struct err *err)
{
    return open_state(attn, &eager_blas, limits, err);
}

static int open_onednn(struct attn *attn, const struct attn_limits *limits, struct err *err)
{
    return open_state(attn, &eager_onednn, limits, err);
}

/* Returns n rows of K (KV_K) or V of one head as f32, *stride floats apart, from row `row` of a span on
 * (negative: padding before it): in place if the library can read them there, else dequantised or gathered
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

static struct operand shape_operand(const struct eager_state *s, const struct eager_task *task)
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
    for (size_t at = begin; shape->slopes && at < mask->end && at < end; at++) {
        const size_t entry = query_mask_entry(mask, at) - first;
        if (entry < n)
            scores[entry] -= shape->slopes[head] * fabsf((float)at - (float)mask->position);
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

/* Applies softmax in place to the m rows of scores of the part's matrix number `matrix`, of its sequence and KV
 * head with these numbers. */
static void softmax_rows(const struct eager_state *s, const struct attn_step *step,
                         const struct eager_part *part, size_t sequence, size_t kv_head, size_t matrix,
                         size_t m, float *scores, size_t columns)
{
    const struct attn_shape *shape = s->attn.shape;
    const struct eager_task *task = &part->what;
    const bool heads = task->to - task->from == 1; /* rows of scores are heads, not positions */
    const bool scaled = shape->softcap > 0 || shape->slopes;
    const size_t padded = part->view.padded, n = columns - padded;
    float *bias = s->bias + (size_t)threads_self() * s->stored_rows;
    for (size_t i = 0; i < m; i++) {
        const size_t row = task->from + (heads ? 0 : i);
        const size_t head = (task->kv_head + kv_head) * s->attn.gqa + (heads ? i : matrix);
        const struct query_mask mask =
            query_mask_of(step->kv, &task->query[sequence], row, &part->limits);
        float *scores_i = scores + i * columns + padded;
        memset(scores_i - padded, 0, padded * sizeof *scores_i);
        for (size_t j = 0, at = 0; j < part->view.n_spans; at += part->view.span[j++].rows) {
            const struct kv_span *span = &part->view.span[j];
            if (scaled)
                softcap_alibi(shape, &mask, head, scores_i + at, span->first, span->rows);
            if (i == 0 || !heads)
                query_mask_bias(&mask, bias + at, span->first, span->rows, MASKED);
        }
        const float scale = scaled ? 1 : shape->scale;
        if (part->sinks)
            softmax_sink(step, scores_i, n, scale, bias, part->sinks[head]);
        else
            step->kernels->softmax(scores_i, n, scale, bias);
    }
}

/* Number of padding entries before a span; only the first span has any. */
static size_t padded_of(const struct kv_view *view, size_t span) { return span ? 0 : view->padded; }

static bool is_in_place(const struct kv_view *view, size_t matrix, size_t span)
{
    return view->type[matrix] == DTYPE_F32 && !view->span[span].row;
}

/* Multiplies the product's `a` by K (KV_K), which gives the columns of c, or V, which gives sums of rows. All entries
 * of a span at once if the library can read them in place, else a tile. */
static int multiply_entries(struct eager_state *s, const struct attn_step *step,
                            const struct eager_part *part, size_t matrix, struct eager_product *product,
                            float *c, const float *a, struct err *err)
{
    const struct kv_view *view = &part->view;
    const size_t d = s->attn.shape->head_dim, kv_heads = s->attn.shape->kv_heads;
    float *tile = s->dequantized + (size_t)threads_self() * DEQUANTIZE_TILE * d;
    size_t at = 0;
    for (size_t i = 0; i < view->n_spans; i++) {
        const size_t padded = padded_of(view, i), rows = padded + view->span[i].rows;
        const bool in_place = is_in_place(view, matrix, i);
        for (size_t row = 0, n; row < rows; row += n, at += n) {
            n = size_min(in_place ? SIZE_MAX : DEQUANTIZE_TILE, rows - row);
            const float *b = rows_f32(step, view, d, &view->span[i], matrix,
                                      (ptrdiff_t)row - (ptrdiff_t)padded, n, tile, &product->b_row);
            product->b_step[1] = in_place ? view->span[i].head_stride[matrix] / sizeof(float) : n * d;
            product->b_step[0] = kv_heads * product->b_step[1];
            if (matrix == KV_K)
                product->n = n;
            else
                product->k = n;
            product->accumulate = matrix == KV_V && at > 0;
            if (s->library->multiply(product, matrix == KV_K ? c + at : c, matrix == KV_K ? a : a + at,
                                     b, err) < 0)
                return -1;
        }
    }
    return 0;
}

/* Computes a part's matrices with number `matrix` of all its sequences and KV heads. */
static int run_matrix(struct eager_state *s, const struct attn_step *step,
                      const struct eager_part *part, const struct operand *operand, size_t matrix,
                      const float *q, float *out, struct err *err)
{
    const struct eager_task *task = &part->what;
    const size_t d = s->attn.shape->head_dim, d_v = s->attn.shape->v_dim, gqa = s->attn.gqa;
    const size_t heads = task->query->rows * s->attn.shape->heads; /* of a sequence */
    float *scores = s->scores + (size_t)threads_self() * s->score_rows * s->stored_rows;
    size_t columns = part->view.padded;
    for (size_t i = 0; i < part->view.n_spans; i++)
        columns += part->view.span[i].rows;
    const size_t scores_step[2] = {task->heads * operand->m * columns, operand->m * columns};
    struct eager_product qk = {.m = operand->m,
                               .k = d,
                               .transposed = 1,
                               .batch = {task->sequences, task->heads},
                               .a_row = operand->row_stride * d,
                               .c_row = columns,
                               .a_step = {heads * d, gqa * d},
                               .c_step = {scores_step[0], scores_step[1]}};
    struct eager_product sv = {.m = operand->m,
                               .n = d_v,
                               .batch = {task->sequences, task->heads},
                               .a_row = columns,
                               .c_row = operand->row_stride * d_v,
                               .a_step = {scores_step[0], scores_step[1]},
                               .c_step = {heads * d_v, gqa * d_v}};
    const double start = step->times ? clock_ms() : 0;
    if (multiply_entries(s, step, part, KV_K, &qk, scores, q, err) < 0)
        return -1;
    const double scored = step->times ? clock_ms() : 0;
    for (size_t i = 0; i < task->sequences * task->heads; i++)
        softmax_rows(s, step, part, i / task->heads, i % task->heads, matrix, operand->m,
                     scores + i * scores_step[1], columns);
    const double normalised = step->times ? clock_ms() : 0;
    if (multiply_entries(s, step, part, KV_V, &sv, out, scores, err) < 0)
        return -1;
    if (step->times)
        add_times(step->times, scored - start, normalised - scored, clock_ms() - normalised);
    return 0;
}

static int open_view(const struct attn_step *step, const struct attn_slice *slice,
                     const struct eager_task *task, size_t sequence, size_t head, struct kv_view *view,
                     struct err *err)
{
    return kv_view(step->kv, task->query[sequence].seq, slice->layer->index, task->kv_head + head, 1,
                   view, err);
}

/* True if the entries of a sequence and KV head of a task are those of the part's first ones but for their address,
 * which is what it is in a tensor [sequence][KV head][entry]. */
static bool is_in_batch(const struct attn_step *step, const struct attn_slice *slice,
                        const struct eager_part *part, size_t sequence, size_t head, size_t kv_heads)
{
    const struct kv_view *own = &part->view;
    struct kv_view view;
    struct err err;
    if (open_view(step, slice, &part->what, sequence, head, &view, &err) < 0 ||
        view.n_spans != own->n_spans || view.padded != own->padded || view.sink != own->sink ||
        view.recent != own->recent)
        return false;
    for (size_t i = 0; i < own->n_spans; i++) {
        const struct kv_span *a = &own->span[i], *b = &view.span[i];
        const size_t heads = sequence * kv_heads + head;
        if (a->rows != b->rows || a->first != b->first || !is_in_place(&view, KV_K, i) ||
            !is_in_place(&view, KV_V, i) ||
            span_k(b) + view.offset[KV_K] !=
                span_k(a) + own->offset[KV_K] + heads * a->head_stride[KV_K] ||
            span_v(b) + view.offset[KV_V] !=
                span_v(a) + own->offset[KV_V] + heads * a->head_stride[KV_V])
            return false;
    }
    return true;
}

/* Finds the part of a task that begins with sequence `sequence` and KV head `head` of it: as many KV heads as are a batch, and
 * if these are all, as many sequences. */
static int find_part(const struct eager_state *s, const struct attn_step *step,
                     const struct attn_slice *slice, const struct eager_task *task, size_t sequence,
                     size_t head, struct eager_part *part, struct err *err)
{
    const size_t kv_heads = s->attn.shape->kv_heads;
    part->what =
        (struct eager_task){task->query + sequence, 1, task->kv_head + head, 1, task->from, task->to};
    part->sinks = slice->layer->sinks;
    if (open_view(step, slice, &part->what, 0, 0, &part->view, err) < 0)
        return -1;
    part->limits = (struct mask_limits){slice->layer->window, slice->layer->chunk, slice->layer->ahead,
                                        part->view.sink, part->view.recent};
    if (!s->library->batched || !is_in_batch(step, slice, part, 0, 0, kv_heads))
        return 0;
    struct eager_task *what = &part->what;
    while (head + what->heads < task->heads && is_in_batch(step, slice, part, 0, what->heads, kv_heads))
        what->heads++;
    while (what->heads == task->heads && sequence + what->sequences < task->sequences) {
        for (size_t h = 0; h < what->heads; h++)
            if (!is_in_batch(step, slice, part, what->sequences, h, kv_heads))
                return 0;
        what->sequences++;
    }
    return 0;
}

static int run_part(struct eager_state *s, const struct attn_step *step, const struct attn_slice *slice,
                    const struct eager_part *part, struct err *err)
{
    const struct operand operand = shape_operand(s, &part->what);
    const struct attn_shape *shape = s->attn.shape;
    const size_t at =
        (part->what.query->first + part->what.from) * shape->heads + part->what.kv_head * s->attn.gqa;
    for (size_t i = 0; i < operand.matrices; i++)
        if (run_matrix(s, step, part, &operand, i, slice->q + (at + i * operand.step) * shape->head_dim,
                       slice->out + (at + i * operand.step) * shape->v_dim, err) < 0)
            return -1;
    return 0;
}

static int run_task(struct eager_state *s, const struct attn_step *step, const struct attn_slice *slice,
                    const struct eager_task *task, struct err *err)
{
    struct eager_part part;
    for (size_t i = 0, n = 1; i < task->sequences; i += n)
        for (size_t head = 0; head < task->heads; head += part.what.heads) {
            if (find_part(s, step, slice, task, i, head, &part, err) < 0 ||
                run_part(s, step, slice, &part, err) < 0)
                return -1;
            n = part.what.sequences;
        }
    return 0;
}

/* The sequences and KV heads of the task with query `first` and the slice's first KV head; other tasks of these
 * sequences have as many KV heads. In a batch, sequences of one row in a row, divided evenly among the threads: all of their
 * tasks have the same products, which are over whole tensors if they are divided by sequences. */
static void task_size(const struct eager_state *s, const struct attn_step *step,
                      const struct attn_slice *slice, size_t first, size_t *sequences, size_t *heads)
{
    const struct attn_query *query = &step->query[first];
    const bool whole = step->n_queries % s->threads == 0, divided = slice->heads % s->threads == 0;
    const size_t most = whole ? step->n_queries / s->threads : step->n_queries;
    *sequences = *heads = 1;
    if (!s->library->batched || query->rows != 1)
        return;
    *heads = whole ? slice->heads : divided ? slice->heads / s->threads : 1;
    while (*sequences < most && first + *sequences < step->n_queries && query[*sequences].rows == 1 &&
           query[*sequences].first == query->first + *sequences)
        ++*sequences;
}

/* Returns task `index` of a slice, and sets *tasks to the number of all: tasks are ordered by sequences, tile of
 * query rows, KV heads. */
static struct eager_task find_task(const struct eager_state *s, const struct attn_step *step,
                                   const struct attn_slice *slice, size_t index, size_t *tasks)
{
    struct eager_task task = {0};
    *tasks = 0;
    for (size_t i = 0, sequences, heads; i < step->n_queries; i += sequences) {
        const struct attn_query *query = &step->query[i];
        task_size(s, step, slice, i, &sequences, &heads);
        const size_t per_tile = slice->heads / heads, own = div_up(query->rows, QUERY_TILE) * per_tile;
        if (index >= *tasks && index - *tasks < own) {
            const size_t at = index - *tasks, from = at / per_tile * QUERY_TILE;
            task = (struct eager_task){.query = query,
                                       .sequences = sequences,
                                       .kv_head = slice->head + at % per_tile * heads,
                                       .heads = heads,
                                       .from = from,
                                       .to = size_min(from + QUERY_TILE, query->rows)};
        }
        *tasks += own;
    }
    return task;
}

struct eager_job {
    struct eager_state *s;
    const struct attn_step *step;
    const struct attn_slice *slice;
    struct err *err; /* filled by the first task that fails */
    atomic_bool failed;
};

static void each_task(void *arg, size_t index)
{
    struct eager_job *job = arg;
    size_t tasks;
    const struct eager_task task = find_task(job->s, job->step, job->slice, index, &tasks);
    struct err why;
    if (run_task(job->s, job->step, job->slice, &task, &why) < 0 &&
        !atomic_exchange(&job->failed, true))
        *job->err = why;
}

static int eager_attend(struct attn *attn, const struct attn_step *step, const struct attn_slice *slice,
                        struct err *err)
{
    struct eager_state *s = (struct eager_state *)attn;
    size_t tasks, work = 0;
    for (size_t i = 0; i < step->n_queries; i++)
        work += step->query[i].rows * kv_attended_rows(step->kv, step->query[i].seq) * attn->gqa *
                slice->heads * (attn->shape->head_dim + attn->shape->v_dim);
    find_task(s, step, slice, SIZE_MAX, &tasks);
    struct eager_job job = {s, step, slice, err, false};
    parallel_for(tasks, work, each_task, &job);
    return job.failed ? -1 : 0;
}

const struct attn_backend attn_blas = {
    .name = "blas",
    .summary = "eager: scores, softmax under a bias mask, context, through OpenBLAS",
    .foreign_sums = "--attn blas",
    .state_size = sizeof(struct eager_state),
    .open = open_blas,
    .run = eager_attend,
    .close = close_state,
};

const struct attn_backend attn_onednn = {
    .name = "onednn",
    .summary = "the same through oneDNN, in batches over sequences and heads",
    .foreign_sums = "--attn onednn",
    .state_size = sizeof(struct eager_state),
    .open = open_onednn,
    .run = eager_attend,
    .close = close_state,
    .counts = onednn_counts,
};
