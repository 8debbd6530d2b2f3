/* Fused attention: one pass over K and V with a running maximum and sum, no matrix of scores.
 *
 * A sequence's positions are cut into pieces of PIECE, counted from position 0; each piece is summed by
 * itself (kernel.h, attend), and the pieces are joined in order. Threads share (sequence, KV head, block
 * of query rows); where those are too few for the team, also the pieces. Either way the same sums are
 * made in the same order, so the result depends on nothing but a query and the rows that it sees. Rows that the cache has
 * dropped are seen by nobody: a piece of them adds nothing.
 *
 * Sequences that share rows and have one query row each are a bundle: the shared rows are read once for all
 * of them, then those that some of them share, then each sequence's own. That cuts runs at multiples of ATTEND_BLOCK, which
 * changes no sum.
 *
 * A query of a tree sees rows that do not lie together: row tables bring them into the order of their
 * logical positions, as in plain decoding. Nothing is copied. */
#include "attn/attn.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "attn/attn_bundle.h"
#include "attn/attn_few.h"
#include "attn/attn_rows.h"
#include "attn/attn_states.h"
#include "base/mem.h"
#include "base/threads.h"

enum {
    PIECE = RUN_TILES * ATTEND_TILE, /* 256 positions; a multiple of ATTEND_BLOCK */
    TASK_QUERIES = 64 /* queries (rows x heads of a group) of a task, if a row has fewer */
};

/* A thread's own. */
struct scratch {
    float *q;
    size_t *seen, *first; /* [queries]: the end and the beginning of what each sees of a run */
    float *slope, *own;   /* [queries], where the shape has slopes */
    struct states piece, all;
    float *space;
    float *wide; /* [2][PIECE][d]: rows of K and V dequantised, only where the shape says so */
    struct few_queries q_int8;
    struct tiles tiles;
    size_t lies[PIECE];       /* of a tree's query: where the rows of a run lie in the view */
    struct row_tables tables; /* of those */
};

struct fused {
    struct attn attn;
    size_t group, d;           /* as in attn, at hand */
    size_t task_rows, queries; /* query rows of a task, and queries */
    size_t threads;
    struct scratch *scratch; /* [threads] */
    float *buffer;           /* all of the scratch's arrays */
    struct states *part;     /* [2 * threads][pieces], for steps of few tasks */
    float *part_buffer;
    size_t pieces;
    struct bundles bundles; /* of the step */
};

/* Query rows [from, from + rows) of a sequence, or the row of every query of a bundle; one KV head. */
struct task {
    const struct bundle *bundle;
    const struct attn_query *query; /* the first */
    size_t kv_head, from, rows;
};

struct job {
    struct fused *f;
    const struct attn_step *step;
    const struct attn_part *part;
    size_t pieces;    /* of the longest sequence */
    atomic_flag told; /* one error is */
    bool failed;
    struct err err;
};

/* What a thread has at hand: a task, the rows that it goes over, its buffers and its sums. */
struct work {
    struct job *job;
    const struct task *task;
    const struct kv_view *view;
    struct scratch *s;
    const struct states *state;
};

static void close_state(struct attn *attn)
{
    struct fused *f = (struct fused *)attn;
    for (size_t t = 0; f->scratch && t < f->threads; t++) {
        free(f->scratch[t].seen);
        free(f->scratch[t].slope);
        free(f->scratch[t].wide);
        few_queries_close(&f->scratch[t].q_int8);
    }
    free(f->scratch);
    free(f->buffer);
    free(f->part);
    free(f->part_buffer);
    bundles_close(&f->bundles);
}

/* Floats of a row of q and of out. */
static size_t row_width(const struct fused *f) { return f->attn.shape.heads * f->d; }

/* Floats that kernels need, in whole cache lines; and of a scratch. */
static size_t space_floats(const struct fused *f)
{
    return round_up(size_max(attend_space(f->queries, f->d), attend_few_space(f->queries, f->d)), 16);
}

static size_t scratch_floats(const struct fused *f)
{
    return round_up(2 * states_floats(f->queries, f->d) + f->queries * f->d, 16) + space_floats(f);
}

