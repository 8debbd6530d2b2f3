/* Layers whose MLP is a mixture of experts:
 *
 *   logits = x Wrouter + bias                                in f32, whatever the precision
 *   chosen, weight = router_choose(logits)
 *   up = act(x Wgate[e]) * (x Wup[e])                        for each chosen expert e
 *   y = sum of weight[e] * (up Wdown[e]) + shared MLP(x)
 *
 * Rows are grouped by expert, so that a step reads each expert's weights once. The sum over the
 * experts of a row goes in ascending order of their numbers, then comes the shared MLP: a row's result
 * depends on that row alone. */
#include "model/experts/experts.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/threads.h"
#include "model/experts/router.h"
#include "quant/pack.h"

static int out_of_memory(size_t rows, size_t pairs, struct err *err)
{
    return err_set(err, "out of memory: a step of %zu tokens needs buffers for %zu expert rows", rows,
                   pairs);
}

int experts_open(struct experts *o, const struct model *model, const struct kernels *kernels,
                 enum precision precision, struct gemm *plain, enum epilogue_act act, size_t max_rows,
                 struct err *err)
{
    const struct config *c = &model->config;
    *o = (struct experts){.model = model, .kernels = kernels, .plain = plain, .act = act};
    if (!c->experts)
        return 0;
    const size_t pairs = max_rows * c->experts_used, threads = (size_t)threads_max();
    const struct {
        void **buffer;
        size_t n, bytes;
    } table[] = {
        {(void **)&o->logits, max_rows, c->experts * sizeof *o->logits},
        {(void **)&o->scratch, threads, 2 * c->experts * sizeof *o->scratch},
        {(void **)&o->chosen, pairs, sizeof *o->chosen},
        {(void **)&o->weight, pairs, sizeof *o->weight},
        {(void **)&o->pair, pairs, sizeof *o->pair},
        {(void **)&o->pair_row, pairs, sizeof *o->pair_row},
        {(void **)&o->rows, c->experts, sizeof *o->rows},
        {(void **)&o->at, c->experts, sizeof *o->at},
        {(void **)&o->product, c->experts, sizeof *o->product},
        {(void **)&o->mat, c->experts, 2 * sizeof *o->mat},
        {(void **)&o->up, pairs, c->expert_ffn * sizeof *o->up},
        {(void **)&o->out, pairs, c->hidden * sizeof *o->out},
        {(void **)&o->shared_up, max_rows, size_max(c->shared_ffn, 1) * sizeof *o->shared_up},
        {(void **)&o->shared, max_rows, (c->shared_ffn ? c->hidden : 1) * sizeof *o->shared},
    };
    bool all = true;
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        all &= (*table[i].buffer = mem_alloc(table[i].n, table[i].bytes)) != NULL;
    if (!all) {
        experts_close(o);
        return out_of_memory(max_rows, pairs, err);
    }
    const size_t widest = size_max(c->hidden, c->expert_ffn);
    if (gemm_open_groups(&o->gemm, kernels, precision, pairs, widest, c->experts, err) == 0)
        return 0;
    experts_close(o);
    return -1;
}

void experts_close(struct experts *o)
{
    void *const buffers[] = {o->logits,   o->scratch, o->chosen,    o->weight,  o->pair,
                             o->pair_row, o->rows,    o->at,        o->product, o->mat,
                             o->up,       o->out,     o->shared_up, o->shared};
    for (size_t i = 0; i < ARRAY_LEN(buffers); i++)
        free(buffers[i]);
    gemm_close(o->gemm);
    *o = (struct experts){0};
}

/* ---- routing ---- */

struct route_job {
    const struct experts *o;
    const float *select_bias;
};

static void route_row(void *arg, size_t row)
{
    const struct route_job *job = arg;
    const struct experts *o = job->o;
    const struct config *c = &o->model->config;
    router_choose(c, o->logits + row * c->experts, job->select_bias,
                  o->scratch + (size_t)threads_self() * 2 * c->experts,
                  o->chosen + row * c->experts_used, o->weight + row * c->experts_used);
}

static void route(struct experts *o, const struct layer *w, const float *x, size_t rows)
{
    const struct config *c = &o->model->config;
    const struct product logits = {.w = &w->router.weight,
                                   .bias = w->router.bias,
                                   .y = o->logits,
                                   .y_stride = c->experts,
                                   .f32 = true};
    gemm_run(o->plain, &logits, 1, x, c->hidden, rows);
    struct route_job job = {o, w->select_bias};
    parallel_for(rows, 16 * rows * c->experts * c->experts_used, route_row, &job);
}

/* Numbers the pairs of all rows, expert by expert and by ascending row; returns the number of experts
 * that are used, whose numbers become used[]. */
