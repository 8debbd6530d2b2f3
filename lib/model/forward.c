/* The forward pass, a good place to start reading: how token ids become logits.
 *
 *   x = embed(token) (+ position)                        x      [rows][hidden]
 *   for each layer:
 *     h = norm(x)                                        h      [rows][hidden]
 *     q, k, v = h Wq, h Wk, h Wv                         q      [rows][H d]    k, v [rows][KV d]
 *     q, k = rope(qk_norm(q)), rope(qk_norm(k))
 *     append k, v to the KV cache
 *     attn_out = attention(q, cache)                              [rows][H d]
 *     (latent attention, MLA: forward_latent.h; layers with a state: forward_state.h)
 *     x += attn_out Wo
 *     h = norm(x)
 *     up = act(h Wgate) * (h Wup), or act(h Wup)         up     [rows][ffn]
 *     x += up Wdown, or in layers with experts: x += experts(h), see experts.c
 *     (inputs of a layer of its own: forward_input.h)
 *   logits = norm(x) Whead                               logits [n][vocab]
 *
 * One implementation covers all families: the configuration selects norms and their places,
 * position encoding, MLP, and whether attention and MLP run one after the other or in parallel.
 *
 * On several ranks each one computes its shard. Tensor parallel (shard.h): after every product the
 * ranks all-gather its outputs. Pipeline parallel (pipeline.h): x passes from rank to rank. To
 * overlap all-gather with arithmetic, a layer is a list of stages, and each stage runs over the
 * rows in slices; a single process runs all rows at once. */
#include "model/forward.h"

#include <math.h>

#include "base/clock.h"
#include "base/mem.h"
#include "quant/pack.h"
#include "model/experts/forward_beside.h"
#include "model/forward_fusion.h"
#include "model/forward_heads.h"
#include "model/input/forward_input.h"
#include "model/forward_latent.h"
#include "model/forward_norm.h"
#include "model/lora/forward_lora.h"
#include "model/parallel/forward_relay.h"
#include "model/recurrent/forward_state.h"

/* Adds the time since the previous call to that of `phase`, if the forward pass is timed. */
static void lap(const struct forward *f, enum forward_phase phase)
{
    if (!f->times)
        return;
    const double now = clock_ms();
    f->times->ms[phase] += now - f->times->lap_ms;
    f->times->lap_ms = now;
}

/* Describes the product y[rows][out] = x W + bias for gemm_run(). */
static struct product product_of(const struct linear *linear, float *y)
{
    return (struct product){
        .w = &linear->weight, .bias = linear->bias, .y = y, .y_stride = linear->weight.out};
}

/* y = x W + bias (+ residual) for a range of rows; `dim` is the width of y. Each rank computes its
 * shard of y's columns and starts the all-gather; shard_gather_finish() completes it. */
static int gemm_gather(struct forward *f, struct product product, enum dim dim, const float *x,
                       struct row_range rows, struct err *err)
{
    const size_t width = f->shard.ranks ? config_dim(f->shard.config, dim) : product.w->out,
                 first = shard_local_range(&f->shard, dim).first;
    const size_t at = rows.first * width + first, in = product.w->in;
    float *all = product.y;
    product.y += at;
    product.y_stride = width;
    if (product.residual)
        product.residual += at;
    gemm_run(f->gemm, &product, 1, x + rows.first * in, in, rows.n);
    return shard_gather_start(&f->shard, dim, all, all + first, width, rows, err);
}

static int linear_gather(struct forward *f, float *y, enum dim dim, const float *x, size_t n,
                         const struct linear *w, struct err *err)
{
    const struct row_range rows = {0, n};
    return gemm_gather(f, product_of(w, y), dim, x, rows, err) < 0
               ? -1
               : shard_gather_finish(&f->shard, rows, err);
}

/* Where a sublayer's output goes: added to x, or to `branch` where a post-norm or a factor follows. */
static float *output_of(const struct forward *f)
{
    return config_changes_output(&f->model->config) ? f->branch : f->x;
}

/* Output projection of a sublayer, with input `x`: f->x += x W + bias or, where a post-norm or a
 * factor follows, f->branch = x W + bias. */
static int output_projection(struct forward *f, const struct linear *linear, const float *x,
                             struct row_range rows, struct err *err)
{
    struct product product = product_of(linear, output_of(f));
    product.residual = product.y == f->x ? f->x : NULL;
    return gemm_gather(f, product, DIM_HIDDEN, x, rows, err);
}

/* x = norm(embed(token) * scale Win) + position: norm, scale, Win and learned positions only where
 * the model has them. */
