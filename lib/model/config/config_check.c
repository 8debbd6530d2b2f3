/* What concerns several keys of a configuration: keys that only repeat others are reset, so that equal models have equal
 * text, and conditions are checked. */
#include "model/config/config_keys.h"

#include "quant/pack.h"

const char *const config_place_names[] = {"before", "after", "output", "around", NULL};
const char *const config_block_names[] = {"sequential", "parallel", "parallel_shared", NULL};

/* ---- keys that say the same as others ---- */

/* Empties `list` if every layer has its default value. */
static void drop_defaults(const struct config *c, struct layer_list *list,
                          int (*standard)(const struct config *c, size_t layer))
{
    for (size_t layer = 0; layer < c->layers && list->n; layer++)
        if ((int)list->value[layer % list->n] != standard(c, layer))
            return;
    list->n = 0;
}

static int standard_kind(const struct config *c, size_t layer)
{
    return (int)keys_default_kind(c, layer);
}
static int standard_rope(const struct config *c, size_t layer)
{
    return (int)keys_default_rope(c, layer);
}

/* A list of sizes of heads replaces the key for layers with full attention, and the key of the others is its largest;
 * a list of equal sizes is none. */
static void reset_size_list(struct layer_list *list, size_t *size, size_t *of_full)
{
    if (!list->n)
        return;
    *size = *of_full = 0;
    for (size_t i = 0; i < list->n; i++)
        *size = size_max(*size, list->value[i]);
    if (list->n == 1)
        list->n = 0;
}

/* Sizes of layers with full attention that are those of the others, or of all layers, are no others. */
static void reset_sizes(struct config *c, struct config_keys *keys)
{
    const struct {
        struct layer_list *list;
        size_t *size, *of_full;
    } sizes[] = {{&keys->layer_heads, &c->heads, &keys->full_heads},
                 {&keys->layer_kv_heads, &c->kv_heads, &keys->full_kv_heads},
                 {&keys->layer_head_dim, &c->head_dim, &keys->full_head_dim}};
    bool all = true, any = false;
    for (size_t layer = 0; layer < c->layers; layer++) {
        const bool full = keys_kind(c, layer) == LAYER_FULL;
        all &= full;
        any |= full;
    }
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        reset_size_list(sizes[i].list, sizes[i].size, sizes[i].of_full);
        if (all && *sizes[i].of_full)
            *sizes[i].size = *sizes[i].of_full;
        if (all || !any || *sizes[i].of_full == *sizes[i].size)
            *sizes[i].of_full = 0;
    }
    if (!keys->kv_shared || keys->kv_shared_ffn == c->ffn)
        keys->kv_shared_ffn = 0;
}

/* A table of per-layer embeddings with all rows, activations of which none is dropped, and limits that are none, are reset. */
static void reset_inputs(struct config *c, struct config_keys *keys)
{
    struct factors *const lists[] = {&keys->activation_sparsity, &keys->mlp_limits,
                                     &keys->expert_limits};
    for (size_t list = 0; list < ARRAY_LEN(lists); list++) {
        bool any = false;
        for (size_t i = 0; i < lists[list]->n; i++)
            any |= lists[list]->x[i] > 0;
        if (!any)
            lists[list]->n = 0;
    }
    if (!c->layer_input.width || c->layer_input.vocab == c->vocab)
        c->layer_input.vocab = 0;
}

/* Checks what depends on shared keys and values. */
static int check_sources(const struct config *c, const char *name, struct err *err)
{
    const size_t shared = c->keys->kv_shared;
    if (shared >= c->layers)
        return err_set(err, "%s: kv_shared must be less than the %zu layers, found %zu", name,
                       c->layers, shared);
    for (size_t layer = c->layers - shared; layer < c->layers; layer++)
        if (keys_kind(c, keys_kv_source(c, layer)) != keys_kind(c, layer))
            return err_set(err,
                           "%s: layer %zu has no keys and values, and no layer of its kind before "
                           "the last kv_shared, %zu, has any",
                           name, layer, shared);
    return 0;
}

