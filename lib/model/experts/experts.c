/* Runs the experts that rows have chosen.
 *
 * Rows are grouped by expert, so that a step reads each expert's weights once. A row's result depends on that row
 * alone.
 *
 * Expert parallel (shard.h): each rank runs its own experts for all rows, then the outputs of all pairs are
 * all-gathered. */
#include "model/experts/experts.h"

#include "base/mem.h"
#include "model/experts/expert_store.h"

enum { PREDICT_ROWS = 64 }; /* passes of more rows use nearly all experts */

int experts_open(struct experts *o, const struct model *model, const struct backend *backend,
                 struct backend_pass *pass, const struct op_list *list, struct shard *shard,
                 struct observer *observer, size_t max_rows, struct err *err)
{
    const struct config *c = &model->config;
    const size_t pairs = max_rows * c->moe->used;
    *o = (struct experts){.model = model,
                          .backend = backend,
                          .pass = pass,
                          .list = list,
                          .shard = shard,
                          .observer = observer};
    if (!c->moe->experts)
        return 0;
    uint32_t **const lists[] = {&o->chosen, &o->pair, &o->pair_row, &o->pair_choice, &o->choice};
    size_t **const numbers[] = {&o->used, &o->first, &o->count, &o->ready,
                                &o->at,   &o->rows,  &o->expert};
    bool all = true;
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        all &= (*lists[i] = mem_alloc(pairs, sizeof **lists[i])) != NULL;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        all &= (*numbers[i] = mem_alloc(c->moe->experts, sizeof **numbers[i])) != NULL;
    o->rank_first = mem_alloc(shard->ranks ? (size_t)shard->ranks->size + 1 : 1, sizeof *o->rank_first);
    o->data = mem_alloc(c->moe->experts, EXPERT_MATRICES * sizeof *o->data);
    o->guess = mem_alloc(c->moe->experts, sizeof *o->guess);
    o->guess_weight = mem_alloc(c->moe->experts + PREDICT_ROWS * c->moe->used, sizeof *o->guess_weight);
    if (all && o->rank_first && o->data && o->guess && o->guess_weight)
        return 0;
    experts_close(o);
    return err_no_memory(err, "a step of %zu tokens, which needs buffers for %zu expert rows", max_rows,
                         pairs);
}

void experts_close(struct experts *o)
{
    void *const buffers[] = {o->chosen, o->pair,  o->pair_row,   o->pair_choice, o->choice, o->used,
                             o->first,  o->count, o->rank_first, o->ready,       o->at,     o->rows,
                             o->expert, o->data,  o->guess,      o->guess_weight};
    for (size_t i = 0; i < ARRAY_LEN(buffers); i++)
        free(buffers[i]);
    *o = (struct experts){0};
}

/* One layer's experts in a pass. */
struct expert_run {
    struct experts *o;
    const struct op *op;
    const struct op_step *step;
    struct row_range rows;
};

/* The rows of an operand from `row` on. */
static struct op_arg rows_from(struct op_arg x, size_t row)
{
    x.column += row * x.stride;
    return x;
}

/* Reads `rows` rows of an operand whose rows follow each other without gaps. */
static void read_rows(const struct expert_run *run, struct op_arg x, size_t rows, void *to)
{
    const size_t at = (run->rows.first * x.stride + x.column) * sizeof(float);
    run->o->backend->memory->read(to, addr_add(run->step->buffer[x.buffer], at),
                                  rows * x.stride * sizeof(float));
}

/* ---- pairs ---- */

/* Sorts the choices of all rows by expert; returns the number of experts that are used. */
static size_t group_choices(struct experts *o, size_t rows)
{
    const struct config *c = &o->model->config;
    const size_t pairs = rows * c->moe->used;
    size_t n = 0, at = 0;
    memset(o->at, 0, c->moe->experts * sizeof *o->at);
    for (size_t i = 0; i < pairs; i++)
        o->at[o->chosen[i]]++;
    for (size_t e = 0; e < c->moe->experts; e++) {
        const size_t count = o->at[e];
        o->at[e] = at;
        if (!count)
            continue;
        o->used[n] = e;
        o->first[n] = at;
        o->count[n++] = count;
        at += count;
    }
    for (size_t i = 0; i < pairs; i++)
        o->choice[o->at[o->chosen[i]]++] = (uint32_t)i;
    return n;
}

/* Assigns the (row, expert) pairs of the experts used[ready[0..n)] consecutive numbers from `at` on; returns the
 * end. */
