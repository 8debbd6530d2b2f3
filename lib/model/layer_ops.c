/* The operations of a forward pass, a good place to start reading: how token ids become logits. For Llama:
 *
 *   x = embed(token)                                                    x      [rows][hidden]
 *   for each layer:
 *     h = norm(x)                                       norm            h      [rows][hidden]
 *     q, k, v = h Wq, h Wk, h Wv                        linear          q      [rows][H d]    k, v [rows][KV d]
 *     q, k = rope(q), rope(k)                           rope
 *     append k, v to the KV cache                       append
 *     attn_out = attention(q, cache)                    attend                 [rows][H d]
 *     x += attn_out Wo                                  linear
 *     h = norm(x)                                       norm
 *     up = silu(h Wgate) * (h Wup)                      linear          up     [rows][ffn]
 *     x += up Wdown                                     linear
 *   logits = norm(x) Whead                              pick, norm, linear     [n][vocab]
 *
 * The functions below append these operations to a list, once, and forward_step() runs them in every pass. Families
 * differ in what the configuration and the plan of layers say: norms and their places, factors, position encoding, MLP,
 * and whether attention and MLP run one after the other or in parallel. Files beside this one have latent
 * attention (latent_ops.c), layers with recurrent state (state_ops.c), experts (expert_ops.c), and embeddings
 * (embed_ops.c).
 *
 * On several ranks each one computes its shard. Tensor parallel (shard.h): after every product the ranks all-gather
 * its outputs. Pipeline parallel (pipeline.h): x passes from rank to rank. */
#include "base/mem.h"
#include "kv/kv.h"
#include "model/op_list.h"
#include "model/position.h"

/* ---- sublayers ---- */

/* After a sublayer, as norm_place says: x += post_norm(branch), or x = norm(x), or nothing. */
static void post_norm(struct builder *b, const struct norm_weights *norm,
                      const struct norm_weights *own)
{
    const struct op_arg x = hidden_of(b, BUFFER_X), branch = output_of(b);
    const size_t n = b->c->hidden;
    b->phase = PHASE_OTHER;
    if (config_norms_output(b->c))
        op_norm(b, branch, branch, n, own);
    if (config_changes_output(b->c)) {
        op_scale(b, branch, n, b->c->residual_scale);
        op_add(b, x, branch, n);
    } else if (b->c->norm_place == NORM_AFTER) {
        op_norm(b, x, x, n, norm);
    }
}

/* ---- attention ---- */

/* Norms of the heads of Q or K; over all heads of a token, every rank normalises all of them. */
static void qk_norm(struct builder *b, struct op_arg x, size_t heads, enum dim dim,
                    const struct norm_weights *weights)
{
    const size_t d = b->own.head_dim;
    const struct shard_range own = shard_local_range(&b->f->shard, dim);
    switch ((enum qk_norm)b->c->qk_norm) {
    case QK_NORM_NONE: break;
    case QK_NORM_HEAD: op_norm_groups(b, x, d, heads, false, 0, weights); break;
    case QK_NORM_EACH: op_norm_groups(b, x, d, heads, true, own.first / d, weights); break;
    case QK_NORM_WHOLE:
        if (b->f->shard.ranks) {
            const size_t width = config_dim(b->sizes, dim);
            const struct op_arg all = buffer_of(b, BUFFER_ATTN_OUT, width);
            op_gather(b, dim, x, all);
            op_norm(b, all, all, width, weights);
            op_copy(b, x, columns(all, own.first), own.n);
        } else {
            op_norm(b, x, x, heads * d, weights);
        }
        break;
    }
}

static void qk_norms(struct builder *b, struct op_arg q, struct op_arg k)
{
    qk_norm(b, q, b->own.heads, DIM_Q, &b->w->q_norm);
    if (b->plan->owns_kv)
        qk_norm(b, k, b->own.kv_heads, DIM_KV, &b->w->k_norm);
}

