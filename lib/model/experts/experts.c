/* Layers whose MLP is a mixture of experts:
 *
 *   logits = x Wrouter + bias                                in f32, whatever the precision
 *   chosen, weight = router_choose(logits)
 *   up = act(x Wgate[e]) * (x Wup[e])                        for each chosen expert e
 *   y = sum of weight[e] * (up Wdown[e]) + shared MLP(x)
 *
 * or, with router_input, up of weight[e] * x and the sum without weights.
 *
 * Expert parallel (shard.h): each rank runs its own experts for all rows, then the outputs of all pairs are
 * all-gathered.
 *
 * Rows are grouped by expert, so that a step reads each expert's weights once. The sum over the
 * experts of a row goes in ascending order of their numbers, then comes the shared MLP: a row's result
 * depends on that row alone. */
#include "model/experts/experts.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/threads.h"
#include "model/experts/expert_store.h"
#include "model/experts/router.h"
#include "quant/pack.h"

enum { PREDICT_ROWS = 64 }; /* passes of more rows use nearly all experts */

static int out_of_memory(size_t rows, size_t pairs, struct err *err)
{
    return err_no_memory(err, "a step of %zu tokens, which needs buffers for %zu expert rows", rows,
                         pairs);
}

int experts_open(struct experts *o, const struct model *model, const struct kernels *kernels,
                 enum precision precision, struct gemm *plain, enum epilogue_act act, size_t max_rows,
                 struct shard *shard, struct err *err)
{
    const struct config *c = &model->config;
    *o = (struct experts){
        .model = model, .kernels = kernels, .plain = plain, .shard = shard, .act = act};
    if (!c->moe->experts)
        return 0;
    const size_t pairs = max_rows * c->moe->used, threads = (size_t)threads_max();
    const struct {
        void **buffer;
        size_t n, bytes;
    } table[] = {
        {(void **)&o->logits, max_rows, c->moe->experts * sizeof *o->logits},
        {(void **)&o->scratch, threads, 2 * c->moe->experts * sizeof *o->scratch},
        {(void **)&o->chosen, pairs, sizeof *o->chosen},
        {(void **)&o->weight, pairs, sizeof *o->weight},
        {(void **)&o->pair, pairs, sizeof *o->pair},
        {(void **)&o->pair_row, pairs, sizeof *o->pair_row},
        {(void **)&o->routed, c->moe->beside ? max_rows : 1, c->hidden * sizeof *o->routed},
        {(void **)&o->next, size_min(max_rows, PREDICT_ROWS), c->hidden * sizeof *o->next},
        {(void **)&o->guess, c->moe->experts, sizeof *o->guess},
        {(void **)&o->guess_weight, 2 * c->moe->experts, sizeof *o->guess_weight},
        {(void **)&o->choice, pairs, sizeof *o->choice},
        {(void **)&o->used, c->moe->experts, sizeof *o->used},
        {(void **)&o->rank_first, shard->ranks ? (size_t)shard->ranks->size + 1 : 1,
         sizeof *o->rank_first},
        {(void **)&o->first, c->moe->experts, sizeof *o->first},
        {(void **)&o->count, c->moe->experts, sizeof *o->count},
        {(void **)&o->ready, c->moe->experts, sizeof *o->ready},
        {(void **)&o->rows, c->moe->experts, sizeof *o->rows},
        {(void **)&o->at, c->moe->experts, sizeof *o->at},
        {(void **)&o->product, c->moe->experts, sizeof *o->product},
        {(void **)&o->mat, c->moe->experts, 2 * sizeof *o->mat},
        {(void **)&o->in, c->moe->weigh_input ? pairs : 1, c->hidden * sizeof *o->in},
        {(void **)&o->up, pairs, c->moe->ffn * sizeof *o->up},
        {(void **)&o->out, pairs, c->hidden * sizeof *o->out},
        {(void **)&o->shared_up, max_rows, size_max(c->moe->shared_ffn, 1) * sizeof *o->shared_up},
        {(void **)&o->shared, max_rows, (c->moe->shared_ffn ? c->hidden : 1) * sizeof *o->shared},
    };
    bool all = true;
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        all &= (*table[i].buffer = mem_alloc(table[i].n, table[i].bytes)) != NULL;
    if (!all) {
        experts_close(o);
        return out_of_memory(max_rows, pairs, err);
    }
    const size_t widest = size_max(c->hidden, c->moe->ffn);
    if (gemm_open_groups(&o->gemm, kernels, precision, pairs, widest, c->moe->experts, err) == 0)
        return 0;
    experts_close(o);
    return -1;
}

