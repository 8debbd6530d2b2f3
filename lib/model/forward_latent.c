/* Latent attention: projections before and after attention. */
#include "model/forward_latent.h"

#include "base/threads.h"
#include "model/forward_heads.h"
#include "model/lora/forward_lora.h"
#include "quant/pack.h"

/* An array of heads, [rows][stride], whose head h begins at element h * step of a row. */
struct head_rows {
    float *at;
    size_t stride, step;
};

/* Rows of the matrix of one head, in a matrix of all heads one after the other. */
static struct mat head_matrix(const struct mat *all, size_t heads, size_t head)
{
    struct mat own = *all;
    own.out = all->out / heads; /* a multiple of PACK_OUT, as config_read() checks */
    own.data = (const char *)all->data +
               head * own.out / PACK_OUT * pack_block_bytes(all->dtype, all->in_padded);
    return own;
}

/* y_h = x_h W_h^T for every head h, for `n` rows. */
static void multiply_heads(struct forward *f, const struct mat *w, struct head_rows y,
                           struct head_rows x, size_t n)
{
    const size_t heads = f->local.heads;
    for (size_t h = 0; h < heads; h++) {
        const struct mat own = head_matrix(w, heads, h);
        const struct product product = {.w = &own, .y = y.at + h * y.step, .y_stride = y.stride};
        gemm_run(f->gemm, &product, 1, x.at + h * x.step, x.stride, n);
    }
}

struct latent_rows {
    struct forward *f;
    const struct layer *w;
    size_t first;
    const float *cosine, *sine; /* of row 0 of the batch */
};

static void norm_latent(const struct forward *f, float *x, size_t n, const struct norm_weights *weights)
{
    const struct config *c = &f->local;
    const double eps = c->latent->norm_eps != 0 ? c->latent->norm_eps : c->norm_eps;
    f->kernels->rmsnorm(x, x, n, weights->gain, (float)eps);
}

static void norm_query(void *arg, size_t index)
{
    const struct latent_rows *job = arg;
    const size_t width = job->f->local.latent->q_rank;
    norm_latent(job->f, job->f->q_a + (job->first + index) * width, width, &job->w->q_a_norm);
}

/* Norm and RoPE of a row of K; RoPE of its queries, and their copy to f->q behind the part that
 * multiply_heads() fills. */
static void finish_row(void *arg, size_t index)
{
    const struct latent_rows *job = arg;
    struct forward *f = job->f;
    const struct config *c = &f->local;
    const size_t i = job->first + index, d = config_query_dim(c), rope = c->rope->dim;
    float *k = f->k + i * c->head_dim, *q_heads = f->q_heads + i * c->heads * d;
    norm_latent(f, k, c->latent->kv_rank, &job->w->kv_a_norm);
    if (job->cosine) {
        const float *cosine = job->cosine + i * (rope / 2), *sine = job->sine + i * (rope / 2);
        f->kernels->rope(k + c->latent->kv_rank, 1, rope, rope, cosine, sine);
        f->kernels->rope(q_heads + c->latent->nope_dim, c->heads, d, rope, cosine, sine);
    }
    for (size_t h = 0; h < c->heads; h++)
        memcpy(f->q + (i * c->heads + h) * c->head_dim + c->latent->kv_rank,
               q_heads + h * d + c->latent->nope_dim, rope * sizeof *q_heads);
}

static struct product product_of(const struct linear *linear, float *y, size_t first)
{
    const size_t width = linear->weight.out;
    return (struct product){
        .w = &linear->weight, .bias = linear->bias, .y = y + first * width, .y_stride = width};
}

void latent_project(struct forward *f, size_t layer, struct row_range rows, const float *h)
{
    const struct config *c = &f->local;
    const struct layer *w = &f->model->weights.layer[layer];
    const enum layer_rope rope = c->plan[layer].rope;
    const size_t table = (size_t)rope * f->max_rows * (c->rope->dim / 2), d = config_query_dim(c);
    const bool rotated = rope != LAYER_NOPE;
    struct latent_rows job = {f, w, rows.first, rotated ? f->cosine + table : NULL,
                              rotated ? f->sine + table : NULL};
    const struct product q = product_of(&w->q, f->q_heads, rows.first);
    const struct product first[] = {
        c->latent->q_rank ? product_of(&w->q_a, f->q_a, rows.first) : q,
        product_of(&w->k, f->k, rows.first),
    };
    gemm_run(f->gemm, first, ARRAY_LEN(first), h + rows.first * w->k.weight.in, w->k.weight.in, rows.n);
    if (!c->latent->q_rank)
        forward_lora_add(f, LORA_Q, layer, h, f->q_heads, w->q.weight.out, rows);
    forward_lora_add(f, LORA_KV_A, layer, h, f->k, w->k.weight.out, rows);
    if (c->latent->q_rank) {
        forward_lora_add(f, LORA_Q_A, layer, h, f->q_a, c->latent->q_rank, rows);
        parallel_for(rows.n, 4 * rows.n * c->latent->q_rank, norm_query, &job);
        gemm_run(f->gemm, &q, 1, f->q_a + rows.first * c->latent->q_rank, c->latent->q_rank, rows.n);
        forward_lora_add(f, LORA_Q_B, layer, f->q_a, f->q_heads, w->q.weight.out, rows);
    }
    forward_drop_overlap(&w->q, f->q_heads, rows);
    parallel_for(rows.n, 8 * rows.n * c->heads * d, finish_row, &job);
    const size_t q_width = c->heads * d, absorbed = config_q_width(c);
    multiply_heads(f, &w->k_b.weight,
                   (struct head_rows){f->q + rows.first * absorbed, absorbed, c->head_dim},
                   (struct head_rows){f->q_heads + rows.first * q_width, q_width, d}, rows.n);
}

void latent_outputs(struct forward *f, size_t layer, struct row_range rows)
{
    const struct config *c = &f->local;
    const size_t in = config_context_width(c), out = config_attn_width(c);
    multiply_heads(f, &f->model->weights.layer[layer].v_b.weight,
                   (struct head_rows){f->attn_out_local + rows.first * out, out, c->latent->v_dim},
                   (struct head_rows){f->context + rows.first * in, in, c->latent->kv_rank}, rows.n);
}