static size_t number_pairs(struct experts *o, const size_t *ready, size_t n, size_t at)
{
    const size_t per_row = o->model->config.moe->used;
    for (size_t i = 0; i < n; i++) {
        const size_t first = o->first[ready[i]];
        o->rows[i] = o->count[ready[i]];
        o->expert[i] = o->used[ready[i]];
        for (size_t k = 0; k < o->rows[i]; k++, at++) {
            o->pair[o->choice[first + k]] = (uint32_t)at;
            o->pair_choice[at] = o->choice[first + k];
            o->pair_row[at] = (uint32_t)(o->choice[first + k] / per_row);
        }
    }
    return at;
}

/* ---- products ---- */

/* The matrices of the groups, if they are not in the mapped file; else NULL. */
static const struct device_addr *stored_matrices(struct experts *o, size_t n, enum expert_matrix matrix)
{
    struct device_addr *data = o->data + matrix * o->model->config.moe->experts;
    for (size_t i = 0; o->model->store && i < n; i++)
        data[i] = expert_store_data(o->model->store, o->expert[i], matrix);
    return o->model->store ? data : NULL;
}

/* Tells an observer the inputs of groups: rows of `in`, or of `weighed` once they have run. */
static int observe_groups(const struct expert_run *run, const struct op_groups *g, struct err *err)
{
    const bool weighed = g->choice;
    const struct op_arg in = weighed ? g->weighed : g->in;
    const uint32_t *in_row = weighed ? NULL : g->in_row;
    struct observer *observer = run->o->observer;
    if (!observer->observe)
        return 0;
    const float *x = observer_read(observer, run->step, in, g->product.w.matrix.in,
                                   (struct row_range){0, g->in_rows}, err);
    for (size_t i = 0, row = 0; x && i < g->n; i++)
        for (size_t k = 0; k < g->rows[i]; k++, row++)
            observer_tell(observer, &g->product, g->expert[i],
                          x + (in_row ? in_row[row] : row) * in.stride, in.stride, 1);
    return x ? 0 : -1;
}

static int run_groups(const struct expert_run *run, const struct op_groups *groups, struct err *err)
{
    run->o->backend->run_groups(run->o->pass, groups, run->step);
    return observe_groups(run, groups, err);
}

/* Runs the experts used[ready[0..n)] for all rows that chose them; their pairs are numbered from *at on, which
 * becomes the end. */
static int run_experts(const struct expert_run *run, const size_t *ready, size_t n, size_t *at,
                       struct err *err)
{
    struct experts *o = run->o;
    const struct op_experts *e = &run->op->experts;
    const size_t first = *at, end = number_pairs(o, ready, n, first), pairs = end - first;
    const struct op_arg up_all = rows_from(e->up_all, first);
    struct op_groups groups = {.n = n,
                               .expert = o->expert,
                               .rows = o->rows,
                               .data = stored_matrices(o, n, EXPERT_UP),
                               .gate_data = stored_matrices(o, n, EXPERT_GATE),
                               .product = *e->up,
                               .outputs = e->up_all.stride,
                               .in = rows_from(run->op->in, run->rows.first),
                               .in_row = o->pair_row + first,
                               .in_rows = e->weigh_inputs ? pairs : run->rows.n,
                               .choice = e->weigh_inputs ? o->pair_choice + first : NULL,
                               .weight = rows_from(e->weight, run->rows.first),
                               .weighed = rows_from(e->weighed, first)};
    *at = end;
    groups.product.y = rows_from(e->up->y, first);
    if (run_groups(run, &groups, err) < 0)
        return -1;
    if (!o->shard->expert_parallel) {
        const struct row_range all = {0, pairs};
        if (shard_gather_start(o->shard, &o->model->config, DIM_EXPERT_FFN, groups.product.y, up_all,
                               all, err) < 0 ||
            shard_gather_finish(o->shard, all, err) < 0)
            return -1;
    }
    groups = (struct op_groups){.n = n,
                                .expert = o->expert,
                                .rows = o->rows,
                                .data = stored_matrices(o, n, EXPERT_DOWN),
                                .product = *e->down,
                                .outputs = run->op->out.stride,
                                .in = up_all,
                                .in_rows = pairs};
    groups.product.y = rows_from(e->down->y, first);
    return run_groups(run, &groups, err);
}