static void rotate(struct builder *b, struct op_arg q, struct op_arg k)
{
    const struct config *c = &b->own;
    const size_t table = (size_t)b->plan->rope;
    if (b->plan->rope == LAYER_NOPE)
        return;
    append_op(b, OP_ROPE, q, q, c->heads * c->head_dim)->rope = (struct op_rope){
        table,
        b->f->rope_pairs[table],
        b->plan->owns_kv ? 2 : 1,
        {{q, c->heads, c->head_dim}, {k, c->kv_heads, c->head_dim}},
    };
}

/* q, k, v = h Wq, h Wk, h Wv, of this rank's heads; q, k = rope(qk_norm(q)), rope(qk_norm(k)) */
static void project_heads(struct builder *b, struct op_arg h, struct op_arg q, struct op_arg k,
                          struct op_arg v)
{
    const struct config *c = b->c;
    const size_t q_width = config_q_width(&b->own), kv_width = config_kv_width(&b->own);
    const bool owns = b->plan->owns_kv, norm = b->plan->qk_norm;
    const struct op_product qkv[] = {
        {.w = weight_of(b, &b->w->q), .y = q, .adapter = adapter_of(b, LORA_Q)},
        {.w = weight_of(b, &b->w->k), .y = k, .adapter = adapter_of(b, LORA_K)},
        {.w = weight_of(b, &b->w->v), .y = v, .adapter = adapter_of(b, LORA_V)}};
    op_linear(b, h, qkv, ARRAY_LEN(qkv));
    op_scale(b, q, q_width, c->attn_in_scale);
    op_clip(b, q, q_width, c->clip_qkv);
    if (owns) {
        if (!b->w->v.weight.data) /* v_is_k */
            op_copy(b, v, k, kv_width);
        op_scale(b, k, kv_width, c->attn_in_scale);
        op_scale(b, v, kv_width, c->attn_in_scale);
        op_scale(b, k, kv_width, c->key_scale);
        op_clip(b, k, kv_width, c->clip_qkv);
        op_clip(b, v, kv_width, c->clip_qkv);
        if (c->v_norm)
            op_norm_groups(b, v, b->own.head_dim, b->own.kv_heads, false, 0, &(struct norm_weights){0});
    }
    if (norm && !c->qk_norm_after_rope)
        qk_norms(b, q, k);
    rotate(b, q, k);
    if (norm && c->qk_norm_after_rope)
        qk_norms(b, q, k);
}

/* Sliding window of a layer: the smaller of the model's and the KV cache's; 0: none. */
static size_t window_of(const struct builder *b)
{
    const size_t model = b->plan->window, cache = kv_layer_window(&b->setup);
    return model && cache ? size_min(model, cache) : model + cache;
}

/* Number in the cache of a layer that has KV entries, or of the one whose entries it uses. */
static size_t kv_index_of(const struct builder *b)
{
    return config_kv_index(b->c, b->f->pipeline.first_layer, b->f->pipeline.n_layers, b->layer);
}

/* The operands of attention. */
struct attention_args {
    struct op_arg q, k, v, context, heads, all;
};

/* `heads` is the output of this rank's heads; attention computes it or, in latent attention, what it follows from. */
static struct attention_args attention_of(struct builder *b)
{
    const struct config *c = &b->own;
    const size_t width = config_attn_width(c);
    const bool latent = c->latent->kv_rank > 0;
    struct attention_args a = {.q = buffer_of(b, BUFFER_Q, config_q_width(c)),
                               .k = buffer_of(b, BUFFER_K, config_kv_width(c)),
                               .v = buffer_of(b, latent ? BUFFER_K : BUFFER_V, config_kv_width(c)),
                               .all = buffer_of(b, BUFFER_ATTN_OUT, config_attn_width(b->sizes))};
    a.heads = b->f->shard.ranks ? buffer_of(b, BUFFER_ATTN_HEADS, width) : a.all;
    a.context = latent ? buffer_of(b, BUFFER_LATENTS, config_context_width(c)) : a.heads;
    return a;
}