void experts_close(struct experts *o)
{
    void *const buffers[] = {o->logits,   o->scratch, o->chosen,       o->weight,  o->pair,
                             o->pair_row, o->choice,  o->used,         o->first,   o->count,
                             o->ready,    o->rows,    o->at,           o->product, o->mat,
                             o->up,       o->out,     o->shared_up,    o->shared,  o->routed,
                             o->next,     o->guess,   o->guess_weight, o->in,      o->rank_first};
    for (size_t i = 0; i < ARRAY_LEN(buffers); i++)
        free(buffers[i]);
    gemm_close(o->gemm);
    *o = (struct experts){0};
}

/* ---- routing ---- */

struct route_job {
    const struct experts *o;
    const struct layer *w;
};

static void route_row(void *arg, size_t row)
{
    const struct route_job *job = arg;
    const struct experts *o = job->o;
    const struct config *c = &o->model->config;
    router_choose(c, o->logits + row * c->moe->experts, job->w->select_bias, job->w->router_gain,
                  o->scratch + (size_t)threads_self() * 2 * c->moe->experts,
                  o->chosen + row * c->moe->used, o->weight + row * c->moe->used);
}

/* to = the input of a layer's router, from the residual stream x: of its own norm, or that of the MLP. In
 * predictions: if the layer's attention added nothing. */
static void router_input(struct experts *o, const struct layer *w, float *to, const float *x,
                         size_t rows)
{
    const struct config *c = &o->model->config;
    const struct norm_weights *norm = c->moe->beside ? &w->router_norm : &w->mlp_norm;
    const size_t n = c->hidden;
    const bool normed = c->norm_place == NORM_BEFORE || c->norm_place == NORM_AROUND;
    const float scale = 1 / sqrtf((float)n);
    for (size_t i = 0; i < rows; i++)
        if (!normed)
            memcpy(to + i * n, x + i * n, n * sizeof *x);
        else if (c->norm == NORM_RMS)
            o->kernels->rmsnorm(to + i * n, x + i * n, n, norm->gain, (float)c->norm_eps);
        else
            o->kernels->layernorm(to + i * n, x + i * n, n, norm->gain, norm->bias, (float)c->norm_eps);
    for (size_t i = 0; c->moe->beside && i < rows * n; i++)
        to[i] *= scale;
}

/* logits = x Wrouter + bias */
static void run_router(struct experts *o, const struct layer *w, const float *x, size_t rows)
{
    const struct config *c = &o->model->config;
    const struct product logits = {.w = &w->router.weight,
                                   .bias = w->router.bias,
                                   .y = o->logits,
                                   .y_stride = c->moe->experts,
                                   .f32 = true};
    gemm_run(o->plain, &logits, 1, x, c->hidden, rows);
}

static void route(struct experts *o, const struct layer *w, const float *x, size_t rows)
{
    const struct config *c = &o->model->config;
    run_router(o, w, x, rows);
    struct route_job job = {o, w};
    parallel_for(rows, 16 * rows * c->moe->experts * c->moe->used, route_row, &job);
}

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

/* Numbers the pairs of the experts used[ready[0..n)], from `at` on; returns the number behind the last. */
static size_t number_pairs(struct experts *o, const size_t *ready, size_t n, size_t at)
{
    const size_t per_row = o->model->config.moe->used;
    for (size_t i = 0; i < n; i++) {
        const size_t first = o->first[ready[i]];
        o->rows[i] = o->count[ready[i]];
        for (size_t k = 0; k < o->rows[i]; k++, at++) {
            o->pair[o->choice[first + k]] = (uint32_t)at;
            o->pair_row[at] = (uint32_t)(o->choice[first + k] / per_row);
        }
    }
    return at;
}