/* last_full that says nothing new is reset. */
static void reset_last_full(const struct config *c, struct config_keys *keys)
{
    const bool last_full = keys->last_full;
    keys->last_full = false;
    keys->last_full = last_full && keys_kind(c, c->layers - 1) != LAYER_FULL;
}

int config_finish_layers(struct config_text *text, const char *name, struct err *err)
{
    struct config_keys *keys = &text->keys;
    struct config *c = &text->config;
    reset_last_full(c, keys);
    drop_defaults(c, &keys->layer_types, standard_kind);
    drop_defaults(c, &keys->layer_rope, standard_rope);
    for (size_t layer = 0; layer < c->layers && !keys->window; layer++) {
        const enum layer_kind kind = keys_kind(c, layer);
        if (kind == LAYER_SLIDING || kind == LAYER_CHUNKED)
            return err_set(err, "%s: layer_types has %s attention in layer %zu, but there is no window",
                           name, kind == LAYER_SLIDING ? "sliding" : "chunked", layer);
    }
    if (c->position != POSITION_ROPE && keys->layer_rope.n)
        return err_set(err, "%s: layer_rope needs position rope", name);
    reset_sizes(c, keys);
    reset_inputs(c, keys);
    return check_sources(c, name, err);
}

void config_reset_state(struct config_text *text)
{
    for (size_t layer = 0; layer < text->config.layers; layer++)
        if (layer_kind_has_state(keys_kind(&text->config, layer)))
            return;
    const struct recurrent_plan old = text->keys.recurrent;
    text->keys.recurrent = (struct recurrent_plan){
        .in_scale = old.in_scale, .out_scale = old.out_scale, .scales = old.scales, .norm = true};
}

/* ---- checks ---- */

/* Layers with the same rotation must have heads of the same size. */
static int check_rotations(const struct config *c, const char *name, struct err *err)
{
    bool differ = false;
    for (size_t layer = 0; layer < c->layers; layer++)
        differ |= c->plan[layer].head_dim != c->head_dim;
    for (size_t layer = 0; layer < c->layers && differ; layer++) {
        const enum layer_rope rope = c->plan[layer].rope;
        const size_t dim = c->plan[layer].head_dim;
        if (rope != LAYER_NOPE && c->rope[rope].dim != dim)
            return err_set(err,
                           "%s: heads of layer %zu have %zu elements, but others with the same "
                           "rotation have %zu, or rope_dim is given",
                           name, layer, dim, c->rope[rope].dim);
    }
    return 0;
}

/* All sizes of a recurrence, or none of them. */
static int check_state_sizes(const struct config *c, enum layer_kind kind, const char *name,
                             struct err *err)
{
    const size_t heads = c->recurrent->heads, key_heads = c->recurrent->key_heads;
    if (kind == LAYER_CONV) {
        if (!heads && !key_heads && !c->recurrent->key_dim && !c->recurrent->value_dim)
            return 0;
        return err_set(err, "%s: layers of kind conv have no state_heads, found %zu", name, heads);
    }
    if (!heads || !key_heads || heads % key_heads || !c->recurrent->key_dim || !c->recurrent->value_dim)
        return err_set(
            err,
            "%s: layers of kind delta and mamba need sizes above 0, and state_heads a multiple "
            "of state_key_heads; found %zu heads of %zu, and %zu heads of keys of %zu",
            name, heads, c->recurrent->value_dim, key_heads, c->recurrent->key_dim);
    if (config_conv_width(c) > MAX_WIDTH)
        return err_set(err, "%s: a recurrent state of %zu heads of %zu and %zu of %zu is too wide",
                       name, heads, c->recurrent->value_dim, key_heads, c->recurrent->key_dim);
    return 0;
}