/* Gates of the output of this rank's heads. */
static struct op_arg attn_gates(struct builder *b)
{
    const struct config *c = &b->own;
    return buffer_of(b, BUFFER_GATE, c->attn_gate == ATTN_GATE_HEAD ? c->heads : config_attn_width(c));
}

/* Rounds inputs of products to 8 bits per token, as BitNet b1.58 (Ma et al. 2024) does. */
static void round_inputs(struct builder *b, struct op_arg x, size_t width)
{
    if (b->plan->round_inputs)
        append_op(b, OP_ROUND, x, x, width);
}

/* q, k and v, and the gate of the output */
static void attention_projections(struct builder *b, const struct attention_args *a, struct op_arg h)
{
    b->phase = PHASE_PROJECTION;
    round_inputs(b, h, b->c->hidden);
    if (b->own.latent->kv_rank)
        latent_projection(b, h, a->q, a->k);
    else
        project_heads(b, h, a->q, a->k, a->v);
    if (b->plan->temperature)
        append_op(b, OP_SCALE, a->q, a->q, config_q_width(&b->own))->scale.temperature = true;
    if (b->c->attn_gate) {
        const struct op_product gate = {.w = weight_of(b, &b->w->attn_gate),
                                        .y = attn_gates(b),
                                        .adapter = adapter_of(b, LORA_ATTN_GATE)};
        op_linear(b, h, &gate, 1);
    }
}

/* The number of the layer's shape of attention. */
static size_t attn_shape_of(struct builder *b, size_t first_head)
{
    struct forward *f = b->f;
    const struct config *c = &b->own;
    const struct attn_shape own = {.heads = c->heads,
                                   .kv_heads = c->kv_heads,
                                   .head_dim = c->head_dim,
                                   .v_dim = c->latent->kv_rank,
                                   .scale = (float)attn_scale(c),
                                   .chosen = c->latent->index_heads > 0,
                                   .softcap = (float)c->attn_softcap,
                                   .slopes =
                                       c->position == POSITION_ALIBI ? f->slopes + first_head : NULL};
    size_t i = 0;
    for (; i < f->n_attn; i++)
        if (f->attn[i].heads == own.heads && f->attn[i].kv_heads == own.kv_heads &&
            f->attn[i].head_dim == own.head_dim && f->attn[i].slopes == own.slopes)
            return i;
    f->attn[f->n_attn++] = own;
    return i;
}

/* True if the queries beside a layer's keys are all that attend to these: no other layer's, which another rank may have, and
 * none in the space of latent vectors. */
static bool quantize_for_queries(const struct builder *b)
{
    return !b->own.latent->kv_rank && !config_kv_read_from(b->c, b->layer, b->layer + 1, b->c->layers);
}

/* context = attention(q, cache) */
static void attend(struct builder *b, const struct attention_args *a)
{
    const size_t first_head = shard_local_range(&b->f->shard, DIM_Q).first / config_query_dim(&b->own);
    b->phase = PHASE_ATTENTION;
    if (b->plan->owns_kv) {
        append_op(b, OP_APPEND, a->k, a->k, config_kv_width(&b->own))->append =
            (struct op_append){a->v, kv_index_of(b), a->q, quantize_for_queries(b) ? b->own.heads : 0};
        if (b->f->relay)
            append_op(b, OP_KEEP_KV, a->k, a->v, config_kv_width(&b->own));
    }
    struct op_attend attend = {
        .layer = kv_index_of(b),
        .window = window_of(b),
        .chunk = b->plan->chunk,
        .ahead = b->plan->ahead,
        .shape = attn_shape_of(b, first_head),
        .sinks = vector_of(b, b->w->sinks ? b->w->sinks + first_head : NULL, b->own.heads)};
    latent_choice(b, &attend);
    append_op(b, OP_ATTEND, a->q, a->context, 0)->attend = attend;
}

