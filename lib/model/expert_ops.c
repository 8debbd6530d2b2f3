/* Layers whose MLP is a mixture of experts:
 *
 *   logits = x Wrouter + bias                                in f32, whatever the precision
 *   chosen, weight = route(logits)                           cpu_experts.c
 *   up = act(x Wgate[e]) * (x Wup[e])                        for each chosen expert e
 *   y = sum of weight[e] * (up Wdown[e]) + shared MLP(x)
 *
 * or, with router_input, up of weight[e] * x and the sum without weights; or, with mlp plain, up = act(x Wup[e]).
 *
 * The sum over the experts of a row goes in ascending order of their numbers, then come the bias of the sum, which Nomic Embed 2
 * has, and the shared MLP. */
#include "base/mem.h"
#include "model/op_list.h"

/* chosen, weight = route(x Wrouter + bias) */
static void router(struct builder *b, struct op_arg x, struct op_arg chosen, struct op_arg weight)
{
    const struct config *c = b->c;
    const struct op_arg logits = buffer_of(b, BUFFER_EXPERT_LOGITS, c->moe->experts);
    const struct op_product product = {.w = weight_of(b, &b->w->router), .y = logits, .f32 = true};
    op_linear(b, x, &product, 1);
    append_op(b, OP_ROUTE, logits, chosen, 0)->route =
        (struct op_route){.experts = c->moe->experts,
                          .used = c->moe->used,
                          .kind = (enum router)c->moe->router,
                          .group = (enum router_group)c->moe->group_score,
                          .groups = c->moe->groups,
                          .groups_used = c->moe->groups_used,
                          .norm = c->moe->norm_weights,
                          .scale = (float)c->moe->scale,
                          .jitter = (float)c->moe->jitter,
                          .select_bias = vector_of(b, b->w->select_bias, c->moe->experts),
                          .gain = vector_of(b, b->w->router_gain, c->moe->experts),
                          .chosen = chosen,
                          .weight = weight};
}

/* The input of the router, from the residual stream: of a norm of its own, or that of the MLP. In predictions: if
 * the layer's attention added nothing. */
static void router_input(struct builder *b, struct op_arg to)
{
    const struct config *c = b->c;
    const struct op_arg x = hidden_of(b, BUFFER_X);
    if (sublayer_input(b, BUFFER_H).buffer == BUFFER_X)
        op_copy(b, to, x, c->hidden);
    else
        op_norm(b, x, to, c->hidden, c->moe->beside ? &b->w->router_norm : &b->w->mlp_norm);
    if (c->moe->beside)
        op_scale(b, to, c->hidden, 1 / sqrtf((float)c->hidden));
}

/* The MLP that all tokens use: this rank's columns of its output. */
static struct op_arg shared_mlp(struct builder *b, struct op_arg h)
{
    const struct op_arg up = buffer_of(b, BUFFER_SHARED_UP, b->c->moe->shared_ffn),
                        out = hidden_of(b, BUFFER_SHARED);
    const struct op_product down = {.w = weight_of(b, &b->w->shared_down),
                                    .y = own_columns(b, out, DIM_HIDDEN)};
    struct op_product product = activated(b, b->plan->mlp_limit);
    product.w = weight_of(b, &b->w->shared_up);
    if (b->c->mlp->kind == MLP_GATED)
        product.gate = weight_of(b, &b->w->shared_gate);
    product.y = own_columns(b, up, DIM_SHARED_FFN);
    op_linear(b, h, &product, 1);
    op_gather(b, DIM_SHARED_FFN, product.y, up);
    op_linear(b, up, &down, 1);
    return out;
}