/* Checks the keys of layers with recurrent state. */
static int check_state(const struct config *c, const char *name, struct err *err)
{
    const enum layer_kind kind = config_state_kind(c);
    if (!layer_kind_has_state(kind))
        return 0;
    for (size_t layer = 0; layer < c->layers; layer++) {
        const enum layer_kind own = c->plan[layer].kind;
        if (layer_kind_has_state(own) && own != kind)
            return err_set(err, "%s: layer_types has layers with state of several kinds", name);
    }
    if (kind == LAYER_MAMBA_FULL && config_changes_output(c))
        return err_set(
            err, "%s: layers of kind mamba+full need norm_place before and no residual_scale", name);
    if (c->recurrent->conv_kernel < 2)
        return err_set(err, "%s: layers with a state need a conv_kernel from 2 to 64, found %zu", name,
                       c->recurrent->conv_kernel);
    if ((c->recurrent->by_row || c->recurrent->rank || c->recurrent->gate) && kind != LAYER_DELTA)
        return err_set(err, "%s: state_by_row, state_rank and state_gate need layers of kind delta",
                       name);
    if (config_is_draft_head(c) || c->block != BLOCK_SEQUENTIAL || c->keys->no_attn_norm)
        return err_set(err, "%s: layers with a state need a sequential block, and no draft head", name);
    return check_state_sizes(c, kind, name, err);
}

/* Sizes of attention and of the MLP are given if there are such layers, and only then. */
static int check_sublayers(const struct config *c, const char *name, struct err *err)
{
    bool attends = false, has_mlp = false, is_mlp = false;
    for (size_t layer = 0; layer < c->layers; layer++) {
        attends |= c->plan[layer].attends;
        has_mlp |= c->plan[layer].has_mlp;
        is_mlp |= layer_kind_is_mlp(c->plan[layer].kind);
    }
    if (attends != (c->heads && c->kv_heads && c->head_dim) ||
        (!attends && (c->heads || c->kv_heads || c->head_dim)))
        return err_set(err,
                       "%s: heads, kv_heads and head_dim must be %s, as %s layer has attention; found "
                       "%zu, %zu and %zu",
                       name, attends ? "above 0" : "0", attends ? "a" : "no", c->heads, c->kv_heads,
                       c->head_dim);
    if (has_mlp && !c->ffn)
        return err_set(err, "%s: layers with an MLP need an ffn above 0", name);
    if (is_mlp && !c->keys->one_sublayer)
        return err_set(err, "%s: layers of kind mlp and experts need one_sublayer", name);
    if (c->keys->one_sublayer && (c->norm_place != NORM_BEFORE || c->block != BLOCK_SEQUENTIAL ||
                                  c->moe->beside || config_is_draft_head(c)))
        return err_set(err,
                       "%s: one_sublayer needs a sequential block and norm_place before, and excludes "
                       "expert_beside and draft heads",
                       name);
    return 0;
}

/* Checks that the RoPE parameters are consistent. */
static int check_rope(const struct config *config, const char *name, struct err *err)
{
    const size_t rope_dim = config_rope_dim(config), local = config->keys->rope_local_dim;
    if (rope_dim % 2 || config->keys->rope.dim > config->head_dim)
        return err_set(err, "%s: rope_dim must be even and at most the head_dim of %zu, found %zu",
                       name, config->head_dim, rope_dim);
    if (local % 2 || local > config->head_dim || (local && config->latent->kv_rank))
        return err_set(err,
                       "%s: rope_local_dim must be even and at most the head_dim of %zu, and excludes "
                       "latent attention; found %zu",
                       name, config->head_dim, local);
    if (config->rope->scaling == ROPE_LLAMA3 && config->rope->high < config->rope->low)
        return err_set(err, "%s: rope_high %g must be at least rope_low %g", name, config->rope->high,
                       config->rope->low);
    if (config->rope->scaling == ROPE_LONGROPE &&
        (config->rope->short_factor.n != rope_dim / 2 || config->rope->long_factor.n != rope_dim / 2))
        return err_set(err, "%s: longrope needs %zu short and long factors, found %zu and %zu", name,
                       rope_dim / 2, config->rope->short_factor.n, config->rope->long_factor.n);
    if (config->rope->scaling == ROPE_LONGROPE && config->rope->original < 2)
        return err_set(err, "%s: longrope needs a rope_original above 1", name);
    if (config->rope->scaling == ROPE_YARN && config->rope->theta <= 1)
        return err_set(err, "%s: yarn needs a rope_theta above 1", name);
    if ((config->rope->scaling == ROPE_DYNAMIC || config->rope->scaling == ROPE_NTK) && rope_dim < 4)
        return err_set(err, "%s: dynamic RoPE scaling needs a rope_dim of at least 4, found %zu", name,
                       rope_dim);
    return 0;
}

