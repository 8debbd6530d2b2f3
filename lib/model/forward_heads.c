/* QK norm and rotary positions. */
#include "model/forward_heads.h"

#include "base/threads.h"
#include "model/forward_norm.h"
#include "model/position.h"

void forward_drop_overlap(const struct linear *linear, float *y, struct row_range rows)
{
    const size_t width = linear->weight.out, n = width - linear->skip;
    for (size_t i = rows.first; linear->skip && i < rows.first + rows.n; i++)
        memmove(y + i * n, y + i * width + linear->skip, n * sizeof *y);
}

/* QK norm over all heads of a token: gathers the ranks' heads, normalises, keeps this rank's. */
static int norm_across_heads(struct forward *f, float *y, enum dim dim, struct row_range rows,
                             const struct norm_weights *weights, struct err *err)
{
    const size_t width = config_dim(f->shard.config, dim);
    const struct shard_range own = shard_local_range(&f->shard, dim);
    float *all = f->attn_out + rows.first * width;
    if (shard_gather_start(&f->shard, dim, f->attn_out, y, own.n, rows, err) < 0 ||
        shard_gather_finish(&f->shard, rows, err) < 0)
        return -1;
    norm_each(f, all, all, rows.n, width, weights);
    for (size_t i = rows.first; i < rows.first + rows.n; i++)
        memcpy(y + i * own.n, f->attn_out + i * width + own.first, own.n * sizeof *y);
    return 0;
}

/* The first of this rank's heads in dimension `dim`. */
static size_t first_head(const struct forward *f, enum dim dim)
{
    return shard_local_range(&f->shard, dim).first / f->local.head_dim;
}

/* Applies QK norm. */
static int norm_qk(struct forward *f, struct row_range rows, size_t layer, struct err *err)
{
    const struct config *c = forward_layer_config(f, layer);
    const struct layer *w = &f->model->weights.layer[layer];
    const bool owns = f->model->config.plan[layer].owns_kv;
    const size_t q_width = config_q_width(c), kv_width = config_kv_width(c), d = c->head_dim;
    float *q = f->q + rows.first * q_width, *k = f->k + rows.first * kv_width;
    switch ((enum qk_norm)c->qk_norm) {
    case QK_NORM_NONE: break;
    case QK_NORM_HEAD:
        norm_each(f, q, q, rows.n * c->heads, d, &w->q_norm);
        if (owns)
            norm_each(f, k, k, rows.n * c->kv_heads, d, &w->k_norm);
        break;
    case QK_NORM_EACH:
        norm_heads(f, q, q, rows.n, c->heads, d, &w->q_norm, first_head(f, DIM_Q));
        if (owns)
            norm_heads(f, k, k, rows.n, c->kv_heads, d, &w->k_norm, first_head(f, DIM_KV));
        break;
    case QK_NORM_WHOLE:
        if (f->shard.ranks)
            return norm_across_heads(f, f->q, DIM_Q, rows, &w->q_norm, err) < 0 ||
                           (owns && norm_across_heads(f, f->k, DIM_KV, rows, &w->k_norm, err) < 0)
                       ? -1
                       : 0;
        norm_each(f, q, q, rows.n, q_width, &w->q_norm);
        if (owns)
            norm_each(f, k, k, rows.n, kv_width, &w->k_norm);
        break;
    }
    return 0;
}

/* Limits the elements of rows of x[][width] to [-limit, limit]. */
static void clip(float *x, struct row_range rows, size_t width, float limit)
{
    x += rows.first * width;
    for (size_t i = 0; i < rows.n * width; i++)
        x[i] = x[i] > limit ? limit : x[i] < -limit ? -limit : x[i];
}

/* Multiplies each row of Q by its factor. */
static void scale_queries(struct forward *f, struct row_range rows, size_t width)
{
    for (size_t i = rows.first; i < rows.first + rows.n; i++)
        for (size_t j = 0; j < width && f->temperature[i] != 1; j++)
            f->q[i * width + j] *= f->temperature[i];
}