/* x += attn_out Wo */
static void attention_output(struct builder *b, const struct attention_args *a)
{
    const size_t width = config_attn_width(&b->own);
    b->phase = PHASE_ATTENTION;
    if (b->own.latent->kv_rank)
        latent_outputs(b, a->context, a->heads);
    if (b->c->attn_gate)
        op_gate_groups(b, a->heads, attn_gates(b), width, width / attn_gates(b).stride);
    op_gather(b, DIM_ATTN_OUT, a->heads, a->all);
    if (b->plan->sub_norm)
        op_norm(b, a->all, a->all, config_attn_width(b->sizes), &b->w->attn_sub_norm);
    round_inputs(b, a->all, config_attn_width(b->sizes));
    b->phase = PHASE_PROJECTION;
    op_scale(b, a->all, a->all.stride, b->c->attn_out_scale);
    output_projection(b, a->all, &b->w->out, adapter_of(b, LORA_OUT));
}

/* ---- MLP ---- */

/* up = act(max(gate - cutoff, 0)) * (h Wup) for gate = h Wgate, where the cutoff follows from the mean and the standard
 * deviation of the row (Gaussian top-k). */
static void sparse_mlp(struct builder *b, struct op_arg h, struct op_arg up)
{
    const size_t n = b->plan->ffn;
    const struct op_arg gate = buffer_of(b, BUFFER_GATE, n);
    const struct op_product products[] = {
        {.w = weight_of(b, &b->w->gate),
         .y = own_columns(b, gate, DIM_FFN),
         .adapter = adapter_of(b, LORA_GATE)},
        {.w = weight_of(b, &b->w->up),
         .y = own_columns(b, up, DIM_FFN),
         .adapter = adapter_of(b, LORA_UP)},
    };
    op_linear(b, h, products, ARRAY_LEN(products));
    op_gather(b, DIM_FFN, products[0].y, gate);
    op_gather(b, DIM_FFN, products[1].y, up);
    append_op(b, OP_SPARSIFY, gate, gate, n)->limit = (float)b->plan->cutoff;
    op_gate(b, up, gate, n, activated(b, 0).act);
}

/* up = act(h Wgate) * (h Wup), or act(h Wup) */
static void dense_mlp(struct builder *b, struct op_arg h, struct op_arg up)
{
    struct op_product product = activated(b, b->plan->mlp_limit);
    product.w = weight_of(b, &b->w->up);
    if (b->c->mlp->kind == MLP_GATED)
        product.gate = weight_of(b, &b->w->gate);
    product.gate_scale = (float)b->c->mlp->gate_scale;
    product.y = own_columns(b, up, DIM_FFN);
    product.adapter = adapter_of(b, LORA_UP);
    product.gate_adapter = adapter_of(b, LORA_GATE);
    op_linear(b, h, &product, 1);
    op_gather(b, DIM_FFN, product.y, up);
}

/* x += up Wdown */
static void mlp(struct builder *b, struct op_arg h)
{
    const struct op_arg up = buffer_of(b, BUFFER_UP, b->plan->ffn);
    round_inputs(b, h, b->c->hidden);
    if (b->plan->sparse)
        sparse_mlp(b, h, up);
    else
        dense_mlp(b, h, up);
    if (b->plan->sub_norm)
        op_norm(b, up, up, b->plan->ffn, &b->w->mlp_sub_norm);
    round_inputs(b, up, b->plan->ffn);
    op_scale(b, up, up.stride, b->c->mlp->out_scale);
    output_projection(b, up, &b->w->down, adapter_of(b, LORA_DOWN));
}

/* branch = norm(branch) + norm(experts(norm(x))), where `branch` is the MLP's output and each norm has gains of its
 * own */