/* Checks the keys of latent attention. */
static int check_latent(const struct config *c, const char *name, struct err *err)
{
    if (!c->latent->kv_rank) {
        if (!c->latent->q_rank && !c->latent->nope_dim && !c->latent->v_dim &&
            c->latent->norm_eps == 0 && !c->latent->index_heads)
            return 0;
        return err_set(err,
                       "%s: q_lora_rank, nope_dim, v_dim, lora_norm_eps and index_heads are keys of "
                       "latent attention, "
                       "which needs a kv_lora_rank above 0",
                       name);
    }
    if (c->latent->kv_rank % PACK_OUT || c->latent->v_dim % PACK_OUT || !c->latent->v_dim ||
        !c->latent->nope_dim)
        return err_set(
            err,
            "%s: latent attention needs a kv_lora_rank and a v_dim that are multiples of %d, "
            "and a nope_dim above 0; found %zu, %zu and %zu",
            name, PACK_OUT, c->latent->kv_rank, c->latent->v_dim, c->latent->nope_dim);
    if (c->position != POSITION_ROPE || !c->keys->rope.dim || c->kv_heads != 1 ||
        c->head_dim != c->latent->kv_rank + c->keys->rope.dim)
        return err_set(err,
                       "%s: latent attention needs position rope, 1 KV head, and a head_dim of "
                       "kv_lora_rank + rope_dim, %zu + %zu; found %zu KV heads of %zu",
                       name, c->latent->kv_rank, c->keys->rope.dim, c->kv_heads, c->head_dim);
    if (c->qk_norm || c->bias_qkv || c->norm != NORM_RMS || c->clip_qkv != 0 || c->attn_gate ||
        (config_is_draft_head(c) && c->draft->fusion == FUSION_ATTENTION))
        return err_set(err,
                       "%s: latent attention excludes qk_norm, bias_qkv, clip_qkv, attn_gate, norm "
                       "layer and fusion attention",
                       name);
    if (c->heads * (c->latent->nope_dim + c->keys->rope.dim) > MAX_WIDTH ||
        c->heads * c->latent->v_dim > MAX_WIDTH)
        return err_set(err, "%s: %zu heads of %zu + %zu and %zu are wider than the limit of %d", name,
                       c->heads, c->latent->nope_dim, c->keys->rope.dim, c->latent->v_dim, MAX_WIDTH);
    return 0;
}

/* Checks the keys of sparse attention. */
static int check_indexer(const struct config *c, const char *name, struct err *err)
{
    const struct latent_plan *l = c->latent;
    if (!l->index_heads)
        return l->index_dim || l->index_topk
                   ? err_set(err, "%s: index_dim and index_topk need index_heads above 0", name)
                   : 0;
    if (!l->q_rank || !l->index_topk || l->index_dim < c->keys->rope.dim ||
        l->index_heads * l->index_dim > MAX_WIDTH || !c->plan[0].has_index)
        return err_set(
            err,
            "%s: sparse attention needs a q_lora_rank and an index_topk above 0, an index_dim of at "
            "least rope_dim, at most %d elements in all heads, and an indexer in the first layer; "
            "found %zu, %zu, %zu and %zu heads",
            name, MAX_WIDTH, l->q_rank, l->index_topk, l->index_dim, l->index_heads);
    return 0;
}