static int embed(struct forward *f, const struct step *step, struct err *err)
{
    const struct weights *w = &f->model->weights;
    const struct config *c = &f->model->config;
    if (config_is_draft_head(c)) {
        fusion_embed(f, step);
        return 0;
    }
    const bool projected = w->project_in.weight.data != NULL;
    float *table_rows = projected ? f->embedded : f->x;
    for (size_t i = 0; i < step->rows; i++)
        mat_fetch_row(table_rows + i * c->embed, &w->embed, step->token[i]);
    for (size_t i = 0; c->embed_scale != 0 && i < step->rows * c->embed; i++)
        table_rows[i] *= (float)c->embed_scale;
    if (projected &&
        linear_gather(f, f->x, DIM_HIDDEN, f->embedded, step->rows, &w->project_in, err) < 0)
        return -1;
    if (c->embed_norm)
        norm_rows(f, f->x, f->x, (struct row_range){0, step->rows}, &w->embed_norm);
    forward_input_begin(f, step);
    for (size_t i = 0; c->position == POSITION_LEARNED && i < step->rows; i++) {
        mat_fetch_row(f->h, &w->position, step->position[i] + c->position_offset);
        f->kernels->add(f->x + i * c->hidden, f->h, c->hidden);
    }
    return 0;
}

/* Sliding window of a layer: the smaller of the model's and the KV cache's; 0: none. */
static size_t window_of(const struct forward *f, size_t layer)
{
    const size_t model = f->model->config.plan[layer].window, cache = kv_setup(f->kv)->window;
    return model && cache ? size_min(model, cache) : model + cache;
}

/* context = attention(q, cache), in one call for all sequences or, if f->attn_per_sequence,
 * in one call per sequence, each on all threads. */
static int attend(struct forward *f, const struct attn_step *all, size_t layer, struct err *err)
{
    const float *sinks = f->model->weights.layer[layer].sinks;
    const size_t first_head =
        shard_local_range(&f->shard, DIM_Q).first / config_query_dim(forward_layer_config(f, layer));
    size_t index = f->layer_index[layer].kv;
    struct attn_step step = *all;
    step.kv = kv_of_layer(f->kv, &index);
    struct attn *attn = step.kv == f->kv ? f->attn : f->attn_other;
    const struct attn_layer at = {.index = index,
                                  .window = window_of(f, layer),
                                  .chunk = f->model->config.plan[layer].chunk,
                                  .sinks = sinks ? sinks + first_head : NULL};
    if (!f->attn_per_sequence)
        return attn_run(attn, &step, &at, f->q, f->context, err);
    for (size_t i = 0; i < all->n_queries; i++) {
        struct attn_step one = step;
        one.query = &all->query[i];
        one.n_queries = 1;
        if (attn_begin(attn, &one, err) < 0 || attn_run(attn, &one, &at, f->q, f->context, err) < 0)
            return -1;
    }
    return 0;
}

/* attn_begin() for layers of all sizes. */
static int begin_attention(struct forward *f, const struct attn_step *step, struct err *err)
{
    size_t other = kv_setup(f->kv)->shape.layers;
    struct attn_step second = *step;
    if (attn_begin(f->attn, step, err) < 0)
        return -1;
    second.kv = kv_of_layer(f->kv, &other);
    return f->attn_other ? attn_begin(f->attn_other, &second, err) : 0;
}

/* The input of a sublayer: `normed` if there is a pre-norm, else x. */
static float *sublayer_input(const struct forward *f, float *normed)
{
    const int place = f->model->config.norm_place;
    return place == NORM_BEFORE || place == NORM_AROUND ? normed : f->x;
}

static void pre_norm(const struct forward *f, float *normed, struct row_range rows,
                     const struct norm_weights *norm)
{
    if (sublayer_input(f, normed) == normed)
        norm_rows(f, normed, f->x, rows, norm);
}

/* x += branch * residual_scale */
static void add_branch(const struct forward *f, struct row_range rows)
{
    const struct config *c = &f->model->config;
    const size_t at = rows.first * c->hidden, n = rows.n * c->hidden;
    const float scale = (float)c->residual_scale;
    for (size_t i = 0; scale != 0 && i < n; i++)
        f->branch[at + i] *= scale;
    f->kernels->add(f->x + at, f->branch + at, n);
}