static bool open_scratch(struct fused *f)
{
    f->buffer = mem_alloc(f->threads, scratch_floats(f) * sizeof(float));
    f->scratch = mem_zalloc(f->threads, sizeof *f->scratch);
    bool ok = f->buffer && f->scratch;
    for (size_t t = 0; ok && t < f->threads; t++) {
        struct scratch *s = &f->scratch[t];
        float *at = f->buffer + t * scratch_floats(f);
        s->space = at;
        at += space_floats(f);
        s->piece = states_at(f->queries, at);
        s->all = states_at(f->queries, at + states_floats(f->queries, f->d));
        s->q = at + 2 * states_floats(f->queries, f->d);
        s->seen = mem_alloc(f->queries, 2 * sizeof *s->seen);
        s->slope = mem_alloc(f->queries, 2 * sizeof *s->slope);
        s->wide = f->attn.shape.widen ? mem_alloc(2 * PIECE * f->d, sizeof *s->wide) : NULL;
        ok = s->seen && s->slope && (s->wide || !f->attn.shape.widen) &&
             few_queries_open(&s->q_int8, f->queries, f->d);
        s->first = ok ? s->seen + f->queries : NULL;
        s->own = ok ? s->slope + f->queries : NULL;
    }
    return ok;
}

static int open_state(struct attn *attn, const struct attn_limits *limits, struct err *err)
{
    struct fused *f = (struct fused *)attn;
    f->group = attn->group;
    f->d = attn->shape.head_dim;
    f->task_rows = size_max(1, TASK_QUERIES / f->group);
    f->queries = f->task_rows * f->group;
    f->threads = (size_t)threads_most();
    f->pieces = div_up(limits->positions, PIECE) + 1; /* rows may begin within one */
    size_t floats = 0;
    const size_t parts = 2 * f->threads * f->pieces;
    if (size_mul(parts, states_floats(f->queries, f->d), &floats)) {
        f->part = mem_alloc(parts, sizeof *f->part);
        f->part_buffer = mem_alloc(floats, sizeof(float));
    }
    if (!f->part || !f->part_buffer || !bundles_open(&f->bundles, limits->queries) || !open_scratch(f))
        return err_set(err, "out of memory: attention over %zu rows needs %zu bytes", limits->positions,
                       (floats + f->threads * scratch_floats(f)) * sizeof(float));
    for (size_t i = 0; i < parts; i++)
        f->part[i] = states_at(f->queries, f->part_buffer + i * states_floats(f->queries, f->d));
    return 0;
}

static int begin(struct attn *attn, const struct attn_step *step, struct err *err)
{
    struct fused *f = (struct fused *)attn;
    (void)err;
    bundles_make(&f->bundles, step, f->task_rows);
    return 0;
}

static size_t count_tasks(const struct fused *f, const struct attn_part *part,
                          const struct bundle *bundle)
{
    return div_up(bundle->query[0]->rows, f->task_rows) * part->heads;
}

static struct task find_task(const struct job *job, size_t index)
{
    const struct fused *f = job->f;
    const struct attn_part *part = job->part;
    const struct bundle *bundle = f->bundles.bundle;
    for (; index >= count_tasks(f, part, bundle); bundle++)
        index -= count_tasks(f, part, bundle);
    const struct attn_query *query = bundle->query[0];
    const size_t from = index / part->heads * f->task_rows;
    const size_t rows = bundle->n > 1 ? bundle->n : size_min(f->task_rows, query->rows - from);
    return (struct task){bundle, query, part->head + index % part->heads, from, rows};
}

/* Where row i of a task is among the step's rows, and its position. */
static size_t row_of(const struct task *task, size_t i)
{
    return task->bundle->n > 1 ? task->bundle->query[i]->first : task->query->first + task->from + i;
}

static size_t position_of(const struct kv *kv, const struct task *task, size_t i)
{
    return task->bundle->n > 1 ? kv_position(kv, task->bundle->query[i]->seq)
                               : kv_position(kv, task->query->seq) + task->from + i;
}

/* Rows of the view are multiplied as they lie, by queries in int8. */
static bool in_int8(const struct fused *f, const struct kv_view *view)
{
    return dtype_few_bits(view->type) && !f->attn.shape.widen;
}