/* Checks which hidden states a draft head reads, and how. */
static int check_features(const struct config *c, const char *name, struct err *err)
{
    if (!c->draft->feature_hidden)
        return err_set(err, "%s: a draft head needs a feature_hidden above 0", name);
    if (c->draft->feature_layers.n && c->draft->feature_layers.n != c->draft->features)
        return err_set(err, "%s: feature_layers has %zu numbers, features is %zu", name,
                       c->draft->feature_layers.n, c->draft->features);
    for (size_t i = 0; i < c->draft->feature_layers.n; i++)
        if (c->draft->feature_layers.x[i] != floor(c->draft->feature_layers.x[i]))
            return err_set(err, "%s: feature_layers has %g, expected numbers of layers", name,
                           c->draft->feature_layers.x[i]);
    if (c->draft->fusion == FUSION_PROJECT && config_feature_width(c) != c->hidden)
        return err_set(err,
                       "%s: fusion project needs hidden states as wide as hidden, %zu; found %zu "
                       "of %zu",
                       name, c->hidden, c->draft->features, c->draft->feature_hidden);
    if (c->draft->fusion == FUSION_ATTENTION ? c->keys->no_attn_norm : c->draft->norm_residual)
        return err_set(err, "%s: fusion attention excludes no_attn_norm, fusion project norm_residual",
                       name);
    if (c->draft->norm_output && !c->final_norm)
        return err_set(err, "%s: norm_output needs a final_norm", name);
    if (c->draft->mask_feature && !c->mask_token)
        return err_set(err, "%s: a mask_feature needs a mask_token", name);
    return 0;
}

/* Checks the keys of models without an LM head. */
static int check_no_head(const struct config *c, const char *name, struct err *err)
{
    if (c->no_head && (c->tied_head || c->target_head || config_is_draft_head(c)))
        return err_set(err, "%s: no_head excludes tied_head, and draft heads need one", name);
    if (c->keys->bidirectional && (!c->no_head || config_state_layers(c, 0, c->layers)))
        return err_set(err, "%s: bidirectional attention excludes an LM head and recurrent state",
                       name);
    return 0;
}

/* Checks the keys of draft heads. */
static int check_draft_head(const struct config *c, const char *name, struct err *err)
{
    if (!config_is_draft_head(c)) {
        if (!c->target_embed && !c->target_head && !c->draft->map && !c->draft->input_vocab &&
            !c->draft->feature_layers.n && !c->draft->norm_residual && !c->draft->norm_output &&
            !c->draft->mask_feature)
            return 0;
        return err_set(err,
                       "%s: target_embed, target_head, draft_map, input_vocab, "
                       "feature_layers, norm_residual, norm_output and mask_feature are keys of draft "
                       "heads, which need features above 0",
                       name);
    }
    if (c->layers != 1 || c->block != BLOCK_SEQUENTIAL || c->norm_place != NORM_BEFORE ||
        c->position != POSITION_ROPE || c->embed != c->hidden || c->tied_head)
        return err_set(err,
                       "%s: a draft head needs 1 layer, a sequential block, norm_place before, "
                       "position rope, embed equal to hidden, and no tied_head",
                       name);
    if (check_features(c, name, err) < 0)
        return -1;
    if (c->draft->input_vocab && (c->target_head || c->draft->input_vocab < c->vocab))
        return err_set(
            err,
            "%s: an input_vocab needs an LM head of its own, and a vocab of at most %zu; found %zu",
            name, c->draft->input_vocab, c->vocab);
    if (c->draft->input_vocab > c->vocab && !c->draft->map)
        return err_set(err, "%s: a vocab of %zu below the input_vocab of %zu needs a draft_map", name,
                       c->vocab, c->draft->input_vocab);
    return 0;
}