/* After a sublayer, as norm_place says: x += post_norm(branch), or x = norm(x), or nothing. */
static void post_norm(const struct forward *f, struct row_range rows, const struct norm_weights *norm,
                      const struct norm_weights *post_norm)
{
    const struct config *c = &f->model->config;
    if (config_norms_output(c))
        norm_rows(f, f->branch, f->branch, rows, post_norm);
    if (config_changes_output(c)) {
        add_branch(f, rows);
    } else if (c->norm_place == NORM_AFTER) {
        norm_rows(f, f->x, f->x, rows, norm);
    }
}

/* ---- the stages of a layer, each over a range of rows ---- */

/* Computes q, k and v of this rank's heads, with QK norm and RoPE. */
static int project_qkv(struct forward *f, struct row_range rows, size_t layer, const float *h,
                       struct err *err)
{
    const struct layer *w = &f->model->weights.layer[layer];
    if (f->local.latent->kv_rank) {
        latent_project(f, layer, rows, h);
        return 0;
    }
    struct product qkv[] = {product_of(&w->q, f->q), product_of(&w->k, f->k), product_of(&w->v, f->v)};
    const size_t in = w->q.weight.in, n = !w->k.weight.data ? 1 : !w->v.weight.data ? 2 : 3;
    for (size_t i = 0; i < n; i++)
        qkv[i].y += rows.first * qkv[i].y_stride;
    gemm_run(f->gemm, qkv, n, h + rows.first * in, in, rows.n);
    forward_lora_add(f, LORA_Q, layer, h, f->q, w->q.weight.out, rows);
    forward_lora_add(f, LORA_K, layer, h, f->k, w->k.weight.out, rows);
    forward_lora_add(f, LORA_V, layer, h, f->v, w->v.weight.out, rows);
    return forward_finish_qkv(f, layer, rows, err);
}

/* The post-norm of a layer's MLP; runs in the next layer's first stage, as the all-gather of the
 * MLP output must complete first. */
static void mlp_post_norm(struct forward *f, struct row_range rows, size_t layer)
{
    const struct layer *w = &f->model->weights.layer[layer];
    post_norm(f, rows, &w->mlp_norm, &w->mlp_post_norm);
}

/* What follows a layer's MLP. */
static void finish_layer(struct forward *f, struct row_range rows, size_t layer)
{
    mlp_post_norm(f, rows, layer);
    forward_input_add(f, rows, layer);
}

/* q, k, v = rope(qk_norm(norm(x) Wqkv)); a parallel block also computes the MLP's norm from x. */
static int norm_qkv_rope(struct forward *f, struct row_range rows, size_t layer, struct err *err)
{
    const struct layer *w = &f->model->weights.layer[layer];
    if (layer > f->pipeline.first_layer)
        finish_layer(f, rows, layer - 1);
    const bool normed = !f->model->config.no_attn_norm;
    if (normed)
        pre_norm(f, f->h, rows, &w->attn_norm);
    if (f->model->config.block == BLOCK_PARALLEL)
        pre_norm(f, f->branch, rows, &w->mlp_norm);
    lap(f, PHASE_OTHER);
    const float *input = normed ? sublayer_input(f, f->h) : f->x;
    const struct layer_plan *plan = &f->model->config.plan[layer];
    int rc = 0;
    if (plan->has_state)
        forward_state_project(f, rows, layer, input);
    if (plan->attends) {
        input = fusion_attn_input(f, rows, input);
        rc = project_qkv(f, rows, layer, input, err);
        if (f->model->config.attn_gate)
            forward_gate_project(f, rows, layer, input);
    }
    lap(f, PHASE_PROJECTION);
    return rc;
}

/* attn_out = all-gather of attn_out_local */
static int gather_heads(struct forward *f, struct row_range rows, size_t layer, struct err *err)
{
    if (f->local.latent->kv_rank)
        latent_outputs(f, layer, rows);
    if (f->model->config.attn_gate)
        forward_gate_apply(f, rows);
    return shard_gather_start(&f->shard, DIM_ATTN_OUT, f->attn_out, f->attn_out_local,
                              config_attn_width(forward_layer_config(f, layer)), rows, err);
}

/* x += attn_out Wo */
static int attn_output(struct forward *f, struct row_range rows, size_t layer, struct err *err)
{
    lap(f, PHASE_ATTENTION);
    scale_rows(f->attn_out, rows, config_attn_width(&f->model->config),
               f->model->config.attn_out_scale);
    const int rc = output_projection(f, &f->model->weights.layer[layer].out, f->attn_out, rows, err);
    forward_lora_add(f, LORA_OUT, layer, f->attn_out, output_of(f), f->model->config.hidden, rows);
    lap(f, PHASE_PROJECTION);
    return rc;
}

