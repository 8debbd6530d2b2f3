/* The page to read first: how token ids become logits.
 *
 *   x = embed(token) (+ position)
 *   for every layer
 *     h = norm(x)                          before the block, or after it (OPT-350M)
 *     q, k, v = h Wq, h Wk, h Wv           rotary positions on q and k
 *     the cache takes k and v
 *     x += attention(q, cache) Wo
 *     h = norm(x)
 *     x += act(h Wup) Wdown, or (act(h Wgate) * h Wup) Wdown
 *   logits = norm(x) Whead
 *
 * One function over the traits of the configuration; no family has code of its own. */
#include "model/forward.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pack.h"
#include "base/threads.h"
#include "model/position.h"

static size_t q_width(const struct config *c) { return c->heads * c->head_dim; }
static size_t kv_width(const struct config *c) { return c->kv_heads * c->head_dim; }

int forward_open(struct forward *f, const struct model *model, const struct kernels *kernels,
                 enum precision precision, const struct attn_backend *backend, struct kv *kv,
                 size_t max_rows, struct err *err)
{
    const struct config *c = &model->config;
    *f = (struct forward){.model = model, .kernels = kernels, .kv = kv, .max_rows = max_rows};
    struct {
        float **buffer;
        size_t width;
    } const table[] = {
        {&f->x, c->hidden},        {&f->h, c->hidden},
        {&f->q, q_width(c)},       {&f->k, kv_width(c)},
        {&f->v, kv_width(c)},      {&f->context, q_width(c)},
        {&f->up, c->ffn},          {&f->embedded, c->embed != c->hidden ? c->embed : 1},
        {&f->cosine, c->head_dim}, {&f->sine, c->head_dim},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        *table[i].buffer = mem_alloc(max_rows, table[i].width * sizeof(float));
        if (!*table[i].buffer) {
            err_set(err, "out of memory: a step of %zu rows needs a buffer of %zu x %zu", max_rows,
                    max_rows, table[i].width);
            goto fail;
        }
    }
    f->frequency = mem_alloc(c->head_dim, sizeof(float));
    if (!f->frequency) {
        err_set(err, "out of memory");
        goto fail;
    }
    rope_frequencies(c, f->frequency);
    const struct attn_shape shape = {c->heads, c->kv_heads, c->head_dim, 0, 0, NULL};
    const struct attn_limits limits = {kv->shape.max_rows, max_rows, kv->n_seqs};
    const size_t widest = size_max(size_max(c->hidden, c->ffn), size_max(q_width(c), c->embed));
    if (gemm_open(&f->gemm, kernels, precision, max_rows, widest, err) == 0 &&
        attn_open(&f->attn, backend, &shape, &limits, err) == 0)
        return 0;
fail:
    forward_close(f);
    return -1;
}

void forward_close(struct forward *f)
{
    attn_close(f->attn);
    gemm_close(f->gemm);
    float *const buffers[] = {f->x,  f->h,        f->q,      f->k,    f->v,        f->context,
                              f->up, f->embedded, f->cosine, f->sine, f->frequency};
    for (size_t i = 0; i < ARRAY_LEN(buffers); i++)
        free(buffers[i]);
    *f = (struct forward){0};
}

struct norm_job {
    const struct forward *f;
    float *y;
    const float *x;
    const struct norm_weights *weights;
};

static void norm_row(void *arg, size_t i)
{
    const struct norm_job *job = arg;
    const struct config *c = &job->f->model->config;
    const struct norm_weights *w = job->weights;
    const float eps = (float)c->norm_eps;
    const size_t n = c->hidden;
    if (c->norm == NORM_RMS)
        job->f->kernels->rmsnorm(job->y + i * n, job->x + i * n, n, w->gain, eps);
    else
        job->f->kernels->layernorm(job->y + i * n, job->x + i * n, n, w->gain, w->bias, eps);
}

/* y = norm(x), row by row; y may be x. */
static void norm_rows(const struct forward *f, float *y, const float *x, size_t rows,
                      const struct norm_weights *weights)
{
    struct norm_job job = {f, y, x, weights};
    threads_each(rows, 8 * rows * f->model->config.hidden, norm_row, &job);
}

/* The time since the last lap belongs to `part`. */
static void lap(const struct forward *f, enum forward_part part)
{
    if (!f->times)
        return;
    const double now = clock_ms();
    f->times->ms[part] += now - f->times->lap_ms;
    f->times->lap_ms = now;
}

/* y[rows][out] = x W + bias */
static struct product product_of(const struct linear *linear, float *y)
{
    return (struct product){
        .w = &linear->weight, .bias = linear->bias, .y = y, .y_stride = linear->weight.out};
}

/* y = x W, for matrices without a bias. */
static void project(const struct forward *f, float *y, const float *x, size_t rows, const struct mat *w)
{
    const struct product product = {.w = w, .y = y, .y_stride = w->out};
    gemm_run(f->gemm, &product, 1, x, w->in, rows);
}

static void embed(struct forward *f, const struct step *step)
{
    const struct weights *w = &f->model->weights;
    const struct config *c = &f->model->config;
    const bool projected = w->project_in.data != NULL;
    float *table_rows = projected ? f->embedded : f->x;
    for (size_t i = 0; i < step->rows; i++)
        mat_fetch_row(table_rows + i * c->embed, &w->embed, step->token[i]);
    if (projected)
        project(f, f->x, f->embedded, step->rows, &w->project_in);
    if (c->position != POSITION_LEARNED)
        return;
    for (size_t i = 0; i < step->rows; i++) {
        mat_fetch_row(f->h, &w->position, step->position[i] + c->position_offset);
        f->kernels->add(f->x + i * c->hidden, f->h, c->hidden);
    }
}