/* The task's queries in int8, with one scale each: that of the scores is in it. */
static void round_queries(const struct job *job, const struct task *task, const struct scratch *s)
{
    const struct fused *f = job->f;
    for (size_t i = 0; i < task->rows * f->group; i++) {
        const size_t head = task->kv_head * f->group + i % f->group;
        const float *q = job->part->q + row_of(task, i / f->group) * row_width(f) + head * f->d;
        few_queries_set(&s->q_int8, i, q, f->attn.shape.scale, job->step->kernels);
    }
}

/* The task's queries, scaled, as columns: q[d][queries], of which the task may have fewer. */
static void load_queries(const struct job *job, const struct task *task, const struct kv_view *view,
                         struct scratch *s)
{
    const struct fused *f = job->f;
    const size_t width = row_width(f), n = f->group * f->d;
    const float scale = f->attn.shape.scale;
    float *q = s->q;
    if (in_int8(f, view)) {
        round_queries(job, task, s);
        return;
    }
    for (size_t i = 0; i < task->rows; i++) {
        const float *from = job->part->q + row_of(task, i) * width + task->kv_head * n;
        for (size_t g = 0; g < f->group; g++)
            for (size_t j = 0; j < f->d; j++)
                q[j * f->queries + i * f->group + g] = from[g * f->d + j] * scale;
    }
}

static void store_context(const struct job *job, const struct task *task, const struct states *state)
{
    const struct fused *f = job->f;
    const size_t width = row_width(f), n = f->group * f->d;
    for (size_t i = 0; i < task->rows * f->group; i++) {
        float *to = job->part->out + row_of(task, i / f->group) * width + task->kv_head * n;
        states_result(f->d, state, i, to + i % f->group * f->d);
    }
}

/* The first position that a query at `own` sees, but for the first rows of a sparse head. */
static size_t sight_start(const struct work *w, size_t own)
{
    const size_t window = w->job->part->layer->window;
    const size_t first = kv_recent_start(own, w->view->recent);
    return size_max(kv_recent_start(own, window), first <= w->view->sink ? 0 : first);
}

/* Row `row` of the queries stands at position `own` and sees the positions before `end`, as far back as the
 * layer's window and a sparse head's recent rows: told to the kernel for a run that begins at position `run`. */
static void tell_sight(const struct work *w, size_t row, size_t own, size_t end, size_t run)
{
    const struct fused *f = w->job->f;
    struct scratch *s = w->s;
    const size_t first = sight_start(w, own);
    for (size_t i = row * f->group, g = 0; g < f->group; i++, g++) {
        s->seen[i] = end > run ? end - run : 0;
        s->first[i] = first > run ? first - run : 0;
        s->own[i] = (float)own - (float)run;
        if (f->attn.shape.slopes)
            s->slope[i] = f->attn.shape.slopes[w->task->kv_head * f->group + g];
    }
}

/* Rows [row, row + rows) of the task over the scratch's tiles. */
static void attend_rows(const struct work *w, size_t tiles, size_t must, size_t row, size_t rows)
{
    const struct fused *f = w->job->f;
    struct scratch *s = w->s;
    struct tiles *at = &s->tiles;
    const struct states *state = w->state;
    const bool sloped = f->attn.shape.slopes != NULL, int8 = in_int8(f, w->view);
    const bool widen = f->attn.shape.widen && dtype_few_bits(w->view->type);
    const enum dtype type = widen ? DTYPE_F32 : w->view->type;
    const size_t first = row * f->group;
    const struct kernels *kernels = w->job->step->kernels;
    const struct int8_rows q_int8 = few_queries_from(&s->q_int8, first);
    if (widen) {
        few_widen_tiles(s->wide, at->k, at->k_rows, tiles, w->view->type, f->d);
        few_widen_tiles(s->wide + PIECE * f->d, at->v, at->v_rows, tiles, w->view->type, f->d);
    }
    (int8 ? kernels->attend_few : kernels->attend)(&(struct attend){
        .d = f->d,
        .type = type,
        .row_stride = dtype_row_bytes(type, f->d),
        .tiles = tiles,
        .k = at->k,
        .v = at->v,
        .k_rows = at->k_rows,
        .v_rows = at->v_rows,
        .must = must,
        .queries = rows * f->group,
        .q = s->q + first,
        .q_stride = f->queries,
        .q_int8 = &q_int8,
        .seen = s->seen + first,
        .from = w->job->part->layer->window || w->view->recent ? s->first + first : NULL,
        .softcap = f->attn.shape.softcap,
        .slope = sloped ? s->slope + first : NULL,
        .own = sloped ? s->own + first : NULL,
        .max = state->max + first,
        .sum = state->sum + first * LANES,
        .context = state->context + first * f->d,
        .space = s->space,
    });
}