/* The chosen experts, for pairs of a row and an expert. */
static struct op_arg experts_of_rows(struct builder *b, struct op_arg h, struct op_arg chosen,
                                     struct op_arg weight)
{
    const struct config *c = b->c;
    const bool whole = b->f->shard.expert_parallel;
    struct op_arg up = buffer_of(b, BUFFER_EXPERT_UP, c->moe->used * c->moe->ffn),
                  out = buffer_of(b, BUFFER_EXPERT_OUT, c->moe->used * c->hidden),
                  weighed = buffer_of(b, BUFFER_EXPERT_IN,
                                      c->moe->weigh_input ? c->moe->used * c->hidden : 0);
    up.stride = c->moe->ffn;
    out.stride = weighed.stride = c->hidden;
    const struct op_product down = {.w = expert_weight_of(b, &b->w->experts_down, c->hidden),
                                    .y = whole ? out : own_columns(b, out, DIM_HIDDEN)};
    struct op_product product = activated(b, b->plan->expert_limit);
    product.w = expert_weight_of(b, &b->w->experts_up, c->moe->ffn);
    if (c->mlp->kind == MLP_GATED)
        product.gate = expert_weight_of(b, &b->w->experts_gate, c->moe->ffn);
    product.y = whole ? up : own_columns(b, up, DIM_EXPERT_FFN);
    append_product(b, &product);
    append_product(b, &down);
    append_op(b, OP_EXPERTS, h, out, c->hidden)->experts = (struct op_experts){
        .up_all = up,
        .chosen = chosen,
        .weight = weight,
        .weighed = weighed,
        .weigh_inputs = c->moe->weigh_input,
    };
    return out;
}

void mixture_of_experts(struct builder *b, struct op_arg h, struct op_arg y, bool add)
{
    const struct config *c = b->c;
    const struct shard *shard = &b->f->shard;
    const bool whole = shard->expert_parallel && !c->moe->shared_ffn;
    const struct shard_range own =
        whole ? (struct shard_range){0, c->hidden} : shard_local_range(shard, DIM_HIDDEN);
    const struct op_arg chosen = buffer_of(b, BUFFER_CHOSEN, c->moe->used),
                        weight = buffer_of(b, BUFFER_WEIGHT, c->moe->used);
    struct op_arg routed = h, shared = h;
    if (c->moe->beside) {
        routed = hidden_of(b, BUFFER_ROUTED);
        router_input(b, routed);
    }
    router(b, routed, chosen, weight);
    const struct op_arg out = experts_of_rows(b, h, chosen, weight);
    if (c->moe->shared_ffn)
        shared = shared_mlp(b, h);
    append_op(b, OP_MIX, out, y, 0)->mix = (struct op_mix){
        .used = c->moe->used,
        .width = c->hidden,
        .first = own.first,
        .n = own.n,
        .x = h,
        .weight = weight,
        .weighted = !c->moe->weigh_input,
        .add = add,
        .shared_mlp = c->moe->shared_ffn > 0,
        .shared = shared,
        .shared_router = vector_of(b, c->moe->shared_gated ? b->w->shared_router : NULL, c->hidden),
        .bias = vector_of(b, b->w->moe_bias, c->hidden),
    };
    if (!whole)
        op_gather(b, DIM_HIDDEN, columns(y, own.first), y);
}

/* Applies the router to the residual stream before the experts of an earlier layer. Outputs of experts are not
 * there yet, so that their buffer can hold the router's input. */
static void predict_experts(struct builder *b)
{
    const struct op_arg next = hidden_of(b, BUFFER_EXPERT_OUT);
    router_input(b, next);
    router(b, next, buffer_of(b, BUFFER_PREDICTED, b->c->moe->used),
           buffer_of(b, BUFFER_PREDICTED_WEIGHT, b->c->moe->used));
}

void experts_predictions(struct builder *b)
{
    const struct pipeline *p = &b->f->pipeline;
    if (!b->f->model->store)
        return;
    b->list->predict = mem_zalloc(b->c->layers, sizeof *b->list->predict);
    b->failed = b->failed || !b->list->predict;
    b->phase = PHASE_MLP;
    for (size_t layer = p->first_layer; layer < p->first_layer + p->n_layers && !b->failed; layer++) {
        begin_layer(b, layer);
        const size_t first = list_end(b);
        if (b->plan->has_experts)
            predict_experts(b);
        b->list->predict[layer] = (struct op_range){first, list_end(b) - first};
    }
}
