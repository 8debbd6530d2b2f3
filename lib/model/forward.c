/* The page to read first: how token ids become logits.
 *
 *   x = embed(token) (+ position)
 *   for every layer                        two halves, one after the other or side by side
 *     h = norm(x)
 *     q, k, v = h Wq, h Wk, h Wv           norms and rotary positions on q and k
 *     the cache takes k and v
 *     x += attention(q, cache) Wo
 *     h = norm(x)
 *     x += act(h Wup) Wdown, or (act(h Wgate) * h Wup) Wdown
 *   logits = norm(x) Whead
 *
 * Of a split model (part.h, chain.h) each rank computes what it has: after every product all ranks get all outputs, or the
 * stream goes on from rank to rank. So that they need not wait for outputs, a layer is a row of stages, each of which goes over
 * the step's rows in pieces; a process alone takes all rows at once. A half's norm may also stand on what it gives, or on the sum (norm_place). One function over the traits of the
 * configuration; no family has code of its own. */
#include "model/forward.h"

#include <math.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pack.h"
#include "model/forward_heads.h"
#include "model/forward_norm.h"

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

/* Runs one product into rows of all outputs `dim`: each rank those that it has. All
 * ranks have all when the rows are finished (part.h). */
static int run_joined(struct forward *f, struct product product, enum dim dim, const float *x,
                      struct rows rows, struct err *err)
{
    const size_t width = config_dim(&f->model->config, dim), first = part_own(&f->part, dim).first;
    const size_t at = rows.first * width + first, in = product.w->in;
    float *all = product.y;
    product.y += at;
    product.y_stride = width;
    if (product.plus)
        product.plus += at;
    gemm_run(f->gemm, &product, 1, x + rows.first * in, in, rows.n);
    return part_start(&f->part, dim, all, all + first, width, rows, err);
}

static int project(struct forward *f, float *y, enum dim dim, const float *x, size_t n,
                   const struct linear *w, struct err *err)
{
    const struct rows rows = {0, n};
    return run_joined(f, product_of(w, y), dim, x, rows, err) < 0 ? -1
                                                                  : part_finish(&f->part, rows, err);
}

/* The product that ends a half: it joins the stream, or waits at the side for its norm. */
static int end_half(struct forward *f, const struct linear *linear, const float *x, struct rows rows,
                    struct err *err)
{
    const bool waits = config_norms_output(&f->model->config);
    struct product product = product_of(linear, waits ? f->side : f->x);
    product.plus = waits ? NULL : f->x;
    return run_joined(f, product, DIM_HIDDEN, x, rows, err);
}

static int embed(struct forward *f, const struct step *step, struct err *err)
{
    const struct weights *w = &f->model->weights;
    const struct config *c = &f->model->config;
    const bool projected = w->project_in.weight.data != NULL;
    float *table_rows = projected ? f->embedded : f->x;
    for (size_t i = 0; i < step->rows; i++)
        mat_fetch_row(table_rows + i * c->embed, &w->embed, step->token[i]);
    for (size_t i = 0; c->embed_scale != 0 && i < step->rows * c->embed; i++)
        table_rows[i] *= (float)c->embed_scale;
    if (projected && project(f, f->x, DIM_HIDDEN, f->embedded, step->rows, &w->project_in, err) < 0)
        return -1;
    if (c->embed_norm)
        norm_rows(f, f->x, f->x, (struct rows){0, step->rows}, &w->embed_norm);
    for (size_t i = 0; c->position == POSITION_LEARNED && i < step->rows; i++) {
        mat_fetch_row(f->h, &w->position, step->position[i] + c->position_offset);
        f->kernels->add(f->x + i * c->hidden, f->h, c->hidden);
    }
    return 0;
}

/* Positions that a query of a layer sees: what the model says, and what the cache keeps; 0: all. */
static size_t window_of(const struct forward *f, size_t layer)
{
    const size_t own = config_window(&f->model->config, layer), kept = kv_setup(f->kv)->window;
    return own && kept ? size_min(own, kept) : own + kept;
}

/* One call for all sequences, or one for each: then every call has all threads to itself. */
static int attend(struct forward *f, const struct attn_step *all, size_t layer, struct err *err)
{
    const struct attn_layer at = {layer - f->chain.first_layer, window_of(f, layer)};
    if (!f->split)
        return attn_run(f->attn, all, &at, f->q, f->attended, err);
    for (size_t i = 0; i < all->n_queries; i++) {
        struct attn_step one = *all;
        one.query = &all->query[i];
        one.n_queries = 1;
        if (attn_begin(f->attn, &one, err) < 0 ||
            attn_run(f->attn, &one, &at, f->q, f->attended, err) < 0)
            return -1;
    }
    return 0;
}