/* Positions [from, to) of the view's sequence, which rows [row, row + rows) of the task continue: each sees those
 * up to its own. */
static void attend_chain(const struct work *w, size_t row, size_t rows, size_t from, size_t to)
{
    const struct kv *kv = w->job->step->kv;
    const size_t end = kv_position(kv, w->view->seq) + kv_fill(kv, w->view->seq).pending;
    for (size_t i = row; i < row + rows; i++) {
        const size_t own = position_of(kv, w->task, i);
        tell_sight(w, i, own, own + 1, from);
    }
    const size_t tiles = view_tiles(w->view, from, to, &w->s->tiles);
    const size_t must = end > from ? div_up(end - from, ATTEND_BLOCK) : 0;
    attend_rows(w, tiles, must, row, rows);
}

/* How many of the tree's rows stand before one: its position after the committed rows. */
static size_t tree_depth(const struct attn_query *query, size_t row)
{
    return query->tail_at[row + 1] - query->tail_at[row] - 1;
}

/* Positions [from, to) of one row of a tree, of which `n` are committed rows and the rest its tail: in the order of a chain. */
static size_t tail_tiles(const struct work *w, size_t row, size_t n, size_t from, size_t to)
{
    const struct attn_query *query = w->task->query;
    struct scratch *s = w->s;
    for (size_t at = from; at < to; at++)
        s->lies[at - from] = at < n ? at : n + query->tail[query->tail_at[row] + at - n];
    return view_scattered(w->view, s->lies, to - from, &s->tiles, &s->tables);
}

/* Positions [from, to) for rows of a tree: what all rows see together, each row's own end, and then the
 * padding that the policy wants multiplied. */
static void attend_tree(const struct work *w, size_t from, size_t to)
{
    const struct task *task = w->task;
    const struct attn_query *query = task->query;
    const size_t n = kv_position(w->job->step->kv, query->seq);
    const size_t common = size_min(to, n / ATTEND_BLOCK * ATTEND_BLOCK);
    const size_t padding = size_max(from, round_up(n + query->rows, ATTEND_BLOCK));
    const size_t rest = size_max(from, common);
    struct scratch *s = w->s;
    for (size_t i = 0; i < task->rows && common > from; i++)
        tell_sight(w, i, n + tree_depth(query, task->from + i), common, from);
    if (common > from)
        attend_rows(w, view_tiles(w->view, from, common, &s->tiles), SIZE_MAX, 0, task->rows);
    for (size_t i = 0; i < task->rows; i++) {
        const size_t row = task->from + i, own = n + tree_depth(query, row);
        const size_t end = size_min(own + 1, from + PIECE);
        if (end <= rest)
            continue;
        const size_t tiles = tail_tiles(w, row, n, rest, end);
        tell_sight(w, i, own, end, rest);
        attend_rows(w, tiles, SIZE_MAX, i, 1);
    }
    for (size_t i = 0; i < task->rows * w->job->f->group; i++)
        s->seen[i] = 0;
    if (to > padding)
        attend_rows(w, view_tiles(w->view, padding, to, &s->tiles), 0, 0, task->rows);
}

static bool open_view(struct job *job, const struct task *task, size_t seq, struct kv_view *view)
{
    struct err err;
    if (kv_view(job->step->kv, seq, job->part->layer->index, task->kv_head, 1, view, &err) == 0)
        return true;
    if (!atomic_flag_test_and_set(&job->told)) {
        job->err = err;
        job->failed = true;
    }
    return false;
}

/* Positions [from, to) for rows [row, end) of a bundle, which begin to differ at `from` or behind it: rows that all of them share
 * are read once, then parts of them that share more go on alone. */