/* state_out = all-gather of this rank's heads */
static int gather_state(struct forward *f, struct row_range rows, size_t layer, struct err *err)
{
    (void)layer;
    return forward_state_gather(f, rows, err);
}

/* x += state_out Wout */
static int state_output(struct forward *f, struct row_range rows, size_t layer, struct err *err)
{
    lap(f, PHASE_ATTENTION);
    const int rc = output_projection(f, &f->model->weights.layer[layer].state_out, forward_state_out(f),
                                     rows, err);
    lap(f, PHASE_PROJECTION);
    return rc;
}

/* up = act(norm(x) Wgate) * (norm(x) Wup), or act(norm(x) Wup); with experts all of the MLP */
static int mlp_up(struct forward *f, struct row_range rows, size_t layer, struct err *err)
{
    const struct config *c = &f->model->config;
    const struct layer *w = &f->model->weights.layer[layer];
    float *h = c->block == BLOCK_PARALLEL ? f->branch : f->h;
    struct product up = product_of(&w->up, f->up);
    post_norm(f, rows, &w->attn_norm, &w->attn_post_norm);
    if (c->block == BLOCK_SEQUENTIAL)
        pre_norm(f, h, rows, &w->mlp_norm);
    lap(f, PHASE_OTHER);
    if (!c->plan[layer].has_mlp) {
        const bool to_branch = config_changes_output(c);
        const size_t at = rows.first * c->hidden;
        float *y = to_branch ? f->branch : f->x;
        const size_t first = shard_local_range(&f->shard, DIM_HIDDEN).first;
        if (experts_run(&f->experts, layer, sublayer_input(f, h) + at, f->x + at, y + at, !to_branch,
                        rows.n, err) < 0)
            return -1;
        return experts_are_whole(&f->experts)
                   ? 0
                   : shard_gather_start(&f->shard, DIM_HIDDEN, y, y + first, c->hidden, rows, err);
    }
    up.act = forward_act(c);
    up.limit = (float)c->swiglu_limit;
    up.alpha = (float)c->swiglu_alpha;
    up.gate_scale = (float)c->gate_scale;
    if (c->mlp == MLP_GATED) {
        up.gate = &w->gate.weight;
        up.gate_bias = w->gate.bias;
    }
    if (forward_lora_adapts_up(f, layer)) {
        forward_lora_up(f, &up, layer, sublayer_input(f, h), rows);
        return 0;
    }
    return gemm_gather(f, up, DIM_FFN, sublayer_input(f, h), rows, err);
}

/* x += up Wdown */
static int mlp_down(struct forward *f, struct row_range rows, size_t layer, struct err *err)
{
    const bool done = !f->model->config.plan[layer].has_mlp;
    scale_rows(f->up, rows, f->model->config.ffn, f->model->config.mlp_scale);
    int rc = done ? 0 : output_projection(f, &f->model->weights.layer[layer].down, f->up, rows, err);
    if (!done)
        forward_lora_add(f, LORA_DOWN, layer, f->up, output_of(f), f->model->config.hidden, rows);
    if (rc == 0)
        rc = forward_beside(f, rows, layer, err);
    lap(f, PHASE_MLP);
    return rc;
}

/* ---- all rows of a forward pass ---- */

typedef int stage(struct forward *f, struct row_range rows, size_t layer, struct err *err);

/* Runs a stage slice by slice: the all-gather of one slice overlaps with computing the next. A single
 * process runs it over `all` at once. */
static int for_each_slice(struct forward *f, struct row_range all, stage *run, size_t layer,
                          struct err *err)
{
    if (!f->shard.ranks)
        return run(f, all, layer, err);
    const size_t slices = shard_slices_of(&f->model->config, all.n);
    for (size_t i = 0; i < slices; i++) {
        const struct row_range rows = shard_rows(all.n, slices, i);
        if (shard_gather_finish(&f->shard, rows, err) < 0 || run(f, rows, layer, err) < 0)
            return -1;
    }
    return 0;
}

/* Appends this layer's k and v of every sequence in the batch to the KV cache. */
static void append_kv(struct forward *f, const struct step *step, size_t layer)
{
    const size_t kv_width = config_kv_width(forward_layer_config(f, layer));
    for (size_t i = 0; i < step->n_queries; i++) {
        const size_t at = step->query[i].first * kv_width;
        kv_append(f->kv, step->query[i].seq, f->layer_index[layer].kv, f->k + at, f->v + at, kv_width);
    }
    forward_relay_keep(f, step, layer);
}

