/* QK norm and rotary positions. */
#include "model/forward_heads.h"

#include "base/threads.h"
#include "model/forward_norm.h"
#include "model/position.h"

/* Removes the leading linear->skip columns of rows of y: they belong to another rank's heads. */
static void drop_overlap(const struct linear *linear, float *y, struct row_range rows)
{
    const size_t width = linear->weight.out, n = width - linear->skip;
    for (size_t i = rows.first; linear->skip && i < rows.first + rows.n; i++)
        memmove(y + i * n, y + i * width + linear->skip, n * sizeof *y);
}

/* QK norm over all heads of a token: gathers the ranks' heads, normalises, keeps this rank's. */
static int norm_across_heads(struct forward *f, float *y, enum dim dim, struct row_range rows,
                             const struct norm_weights *weights, struct err *err)
{
    const size_t width = config_dim(&f->model->config, dim);
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

/* Applies QK norm, over each head or over all heads of a token. */
static int norm_qk(struct forward *f, struct row_range rows, const struct layer *w, struct err *err)
{
    const struct config *c = &f->local;
    const size_t q = config_dim(c, DIM_Q_NORM), k = config_dim(c, DIM_K_NORM);
    const size_t q_width = config_q_width(c), kv_width = config_kv_width(c);
    float *q_rows = f->q + rows.first * q_width, *k_rows = f->k + rows.first * kv_width;
    if (f->shard.ranks && c->qk_norm == QK_NORM_WHOLE)
        return norm_across_heads(f, f->q, DIM_Q, rows, &w->q_norm, err) < 0
                   ? -1
                   : norm_across_heads(f, f->k, DIM_KV, rows, &w->k_norm, err);
    norm_each(f, q_rows, q_rows, rows.n * (q_width / q), q, &w->q_norm);
    norm_each(f, k_rows, k_rows, rows.n * (kv_width / k), k, &w->k_norm);
    return 0;
}

struct rotate_job {
    const struct forward *f;
    size_t first;
    size_t table; /* that of the layer's enum layer_rope */
};

static void rotate_row(void *arg, size_t index)
{
    const struct rotate_job *job = arg;
    const struct forward *f = job->f;
    const struct config *c = &f->local;
    const size_t i = job->first + index, rope_dim = config_rope_dim(c),
                 at = (job->table * f->max_rows + i) * (rope_dim / 2);
    const float *cosine = f->cosine + at, *sine = f->sine + at;
    f->kernels->rope(f->q + i * config_q_width(c), c->heads, c->head_dim, rope_dim, cosine, sine);
    f->kernels->rope(f->k + i * config_kv_width(c), c->kv_heads, c->head_dim, rope_dim, cosine, sine);
}

void forward_rope_angles(struct forward *f, const struct step *step)
{
    const struct config *c = &f->model->config;
    const size_t half = config_rope_dim(c) / 2;
    for (size_t i = 0; i < step->n_queries * f->rope_tables; i++) {
        const struct attn_query *query = &step->query[i / f->rope_tables];
        const size_t table = i % f->rope_tables, at = (table * f->max_rows + query->first) * half;
        rope_angles(f->frequency + (query->seq * f->rope_tables + table) * half, half,
                    rope_gain(c, (enum layer_rope)table), step->position + query->first, query->rows,
                    f->cosine + at, f->sine + at);
    }
}

int forward_finish_qkv(struct forward *f, size_t layer, struct row_range rows, struct err *err)
{
    const struct config *c = &f->local;
    const struct layer *w = &f->model->weights.layer[layer];
    const enum layer_rope rope = config_layer_rope(c, layer);
    struct rotate_job job = {f, rows.first, (size_t)rope};
    drop_overlap(&w->q, f->q, rows);
    drop_overlap(&w->k, f->k, rows);
    drop_overlap(&w->v, f->v, rows);
    if (c->qk_norm && norm_qk(f, rows, w, err) < 0)
        return -1;
    if (rope != LAYER_NOPE)
        parallel_for(rows.n, 8 * rows.n * config_q_width(c), rotate_row, &job);
    return 0;
}