static void attend_part(const struct work *w, size_t row, size_t end, size_t from, size_t to)
{
    const struct bundle *bundle = w->task->bundle;
    const struct kv *kv = w->job->step->kv;
    const size_t seq = bundle->query[row]->seq;
    struct work own = *w;
    struct kv_view view;
    if (from >= to || (row && !open_view(w->job, w->task, seq, &view)))
        return;
    if (row)
        own.view = &view;
    if (end - row == 1) {
        attend_chain(&own, row, 1, from, size_max(from, size_min(to, kv_rows_end(kv, seq))));
    } else {
        const size_t shared = bundle_shared(bundle, row, end),
                     common = size_max(from, size_min(to, shared));
        for (size_t i = row; i < end && common > from; i++)
            tell_sight(&own, i, position_of(kv, w->task, i), common, from);
        if (common > from)
            attend_rows(&own, view_tiles(own.view, from, common, &w->s->tiles), SIZE_MAX, row,
                        end - row);
        for (size_t i = row, next; i < end; i = next) {
            for (next = i + 1; next < end && bundle->common[next - 1] > shared;)
                next++;
            attend_part(w, i, next, common, to);
        }
    }
}

/* Padding on the left of the first row: multiplied, and seen by nobody. */
static void attend_padding(const struct work *w)
{
    const struct kv_span *first = &w->view->span[0];
    const size_t back = w->view->padded, stride = first->row_stride;
    for (size_t i = 0; i < w->task->rows * w->job->f->group; i++)
        w->s->seen[i] = w->s->first[i] = 0;
    for (size_t at = 0, tiles; at < back; at += tiles * ATTEND_TILE) {
        struct tiles *to = &w->s->tiles;
        tiles = size_min(RUN_TILES, (back - at) / ATTEND_TILE);
        for (size_t t = 0; t < tiles; t++) {
            const size_t before = (back - at - t * ATTEND_TILE) * stride;
            to->k[t] = (const char *)first->k + w->view->offset - before;
            to->v[t] = (const char *)first->v + w->view->offset - before;
            to->k_rows[t] = to->v_rows[t] = NULL;
        }
        attend_rows(w, tiles, 0, 0, w->task->rows);
    }
}

/* Where row i of a task stands. */
static size_t own_of(const struct work *w, size_t i)
{
    const struct task *task = w->task;
    const struct kv *kv = w->job->step->kv;
    return task->query->tail
               ? kv_position(kv, task->query->seq) + tree_depth(task->query, task->from + i)
               : position_of(kv, task, i);
}

/* The first rows of a sparse head, as far as they lie in positions [from, to), for queries that do not see them with the last
 * ones: where all rows are seen the sums are those of a head that is not sparse. */
static void attend_sink(const struct work *w, size_t from, size_t to)
{
    const struct fused *f = w->job->f;
    const size_t end = size_min(to, w->view->sink), window = w->job->part->layer->window;
    for (size_t i = 0; i < w->task->rows; i++) {
        const size_t own = own_of(w, i), first = kv_recent_start(own, window);
        const bool apart = kv_recent_start(own, w->view->recent) > w->view->sink;
        tell_sight(w, i, own, from, from);
        for (size_t q = i * f->group; q < (i + 1) * f->group; q++) {
            w->s->seen[q] = apart ? end - from : 0;
            w->s->first[q] = first - size_min(first, from);
        }
    }
    attend_rows(w, view_tiles(w->view, from, end, &w->s->tiles), SIZE_MAX, 0, w->task->rows);
}

/* Between the first and the last rows of a sparse head: seen by no query of the task. */
static bool out_of_sight(const struct work *w, size_t from, size_t to)
{
    const struct task *task = w->task;
    const size_t n = kv_position(w->job->step->kv, task->query->seq);
    const size_t least = task->query->tail ? n : position_of(w->job->step->kv, task, 0);
    return w->view->recent && from >= w->view->sink && to <= sight_start(w, least);
}

