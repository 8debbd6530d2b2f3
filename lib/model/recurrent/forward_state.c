/* Layers with recurrent state: projections, convolution, recurrence. */
#include "model/recurrent/forward_state.h"

#include <math.h>
#include <stdlib.h>

#include "base/threads.h"
#include "model/forward_heads.h"
#include "model/forward_norm.h"
#include "model/lora/forward_lora.h"
#include "model/recurrent/forward_state_parts.h"
#include "quant/pack.h"

static const struct config *config_of(const struct forward *f) { return &f->model->config; }

static bool is_mamba(enum layer_kind kind) { return kind == LAYER_MAMBA || kind == LAYER_MAMBA_FULL; }

/* Finds this rank's heads among all, and its channels in the weights of the convolution. */
static void find_own(struct forward *f)
{
    const struct config *c = config_of(f);
    struct forward_state *s = f->state;
    const struct shard_range own_values = shard_local_range(&f->shard, DIM_STATE_VALUES),
                             own_keys = shard_local_range(&f->shard, DIM_STATE_KEYS);
    s->values = own_values.n;
    s->keys = c->recurrent->heads ? own_keys.n : 0;
    s->first_value = own_values.first;
    s->first_head = c->recurrent->heads ? own_values.first / c->recurrent->value_dim : 0;
    s->whole_norm = f->shard.ranks && is_mamba(s->kind) && c->recurrent->norm && !config_splits_keys(c);
    const struct conv_parts all = conv_parts_of(s->kind, config_state_keys(c), config_state_values(c)),
                            own = conv_parts_of(s->kind, s->keys, s->values);
    s->span[s->n_spans++] = (struct conv_span){own.v, all.v + s->first_value, s->values};
    if (!f->shard.ranks) {
        s->span[0] = (struct conv_span){0, 0, s->shape.conv};
    } else if (s->keys) {
        s->span[s->n_spans++] = (struct conv_span){own.q, all.q + own_keys.first, s->keys};
        s->span[s->n_spans++] = (struct conv_span){own.k, all.k + own_keys.first, s->keys};
    }
}