static void rotate_row(void *arg, size_t i)
{
    const struct forward *f = arg;
    const struct config *c = &f->model->config;
    const float *cosine = f->cosine + i * (c->head_dim / 2), *sine = f->sine + i * (c->head_dim / 2);
    f->kernels->rope(f->q + i * q_width(c), c->heads, c->head_dim, cosine, sine);
    f->kernels->rope(f->k + i * kv_width(c), c->kv_heads, c->head_dim, cosine, sine);
}

/* One call for all sequences, or one for each: then every call has all threads to itself. */
static int attend(struct forward *f, const struct attn_step *all, size_t layer, struct err *err)
{
    const struct attn_layer at = {layer, 0};
    if (!f->split)
        return attn_run(f->attn, all, &at, f->q, f->context, err);
    for (size_t i = 0; i < all->n_queries; i++) {
        struct attn_step one = *all;
        one.query = &all->query[i];
        one.n_queries = 1;
        if (attn_begin(f->attn, &one, err) < 0 ||
            attn_run(f->attn, &one, &at, f->q, f->context, err) < 0)
            return -1;
    }
    return 0;
}

/* x += attention(h) */
static int attention_block(struct forward *f, const struct step *step,
                           const struct attn_step *attn_step, size_t layer, const float *h,
                           struct err *err)
{
    const struct config *c = &f->model->config;
    const struct layer *w = &f->model->weights.layer[layer];
    const struct product qkv[] = {product_of(&w->q, f->q), product_of(&w->k, f->k),
                                  product_of(&w->v, f->v)};
    gemm_run(f->gemm, qkv, ARRAY_LEN(qkv), h, c->hidden, step->rows);
    if (c->position == POSITION_ROPE)
        threads_each(step->rows, 8 * step->rows * q_width(c), rotate_row, f);
    lap(f, PART_PROJECTION);
    for (size_t i = 0; i < step->n_queries; i++) {
        const size_t at = step->query[i].first * kv_width(c);
        kv_append(f->kv, step->query[i].seq, layer, f->k + at, f->v + at, kv_width(c));
    }
    if (attend(f, attn_step, layer, err) < 0)
        return -1;
    lap(f, PART_ATTENTION);
    struct product out = product_of(&w->out, f->x);
    out.plus = f->x;
    gemm_run(f->gemm, &out, 1, f->context, q_width(c), step->rows);
    lap(f, PART_PROJECTION);
    return 0;
}

/* x += mlp(h) */
static void mlp_block(struct forward *f, size_t rows, size_t layer, const float *h)
{
    static const enum finish_act act[] = {
        [ACT_RELU] = FINISH_RELU,
        [ACT_SILU] = FINISH_SILU,
        [ACT_GELU] = FINISH_GELU,
        [ACT_GELU_TANH] = FINISH_GELU_TANH,
    };
    const struct config *c = &f->model->config;
    const struct layer *w = &f->model->weights.layer[layer];
    struct product up = product_of(&w->up, f->up), down = product_of(&w->down, f->x);
    up.act = act[c->activation];
    if (c->mlp == MLP_GATED) {
        up.gate = &w->gate.weight;
        up.gate_bias = w->gate.bias;
    }
    down.plus = f->x;
    gemm_run(f->gemm, &up, 1, h, c->hidden, rows);
    gemm_run(f->gemm, &down, 1, f->up, c->ffn, rows);
}

int forward_step(struct forward *f, const struct step *step, struct err *err)
{
    const struct config *c = &f->model->config;
    const bool before = c->norm_place == NORM_BEFORE;
    const float *h = before ? f->h : f->x;
    const struct attn_step attn_step = {f->kv, f->kernels, step->query, step->n_queries, f->attn_times};
    if (f->times)
        f->times->lap_ms = clock_ms();
    embed(f, step);
    if (c->position == POSITION_ROPE)
        rope_angles(f->frequency, c->head_dim / 2, step->position, step->rows, f->cosine, f->sine);
    if (attn_begin(f->attn, &attn_step, err) < 0)
        return -1;
    lap(f, PART_OTHER);
    for (size_t layer = 0; layer < c->layers; layer++) {
        const struct layer *w = &f->model->weights.layer[layer];
        if (before)
            norm_rows(f, f->h, f->x, step->rows, &w->attn_norm);
        lap(f, PART_OTHER);
        if (attention_block(f, step, &attn_step, layer, h, err) < 0)
            return -1;
        norm_rows(f, before ? f->h : f->x, f->x, step->rows, before ? &w->mlp_norm : &w->attn_norm);
        lap(f, PART_OTHER);
        mlp_block(f, step->rows, layer, h);
        lap(f, PART_MLP);
        if (!before)
            norm_rows(f, f->x, f->x, step->rows, &w->mlp_norm);
    }
    return 0;
}

void forward_logits(struct forward *f, const size_t *row, size_t n, float *logits)
{
    const struct config *c = &f->model->config;
    const struct weights *w = &f->model->weights;
    const float *rows = f->h;
    if (f->times)
        f->times->lap_ms = clock_ms();
    for (size_t i = 0; i < n; i++)
        memcpy(f->h + i * c->hidden, f->x + row[i] * c->hidden, c->hidden * sizeof *f->h);
    if (c->final_norm)
        norm_rows(f, f->h, f->h, n, &w->final_norm);
    if (w->project_out.data) {
        project(f, f->embedded, f->h, n, &w->project_out);
        rows = f->embedded;
    }
    project(f, logits, rows, n, &w->head);
    lap(f, PART_HEAD);
}