/* ---- products ---- */

/* The columns that this rank computes of an expert's activations, or of the sum of experts. */
static struct shard_range own_range(const struct experts *o, enum dim dim)
{
    return o->shard->experts_dealt ? (struct shard_range){0, config_dim(&o->model->config, dim)}
                                   : shard_local_range(o->shard, dim);
}

/* The matrix of an expert of the stack that begins with *first. */
static struct mat matrix_of(const struct experts *o, const struct mat *first, size_t expert,
                            enum expert_matrix matrix)
{
    struct mat mat = *first;
    const struct expert_store *store = o->model->store;
    /* a rank has some outputs of each matrix of the stack */
    const size_t out =
        config_dim(&o->model->config, matrix == EXPERT_DOWN ? DIM_HIDDEN : DIM_EXPERT_FFN);
    mat.data = store ? expert_store_data(store, expert, matrix)
                     : (const char *)first->data +
                           expert * layout_bytes(first->layout, first->dtype, out, first->in);
    return mat;
}

/* Products of the experts used[ready[0..n)] with W, and their gate if `gate` is not NULL: this rank's
 * columns of y[][width of dim]. */
static void run_products(struct experts *o, const size_t *ready, size_t n, const struct linear *linear,
                         const struct linear *gate, enum dim dim, float *y, const float *x,
                         const uint32_t *x_row, size_t x_rows)
{
    const struct config *c = &o->model->config;
    const size_t width = config_dim(c, dim);
    y += own_range(o, dim).first;
    for (size_t i = 0; i < n; i++) {
        const size_t expert = o->used[ready[i]];
        o->mat[i] = matrix_of(o, &linear->weight, expert, gate ? EXPERT_UP : EXPERT_DOWN);
        o->product[i] = (struct product){.w = &o->mat[i],
                                         .bias = linear->bias ? linear->bias + expert * width : NULL,
                                         .y = y,
                                         .y_stride = width};
        if (!gate)
            continue;
        o->mat[c->moe->experts + i] = matrix_of(o, &gate->weight, expert, EXPERT_GATE);
        o->product[i].gate = &o->mat[c->moe->experts + i];
        o->product[i].gate_bias = gate->bias ? gate->bias + expert * width : NULL;
        o->product[i].act = o->act;
        o->product[i].limit = (float)o->model->config.swiglu_limit;
        o->product[i].alpha = (float)o->model->config.swiglu_alpha;
    }
    const struct product_groups groups = {o->product, o->rows, n, x_row};
    gemm_run_groups(o->gemm, &groups, x, linear->weight.in, x_rows);
}

/* Completes rows of an activation of which each rank has computed its columns. */
static int gather(struct experts *o, enum dim dim, float *all, struct row_range rows, struct err *err)
{
    const size_t first = shard_local_range(o->shard, dim).first;
    return shard_gather_start(o->shard, dim, all, all + first, config_dim(&o->model->config, dim), rows,
                              err) < 0
               ? -1
               : shard_gather_finish(o->shard, rows, err);
}

/* in[pair] = weight * x[row] for the pairs of the experts used[ready[0..n)], from pair `at` on. */
static void weigh_inputs(struct experts *o, const size_t *ready, size_t n, size_t at, const float *x)
{
    const size_t hidden = o->model->config.hidden;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < o->count[ready[i]]; k++, at++) {
            const float weight = o->weight[o->choice[o->first[ready[i]] + k]];
            const float *from = x + o->pair_row[at] * hidden;
            float *restrict to = o->in + at * hidden;
            for (size_t j = 0; j < hidden; j++)
                to[j] = weight * from[j];
        }
}

/* Runs the experts used[ready[0..n)] for all rows that chose them; their pairs are numbered from *at on, which
 * becomes the number behind the last. */