int forward_state_open(struct forward *f, struct err *err)
{
    const struct config *c = config_of(f);
    f->state = mem_zalloc(1, sizeof *f->state);
    if (!f->state)
        return err_no_memory(err, "recurrent state");
    struct forward_state *s = f->state;
    s->kind = config_state_kind(c);
    s->shape = kv_setup(f->kv)->state;
    if (c->attn_gate &&
        !(s->gate = mem_alloc(f->max_rows, (config_q_width(c) + PACK_OUT) * sizeof(float))))
        return err_no_memory(err, "the gates of %zu tokens", f->max_rows);
    if (!layer_kind_has_state(s->kind))
        return 0;
    find_own(f);
    const size_t values = s->values, keys = s->keys;
    s->width = state_input_floats(&s->shape);
    s->padded = s->shape.heads * state_slabs(&s->shape) * STATE_SLAB;
    struct {
        float **buffer;
        size_t width;
    } const table[] = {
        {&s->inputs, s->width},
        {&s->z, values},
        {&s->b, s->kind == LAYER_CONV ? values : 1},
        {&s->convolved, s->shape.conv},
        {&s->y, size_max(s->padded, 1)},
        {&s->out, values},
        {&s->overlap, f->shard.ranks ? s->width + 2 * values + 6 * PACK_OUT : 1},
        {&s->out_all, f->shard.ranks ? config_state_values(c) : 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (!(*table[i].buffer = mem_zalloc(f->max_rows, table[i].width * sizeof(float))))
            return err_no_memory(err, "a step of %zu tokens, which needs a buffer of %zu x %zu",
                                 f->max_rows, f->max_rows, table[i].width);
    s->q_gain = mem_alloc(size_max(keys, 1), 2 * sizeof(float));
    s->view = mem_alloc(kv_setup(f->kv)->n_seqs, sizeof *s->view);
    s->row_query = mem_alloc(f->max_rows, sizeof *s->row_query);
    if (!f->shard.ranks) {
        free(s->out_all);
        s->out_all = s->out;
    }
    if (!s->q_gain || !s->view || !s->row_query)
        return err_no_memory(err, "recurrent state");
    /* The norm of keys divides by their length, that of queries also by sqrt(key_dim): rmsnorm() divides
     * by the length over sqrt(key_dim). */
    s->k_gain = s->q_gain + c->recurrent->key_dim;
    for (size_t i = 0; i < c->recurrent->key_dim; i++) {
        s->q_gain[i] = 1 / (float)c->recurrent->key_dim;
        s->k_gain[i] = 1 / sqrtf((float)c->recurrent->key_dim);
    }
    return 0;
}

void forward_state_close(struct forward *f)
{
    struct forward_state *s = f->state;
    if (!s)
        return;
    if (s->out_all != s->out)
        free(s->out_all);
    float *const buffers[] = {s->inputs, s->z,    s->b,      s->convolved, s->y,
                              s->out,    s->gate, s->q_gain, s->nodes,     s->overlap};
    for (size_t i = 0; i < ARRAY_LEN(buffers); i++)
        free(buffers[i]);
    free(s->view);
    free(s->row_query);
    free(s);
    f->state = NULL;
}

const float *forward_state_out(const struct forward *f) { return f->state->out_all; }

int forward_state_gather(struct forward *f, struct row_range rows, struct err *err)
{
    const struct forward_state *s = f->state;
    return shard_gather_start(&f->shard, DIM_STATE_VALUES, s->out_all, s->out, s->values, rows, err);
}

/* ---- projections ---- */

/* The products of a layer's input, and those of their outputs that are copied afterwards. */
struct projections {
    struct product product[6];
    const struct linear *linear[6];
    struct product_target {
        float *y;
        size_t stride;
    } target[6];
    size_t n;
    float *overlap; /* unused part of the buffer */
};

/* Adds a product with the columns of y from `y` on, in `rows` rows `stride` apart. */
static void add_product(struct projections *p, const struct linear *w, float *y, size_t stride,
                        size_t rows)
{
    const struct mat *m = &w->weight;
    p->target[p->n] = (struct product_target){y, stride};
    p->linear[p->n] = w;
    p->product[p->n++] = (struct product){
        .w = m, .bias = w->bias, .y = w->skip ? p->overlap : y, .y_stride = w->skip ? m->out : stride};
    if (w->skip)
        p->overlap += rows * m->out;
}

static void run_products(const struct forward *f, const struct projections *p, const float *x,
                         size_t in, size_t rows)
{
    gemm_run(f->gemm, p->product, p->n, x, in, rows);
    for (size_t i = 0; i < p->n; i++) {
        const struct product_target *to = &p->target[i];
        const size_t skip = p->linear[i]->skip, out = p->product[i].y_stride;
        for (size_t row = 0; row < rows && skip; row++)
            memcpy(to->y + row * to->stride, p->product[i].y + row * out + skip,
                   (out - skip) * sizeof *to->y);
    }
}

/* Multiplies columns [0, n) of rows of y, `stride` apart, by both factors; 0 is 1. */
static void scale_columns(float *y, size_t rows, size_t stride, size_t n, double a, double b)
{
    const float factor = (float)((a != 0 ? a : 1) * b);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < n; j++)
            y[i * stride + j] *= factor;
}

/* Factors of what Mamba-2 projects. */
static void scale_projected(struct forward *f, struct row_range rows)
{
    const struct config *c = config_of(f);
    const struct forward_state *s = f->state;
    const size_t values = s->values, keys = s->keys;
    const struct state_inputs in = state_inputs_at(&s->shape, s->inputs + rows.first * s->width);
    const struct conv_parts at = conv_parts_of(s->kind, keys, values);
    const struct {
        float *y;
        size_t stride, n;
    } part[] = {{s->z + rows.first * values, values, values},
                {in.conv + at.v, s->width, values},
                {in.conv + at.k, s->width, keys},
                {in.conv + at.q, s->width, keys},
                {in.decay, s->width, s->shape.heads}};
    for (size_t i = 0; (c->recurrent->in_scale != 0 || c->recurrent->scales.n) && i < ARRAY_LEN(part);
         i++)
        scale_columns(part[i].y, rows.n, part[i].stride, part[i].n, c->recurrent->in_scale,
                      c->recurrent->scales.n ? c->recurrent->scales.x[i] : 1);
}

void forward_state_project(struct forward *f, struct row_range rows, size_t layer, const float *h)
{
    const size_t hidden = config_of(f)->hidden, first = rows.first, n = rows.n;
    const struct layer *w = &f->model->weights.layer[layer];
    struct forward_state *s = f->state;
    const struct state_inputs in = state_inputs_at(&s->shape, s->inputs + first * s->width);
    const struct conv_parts at = conv_parts_of(s->kind, s->keys, s->values);
    struct projections p = {.overlap = s->overlap};
    add_product(&p, &w->state_v, in.conv + at.v, s->width, n);
    add_product(&p, &w->state_z, s->z + first * s->values, s->values, n);
    if (s->kind == LAYER_CONV) {
        add_product(&p, &w->state_b, s->b + first * s->values, s->values, n);
    } else {
        add_product(&p, &w->state_q, in.conv + at.q, s->width, n);
        add_product(&p, &w->state_k, in.conv + at.k, s->width, n);
        add_product(&p, &w->state_a, in.decay, s->width, n);
        if (s->kind == LAYER_DELTA)
            add_product(&p, &w->state_b, in.beta, s->width, n);
    }
    run_products(f, &p, h + first * hidden, hidden, n);
    scale_projected(f, rows);
    for (size_t i = first; s->kind == LAYER_CONV && i < first + n; i++) {
        float *x = s->inputs + i * s->width;
        f->kernels->gate(x, x, s->b + i * s->values, s->values, EPILOGUE_NONE);
    }
}

void forward_gate_project(struct forward *f, struct row_range rows, size_t layer, const float *h)
{
    const struct linear *w = &f->model->weights.layer[layer].attn_gate;
    const size_t width = w->weight.out, in = w->weight.in;
    const struct product product = {
        .w = &w->weight, .bias = w->bias, .y = f->state->gate + rows.first * width, .y_stride = width};
    gemm_run(f->gemm, &product, 1, h + rows.first * in, in, rows.n);
    forward_lora_add(f, LORA_ATTN_GATE, layer, h, f->state->gate, width, rows);
    forward_drop_overlap(w, f->state->gate, rows);
}

void forward_gate_apply(struct forward *f, struct row_range rows)
{
    const size_t width = config_q_width(&f->local);
    float *x = f->attn_out_local + rows.first * width;
    f->kernels->gate(x, x, f->state->gate + rows.first * width, rows.n * width, EPILOGUE_SIGMOID);
}

/* ---- one row ---- */

/* The input of the convolution `back` tokens before row `row` of a query, itself being 0. */
static const float *earlier_input(const struct forward_state *s, const struct attn_query *q,
                                  size_t query, size_t row, size_t back)
{
    const struct state_shape *shape = &s->shape;
    const size_t path = path_length(q, row);
    if (back >= path)
        return s->view[query].before.conv + (shape->taps - 1 - (back - path)) * shape->conv;
    return s->inputs + (q->first + path_row(q, row, back)) * s->width;
}

static float softplus(float x) { return x > 20 ? x : log1pf(expf(x)); }

/* Sets what the recurrence needs from the convolution's output `x`: decay, beta, keys and values. */
static void set_inputs(const struct forward *f, const struct layer *w, struct state_inputs *in,
                       float *x)
{
    const struct forward_state *s = f->state;
    const struct state_shape *shape = &s->shape;
    const struct conv_parts at = conv_parts_of(s->kind, s->keys, s->values);
    const size_t d = shape->key_dim, dv = shape->value_dim, slots = s->padded / shape->heads;
    const float eps = 1e-6f / (float)d;
    for (size_t g = 0; g < shape->key_heads; g++) {
        float *q = x + at.q + g * d, *k = x + at.k + g * d;
        if (s->kind == LAYER_DELTA) {
            f->kernels->rmsnorm(q, q, d, s->q_gain, eps);
            f->kernels->rmsnorm(k, k, d, s->k_gain, eps);
        }
        memcpy(in->k + g * d, k, d * sizeof *k);
    }
    for (size_t h = 0; h < shape->heads; h++) {
        const float step = softplus(in->decay[h] + w->step[s->first_head + h]);
        in->decay[h] = expf(-w->decay[s->first_head + h] * step);
        if (s->kind == LAYER_DELTA)
            in->beta[h] = 1 / (1 + expf(-in->beta[h]));
        for (size_t j = 0; j < dv; j++)
            in->v[h * slots + j] =
                s->kind == LAYER_DELTA ? x[at.v + h * dv + j] : step * x[at.v + h * dv + j];
    }
}

/* Convolution of one row, and what follows from it alone. Body of a parallel loop over rows. */
static void prepare_row(void *arg, size_t i)
{
    const struct state_job *job = arg;
    const struct forward *f = job->f;
    struct forward_state *s = f->state;
    const struct layer *w = &f->model->weights.layer[job->layer];
    const size_t query = s->row_query[i], taps = s->shape.taps + 1;
    const struct attn_query *q = &job->step->query[query];
    const float *x[STATE_MAX_TAPS];
    float *y = s->convolved + i * s->shape.conv;
    for (size_t t = 0; t < taps; t++)
        x[t] = earlier_input(s, q, query, i - q->first, taps - 1 - t);
    for (const struct conv_span *span = s->span; span < s->span + s->n_spans; span++) {
        const float *from[STATE_MAX_TAPS];
        for (size_t t = 0; t < taps; t++)
            from[t] = x[t] + span->own;
        f->kernels->convolve(y + span->own, from, taps, w->conv + span->all,
                             config_conv_width(config_of(f)),
                             w->conv_bias ? w->conv_bias + span->all : NULL, span->n,
                             s->kind == LAYER_CONV ? EPILOGUE_NONE : EPILOGUE_SILU);
    }
    if (s->kind == LAYER_CONV) {
        f->kernels->gate(s->out + i * s->shape.conv, y, s->z + i * s->shape.conv, s->shape.conv,
                         EPILOGUE_NONE);
    } else {
        struct state_inputs in = state_inputs_at(&s->shape, s->inputs + i * s->width);
        set_inputs(f, w, &in, y);
    }
}

/* Normalises `values` elements of an output row from element `first` on: with Gated DeltaNet each head by
 * the same gains, with Mamba-2 the heads of each head of keys together. */
static void norm_output(const struct forward *f, const struct layer *w, float *out, size_t first,
                        size_t values)
{
    const struct config *c = config_of(f);
    const bool delta = f->state->kind == LAYER_DELTA;
    const size_t width =
        delta ? c->recurrent->value_dim : config_state_values(c) / c->recurrent->key_heads;
    for (size_t at = 0; w->state_norm && at < values; at += width)
        f->kernels->rmsnorm(out + at, out + at, width, w->state_norm + (delta ? 0 : first + at),
                            (float)c->norm_eps);
}

static void gate_output(const struct forward *f, size_t row)
{
    const struct forward_state *s = f->state;
    float *out = s->out + row * s->values;
    f->kernels->gate(out, out, s->z + row * s->values, s->values, EPILOGUE_SILU);
}

static void scale_output(const struct forward *f, size_t row)
{
    const struct forward_state *s = f->state;
    scale_rows(s->out + row * s->values, (struct row_range){0, 1}, s->values,
               config_of(f)->recurrent->out_scale);
}

static bool norm_is_first(const struct forward *f)
{
    return f->state->kind == LAYER_DELTA || config_of(f)->recurrent->norm_first;
}

/* The output of one row: skip connection, norm and gate; with whole_norm, what comes before the norm. Body of
 * a parallel loop over rows. */
static void finish_row(void *arg, size_t i)
{
    const struct state_job *job = arg;
    const struct forward *f = job->f;
    struct forward_state *s = f->state;
    const struct layer *w = &f->model->weights.layer[job->layer];
    const size_t dv = s->shape.value_dim, slots = s->padded / s->shape.heads;
    const bool delta = s->kind == LAYER_DELTA, first = norm_is_first(f);
    const float *x = s->convolved + i * s->shape.conv + conv_parts_of(s->kind, s->keys, s->values).v;
    float *out = s->out + i * s->values;
    for (size_t h = 0; h < s->shape.heads; h++) {
        const float *y = s->y + i * s->padded + h * slots;
        for (size_t j = 0; j < dv; j++)
            out[h * dv + j] = delta ? y[j] : y[j] + w->skip[s->first_head + h] * x[h * dv + j];
    }
    if (first && !s->whole_norm)
        norm_output(f, w, out, s->first_value, s->values);
    if (!first || !s->whole_norm)
        gate_output(f, i);
    if (!first && !s->whole_norm)
        norm_output(f, w, out, s->first_value, s->values);
    if (!s->whole_norm)
        scale_output(f, i);
}

/* Norm of one row of all ranks' heads, and what comes after it. Body of a parallel loop over rows. */
static void finish_whole_row(void *arg, size_t i)
{
    const struct state_job *job = arg;
    const struct forward *f = job->f;
    const struct forward_state *s = f->state;
    const size_t all = config_state_values(config_of(f));
    float *out = s->out_all + i * all;
    norm_output(f, &f->model->weights.layer[job->layer], out, 0, all);
    memcpy(s->out + i * s->values, out + s->first_value, s->values * sizeof *out);
    if (norm_is_first(f))
        gate_output(f, i);
    scale_output(f, i);
}

/* ---- a layer ---- */

/* Writes the inputs that a convolution needs after the first `rows` rows of a chain. */
static void put_conv(const struct forward_state *s, const struct attn_query *q, size_t query,
                     size_t rows, float *to)
{
    for (size_t t = 0; t < s->shape.taps; t++) {
        const size_t at = t + rows;
        const float *from = at < s->shape.taps ? s->view[query].before.conv + at * s->shape.conv
                                               : s->inputs + (q->first + at - s->shape.taps) * s->width;
        memcpy(to + t * s->shape.conv, from, s->shape.conv * sizeof *to);
    }
}

/* Stores the convolution's inputs after the pass, and at its marks; records all inputs if wanted. */
static void store_inputs(const struct forward_state *s, const struct step *step)
{
    for (size_t i = 0; i < step->n_queries; i++) {
        const struct state_view *v = &s->view[i];
        const struct attn_query *q = &step->query[i];
        if (v->after.conv)
            put_conv(s, q, i, q->rows, v->after.conv);
        for (size_t m = 0; m < v->n_marks; m++)
            put_conv(s, q, i, v->mark[m].rows, v->mark[m].to.conv);
        if (v->inputs)
            memcpy(v->inputs, s->inputs + q->first * s->width, q->rows * s->width * sizeof(float));
    }
}

int forward_state_run(struct forward *f, const struct step *step, size_t layer, struct err *err)
{
    struct forward_state *s = f->state;
    struct state_job job = {f, step, layer};
    for (size_t i = 0; i < step->n_queries; i++) {
        const struct attn_query *q = &step->query[i];
        kv_state_view(f->kv, q->seq, f->layer_index[layer].state, is_tree(q), &s->view[i]);
        for (size_t row = 0; row < q->rows; row++)
            s->row_query[q->first + row] = i;
    }
    parallel_for(step->rows, step->rows * s->shape.conv * (s->shape.taps + 8), prepare_row, &job);
    store_inputs(s, step);
    if (s->kind == LAYER_CONV)
        return 0;
    if (state_recur(&job, err) < 0)
        return -1;
    parallel_for(step->rows, 8 * step->rows * s->padded, finish_row, &job);
    if (!s->whole_norm)
        return 0;
    const struct row_range rows = {0, step->rows};
    if (forward_state_gather(f, rows, err) < 0 || shard_gather_finish(&f->shard, rows, err) < 0)
        return -1;
    parallel_for(step->rows, 8 * step->rows * config_state_values(config_of(f)), finish_whole_row,
                 &job);
    return 0;
}