static size_t group_rows(struct experts *o, size_t rows, size_t *used)
{
    const struct config *c = &o->model->config;
    const size_t pairs = rows * c->experts_used;
    size_t n = 0, at = 0;
    memset(o->at, 0, c->experts * sizeof *o->at);
    for (size_t i = 0; i < pairs; i++)
        o->at[o->chosen[i]]++;
    for (size_t e = 0; e < c->experts; e++) {
        const size_t count = o->at[e];
        o->at[e] = at;
        at += count;
        if (!count)
            continue;
        used[n] = e;
        o->rows[n++] = count;
    }
    for (size_t i = 0; i < pairs; i++) {
        o->pair[i] = (uint32_t)o->at[o->chosen[i]]++;
        o->pair_row[o->pair[i]] = (uint32_t)(i / c->experts_used);
    }
    return n;
}

/* ---- products ---- */

/* Matrix number i of the stack that begins with *first. */
static struct mat matrix_of(const struct mat *first, size_t i)
{
    struct mat mat = *first;
    mat.data = (const char *)first->data +
               i * layout_bytes(first->layout, first->dtype, first->out, first->in);
    return mat;
}

static const float *bias_of(const struct linear *linear, size_t expert)
{
    return linear->bias ? linear->bias + expert * linear->weight.out : NULL;
}

/* Products of experts used[0..n) with W, and their gate if `gate` is not NULL. */
static void run_products(struct experts *o, const size_t *used, size_t n, const struct linear *linear,
                         const struct linear *gate, float *y, const float *x, size_t x_rows)
{
    const size_t experts = o->model->config.experts;
    for (size_t i = 0; i < n; i++) {
        o->mat[i] = matrix_of(&linear->weight, used[i]);
        o->product[i] = (struct product){
            .w = &o->mat[i], .bias = bias_of(linear, used[i]), .y = y, .y_stride = linear->weight.out};
        if (!gate)
            continue;
        o->mat[experts + i] = matrix_of(&gate->weight, used[i]);
        o->product[i].gate = &o->mat[experts + i];
        o->product[i].gate_bias = bias_of(gate, used[i]);
        o->product[i].act = o->act;
    }
    const struct product_groups groups = {o->product, o->rows, n, gate ? o->pair_row : NULL};
    gemm_run_groups(o->gemm, &groups, x, linear->weight.in, x_rows);
}

static void run_shared(struct experts *o, const struct layer *w, const float *x, size_t rows)
{
    const struct product up = {.w = &w->shared_up.weight,
                               .gate = &w->shared_gate.weight,
                               .act = o->act,
                               .y = o->shared_up,
                               .y_stride = w->shared_up.weight.out};
    const struct product down = {
        .w = &w->shared_down.weight, .y = o->shared, .y_stride = w->shared_down.weight.out};
    gemm_run(o->plain, &up, 1, x, up.w->in, rows);
    gemm_run(o->plain, &down, 1, o->shared_up, down.w->in, rows);
}

/* ---- the sum ---- */

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
    const size_t n = c->hidden, used = c->experts_used;
    const uint32_t *pair = o->pair + row * used;
    const float *weight = o->weight + row * used;
    float *sum = o->out + pair[0] * n, *y = job->y + row * n;
    for (size_t j = 0; j < n; j++)
        sum[j] *= weight[0];
    for (size_t i = 1; i < used; i++) {
        const float *restrict from = o->out + pair[i] * n;
        for (size_t j = 0; j < n; j++)
            sum[j] += weight[i] * from[j];
    }
    if (c->shared_ffn) {
        const float *restrict shared = o->shared + row * n;
        const float gate = c->shared_gated ? gate_of(job->x + row * n, job->w->shared_router, n) : 1;
        for (size_t j = 0; j < n; j++)
            sum[j] += gate * shared[j];
    }
    for (size_t j = 0; j < n; j++)
        y[j] = job->add ? y[j] + sum[j] : sum[j];
}

void experts_run(struct experts *o, size_t layer, const float *x, float *y, bool add, size_t rows)
{
    const struct config *c = &o->model->config;
    const struct layer *w = &o->model->weights.layer[layer];
    size_t used[MAX_EXPERTS];
    route(o, w, x, rows);
    const size_t n = group_rows(o, rows, used);
    o->runs += n;
    run_products(o, used, n, &w->experts_up, &w->experts_gate, o->up, x, rows);
    run_products(o, used, n, &w->experts_down, NULL, o->out, o->up, rows * c->experts_used);
    if (c->shared_ffn)
        run_shared(o, w, x, rows);
    struct sum_job job = {o, w, x, y, add};
    parallel_for(rows, 2 * rows * c->hidden * (c->experts_used + 1), sum_row, &job);
}