static void experts_beside(struct builder *b)
{
    const struct op_arg branch = hidden_of(b, BUFFER_BRANCH), h = hidden_of(b, BUFFER_H),
                        beside = hidden_of(b, BUFFER_BESIDE);
    const size_t n = b->c->hidden;
    op_norm(b, branch, branch, n, &b->w->mlp_own_norm);
    op_norm(b, hidden_of(b, BUFFER_X), h, n, &b->w->moe_norm);
    mixture_of_experts(b, h, beside, false);
    op_norm(b, beside, beside, n, &b->w->moe_post_norm);
    op_add(b, branch, beside, n);
}

/* ---- layers ---- */

/* Attention, the recurrent state, or both on the same input; `*mlp_input` is that of an MLP in parallel. */
static void mixing_sublayer(struct builder *b, struct op_arg *mlp_input)
{
    const struct layer_plan *plan = b->plan;
    const struct attention_args attention = attention_of(b);
    struct op_arg h = hidden_of(b, BUFFER_X);
    if (plan->attn_norm)
        h = pre_norm(b, BUFFER_H, &b->w->attn_norm);
    laurel(b, h);
    if (b->c->block == BLOCK_PARALLEL)
        *mlp_input = pre_norm(b, BUFFER_MLP_IN, &b->w->mlp_norm);
    b->phase = PHASE_PROJECTION;
    if (plan->has_state)
        state_projection(b, h);
    if (plan->attends) {
        attention_projections(b, &attention, join_embedding(b, h));
        attend(b, &attention);
    }
    if (plan->has_state)
        state_recurrence(b);
    b->list->outputs_from = list_end(b);
    if (plan->attends)
        attention_output(b, &attention);
    if (plan->has_state)
        state_output(b);
    post_norm(b, &b->w->attn_norm, &b->w->attn_post_norm);
    add_laurel(b);
}

static void mlp_sublayer(struct builder *b, struct op_arg input)
{
    const struct layer_plan *plan = b->plan;
    if (b->c->block == BLOCK_SEQUENTIAL)
        input = pre_norm(b, BUFFER_H, &b->w->mlp_norm);
    b->phase = PHASE_MLP;
    if (plan->has_mlp)
        mlp(b, input);
    else
        mixture_of_experts(b, input, output_of(b), !config_changes_output(b->c));
    if (plan->has_mlp && plan->has_experts)
        experts_beside(b);
    post_norm(b, &b->w->mlp_norm, &b->w->mlp_post_norm);
}

static void one_layer(struct builder *b)
{
    struct op_arg mlp_input = sublayer_input(b, BUFFER_H);
    b->phase = PHASE_OTHER;
    append_op(b, OP_TAP, hidden_of(b, BUFFER_X), hidden_of(b, BUFFER_X), b->c->hidden);
    b->list->outputs_from = list_end(b);
    predict_streams(b);
    if (!layer_kind_is_mlp(b->plan->kind))
        mixing_sublayer(b, &mlp_input);
    if (b->plan->has_mlp || b->plan->has_experts)
        mlp_sublayer(b, mlp_input);
    correct_streams(b);
    add_layer_input(b);
}

void layer_operations(struct builder *b)
{
    const struct pipeline *p = &b->f->pipeline;
    for (size_t layer = p->first_layer; layer < p->first_layer + p->n_layers; layer++) {
        begin_layer(b, layer);
        one_layer(b);
    }
    merge_streams(b);
    /* the final hidden states, for taps */
    const struct op_arg x = hidden_of(b, BUFFER_X);
    append_op(b, OP_TAP, x, x, b->c->hidden)->layer = b->c->layers;
    append_op(b, OP_TAP, x, x, b->c->hidden)->layer = HIDDEN_FINAL;
}

/* norm(x[row[i]]), in the width of the embedding */
static struct op_arg head_input(struct builder *b)
{
    const struct config *c = b->c;
    struct op_arg h = hidden_of(b, BUFFER_H);
    b->phase = PHASE_HEAD;
    append_op(b, OP_PICK, hidden_of(b, BUFFER_X), h, c->hidden);
    if (c->final_norm)
        op_norm(b, h, h, c->hidden, &b->weights->final_norm);
    if (b->weights->project_out.weight.data) {
        const struct op_arg embedded = buffer_of(b, BUFFER_EMBEDDED, c->embed);
        const struct op_product product = {.w = weight_of(b, &b->weights->project_out),
                                           .y = own_columns(b, embedded, DIM_EMBED)};
        op_linear(b, h, &product, 1);
        op_gather(b, DIM_EMBED, product.y, embedded);
        h = embedded;
    }
    return h;
}

