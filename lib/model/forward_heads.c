/* From products to queries and keys: norms and positions. */
#include "model/forward_heads.h"

#include "base/threads.h"
#include "model/forward_norm.h"
#include "model/position.h"

/* Columns that are another rank's leave the rows. */
static void drop_skipped(const struct linear *linear, float *y, struct rows rows)
{
    const size_t width = linear->weight.out, n = width - linear->skip;
    for (size_t i = rows.first; linear->skip && i < rows.first + rows.n; i++)
        memmove(y + i * n, y + i * width + linear->skip, n * sizeof *y);
}

/* A norm over all heads, of which this rank has some. */
static int norm_whole(struct forward *f, float *y, enum dim dim, struct rows rows,
                      const struct norm_weights *weights, struct err *err)
{
    const size_t width = config_dim(&f->model->config, dim);
    const struct piece own = part_own(&f->part, dim);
    float *all = f->context + rows.first * width;
    if (part_start(&f->part, dim, f->context, y, own.n, rows, err) < 0 ||
        part_finish(&f->part, rows, err) < 0)
        return -1;
    norm_each(f, all, all, rows.n, width, weights);
    for (size_t i = rows.first; i < rows.first + rows.n; i++)
        memcpy(y + i * own.n, f->context + i * width + own.first, own.n * sizeof *y);
    return 0;
}

/* Queries and keys are normed: each head by itself, or a row as a whole. */
static int norm_qk(struct forward *f, struct rows rows, const struct layer *w, struct err *err)
{
    const struct config *c = &f->own;
    const size_t q = config_dim(c, DIM_Q_NORM), k = config_dim(c, DIM_K_NORM);
    const size_t q_width = config_q_width(c), kv_width = config_kv_width(c);
    float *q_rows = f->q + rows.first * q_width, *k_rows = f->k + rows.first * kv_width;
    if (f->part.ranks && c->qk_norm == QK_NORM_WHOLE)
        return norm_whole(f, f->q, DIM_Q, rows, &w->q_norm, err) < 0
                   ? -1
                   : norm_whole(f, f->k, DIM_KV, rows, &w->k_norm, err);
    norm_each(f, q_rows, q_rows, rows.n * (q_width / q), q, &w->q_norm);
    norm_each(f, k_rows, k_rows, rows.n * (kv_width / k), k, &w->k_norm);
    return 0;
}

struct rotate_job {
    const struct forward *f;
    size_t first;
};

static void rotate_row(void *arg, size_t index)
{
    const struct rotate_job *job = arg;
    const struct forward *f = job->f;
    const struct config *c = &f->own;
    const size_t i = job->first + index, turned = config_rope_dim(c), at = i * (turned / 2);
    const float *cosine = f->cosine + at, *sine = f->sine + at;
    f->kernels->rope(f->q + i * config_q_width(c), c->heads, c->head_dim, turned, cosine, sine);
    f->kernels->rope(f->k + i * config_kv_width(c), c->kv_heads, c->head_dim, turned, cosine, sine);
}

void heads_angles(struct forward *f, const struct step *step)
{
    const struct config *c = &f->model->config;
    const size_t half = config_rope_dim(c) / 2;
    const double gain = rope_gain(c);
    for (size_t i = 0; i < step->n_queries; i++) {
        const struct attn_query *query = &step->query[i];
        const size_t first = query->first;
        rope_angles(f->frequency + query->seq * half, half, gain, step->position + first, query->rows,
                    f->cosine + first * half, f->sine + first * half);
    }
}

int forward_heads_finish(struct forward *f, const struct layer *w, struct rows rows, struct err *err)
{
    const struct config *c = &f->own;
    struct rotate_job job = {f, rows.first};
    drop_skipped(&w->q, f->q, rows);
    drop_skipped(&w->k, f->k, rows);
    drop_skipped(&w->v, f->v, rows);
    if (c->qk_norm && norm_qk(f, rows, w, err) < 0)
        return -1;
    if (c->position == POSITION_ROPE)
        threads_each(rows.n, 8 * rows.n * config_q_width(c), rotate_row, &job);
    return 0;
}