/* Checks the keys of experts. */
static int check_experts(const struct config *c, const char *name, struct err *err)
{
    if (!c->moe->experts)
        return c->moe->used || c->moe->ffn || c->moe->shared_ffn || c->moe->beside
                   ? err_set(err,
                             "%s: experts_used, expert_ffn, shared_ffn and expert_beside need experts "
                             "above 0",
                             name)
                   : 0;
    if (c->moe->used < 1 || c->moe->used > c->moe->experts)
        return err_set(err, "%s: experts_used must be from 1 to the %zu experts, found %zu", name,
                       c->moe->experts, c->moe->used);
    if (!c->moe->ffn)
        return err_set(err, "%s: experts need an expert_ffn above 0", name);
    if (c->block != BLOCK_SEQUENTIAL)
        return err_set(err, "%s: experts need a sequential block, found %s", name,
                       config_block_names[c->block]);
    for (size_t i = 0; i < c->keys->expert_layers.n; i++)
        if (!(c->keys->expert_layers.x[i] < (double)c->layers) ||
            c->keys->expert_layers.x[i] != floor(c->keys->expert_layers.x[i]))
            return err_set(err, "%s: expert_layers has %g, expected numbers of the %zu layers, from 0",
                           name, c->keys->expert_layers.x[i], c->layers);
    if ((c->moe->router == ROUTER_TOPK_SIGMOID || c->moe->router == ROUTER_SPARSEMIXER) &&
        (c->moe->groups > 1 || c->moe->select_bias))
        return err_set(err,
                       "%s: routers topk_sigmoid and sparsemixer exclude router_groups and "
                       "router_select_bias",
                       name);
    if (c->moe->jitter != 0 && c->moe->router != ROUTER_SPARSEMIXER)
        return err_set(err, "%s: a router_jitter above 0 needs router sparsemixer", name);
    if (c->moe->beside && (c->norm_place != NORM_AROUND || c->norm != NORM_RMS || c->moe->shared_ffn ||
                           c->moe->weigh_input || c->mlp->bias || c->moe->bias))
        return err_set(
            err,
            "%s: expert_beside needs norm_place around and norm rms, and excludes shared_ffn, "
            "router_input, bias_mlp and bias_experts",
            name);
    if (c->moe->shared_gated && !c->moe->shared_ffn)
        return err_set(err, "%s: shared_gated needs a shared_ffn above 0", name);
    if (!c->moe->groups)
        return c->moe->groups_used
                   ? err_set(err, "%s: router_groups_used needs router_groups above 0", name)
                   : 0;
    const size_t size = c->moe->experts / c->moe->groups;
    if (c->moe->experts % c->moe->groups || c->moe->groups_used < 1 ||
        c->moe->groups_used > c->moe->groups || size * c->moe->groups_used < c->moe->used)
        return err_set(err,
                       "%s: %zu experts in router_groups %zu, of which router_groups_used is %zu: the "
                       "groups must have one size, and those used at least experts_used, %zu, experts",
                       name, c->moe->experts, c->moe->groups, c->moe->groups_used, c->moe->used);
    return 0;
}

/* Checks the factors of sublayers: an input's is applied to what is projected from it, that of an output
 * to the input of its projection, so biases would get them, too. */
static int check_factors(const struct config *c, const char *name, struct err *err)
{
    const bool mamba = config_state_kind(c) == LAYER_MAMBA || config_state_kind(c) == LAYER_MAMBA_FULL;
    const bool state =
        c->recurrent->in_scale != 0 || c->recurrent->out_scale != 0 || c->recurrent->scales.n;
    const bool attn = c->attn_in_scale != 0 || c->attn_out_scale != 0 || c->key_scale != 0;
    if ((c->attn_in_scale != 0 && c->bias_qkv) || (c->attn_out_scale != 0 && c->bias_out) ||
        (c->mlp->out_scale != 0 && c->mlp->bias) || (state && c->recurrent->bias))
        return err_set(
            err,
            "%s: attn_in_scale excludes bias_qkv, attn_out_scale bias_out, mlp_scale bias_mlp, "
            "and factors of layers with a state exclude bias_state",
            name);
    if (c->mlp->down_bias &&
        (c->mlp->bias || c->mlp->out_scale != 0 || c->moe->beside || c->keys->activation_sparsity.n))
        return err_set(
            err, "%s: bias_down excludes bias_mlp, mlp_scale, expert_beside and activation_sparsity",
            name);
    if ((c->recurrent->scales.n && c->recurrent->scales.n != 5) || (state && !mamba))
        return err_set(err,
                       "%s: state_scales are 5 factors, and like state_in_scale need layers of kind "
                       "mamba; found %zu",
                       name, c->recurrent->scales.n);
    if ((attn && c->latent->kv_rank) ||
        ((c->mlp->out_scale != 0 || c->mlp->gate_scale != 0) && c->moe->experts) ||
        (c->mlp->gate_scale != 0 &&
         (c->mlp->kind != MLP_GATED || c->mlp->activation == ACT_CLAMPED_SWIGLU)))
        return err_set(
            err,
            "%s: factors of attention exclude latent attention, those of the MLP experts, and "
            "gate_scale needs mlp gated and another activation than clamped_swiglu",
            name);
    return 0;
}