/* One piece of a task; false when it is behind the last row. */
static bool run_piece(const struct work *w, size_t piece)
{
    const struct task *task = w->task;
    const struct fused *f = w->job->f;
    const size_t from = piece * PIECE;
    const size_t to = size_min(from + PIECE, bundle_end(w->job->step->kv, task->bundle));
    if (from >= to)
        return false;
    states_clear(f->d, w->state, task->rows * f->group);
    if (to <= w->view->span[0].first || out_of_sight(w, from, to))
        return true;
    if (piece == 0 && w->view->padded)
        attend_padding(w);
    if (w->view->recent && from < w->view->sink)
        attend_sink(w, from, to);
    if (task->bundle->n > 1)
        attend_part(w, 0, task->rows, from, to);
    else if (task->query->tail)
        attend_tree(w, from, to);
    else
        attend_chain(w, 0, task->rows, from, to);
    return true;
}

/* Of the rows that the task's sequence still has. */
static size_t first_piece(const struct job *job, const struct task *task)
{
    return kv_fill(job->step->kv, task->query->seq).first / PIECE;
}

/* A whole task: its pieces one after the other. */
static void run_task(void *arg, size_t index)
{
    struct job *job = arg;
    struct fused *f = job->f;
    struct scratch *s = &f->scratch[threads_self()];
    const struct task task = find_task(job, index);
    struct kv_view view;
    if (!open_view(job, &task, task.query->seq, &view))
        return;
    struct work work = {job, &task, &view, s, &s->all};
    load_queries(job, &task, &view, s);
    size_t piece = first_piece(job, &task);
    run_piece(&work, piece);
    work.state = &s->piece;
    while (run_piece(&work, ++piece))
        states_join(f->d, &s->all, &s->piece, task.rows * f->group);
    store_context(job, &task, &s->all);
}

/* One piece of a task, when tasks are few. */
static void run_part(void *arg, size_t index)
{
    struct job *job = arg;
    struct fused *f = job->f;
    struct scratch *s = &f->scratch[threads_self()];
    const struct task task = find_task(job, index / job->pieces);
    const size_t piece = first_piece(job, &task) + index % job->pieces;
    struct kv_view view;
    if (!open_view(job, &task, task.query->seq, &view))
        return;
    const struct work work = {job, &task, &view, s, &f->part[index]};
    load_queries(job, &task, &view, s);
    if (!run_piece(&work, piece))
        states_clear(f->d, &f->part[index], task.rows * f->group);
}

static void join_parts(void *arg, size_t index)
{
    struct job *job = arg;
    const struct states *part = job->f->part + index * job->pieces;
    const struct task task = find_task(job, index);
    for (size_t i = 1; i < job->pieces; i++)
        states_join(job->f->d, &part[0], &part[i], task.rows * job->f->group);
    store_context(job, &task, &part[0]);
}

static int run(struct attn *attn, const struct attn_step *step, const struct attn_part *part,
               struct err *err)
{
    struct fused *f = (struct fused *)attn;
    struct job job = {.f = f, .step = step, .part = part, .told = ATOMIC_FLAG_INIT};
    size_t tasks = 0, work = 0;
    for (size_t i = 0; i < f->bundles.n; i++) {
        const struct bundle *bundle = &f->bundles.bundle[i];
        const size_t first = kv_fill(step->kv, bundle->query[0]->seq).first;
        const size_t last = bundle_end(step->kv, bundle), rows = last - first;
        tasks += count_tasks(f, part, bundle);
        work += bundle->n * bundle->query[0]->rows * rows * 2 * part->heads * f->group * f->d;
        job.pieces = size_max(job.pieces, div_up(last, PIECE) - first / PIECE);
    }
    if (tasks >= 2 * (size_t)threads_now() || job.pieces == 1) {
        threads_each(tasks, work, run_task, &job);
    } else {
        threads_each(tasks * job.pieces, work, run_part, &job);
        threads_each(tasks, tasks * job.pieces * states_floats(f->queries, f->d), join_parts, &job);
    }
    if (job.failed)
        *err = job.err;
    return job.failed ? -1 : 0;
}

const struct attn_backend attn_fused = {
    .name = "fused",
    .summary = "one pass, running maximum and sum, our own kernels",
    .state_size = sizeof(struct fused),
    .open = open_state,
    .begin = begin,
    .run = run,
    .close = close_state,
};