static int run_experts(struct experts *o, const struct layer *w, const size_t *ready, size_t n,
                       size_t *at, const float *x, size_t rows, struct err *err)
{
    const struct config *c = &o->model->config;
    const size_t first = *at, end = number_pairs(o, ready, n, first), pairs = end - first;
    float *up = o->up + first * c->moe->ffn;
    const uint32_t *x_row = o->pair_row + first;
    *at = end;
    if (c->moe->weigh_input) {
        weigh_inputs(o, ready, n, first, x);
        x = o->in + first * c->hidden;
        x_row = NULL;
        rows = pairs;
    }
    run_products(o, ready, n, &w->experts_up, &w->experts_gate, DIM_EXPERT_FFN, up, x, x_row, rows);
    if (!o->shard->experts_dealt &&
        gather(o, DIM_EXPERT_FFN, up, (struct row_range){0, pairs}, err) < 0)
        return -1;
    run_products(o, ready, n, &w->experts_down, NULL, DIM_HIDDEN, o->out + first * c->hidden, up, NULL,
                 pairs);
    return 0;
}

/* Runs all n experts that are used or, if they are distributed, those of this rank, and gathers the outputs. */
static int run_loaded(struct experts *o, const struct layer *w, size_t n, const float *x, size_t rows,
                      struct err *err)
{
    const struct config *c = &o->model->config;
    const size_t pairs = rows * c->moe->used;
    size_t at = 0, begin = 0;
    for (size_t i = 0; i < n; i++)
        o->ready[i] = i;
    if (!o->shard->experts_dealt)
        return run_experts(o, w, o->ready, n, &at, x, rows, err);
    const size_t size = (size_t)o->shard->ranks->size, rank = (size_t)o->shard->ranks->rank;
    number_pairs(o, o->ready, n, 0); /* of all: the pairs of each rank are neighbours */
    size_t own = 0, own_end = 0;
    for (size_t r = 0; r < size; r++) {
        const struct shard_range dealt = shard_experts(c, r, size);
        size_t end = begin;
        while (end < n && o->used[end] < dealt.first + dealt.n)
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
    if (own < own_end && run_experts(o, w, o->ready + own, own_end - own, &at, x, rows, err) < 0)
        return -1;
    return shard_gather_rows(o->shard, o->out, o->rank_first, err);
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

/* Predicts the experts of the next layer by applying its router to `x`, the residual stream before the
 * experts of this layer; of many rows all experts are predicted. */
static void predict(struct experts *o, const float *x, size_t rows)
{
    const struct config *c = &o->model->config;
    const size_t layer = expert_store_predicts(o->model->store);
    if (!layer)
        return;
    const struct layer *w = &o->model->weights.layer[layer];
    float *weight = o->guess_weight + c->moe->used;
    memset(weight, 0, c->moe->experts * sizeof *weight);
    if (rows <= PREDICT_ROWS) {
        router_input(o, w, o->next, x, rows);
        run_router(o, w, o->next, rows);
    }
    for (size_t row = 0; rows <= PREDICT_ROWS && row < rows; row++) {
        router_choose(c, o->logits + row * c->moe->experts, w->select_bias, w->router_gain, o->scratch,
                      o->guess, o->guess_weight);
        for (size_t i = 0; i < c->moe->used; i++)
            weight[o->guess[i]] += o->guess_weight[i];
    }
    for (size_t e = 0; rows > PREDICT_ROWS && e < c->moe->experts; e++)
        weight[e] = 1;
    expert_store_predict(o->model->store, layer, o->guess, sort_guesses(o, weight));
}

/* Runs the experts of a layer as they arrive in memory. */
static int run_stored(struct experts *o, size_t layer, size_t n, const float *x, const float *residual,
                      size_t rows, struct err *err)
{
    const struct layer *w = &o->model->weights.layer[layer];
    struct expert_store *store = o->model->store;
    expert_store_begin(store, layer, o->used, o->count, n, rows);
    predict(o, residual, rows);
    for (size_t at = 0, some;;) {
        if (expert_store_next(store, o->ready, &some, err) < 0)
            return -1;
        if (!some)
            return 0;
        if (run_experts(o, w, o->ready, some, &at, x, rows, err) < 0)
            return -1;
    }
}

static int run_shared(struct experts *o, const struct layer *w, const float *x, size_t rows,
                      struct err *err)
{
    const struct config *c = &o->model->config;
    const struct product up = {.w = &w->shared_up.weight,
                               .gate = &w->shared_gate.weight,
                               .act = o->act,
                               .limit = (float)o->model->config.swiglu_limit,
                               .alpha = (float)o->model->config.swiglu_alpha,
                               .y = o->shared_up + shard_local_range(o->shard, DIM_SHARED_FFN).first,
                               .y_stride = c->moe->shared_ffn};
    const struct product down = {.w = &w->shared_down.weight,
                                 .y = o->shared + shard_local_range(o->shard, DIM_HIDDEN).first,
                                 .y_stride = c->hidden};
    gemm_run(o->plain, &up, 1, x, up.w->in, rows);
    if (gather(o, DIM_SHARED_FFN, o->shared_up, (struct row_range){0, rows}, err) < 0)
        return -1;
    gemm_run(o->plain, &down, 1, o->shared_up, down.w->in, rows);
    return 0;
}

/* ---- the sum ---- */

bool experts_are_whole(const struct experts *o)
{
    return o->shard->experts_dealt && !o->model->config.moe->shared_ffn;
}

struct sum_job {
    const struct experts *o;
    const struct layer *w;
    const float *x;
    float *y;
    bool add;
};

/* sigmoid(x w), in 16 partial sums that are added in pairs */
static float gate_of(const float *x, const float *w, size_t n)
{
    enum { LANES = 16 };
    float sum[LANES] = {0};
    for (size_t i = 0; i < n; i++)
        sum[i % LANES] += x[i] * w[i];
    for (size_t half = LANES / 2; half; half /= 2)
        for (size_t i = 0; i < half; i++)
            sum[i] += sum[i + half];
    return 1 / (1 + expf(-sum[0]));
}

static void sum_row(void *arg, size_t row)
{
    const struct sum_job *job = arg;
    const struct experts *o = job->o;
    const struct config *c = &o->model->config;
    const size_t n = c->hidden, used = c->moe->used;
    const uint32_t *pair = o->pair + row * used;
    const float *weight = c->moe->weigh_input ? NULL : o->weight + row * used;
    const struct shard_range own =
        experts_are_whole(o) ? own_range(o, DIM_HIDDEN) : shard_local_range(o->shard, DIM_HIDDEN);
    const size_t end = own.first + own.n;
    float *sum = o->out + pair[0] * n, *y = job->y + row * n;
    for (size_t j = own.first; j < end && weight; j++)
        sum[j] *= weight[0];
    for (size_t i = 1; i < used; i++) {
        const float *restrict from = o->out + pair[i] * n;
        const float by = weight ? weight[i] : 1;
        for (size_t j = own.first; j < end; j++)
            sum[j] += by * from[j];
    }
    if (c->moe->shared_ffn) {
        const float *restrict shared = o->shared + row * n;
        const float gate =
            c->moe->shared_gated ? gate_of(job->x + row * n, job->w->shared_router, n) : 1;
        for (size_t j = own.first; j < end; j++)
            sum[j] += gate * shared[j];
    }
    for (size_t j = own.first; j < end; j++)
        y[j] = job->add ? y[j] + sum[j] : sum[j];
}

int experts_run(struct experts *o, size_t layer, const float *x, const float *residual, float *y,
                bool add, size_t rows, struct err *err)
{
    const struct config *c = &o->model->config;
    const struct layer *w = &o->model->weights.layer[layer];
    if (c->moe->beside)
        router_input(o, w, o->routed, residual, rows);
    route(o, w, c->moe->beside ? o->routed : x, rows);
    const size_t n = group_choices(o, rows);
    o->runs += n;
    if (o->model->store) {
        if (run_stored(o, layer, n, x, residual, rows, err) < 0)
            return -1;
    } else if (run_loaded(o, w, n, x, rows, err) < 0) {
        return -1;
    }
    if (c->moe->shared_ffn && run_shared(o, w, x, rows, err) < 0)
        return -1;
    struct sum_job job = {o, w, x, y, add};
    parallel_for(rows, 2 * rows * c->hidden * (c->moe->used + 1), sum_row, &job);
    return 0;
}
