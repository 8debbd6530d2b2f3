/* Layers with recurrent state: projections, convolution, recurrence. */
#include "model/recurrent/forward_state.h"

#include <math.h>
#include <stdlib.h>

#include "base/threads.h"
#include "model/forward_norm.h"
#include "model/recurrent/forward_state_parts.h"

static const struct config *config_of(const struct forward *f) { return &f->model->config; }

int forward_state_open(struct forward *f, struct err *err)
{
    const struct config *c = config_of(f);
    const size_t values = config_state_values(c), keys = config_state_keys(c);
    f->state = mem_zalloc(1, sizeof *f->state);
    if (!f->state)
        return err_set(err, "out of memory");
    struct forward_state *s = f->state;
    s->kind = config_state_kind(c);
    s->shape = kv_setup(f->kv)->state;
    if (c->attn_gate && !(s->gate = mem_alloc(f->max_rows, config_q_width(c) * sizeof(float))))
        return err_set(err, "out of memory for the gates of %zu tokens", f->max_rows);
    if (!layer_kind_has_state(s->kind))
        return 0;
    s->width = state_input_floats(&s->shape);
    s->padded = c->state_heads * state_slabs(&s->shape) * STATE_SLAB;
    struct {
        float **buffer;
        size_t width;
    } const table[] = {
        {&s->inputs, s->width},
        {&s->z, values},
        {&s->b, s->kind == LAYER_CONV ? c->hidden : 1},
        {&s->convolved, config_conv_width(c)},
        {&s->y, size_max(s->padded, 1)},
        {&s->out, values},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (!(*table[i].buffer = mem_zalloc(f->max_rows, table[i].width * sizeof(float))))
            return err_set(err, "out of memory: a step of %zu tokens needs a buffer of %zu x %zu",
                           f->max_rows, f->max_rows, table[i].width);
    s->q_gain = mem_alloc(size_max(keys, 1), 2 * sizeof(float));
    s->view = mem_alloc(kv_setup(f->kv)->n_seqs, sizeof *s->view);
    s->row_query = mem_alloc(f->max_rows, sizeof *s->row_query);
    if (!s->q_gain || !s->view || !s->row_query)
        return err_set(err, "out of memory");
    /* The norm of keys divides by their length, that of queries also by sqrt(key_dim): rmsnorm() divides
     * by the length over sqrt(key_dim). */
    s->k_gain = s->q_gain + c->state_key_dim;
    for (size_t i = 0; i < c->state_key_dim; i++) {
        s->q_gain[i] = 1 / (float)c->state_key_dim;
        s->k_gain[i] = 1 / sqrtf((float)c->state_key_dim);
    }
    return 0;
}

void forward_state_close(struct forward *f)
{
    struct forward_state *s = f->state;
    if (!s)
        return;
    float *const buffers[] = {s->inputs, s->z,    s->b,      s->convolved, s->y,
                              s->out,    s->gate, s->q_gain, s->nodes};
    for (size_t i = 0; i < ARRAY_LEN(buffers); i++)
        free(buffers[i]);
    free(s->view);
    free(s->row_query);
    free(s);
    f->state = NULL;
}

const float *forward_state_out(const struct forward *f) { return f->state->out; }

/* ---- projections ---- */

/* Adds a product with the columns of y from `y` on, in rows `stride` apart. */
static void add_product(struct product *list, size_t *n, const struct linear *w, float *y,
                        size_t stride)
{
    list[(*n)++] = (struct product){.w = &w->weight, .bias = w->bias, .y = y, .y_stride = stride};
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
    const size_t values = config_state_values(c), keys = config_state_keys(c);
    const struct state_inputs in = state_inputs_at(&s->shape, s->inputs + rows.first * s->width);
    const struct conv_parts at = conv_parts_of(s->kind, keys, values);
    const struct {
        float *y;
        size_t stride, n;
    } part[] = {{s->z + rows.first * values, values, values},
                {in.conv + at.v, s->width, values},
                {in.conv + at.k, s->width, keys},
                {in.conv + at.q, s->width, keys},
                {in.decay, s->width, c->state_heads}};
    for (size_t i = 0; (c->state_in_scale != 0 || c->state_scales.n) && i < ARRAY_LEN(part); i++)
        scale_columns(part[i].y, rows.n, part[i].stride, part[i].n, c->state_in_scale,
                      c->state_scales.n ? c->state_scales.x[i] : 1);
}

void forward_state_project(struct forward *f, struct row_range rows, size_t layer, const float *h)
{
    const struct config *c = config_of(f);
    const struct layer *w = &f->model->weights.layer[layer];
    struct forward_state *s = f->state;
    const size_t values = config_state_values(c), keys = config_state_keys(c);
    const struct state_inputs in = state_inputs_at(&s->shape, s->inputs + rows.first * s->width);
    const struct conv_parts at = conv_parts_of(s->kind, keys, values);
    struct product product[6];
    size_t n = 0;
    add_product(product, &n, &w->state_v, in.conv + at.v, s->width);
    add_product(product, &n, &w->state_z, s->z + rows.first * values, values);
    if (s->kind == LAYER_CONV) {
        add_product(product, &n, &w->state_b, s->b + rows.first * c->hidden, c->hidden);
    } else {
        add_product(product, &n, &w->state_q, in.conv + at.q, s->width);
        add_product(product, &n, &w->state_k, in.conv + at.k, s->width);
        add_product(product, &n, &w->state_a, in.decay, s->width);
        if (s->kind == LAYER_DELTA)
            add_product(product, &n, &w->state_b, in.beta, s->width);
    }
    gemm_run(f->gemm, product, n, h + rows.first * c->hidden, c->hidden, rows.n);
    scale_projected(f, rows);
    for (size_t i = rows.first; s->kind == LAYER_CONV && i < rows.first + rows.n; i++) {
        float *x = s->inputs + i * s->width;
        f->kernels->gate(x, x, s->b + i * c->hidden, c->hidden, EPILOGUE_NONE);
    }
}

void forward_gate_project(struct forward *f, struct row_range rows, size_t layer, const float *h)
{
    const struct linear *w = &f->model->weights.layer[layer].attn_gate;
    const size_t width = config_q_width(config_of(f)), in = w->weight.in;
    struct product product;
    size_t n = 0;
    add_product(&product, &n, w, f->state->gate + rows.first * width, width);
    gemm_run(f->gemm, &product, 1, h + rows.first * in, in, rows.n);
}

void forward_gate_apply(struct forward *f, struct row_range rows)
{
    const size_t width = config_q_width(config_of(f));
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
    const struct config *c = config_of(f);
    const struct forward_state *s = f->state;
    const struct conv_parts at = conv_parts_of(s->kind, config_state_keys(c), config_state_values(c));
    const size_t d = c->state_key_dim, dv = c->state_value_dim, slots = s->padded / c->state_heads;
    const float eps = 1e-6f / (float)d;
    for (size_t g = 0; g < c->state_key_heads; g++) {
        float *q = x + at.q + g * d, *k = x + at.k + g * d;
        if (s->kind == LAYER_DELTA) {
            f->kernels->rmsnorm(q, q, d, s->q_gain, eps);
            f->kernels->rmsnorm(k, k, d, s->k_gain, eps);
        }
        memcpy(in->k + g * d, k, d * sizeof *k);
    }
    for (size_t h = 0; h < c->state_heads; h++) {
        const float step = softplus(in->decay[h] + w->step[h]);
        in->decay[h] = expf(-w->decay[h] * step);
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
    f->kernels->convolve(y, x, taps, w->conv, w->conv_bias, s->shape.conv,
                         s->kind == LAYER_CONV ? EPILOGUE_NONE : EPILOGUE_SILU);
    if (s->kind == LAYER_CONV) {
        f->kernels->gate(s->out + i * s->shape.conv, y, s->z + i * s->shape.conv, s->shape.conv,
                         EPILOGUE_NONE);
    } else {
        struct state_inputs in = state_inputs_at(&s->shape, s->inputs + i * s->width);
        set_inputs(f, w, &in, y);
    }
}

/* Normalises an output row: with Gated DeltaNet each head by the same gains, with Mamba-2 the heads of each
 * head of keys together. */
static void norm_output(const struct forward *f, const struct layer *w, float *out)
{
    const struct config *c = config_of(f);
    const bool delta = f->state->kind == LAYER_DELTA;
    const size_t values = config_state_values(c);
    const size_t width = delta ? c->state_value_dim : values / c->state_key_heads;
    for (size_t at = 0; w->state_norm && at < values; at += width)
        f->kernels->rmsnorm(out + at, out + at, width, w->state_norm + (delta ? 0 : at),
                            (float)c->norm_eps);
}

/* The output of one row: skip connection, norm and gate. Body of a parallel loop over rows. */
static void finish_row(void *arg, size_t i)
{
    const struct state_job *job = arg;
    const struct forward *f = job->f;
    const struct config *c = config_of(f);
    struct forward_state *s = f->state;
    const struct layer *w = &f->model->weights.layer[job->layer];
    const size_t dv = c->state_value_dim, values = config_state_values(c);
    const size_t slots = s->padded / c->state_heads;
    const bool delta = s->kind == LAYER_DELTA, first = delta || c->state_norm_first;
    const float *z = s->z + i * values;
    const float *x =
        s->convolved + i * s->shape.conv + conv_parts_of(s->kind, config_state_keys(c), values).v;
    float *out = s->out + i * values;
    for (size_t h = 0; h < c->state_heads; h++) {
        const float *y = s->y + i * s->padded + h * slots;
        for (size_t j = 0; j < dv; j++)
            out[h * dv + j] = delta ? y[j] : y[j] + w->skip[h] * x[h * dv + j];
    }
    if (first)
        norm_output(f, w, out);
    f->kernels->gate(out, out, z, values, EPILOGUE_SILU);
    if (!first)
        norm_output(f, w, out);
    scale_rows(out, (struct row_range){0, 1}, values, c->state_out_scale);
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
    return 0;
}