/* Checks the keys of layers that differ in sizes, or have inputs of their own. */
static int check_layers(const struct config *c, const char *name, struct err *err)
{
    const bool differ = config_heads_differ(c);
    bool other_dim = false, other_heads = false;
    for (size_t l = 0; l < c->layers && differ; l++) {
        const size_t d = c->plan[l].head_dim, heads = c->plan[l].heads, kv_heads = c->plan[l].kv_heads;
        other_dim |= d != c->head_dim;
        other_heads |= heads != c->heads;
        if ((d != c->head_dim && d % 2) || heads % kv_heads || heads * d > MAX_WIDTH)
            return err_set(
                err,
                "%s: layers of different sizes need an even head_dim and KV heads that divide "
                "query heads; layer %zu has %zu KV heads of %zu, and %zu query heads",
                name, l, kv_heads, d, heads);
    }
    if (differ && c->qk_norm != QK_NORM_NONE && c->qk_norm != QK_NORM_HEAD)
        return err_set(err, "%s: layers with different heads need qk_norm none or head", name);
    if (other_heads && c->position == POSITION_ALIBI)
        return err_set(err, "%s: layers with different query heads exclude position alibi", name);
    if (other_dim && (c->rope->scaling > ROPE_LINEAR || c->position != POSITION_ROPE))
        return err_set(err,
                       "%s: layers with heads of different sizes need position rope, and rope_scaling "
                       "none or linear",
                       name);
    if (c->layer_input.width * c->layers > MAX_WIDTH)
        return err_set(err, "%s: %zu inputs of %zu layers are wider than the limit of %d", name,
                       c->layer_input.width, c->layers, MAX_WIDTH);
    if ((differ || c->keys->kv_shared || c->layer_input.width || c->moe->beside || c->v_norm ||
         c->keys->v_is_k || c->layer_scale) &&
        (c->latent->kv_rank || config_is_draft_head(c) || config_state_kind(c) != LAYER_FULL ||
         c->block != BLOCK_SEQUENTIAL || c->norm != NORM_RMS || c->mlp->out_scale != 0 ||
         c->attn_out_scale != 0))
        return err_set(err,
                       "%s: layers that differ in sizes, share keys and values, or have inputs or "
                       "factors of their own need a sequential block and norm rms, and exclude latent "
                       "attention, recurrent state, draft heads, attn_out_scale and "
                       "mlp_scale",
                       name);
    return 0;
}

/* Checks the limits of activations. */
static int check_limits(const struct config *c, const char *name, struct err *err)
{
    const size_t mlp = c->keys->mlp_limits.n, experts = c->keys->expert_limits.n;
    const bool clamped = c->mlp->activation == ACT_CLAMPED_SWIGLU;
    if (clamped != (c->mlp->limit > 0) || clamped != (c->mlp->alpha > 0) ||
        (clamped && c->mlp->kind != MLP_GATED))
        return err_set(
            err,
            "%s: activation clamped_swiglu needs mlp gated, and swiglu_limit and swiglu_alpha "
            "above 0, which others exclude",
            name);
    if ((mlp && mlp != c->layers) || (experts && experts != c->layers) ||
        ((mlp || experts) && (clamped || c->mlp->kind != MLP_GATED || c->mlp->gate_scale != 0 ||
                              c->keys->activation_sparsity.n)) ||
        (experts && !c->moe->experts))
        return err_set(err,
                       "%s: mlp_limits and expert_limits need a number for each of the %zu layers and "
                       "mlp gated, exclude clamped_swiglu, gate_scale and activation_sparsity, and the "
                       "latter needs "
                       "experts; found %zu and %zu numbers",
                       name, c->layers, mlp, experts);
    return 0;
}