static void finish_logits(struct builder *b, struct op_arg logits, size_t n)
{
    op_scale(b, logits, n, b->c->logit_scale);
    if (b->c->logit_softcap > 0)
        append_op(b, OP_SOFTCAP, logits, logits, n)->limit = (float)b->c->logit_softcap;
}

/* logits[i] = softcap(norm(x[row[i]]) Whead * logit_scale) */
void head_operations(struct builder *b)
{
    const struct op_arg logits = buffer_of(b, BUFFER_LOGITS, b->c->vocab), h = head_input(b);
    const struct op_product product = {.w = weight_of(b, &b->weights->head),
                                       .y = own_columns(b, logits, DIM_VOCAB)};
    b->list->head_weight = product.w;
    op_linear(b, h, &product, 1);
    op_gather(b, DIM_VOCAB, product.y, logits);
    finish_logits(b, logits, b->c->vocab);
}

/* The same of a block of tokens, which forward_token_logits() chooses. */
void token_head_operations(struct builder *b)
{
    const size_t n = size_min(PACK_OUT, b->c->vocab);
    const struct op_arg logits = buffer_of(b, BUFFER_LOGITS, n);
    struct op_product product = {.w = b->list->head_weight, .y = logits};
    if (b->c->no_head || b->f->shard.ranks || b->f->pipeline.ranks)
        return;
    const struct op_arg h = head_input(b);
    product.w.matrix.out = n;
    b->list->token_product = b->list->n_products;
    op_linear(b, h, &product, 1);
    finish_logits(b, logits, n);
}

/* A product after pooling; activations stay f32, as there are few of them. */
static void pooled_product(struct builder *b, struct op_arg x, const struct linear *w, struct op_arg y,
                           enum epilogue_act act)
{
    const struct op_product product = {.w = weight_of(b, w), .y = y, .f32 = true, .act = act};
    op_linear(b, x, &product, 1);
}

/* Dense layers after pooling: those of models for embeddings (sentence-transformers' Dense), and heads of classifiers.
 *
 *   y = norm(act(W1 x + b1)), z = W2 y + b2        each layer, bias and the LayerNorm only where the model has it
 *
 * for the pooled hidden state x. */
void pooled_operations(struct builder *b)
{
    static const enum epilogue_act act[] = {[POOLED_PLAIN] = EPILOGUE_NONE,
                                            [POOLED_TANH] = EPILOGUE_NONE,
                                            [POOLED_GELU] = EPILOGUE_GELU,
                                            [POOLED_RELU] = EPILOGUE_RELU};
    const struct config *c = b->c;
    const struct weights *w = b->weights;
    if (!config_has_pooled_head(c))
        return;
    struct op_arg x = hidden_of(b, BUFFER_H);
    b->phase = PHASE_HEAD;
    if (c->pooled.dense) {
        const struct op_arg y = buffer_of(b, BUFFER_UP, c->pooled.dense);
        pooled_product(b, x, &w->pooled_dense, y, act[c->pooled.activation]);
        if (c->pooled.activation == POOLED_TANH)
            append_op(b, OP_SOFTCAP, y, y, c->pooled.dense)->limit = 1; /* limit * tanh(y / limit) */
        if (c->pooled.norm)
            op_norm(b, y, y, c->pooled.dense, &w->pooled_norm)->norm.kind = NORM_LAYER;
        x = y;
    }
    if (c->pooled.out)
        pooled_product(b, x, &w->pooled_out, buffer_of(b, BUFFER_BRANCH, c->pooled.out), EPILOGUE_NONE);
}