/* What a half reads: the stream, or its norm in `normed`. */
static float *read_by_half(const struct forward *f, float *normed)
{
    const int place = f->model->config.norm_place;
    return place == NORM_BEFORE || place == NORM_AROUND ? normed : f->x;
}

static void before_half(const struct forward *f, float *normed, struct rows rows,
                        const struct norm_weights *norm)
{
    if (read_by_half(f, normed) == normed)
        norm_rows(f, normed, f->x, rows, norm);
}

/* What was left at the side is normed and joins the stream; or the stream is normed. */
static void after_half(const struct forward *f, struct rows rows, const struct norm_weights *norm,
                       const struct norm_weights *post_norm)
{
    const struct config *c = &f->model->config;
    const size_t at = rows.first * c->hidden;
    if (config_norms_output(c)) {
        norm_rows(f, f->side, f->side, rows, post_norm);
        f->kernels->add(f->x + at, f->side + at, rows.n * c->hidden);
    } else if (c->norm_place == NORM_AFTER) {
        norm_rows(f, f->x, f->x, rows, norm);
    }
}

/* ---- stages of a layer, for some rows each ---- */

/* Queries, keys and values of this rank's heads. */
static int project_qkv(struct forward *f, struct rows rows, const struct layer *w, const float *h,
                       struct err *err)
{
    struct product qkv[] = {product_of(&w->q, f->q), product_of(&w->k, f->k), product_of(&w->v, f->v)};
    const size_t in = w->q.weight.in;
    for (size_t i = 0; i < ARRAY_LEN(qkv); i++)
        qkv[i].y += rows.first * qkv[i].y_stride;
    gemm_run(f->gemm, qkv, ARRAY_LEN(qkv), h + rows.first * in, in, rows.n);
    return forward_heads_finish(f, w, rows, err);
}

/* What may be left to do behind the MLP. */
static void end_layer(struct forward *f, struct rows rows, size_t layer)
{
    const struct layer *w = &f->model->weights.layer[layer];
    after_half(f, rows, &w->mlp_norm, &w->mlp_post_norm);
}

static int begin_attention(struct forward *f, struct rows rows, size_t layer, struct err *err)
{
    const struct layer *w = &f->model->weights.layer[layer];
    if (layer > f->chain.first_layer)
        end_layer(f, rows, layer - 1);
    before_half(f, f->h, rows, &w->attn_norm);
    if (f->model->config.block == BLOCK_PARALLEL)
        before_half(f, f->side, rows, &w->mlp_norm);
    lap(f, PART_OTHER);
    const int rc = project_qkv(f, rows, w, read_by_half(f, f->h), err);
    lap(f, PART_PROJECTION);
    return rc;
}

static int join_heads(struct forward *f, struct rows rows, size_t layer, struct err *err)
{
    (void)layer;
    return part_start(&f->part, DIM_Q, f->context, f->attended, config_q_width(&f->own), rows, err);
}

static int end_attention(struct forward *f, struct rows rows, size_t layer, struct err *err)
{
    lap(f, PART_ATTENTION);
    const int rc = end_half(f, &f->model->weights.layer[layer].out, f->context, rows, err);
    lap(f, PART_PROJECTION);
    return rc;
}

static int begin_mlp(struct forward *f, struct rows rows, size_t layer, struct err *err)
{
    static const enum finish_act act[] = {
        [ACT_RELU] = FINISH_RELU,
        [ACT_SILU] = FINISH_SILU,
        [ACT_GELU] = FINISH_GELU,
        [ACT_GELU_TANH] = FINISH_GELU_TANH,
    };
    const struct config *c = &f->model->config;
    const struct layer *w = &f->model->weights.layer[layer];
    float *h = c->block == BLOCK_PARALLEL ? f->side : f->h;
    struct product up = product_of(&w->up, f->up);
    after_half(f, rows, &w->attn_norm, &w->attn_post_norm);
    if (c->block == BLOCK_SEQUENTIAL)
        before_half(f, h, rows, &w->mlp_norm);
    lap(f, PART_OTHER);
    up.act = act[c->activation];
    if (c->mlp == MLP_GATED) {
        up.gate = &w->gate.weight;
        up.gate_bias = w->gate.bias;
    }
    return run_joined(f, up, DIM_FFN, read_by_half(f, h), rows, err);
}

static int end_mlp(struct forward *f, struct rows rows, size_t layer, struct err *err)
{
    const int rc = end_half(f, &f->model->weights.layer[layer].down, f->up, rows, err);
    lap(f, PART_MLP);
    return rc;
}

/* ---- all rows ---- */

