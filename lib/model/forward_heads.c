/* From products to queries and keys: norms and positions. */
#include "model/forward_heads.h"

#include "base/threads.h"
#include "model/forward_norm.h"
#include "model/position.h"

/* Columns that are another rank's leave the rows. */
static void drop_skipped(const struct linear *linear, float *y, size_t rows)
{
    const size_t width = linear->weight.out, n = width - linear->skip;
    for (size_t i = 0; linear->skip && i < rows; i++)
        memmove(y + i * n, y + i * width + linear->skip, n * sizeof *y);
}

/* A norm over all heads, of which this rank has some. */
static int norm_whole(struct forward *f, float *y, enum dim dim, size_t rows,
                      const struct norm_weights *weights, struct err *err)
{
    const size_t width = config_dim(&f->model->config, dim);
    const struct piece own = part_own(&f->part, dim);
    if (part_join(&f->part, dim, f->context, y, own.n, rows, err) < 0)
        return -1;
    norm_each(f, f->context, f->context, rows, width, weights);
    for (size_t i = 0; i < rows; i++)
        memcpy(y + i * own.n, f->context + i * width + own.first, own.n * sizeof *y);
    return 0;
}

/* Queries and keys are normed: each head by itself, or a row as a whole. */
static int norm_qk(struct forward *f, size_t rows, const struct layer *w, struct err *err)
{
    const struct config *c = &f->own;
    const size_t q = config_dim(c, DIM_Q_NORM), k = config_dim(c, DIM_K_NORM);
    if (f->part.ranks && c->qk_norm == QK_NORM_WHOLE)
        return norm_whole(f, f->q, DIM_Q, rows, &w->q_norm, err) < 0
                   ? -1
                   : norm_whole(f, f->k, DIM_KV, rows, &w->k_norm, err);
    norm_each(f, f->q, f->q, rows * (config_q_width(c) / q), q, &w->q_norm);
    norm_each(f, f->k, f->k, rows * (config_kv_width(c) / k), k, &w->k_norm);
    return 0;
}

static void rotate_row(void *arg, size_t i)
{
    const struct forward *f = arg;
    const struct config *c = &f->own;
    const size_t turned = config_rope_dim(c), at = i * (turned / 2);
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

int forward_heads_finish(struct forward *f, const struct layer *w, size_t rows, struct err *err)
{
    const struct config *c = &f->own;
    drop_skipped(&w->q, f->q, rows);
    drop_skipped(&w->k, f->k, rows);
    drop_skipped(&w->v, f->v, rows);
    if (c->qk_norm && norm_qk(f, rows, w, err) < 0)
        return -1;
    if (c->position == POSITION_ROPE)
        threads_each(rows, 8 * rows * config_q_width(c), rotate_row, f);
    return 0;
}