/* Runs all n experts that are used or, if they are distributed, those of this rank, and gathers the outputs. */
static int run_loaded(const struct expert_run *run, size_t n, struct err *err)
{
    struct experts *o = run->o;
    const struct config *c = &o->model->config;
    const size_t pairs = run->rows.n * c->moe->used;
    size_t at = 0, begin = 0;
    for (size_t i = 0; i < n; i++)
        o->ready[i] = i;
    if (!o->shard->expert_parallel)
        return run_experts(run, o->ready, n, &at, err);
    const size_t size = (size_t)o->shard->ranks->size, rank = (size_t)o->shard->ranks->rank;
    number_pairs(o, o->ready, n, 0); /* of all: the pairs of each rank are neighbours */
    size_t own = 0, own_end = 0;
    for (size_t r = 0; r < size; r++) {
        const struct shard_range range = shard_experts(c, r, size);
        size_t end = begin;
        while (end < n && o->used[end] < range.first + range.n)
            end++;
        o->rank_first[r] = begin < n ? o->first[begin] : pairs;
        if (r == rank) {
            own = begin;
            own_end = end;
        }
        begin = end;
    }
    o->rank_first[size] = pairs;
    at = o->rank_first[rank];
    if (own < own_end && run_experts(run, o->ready + own, own_end - own, &at, err) < 0)
        return -1;
    return shard_gather_rows(o->shard, run->op->out, o->rank_first, err);
}

/* ---- experts that are read from the file ---- */

/* Sets guess[] to the experts whose weights[experts], of all rows, are not 0, in descending order. */
static size_t sort_guesses(struct experts *o, const float *weight)
{
    size_t n = 0;
    for (uint32_t e = 0; e < o->model->config.moe->experts; e++) {
        if (weight[e] == 0)
            continue;
        size_t at = n++;
        for (; at > 0 && weight[o->guess[at - 1]] < weight[e]; at--)
            o->guess[at] = o->guess[at - 1];
        o->guess[at] = e;
    }
    return n;
}

/* Adds up the weights of the experts that rows would choose in a later layer. */
static int sum_choices(const struct expert_run *run, struct op_range predict, float *weight,
                       struct err *err)
{
    struct experts *o = run->o;
    const struct op *op = o->list->op + predict.first, *route = op + predict.n - 1;
    const size_t n = run->rows.n * o->model->config.moe->used;
    float *of_choice = weight + o->model->config.moe->experts;
    for (; op <= route; op++)
        if (o->backend->run(o->pass, op, run->step, run->rows, err) < 0)
            return -1;
    read_rows(run, route->route.chosen, run->rows.n, o->pair);
    read_rows(run, route->route.weight, run->rows.n, of_choice);
    for (size_t i = 0; i < n; i++)
        weight[o->pair[i]] += of_choice[i];
    return 0;
}

/* Predicts the experts of the next layer by applying its router to the residual stream before the
 * experts of this layer; of many rows all experts are predicted. */
static int predict(const struct expert_run *run, struct err *err)
{
    struct experts *o = run->o;
    const size_t layer = expert_store_predicts(o->model->store),
                 experts = o->model->config.moe->experts;
    const bool all = run->rows.n > PREDICT_ROWS;
    if (!layer)
        return 0;
    for (size_t e = 0; e < experts; e++)
        o->guess_weight[e] = all ? 1 : 0;
    if (!all && sum_choices(run, o->list->predict[layer], o->guess_weight, err) < 0)
        return -1;
    expert_store_predict(o->model->store, layer, o->guess, sort_guesses(o, o->guess_weight));
    return 0;
}

/* Runs the experts of a layer as they arrive in memory. */
static int run_stored(const struct expert_run *run, size_t n, struct err *err)
{
    struct experts *o = run->o;
    struct expert_store *store = o->model->store;
    expert_store_begin(store, run->op->layer, o->used, o->count, n, run->rows.n);
    if (predict(run, err) < 0)
        return -1;
    for (size_t at = 0, some;;) {
        if (expert_store_next(store, o->ready, &some, err) < 0)
            return -1;
        if (!some)
            return 0;
        if (run_experts(run, o->ready, some, &at, err) < 0)
            return -1;
    }
}

int experts_run(struct experts *o, const struct op *op, const struct op_step *step,
                struct row_range rows, struct err *err)
{
    const struct expert_run run = {o, op, step, rows};
    read_rows(&run, op->experts.chosen, rows.n, o->chosen);
    const size_t n = group_choices(o, rows.n);
    o->runs += n;
    return o->model->store ? run_stored(&run, n, err) : run_loaded(&run, n, err);
}