struct rotate_job {
    const struct forward *f;
    const struct config *c; /* with the layer's sizes */
    size_t first;
    size_t table; /* that of the layer's enum layer_rope */
    bool keys;    /* not only queries */
};

static void rotate_row(void *arg, size_t index)
{
    const struct rotate_job *job = arg;
    const struct forward *f = job->f;
    const struct config *c = job->c;
    const size_t i = job->first + index, pairs = f->rope_pairs[job->table], rope_dim = 2 * pairs,
                 at = job->table * f->max_rows * f->rope_half + i * pairs;
    const float *cosine = f->cosine + at, *sine = f->sine + at;
    f->kernels->rope(f->q + i * config_q_width(c), c->heads, c->head_dim, rope_dim, cosine, sine);
    if (job->keys)
        f->kernels->rope(f->k + i * config_kv_width(c), c->kv_heads, c->head_dim, rope_dim, cosine,
                         sine);
}

void forward_positions(struct forward *f, const struct step *step)
{
    const struct config *c = &f->model->config;
    for (size_t i = 0; i < step->rows; i++)
        f->temperature[i] = attn_temperature(c, step->position[i]);
    for (size_t i = 0; c->position == POSITION_ROPE && i < step->n_queries * f->rope_tables; i++) {
        const struct attn_query *query = &step->query[i / f->rope_tables];
        const size_t table = i % f->rope_tables, half = f->rope_pairs[table],
                     at = table * f->max_rows * f->rope_half + query->first * half;
        rope_angles(f->frequency + (query->seq * f->rope_tables + table) * f->rope_half, half,
                    rope_gain(&c->rope[table], c->context), step->position + query->first, query->rows,
                    f->cosine + at, f->sine + at);
    }
}

/* What follows the projection of this rank's keys and values, except norms and rotation of keys. */
static void finish_kv(struct forward *f, const struct config *c, const struct layer *w,
                      struct row_range rows)
{
    const size_t width = config_kv_width(c), at = rows.first * width;
    forward_drop_overlap(&w->k, f->k, rows);
    if (w->v.weight.data)
        forward_drop_overlap(&w->v, f->v, rows);
    else /* v_is_k */
        memcpy(f->v + at, f->k + at, rows.n * width * sizeof *f->v);
    scale_rows(f->k, rows, width, c->attn_in_scale);
    scale_rows(f->v, rows, width, c->attn_in_scale);
    scale_rows(f->k, rows, width, c->key_scale);
    if (c->clip_qkv != 0) {
        clip(f->k, rows, width, (float)c->clip_qkv);
        clip(f->v, rows, width, (float)c->clip_qkv);
    }
    if (c->v_norm)
        norm_each(f, f->v + at, f->v + at, rows.n * c->kv_heads, c->head_dim,
                  &(struct norm_weights){0});
}

int forward_finish_qkv(struct forward *f, size_t layer, struct row_range rows, struct err *err)
{
    const struct config *c = forward_layer_config(f, layer);
    const struct layer *w = &f->model->weights.layer[layer];
    const struct layer_plan *plan = &f->model->config.plan[layer];
    const enum layer_rope rope = plan->rope;
    const bool owns = plan->owns_kv, norm = plan->qk_norm;
    struct rotate_job job = {f, c, rows.first, (size_t)rope, owns};
    forward_drop_overlap(&w->q, f->q, rows);
    scale_rows(f->q, rows, config_q_width(c), c->attn_in_scale);
    if (c->clip_qkv != 0)
        clip(f->q, rows, config_q_width(c), (float)c->clip_qkv);
    if (owns)
        finish_kv(f, c, w, rows);
    if (norm && !c->qk_norm_after_rope && norm_qk(f, rows, layer, err) < 0)
        return -1;
    if (rope != LAYER_NOPE)
        parallel_for(rows.n, 8 * rows.n * config_q_width(c), rotate_row, &job);
    if (norm && c->qk_norm_after_rope && norm_qk(f, rows, layer, err) < 0)
        return -1;
    if (plan->temperature)
        scale_queries(f, rows, config_q_width(c));
    return 0;
}