/* Checks the keys of AltUp, of the low-rank residual and of sparse activations. */
static int check_streams(const struct config *c, const char *name, struct err *err)
{
    const size_t sparse = c->keys->activation_sparsity.n;
    if (sparse && (sparse != c->layers || c->mlp->kind != MLP_GATED || c->mlp->gate_scale != 0 ||
                   c->mlp->activation == ACT_CLAMPED_SWIGLU || c->moe->experts || c->mlp->bias))
        return err_set(
            err,
            "%s: activation_sparsity needs a number for each of the %zu layers and mlp gated, "
            "and excludes experts, gate_scale, bias_mlp and clamped_swiglu; found %zu numbers",
            name, c->layers, sparse);
    if (c->stream.n == 1 || ((c->stream.n || c->stream.laurel_rank) &&
                             (!c->layer_input.width || c->norm_place != NORM_AROUND || c->no_head ||
                              c->layer_scale || c->moe->experts)))
        return err_set(err,
                       "%s: streams, which are 0 or at least 2, and a laurel_rank need layer_input and "
                       "norm_place around, and exclude experts, layer_scale and no_head",
                       name);
    if (c->layer_input.vocab > c->vocab)
        return err_set(err, "%s: layer_input_vocab, %zu, is above the vocab, %zu", name,
                       c->layer_input.vocab, c->vocab);
    return 0;
}

int config_check(const struct config *config, const char *name, struct err *err)
{
    if (check_rotations(config, name, err) < 0 || check_state(config, name, err) < 0 ||
        check_sublayers(config, name, err) < 0)
        return -1;
    const size_t tokens = config->draft->input_vocab ? config->draft->input_vocab : config->vocab;
    if (config->mask_token >= tokens)
        return err_set(err, "%s: mask_token %zu must be below the vocab of %zu", name,
                       config->mask_token, tokens);
    if (check_no_head(config, name, err) < 0 || check_draft_head(config, name, err) < 0 ||
        check_experts(config, name, err) < 0)
        return -1;
    if (config->kv_heads && config->heads % config->kv_heads)
        return err_set(err, "%s: %zu query heads are not a multiple of %zu KV heads", name,
                       config->heads, config->kv_heads);
    if (config->position == POSITION_ROPE && check_rope(config, name, err) < 0)
        return -1;
    if (check_layers(config, name, err) < 0 || check_streams(config, name, err) < 0 ||
        check_latent(config, name, err) < 0 || check_indexer(config, name, err) < 0 ||
        check_factors(config, name, err) < 0 || check_limits(config, name, err) < 0)
        return -1;
    if (config->block != BLOCK_SEQUENTIAL && config->norm_place != NORM_BEFORE)
        return err_set(err, "%s: parallel blocks need norm_place before, found %s", name,
                       config_place_names[config->norm_place]);
    if (config->residual_scale != 0 &&
        (config->block == BLOCK_PARALLEL || config->norm_place == NORM_AFTER))
        return err_set(err, "%s: a residual_scale excludes block parallel and norm_place after", name);
    if (config->keys->sub_norm && (config->norm != NORM_RMS || config->moe->experts))
        return err_set(err, "%s: a sub_norm needs norm rms, and excludes experts", name);
    if (config->keys->round_inputs &&
        (config->norm_place != NORM_BEFORE || config->block != BLOCK_SEQUENTIAL ||
         config->keys->no_attn_norm || config->latent->kv_rank || config->moe->experts ||
         config->recurrent->conv_kernel || config_is_draft_head(config)))
        return err_set(err,
                       "%s: round_inputs needs norm_place before and block sequential, and excludes "
                       "no_attn_norm, kv_lora_rank, experts, conv_kernel and draft heads",
                       name);
    if (config->temperature->scale != 0 && !config->temperature->length)
        return err_set(err, "%s: an attn_temperature needs a temperature_length above 0", name);
    if (config->heads * config->head_dim > MAX_WIDTH)
        return err_set(err, "%s: %zu heads of %zu are wider than the limit of %d", name, config->heads,
                       config->head_dim, MAX_WIDTH);
    return 0;
}