typedef int stage(struct forward *f, struct rows rows, size_t layer, struct err *err);

/* All rows of a step, piece by piece: what ranks gather of one piece comes in while others are computed. */
static int each_piece(struct forward *f, size_t n, stage *run, size_t layer, struct err *err)
{
    const size_t pieces = f->part.ranks ? part_pieces(n) : 1;
    for (size_t i = 0; i < pieces; i++) {
        const struct rows rows = part_rows(n, pieces, i);
        if (part_finish(&f->part, rows, err) < 0 || run(f, rows, layer, err) < 0)
            return -1;
    }
    return 0;
}

static void append(struct forward *f, const struct step *step, size_t layer)
{
    const size_t kv_width = config_kv_width(&f->own);
    for (size_t i = 0; i < step->n_queries; i++) {
        const size_t at = step->query[i].first * kv_width;
        kv_append(f->kv, step->query[i].seq, layer - f->chain.first_layer, f->k + at, f->v + at,
                  kv_width);
    }
}

/* One layer: attention, then the MLP, which reads the stream as it is then, or as it was. */
static int run_layer(struct forward *f, const struct step *step, const struct attn_step *attn_step,
                     size_t layer, struct err *err)
{
    stage *const behind[] = {join_heads, end_attention, begin_mlp, end_mlp};
    if (each_piece(f, step->rows, begin_attention, layer, err) < 0)
        return -1;
    append(f, step, layer);
    if (attend(f, attn_step, layer, err) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(behind); i++)
        if (each_piece(f, step->rows, behind[i], layer, err) < 0)
            return -1;
    return 0;
}

int forward_step(struct forward *f, const struct step *step, struct err *err)
{
    const struct config *c = &f->model->config;
    const struct attn_step attn_step = {f->kv, f->kernels, step->query, step->n_queries, f->attn_times};
    const struct rows all = {0, step->rows};
    if (f->times)
        f->times->lap_ms = clock_ms();
    if (chain_receive(&f->chain, f->x, step->rows * c->hidden, err) < 0 ||
        (chain_first(&f->chain) && embed(f, step, err) < 0))
        return -1;
    if (c->position == POSITION_ROPE)
        heads_angles(f, step);
    if (attn_begin(f->attn, &attn_step, err) < 0)
        return -1;
    lap(f, PART_OTHER);
    for (size_t layer = 0; layer < f->own.layers; layer++) {
        if (run_layer(f, step, &attn_step, f->chain.first_layer + layer, err) < 0)
            return -1;
        if (f->layer_done)
            f->layer_done(f->layer_arg, layer + 1, f->own.layers);
    }
    if (part_finish(&f->part, all, err) < 0)
        return -1;
    end_layer(f, all, f->chain.first_layer + f->own.layers - 1);
    return chain_send(&f->chain, f->x, step->rows * c->hidden, err);
}

static int make_logits(struct forward *f, const size_t *row, size_t n, float *logits, struct err *err)
{
    const struct config *c = &f->model->config;
    const struct weights *w = &f->model->weights;
    const float *rows = f->h;
    if (f->times)
        f->times->lap_ms = clock_ms();
    for (size_t i = 0; i < n; i++)
        memcpy(f->h + i * c->hidden, f->x + row[i] * c->hidden, c->hidden * sizeof *f->h);
    if (c->final_norm)
        norm_rows(f, f->h, f->h, (struct rows){0, n}, &w->final_norm);
    if (w->project_out.weight.data) {
        if (project(f, f->embedded, DIM_EMBED, f->h, n, &w->project_out, err) < 0)
            return -1;
        rows = f->embedded;
    }
    if (project(f, logits, DIM_VOCAB, rows, n, &w->head, err) < 0)
        return -1;
    const float cap = (float)c->logit_softcap;
    for (size_t i = 0; cap > 0 && i < n * c->vocab; i++)
        logits[i] = cap * tanhf(logits[i] / cap);
    lap(f, PART_HEAD);
    return 0;
}

size_t forward_ask(struct forward *f) { return f->chain.questions++; }

int forward_take(struct forward *f, size_t question, size_t n, float *logits, struct err *err)
{
    return chain_take(&f->chain, question, logits, n * f->model->config.vocab, err);
}

int forward_logits(struct forward *f, const size_t *row, size_t n, float *logits, struct err *err)
{
    const size_t question = forward_ask(f);
    const bool first = chain_first(&f->chain), last = chain_last(&f->chain);
    if (last && make_logits(f, row, n, logits, err) < 0)
        return -1;
    if (last && !first)
        return chain_give(&f->chain, question, logits, n * f->model->config.vocab, err);
    return first && !last ? forward_take(f, question, n, logits, err) : 0;
}