/* Runs one layer, stage by stage; `outputs` are the rows whose output is needed. */
static int run_layer(struct forward *f, const struct step *step, const struct attn_step *attn_step,
                     struct row_range outputs, size_t layer, struct err *err)
{
    const struct layer_plan *plan = &f->model->config.plan[layer];
    const bool attends = plan->attends, has_state = plan->has_state;
    stage *const after[] = {attends ? gather_heads : NULL,
                            attends ? attn_output : NULL,
                            has_state ? gather_state : NULL,
                            has_state ? state_output : NULL,
                            mlp_up,
                            mlp_down};
    shard_set_layer(&f->shard, layer);
    if (for_each_slice(f, (struct row_range){0, step->rows}, norm_qkv_rope, layer, err) < 0)
        return -1;
    tap_layer(f, step->rows, layer);
    if (attends) {
        if (plan->owns_kv)
            append_kv(f, step, layer);
        if (attend(f, attn_step, layer, err) < 0)
            return -1;
    }
    if (has_state && forward_state_run(f, step, layer, err) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(after); i++)
        if (after[i] && for_each_slice(f, outputs, after[i], layer, err) < 0)
            return -1;
    return 0;
}

int forward_step(struct forward *f, const struct step *step, struct err *err)
{
    const struct config *c = &f->model->config;
    const struct attn_step attn_step = {f->kv, f->kernels, step->query, step->n_queries, f->attn_times};
    const struct row_range all = {0, step->rows},
                           outputs = {f->first_output, step->rows - f->first_output};
    if (f->times)
        f->times->lap_ms = clock_ms();
    /* every rank computes the inputs of its layers from embeddings, which x then replaces */
    if (((pipeline_is_first(&f->pipeline) || c->layer_input) && embed(f, step, err) < 0) ||
        pipeline_receive(&f->pipeline, f->x, step->rows * c->hidden, err) < 0 ||
        forward_relay_receive(f, step, err) < 0)
        return -1;
    forward_positions(f, step);
    forward_lora_begin(f, step);
    if (begin_attention(f, &attn_step, err) < 0)
        return -1;
    lap(f, PHASE_OTHER);
    for (size_t layer = 0; layer < f->pipeline.n_layers; layer++) {
        const bool last = layer + 1 == f->pipeline.n_layers;
        if (run_layer(f, step, &attn_step, last ? outputs : all, f->pipeline.first_layer + layer, err) <
            0)
            return -1;
        if (f->layer_done)
            f->layer_done(f->layer_arg, layer + 1, f->pipeline.n_layers);
    }
    if (shard_gather_finish(&f->shard, all, err) < 0)
        return -1;
    finish_layer(f, outputs, f->pipeline.first_layer + f->pipeline.n_layers - 1);
    tap_final(f, step->rows);
    return pipeline_send(&f->pipeline, f->x, step->rows * c->hidden, err) < 0
               ? -1
               : forward_relay_send(f, step, err);
}

/* logits[i] = softcap(norm(x[row[i]]) Whead * logit_scale) */
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
        norm_rows(f, f->h, f->h, (struct row_range){0, n}, &w->final_norm);
    if (w->project_out.weight.data) {
        if (linear_gather(f, f->embedded, DIM_EMBED, f->h, n, &w->project_out, err) < 0)
            return -1;
        rows = f->embedded;
    }
    if (linear_gather(f, logits, DIM_VOCAB, rows, n, &w->head, err) < 0)
        return -1;
    const float cap = (float)c->logit_softcap, scale = (float)c->logit_scale;
    for (size_t i = 0; scale != 0 && i < n * c->vocab; i++)
        logits[i] *= scale;
    for (size_t i = 0; cap > 0 && i < n * c->vocab; i++)
        logits[i] = cap * tanhf(logits[i] / cap);
    lap(f, PHASE_HEAD);
    return 0;
}

size_t forward_submit(struct forward *f) { return f->pipeline.n_requests++; }

int forward_collect(struct forward *f, size_t request, size_t n, float *logits, struct err *err)
{
    return pipeline_receive_logits(&f->pipeline, request, logits, n * f->model->config.vocab, err);
}

int forward_logits(struct forward *f, const size_t *row, size_t n, float *logits, struct err *err)
{
    const size_t request = forward_submit(f);
    const bool first = pipeline_is_first(&f->pipeline), last = pipeline_is_last(&f->pipeline);
    if (last && make_logits(f, row, n, logits, err) < 0)
        return -1;
    if (last && !first)
        return pipeline_send_logits(&f->pipeline, request, logits, n * f->model->config.vocab, err);
    return first && !last ? forward_collect(f, request, n, logits, err) : 0;
}
