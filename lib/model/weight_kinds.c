/* The table of weight kinds. */
#include "model/weight_kinds.h"

#include <stdio.h>
#include <string.h>

#include "model/weights.h"

static bool joins_in_attention(const struct config *c)
{
    return config_is_draft_head(c) && c->draft->fusion == FUSION_ATTENTION;
}

size_t config_dim(const struct config *config, enum dim dim)
{
    switch (dim) {
    case DIM_NONE:
    case DIM_ONE: break;
    case DIM_LAYER_INPUT: return config->layer_input;
    case DIM_LAYER_INPUTS: return config->layers * config->layer_input;
    case DIM_HIDDEN: return config->hidden;
    case DIM_FEATURE: return config_feature_width(config);
    case DIM_EMBED: return config->embed;
    case DIM_Q: return config->heads * config_query_dim(config);
    case DIM_ATTN_OUT: return config_attn_width(config);
    case DIM_Q_LORA: return config->latent->q_rank;
    case DIM_KV_LORA: return config->latent->kv_rank;
    case DIM_K_B: return config->heads * config->latent->kv_rank;
    case DIM_NOPE: return config->latent->nope_dim;
    case DIM_HEADS: return config->heads;
    case DIM_KV: return config->kv_heads * config->head_dim;
    case DIM_Q_NORM: return config->qk_norm == QK_NORM_HEAD ? config->head_dim : config_q_width(config);
    case DIM_K_NORM:
        return config->qk_norm == QK_NORM_HEAD ? config->head_dim : config_kv_width(config);
    case DIM_FFN: return config->ffn;
    case DIM_VOCAB: return config->vocab;
    case DIM_TOKENS: return config->draft->input_vocab ? config->draft->input_vocab : config->vocab;
    case DIM_ATTN_IN: return config->hidden + (joins_in_attention(config) ? config->embed : 0);
    case DIM_FUSION:
        return config_feature_width(config) + (joins_in_attention(config) ? 0 : config->embed);
    case DIM_EXPERTS: return config->moe->experts;
    case DIM_EXPERT_FFN: return config->moe->ffn;
    case DIM_SHARED_FFN: return config->moe->shared_ffn;
    case DIM_STATE_KEYS: return config_state_keys(config);
    case DIM_STATE_VALUES: return config_state_values(config);
    case DIM_STATE_HEADS: return config->recurrent->heads ? config->recurrent->heads : config->hidden;
    case DIM_STATE_NORM:
        return config_state_kind(config) == LAYER_DELTA ? config->recurrent->value_dim
                                                        : config_state_values(config);
    case DIM_CONV: return config_conv_width(config);
    case DIM_CONV_WEIGHT: return config->recurrent->conv_kernel * config_conv_width(config);
    case DIM_POSITIONS: return config->context + config->position_offset;
    }
    return 1;
}

static bool learned_positions(const struct config *c) { return c->position == POSITION_LEARNED; }
static bool projected(const struct config *c) { return c->embed != c->hidden; }
static bool norm_gain(const struct config *c) { return c->norm == NORM_RMS || c->norm_affine; }
static bool norm_bias(const struct config *c)
{
    return c->norm == NORM_LAYER && c->norm_affine && !c->no_norm_bias;
}
static bool in_norm(const struct config *c) { return c->norm_place != NORM_ON_OUTPUT; }
static bool mlp_in_norm(const struct config *c)
{
    return in_norm(c) && c->block != BLOCK_PARALLEL_SHARED;
}
static bool out_norm(const struct config *c) { return c->norm_place >= NORM_ON_OUTPUT; }
static bool attn_gain(const struct config *c) { return !c->no_attn_norm && in_norm(c) && norm_gain(c); }
static bool attn_bias(const struct config *c) { return !c->no_attn_norm && in_norm(c) && norm_bias(c); }
static bool mlp_gain(const struct config *c) { return mlp_in_norm(c) && norm_gain(c); }
static bool mlp_bias(const struct config *c) { return mlp_in_norm(c) && norm_bias(c); }
static bool post_gain(const struct config *c) { return out_norm(c) && norm_gain(c); }
static bool post_bias(const struct config *c) { return out_norm(c) && norm_bias(c); }
static bool qk_gain(const struct config *c) { return c->qk_norm && c->qk_norm_affine && norm_gain(c); }
static bool qk_bias(const struct config *c)
{
    return qk_gain(c) && c->qk_norm != QK_NORM_EACH && norm_bias(c);
}
static bool embed_gain(const struct config *c) { return c->embed_norm && norm_gain(c); }
static bool embed_bias(const struct config *c) { return c->embed_norm && norm_bias(c); }
static bool own_embed(const struct config *c) { return !c->target_embed; }
static bool own_head(const struct config *c) { return !c->target_head && !c->no_head; }
static bool draft_map(const struct config *c) { return c->draft->map; }
static bool feature_gain(const struct config *c) { return c->draft->feature_norm && norm_gain(c); }
static bool mask_feature(const struct config *c) { return c->draft->mask_feature; }
static bool bias_fusion(const struct config *c) { return c->draft->bias_fusion; }
static bool bias_head(const struct config *c) { return c->bias_head && !c->no_head; }
static bool final_gain(const struct config *c) { return c->final_norm && norm_gain(c); }
static bool final_bias(const struct config *c) { return c->final_norm && norm_bias(c); }
static bool bias_qkv(const struct config *c) { return c->bias_qkv; }
static bool bias_out(const struct config *c) { return c->bias_out; }
static bool bias_mlp(const struct config *c) { return c->bias_mlp; }
static bool gated(const struct config *c) { return c->mlp == MLP_GATED; }
static bool gated_bias(const struct config *c) { return c->mlp == MLP_GATED && c->bias_mlp; }

static bool latent(const struct config *c) { return c->latent->kv_rank > 0; }
static bool not_latent(const struct config *c) { return !c->latent->kv_rank; }
static bool q_latent(const struct config *c) { return c->latent->q_rank > 0; }
static bool q_plain(const struct config *c) { return !c->latent->q_rank; }
static bool experts(const struct config *c) { return c->moe->experts > 0; }
static bool bias_experts(const struct config *c) { return c->moe->experts && c->moe->bias; }
static bool bias_router(const struct config *c) { return c->moe->experts && c->moe->bias_router; }
static bool select_bias(const struct config *c) { return c->moe->experts && c->moe->select_bias; }
static bool shared(const struct config *c) { return c->moe->shared_ffn > 0; }
static bool shared_gated(const struct config *c) { return c->moe->shared_gated; }
static bool beside(const struct config *c) { return c->moe->beside; }
static bool attn_sinks(const struct config *c) { return c->attn_sinks; }
static bool attn_gate(const struct config *c) { return c->attn_gate; }
static bool attn_gate_bias(const struct config *c) { return c->attn_gate && c->bias_qkv; }
static bool layer_input(const struct config *c) { return c->layer_input > 0; }
static bool layer_scale(const struct config *c) { return c->layer_scale; }
static bool state(const struct config *c) { return c->recurrent->conv_kernel > 0; }
static bool state_bias(const struct config *c)
{
    return c->recurrent->conv_kernel && c->recurrent->bias;
}
static bool conv_bias(const struct config *c)
{
    return c->recurrent->conv_kernel && c->recurrent->bias_conv;
}
static bool recurrence(const struct config *c) { return c->recurrent->heads > 0; }
static bool recurrence_bias(const struct config *c)
{
    return c->recurrent->heads > 0 && c->recurrent->bias;
}
static bool state_b(const struct config *c)
{
    return state(c) && config_state_kind(c) != LAYER_MAMBA && config_state_kind(c) != LAYER_MAMBA_FULL;
}
static bool state_b_bias(const struct config *c) { return state_b(c) && c->recurrent->bias; }
static bool state_skip(const struct config *c) { return state(c) && !state_b(c); }
static bool state_norm(const struct config *c) { return c->recurrent->heads > 0 && c->recurrent->norm; }

#define IN_WEIGHTS(field) offsetof(struct weights, field)
#define IN_LAYER(field)   offsetof(struct layer, field)

/* clang-format off */
const struct weight_kind weight_kinds[] = {
    {"embed.weight",           DIM_TOKENS,    DIM_EMBED,  own_embed,         FILL_RANDOM, IN_WEIGHTS(embed)},
    {"position.weight",        DIM_POSITIONS, DIM_HIDDEN, learned_positions, FILL_RANDOM, IN_WEIGHTS(position)},
    {"project_in.weight",      DIM_HIDDEN,    DIM_EMBED,  projected,         FILL_RANDOM, IN_WEIGHTS(project_in.weight)},
    {"embed_norm.weight",      DIM_HIDDEN,    DIM_NONE,   embed_gain,        FILL_ONE,    IN_WEIGHTS(embed_norm.gain)},
    {"embed_norm.bias",        DIM_HIDDEN,    DIM_NONE,   embed_bias,        FILL_ZERO,   IN_WEIGHTS(embed_norm.bias)},
    {"fusion.weight",          DIM_HIDDEN,    DIM_FUSION, config_is_draft_head, FILL_RANDOM, IN_WEIGHTS(fusion.weight)},
    {"fusion.bias",            DIM_HIDDEN,    DIM_NONE,   bias_fusion,       FILL_ZERO,   IN_WEIGHTS(fusion.bias)},
    {"feature_norm.weight",    DIM_FEATURE,   DIM_NONE,   feature_gain,      FILL_ONE,    IN_WEIGHTS(feature_norm.gain)},
    {"mask_feature",           DIM_FEATURE,   DIM_NONE,   mask_feature,      FILL_RANDOM, IN_WEIGHTS(mask_feature)},
    {"embed_layers.weight",    DIM_TOKENS,    DIM_LAYER_INPUTS, layer_input,   FILL_RANDOM, IN_WEIGHTS(embed_layers)},
    {"layer_inputs.weight",    DIM_LAYER_INPUTS, DIM_HIDDEN, layer_input,    FILL_RANDOM, IN_WEIGHTS(layer_inputs.weight)},
    {"layer_inputs_norm.weight", DIM_LAYER_INPUT, DIM_NONE, layer_input,     FILL_ONE,    IN_WEIGHTS(layer_inputs_norm.gain)},
    {"layer.attn_norm.weight", DIM_HIDDEN,    DIM_NONE,   attn_gain,         FILL_ONE,    IN_LAYER(attn_norm.gain)},
    {"layer.attn_norm.bias",   DIM_HIDDEN,    DIM_NONE,   attn_bias,         FILL_ZERO,   IN_LAYER(attn_norm.bias)},
    {"layer.q_a.weight",       DIM_Q_LORA,    DIM_ATTN_IN, q_latent,         FILL_RANDOM, IN_LAYER(q_a.weight)},
    {"layer.q_a_norm.weight",  DIM_Q_LORA,    DIM_NONE,   q_latent,          FILL_ONE,    IN_LAYER(q_a_norm.gain)},
    {"layer.q_b.weight",       DIM_Q,         DIM_Q_LORA, q_latent,          FILL_RANDOM, IN_LAYER(q.weight)},
    {"layer.q.weight",         DIM_Q,         DIM_ATTN_IN, q_plain,          FILL_RANDOM, IN_LAYER(q.weight)},
    {"layer.k.weight",         DIM_KV,        DIM_ATTN_IN, not_latent,       FILL_RANDOM, IN_LAYER(k.weight)},
    {"layer.v.weight",         DIM_KV,        DIM_ATTN_IN, not_latent,       FILL_RANDOM, IN_LAYER(v.weight)},
    {"layer.kv_a.weight",      DIM_KV,        DIM_ATTN_IN, latent,           FILL_RANDOM, IN_LAYER(k.weight)},
    {"layer.kv_a_norm.weight", DIM_KV_LORA,   DIM_NONE,   latent,            FILL_ONE,    IN_LAYER(kv_a_norm.gain)},
    {"layer.k_b.weight",       DIM_K_B,       DIM_NOPE,   latent,            FILL_RANDOM, IN_LAYER(k_b.weight)},
    {"layer.v_b.weight",       DIM_ATTN_OUT,  DIM_KV_LORA, latent,           FILL_RANDOM, IN_LAYER(v_b.weight)},
    {"layer.attn_gate.weight", DIM_Q,         DIM_ATTN_IN, attn_gate,        FILL_RANDOM, IN_LAYER(attn_gate.weight)},
    {"layer.attn_gate.bias",   DIM_Q,         DIM_NONE,   attn_gate_bias,    FILL_ZERO,   IN_LAYER(attn_gate.bias)},
    {"layer.q.bias",           DIM_Q,         DIM_NONE,   bias_qkv,          FILL_ZERO,   IN_LAYER(q.bias)},
    {"layer.k.bias",           DIM_KV,        DIM_NONE,   bias_qkv,          FILL_ZERO,   IN_LAYER(k.bias)},
    {"layer.v.bias",           DIM_KV,        DIM_NONE,   bias_qkv,          FILL_ZERO,   IN_LAYER(v.bias)},
    {"layer.q_norm.weight",    DIM_Q_NORM,    DIM_NONE,   qk_gain,           FILL_ONE,    IN_LAYER(q_norm.gain)},
    {"layer.q_norm.bias",      DIM_Q_NORM,    DIM_NONE,   qk_bias,           FILL_ZERO,   IN_LAYER(q_norm.bias)},
    {"layer.k_norm.weight",    DIM_K_NORM,    DIM_NONE,   qk_gain,           FILL_ONE,    IN_LAYER(k_norm.gain)},
    {"layer.k_norm.bias",      DIM_K_NORM,    DIM_NONE,   qk_bias,           FILL_ZERO,   IN_LAYER(k_norm.bias)},
    {"layer.sinks.weight",     DIM_HEADS,     DIM_NONE,   attn_sinks,        FILL_ZERO,   IN_LAYER(sinks)},
    {"layer.out.weight",       DIM_HIDDEN,    DIM_ATTN_OUT, NULL,             FILL_RANDOM, IN_LAYER(out.weight)},
    {"layer.out.bias",         DIM_HIDDEN,    DIM_NONE,   bias_out,          FILL_ZERO,   IN_LAYER(out.bias)},
    {"layer.state_q.weight",   DIM_STATE_KEYS, DIM_HIDDEN, recurrence,       FILL_RANDOM, IN_LAYER(state_q.weight)},
    {"layer.state_k.weight",   DIM_STATE_KEYS, DIM_HIDDEN, recurrence,       FILL_RANDOM, IN_LAYER(state_k.weight)},
    {"layer.state_v.weight",   DIM_STATE_VALUES, DIM_HIDDEN, state,          FILL_RANDOM, IN_LAYER(state_v.weight)},
    {"layer.state_z.weight",   DIM_STATE_VALUES, DIM_HIDDEN, state,          FILL_RANDOM, IN_LAYER(state_z.weight)},
    {"layer.state_a.weight",   DIM_STATE_HEADS, DIM_HIDDEN, recurrence,      FILL_RANDOM, IN_LAYER(state_a.weight)},
    {"layer.state_b.weight",   DIM_STATE_HEADS, DIM_HIDDEN, state_b,         FILL_RANDOM, IN_LAYER(state_b.weight)},
    {"layer.state_q.bias",     DIM_STATE_KEYS, DIM_NONE,  recurrence_bias,   FILL_ZERO,   IN_LAYER(state_q.bias)},
    {"layer.state_k.bias",     DIM_STATE_KEYS, DIM_NONE,  recurrence_bias,   FILL_ZERO,   IN_LAYER(state_k.bias)},
    {"layer.state_v.bias",     DIM_STATE_VALUES, DIM_NONE, state_bias,       FILL_ZERO,   IN_LAYER(state_v.bias)},
    {"layer.state_z.bias",     DIM_STATE_VALUES, DIM_NONE, state_bias,       FILL_ZERO,   IN_LAYER(state_z.bias)},
    {"layer.state_a.bias",     DIM_STATE_HEADS, DIM_NONE, recurrence_bias,   FILL_ZERO,   IN_LAYER(state_a.bias)},
    {"layer.state_b.bias",     DIM_STATE_HEADS, DIM_NONE, state_b_bias,      FILL_ZERO,   IN_LAYER(state_b.bias)},
    {"layer.state_conv.weight", DIM_CONV_WEIGHT, DIM_NONE, state,            FILL_ONE,    IN_LAYER(conv)},
    {"layer.state_conv.bias",  DIM_CONV,      DIM_NONE,   conv_bias,         FILL_ZERO,   IN_LAYER(conv_bias)},
    {"layer.state_decay",      DIM_STATE_HEADS, DIM_NONE, recurrence,        FILL_ONE,    IN_LAYER(decay)},
    {"layer.state_step",       DIM_STATE_HEADS, DIM_NONE, recurrence,        FILL_ONE,    IN_LAYER(step)},
    {"layer.state_skip",       DIM_STATE_HEADS, DIM_NONE, state_skip,        FILL_ONE,    IN_LAYER(skip)},
    {"layer.state_norm.weight", DIM_STATE_NORM, DIM_NONE, state_norm,        FILL_ONE,    IN_LAYER(state_norm)},
    {"layer.state_out.weight", DIM_HIDDEN,    DIM_STATE_VALUES, state,       FILL_RANDOM, IN_LAYER(state_out.weight)},
    {"layer.state_out.bias",   DIM_HIDDEN,    DIM_NONE,   state_bias,        FILL_ZERO,   IN_LAYER(state_out.bias)},
    {"layer.attn_post_norm.weight", DIM_HIDDEN, DIM_NONE, post_gain,         FILL_ONE,    IN_LAYER(attn_post_norm.gain)},
    {"layer.attn_post_norm.bias",   DIM_HIDDEN, DIM_NONE, post_bias,         FILL_ZERO,   IN_LAYER(attn_post_norm.bias)},
    {"layer.mlp_norm.weight",  DIM_HIDDEN,    DIM_NONE,   mlp_gain,          FILL_ONE,    IN_LAYER(mlp_norm.gain)},
    {"layer.mlp_norm.bias",    DIM_HIDDEN,    DIM_NONE,   mlp_bias,          FILL_ZERO,   IN_LAYER(mlp_norm.bias)},
    {"layer.gate.weight",      DIM_FFN,       DIM_HIDDEN, gated,             FILL_RANDOM, IN_LAYER(gate.weight)},
    {"layer.up.weight",        DIM_FFN,       DIM_HIDDEN, NULL,              FILL_RANDOM, IN_LAYER(up.weight)},
    {"layer.gate.bias",        DIM_FFN,       DIM_NONE,   gated_bias,        FILL_ZERO,   IN_LAYER(gate.bias)},
    {"layer.up.bias",          DIM_FFN,       DIM_NONE,   bias_mlp,          FILL_ZERO,   IN_LAYER(up.bias)},
    {"layer.down.weight",      DIM_HIDDEN,    DIM_FFN,    NULL,              FILL_RANDOM, IN_LAYER(down.weight)},
    {"layer.down.bias",        DIM_HIDDEN,    DIM_NONE,   bias_mlp,          FILL_ZERO,   IN_LAYER(down.bias)},
    {"layer.router.weight",    DIM_EXPERTS,   DIM_HIDDEN, experts,           FILL_RANDOM, IN_LAYER(router.weight)},
    {"layer.router.bias",      DIM_EXPERTS,   DIM_NONE,   bias_router,       FILL_ZERO,   IN_LAYER(router.bias)},
    {"layer.router_select.bias", DIM_EXPERTS, DIM_NONE,   select_bias,       FILL_ZERO,   IN_LAYER(select_bias)},
    {"layer.experts_gate.weight", DIM_EXPERT_FFN, DIM_HIDDEN, experts,       FILL_RANDOM, IN_LAYER(experts_gate.weight)},
    {"layer.experts_up.weight", DIM_EXPERT_FFN, DIM_HIDDEN, experts,         FILL_RANDOM, IN_LAYER(experts_up.weight)},
    {"layer.experts_gate.bias", DIM_EXPERT_FFN, DIM_NONE, bias_experts,      FILL_ZERO,   IN_LAYER(experts_gate.bias)},
    {"layer.experts_up.bias",  DIM_EXPERT_FFN, DIM_NONE,  bias_experts,      FILL_ZERO,   IN_LAYER(experts_up.bias)},
    {"layer.experts_down.weight", DIM_HIDDEN, DIM_EXPERT_FFN, experts,       FILL_RANDOM, IN_LAYER(experts_down.weight)},
    {"layer.experts_down.bias", DIM_HIDDEN,   DIM_NONE,   bias_experts,      FILL_ZERO,   IN_LAYER(experts_down.bias)},
    {"layer.shared_gate.weight", DIM_SHARED_FFN, DIM_HIDDEN, shared,         FILL_RANDOM, IN_LAYER(shared_gate.weight)},
    {"layer.shared_up.weight", DIM_SHARED_FFN, DIM_HIDDEN, shared,           FILL_RANDOM, IN_LAYER(shared_up.weight)},
    {"layer.shared_down.weight", DIM_HIDDEN,  DIM_SHARED_FFN, shared,        FILL_RANDOM, IN_LAYER(shared_down.weight)},
    {"layer.shared_router.weight", DIM_HIDDEN, DIM_NONE,  shared_gated,      FILL_ZERO,   IN_LAYER(shared_router)},
    {"layer.mlp_own_norm.weight", DIM_HIDDEN, DIM_NONE,   beside,            FILL_ONE,    IN_LAYER(mlp_own_norm.gain)},
    {"layer.moe_norm.weight",  DIM_HIDDEN,    DIM_NONE,   beside,            FILL_ONE,    IN_LAYER(moe_norm.gain)},
    {"layer.moe_post_norm.weight", DIM_HIDDEN, DIM_NONE,  beside,            FILL_ONE,    IN_LAYER(moe_post_norm.gain)},
    {"layer.router_norm.weight", DIM_HIDDEN,  DIM_NONE,   beside,            FILL_ONE,    IN_LAYER(router_norm.gain)},
    {"layer.router_gain.weight", DIM_EXPERTS, DIM_NONE,   beside,            FILL_ONE,    IN_LAYER(router_gain)},
    {"layer.mlp_post_norm.weight", DIM_HIDDEN, DIM_NONE,  post_gain,         FILL_ONE,    IN_LAYER(mlp_post_norm.gain)},
    {"layer.mlp_post_norm.bias",   DIM_HIDDEN, DIM_NONE,  post_bias,         FILL_ZERO,   IN_LAYER(mlp_post_norm.bias)},
    {"layer.input_gate.weight", DIM_LAYER_INPUT, DIM_HIDDEN, layer_input,    FILL_RANDOM, IN_LAYER(input_gate.weight)},
    {"layer.input_out.weight", DIM_HIDDEN,    DIM_LAYER_INPUT, layer_input,  FILL_RANDOM, IN_LAYER(input_out.weight)},
    {"layer.input_norm.weight", DIM_HIDDEN,   DIM_NONE,   layer_input,       FILL_ONE,    IN_LAYER(input_norm.gain)},
    {"layer.scale",            DIM_ONE,       DIM_NONE,   layer_scale,       FILL_ONE,    IN_LAYER(scale)},
    {"final_norm.weight",      DIM_HIDDEN,    DIM_NONE,   final_gain,        FILL_ONE,    IN_WEIGHTS(final_norm.gain)},
    {"final_norm.bias",        DIM_HIDDEN,    DIM_NONE,   final_bias,        FILL_ZERO,   IN_WEIGHTS(final_norm.bias)},
    {"project_out.weight",     DIM_EMBED,     DIM_HIDDEN, projected,         FILL_RANDOM, IN_WEIGHTS(project_out.weight)},
    {"head.weight",            DIM_VOCAB,     DIM_EMBED,  own_head,            FILL_RANDOM, IN_WEIGHTS(head.weight)},
    {"head.bias",              DIM_VOCAB,     DIM_NONE,   bias_head,         FILL_ZERO,   IN_WEIGHTS(head.bias)},
    {"draft_offset",           DIM_VOCAB,     DIM_NONE,   draft_map,         FILL_IDS,    IN_WEIGHTS(draft_offset)},
};
/* clang-format on */
const size_t n_weight_kinds = ARRAY_LEN(weight_kinds);

const struct weight_kind *weight_kind_find(const char *name)
{
    for (size_t i = 0; i < n_weight_kinds; i++)
        if (strcmp(weight_kinds[i].name, name) == 0)
            return &weight_kinds[i];
    return NULL;
}

bool weight_kind_in_layer(const struct weight_kind *kind)
{
    return strncmp(kind->name, "layer.", 6) == 0;
}

bool weight_kind_wanted(const struct weight_kind *kind, const struct config *config)
{
    return !kind->wanted || kind->wanted(config);
}

static bool attends(const struct layer_plan *plan) { return plan->attends; }
static bool owns_k(const struct layer_plan *plan) { return plan->owns_kv; }
static bool owns_v(const struct layer_plan *plan) { return plan->owns_kv && !plan->v_is_k; }
static bool has_state(const struct layer_plan *plan) { return plan->has_state; }
static bool has_mlp(const struct layer_plan *plan) { return plan->has_mlp; }
static bool has_experts(const struct layer_plan *plan) { return plan->has_experts; }

/* Kinds that only some layers of a model have, by the beginning of their names. */
static const struct layer_part {
    const char *begin;
    bool (*in_layer)(const struct layer_plan *plan);
    bool stacked; /* a tensor has those of all experts */
} parts[] = {
    {"layer.q", attends, false},
    {"layer.k", owns_k, false},
    {"layer.v", owns_v, false},
    {"layer.attn_gate", attends, false},
    {"layer.out", attends, false},
    {"layer.state_", has_state, false},
    {"layer.gate.", has_mlp, false},
    {"layer.up.", has_mlp, false},
    {"layer.down.", has_mlp, false},
    {"layer.mlp_own_norm", has_experts, false},
    {"layer.moe_", has_experts, false},
    {"layer.router", has_experts, false},
    {"layer.experts_", has_experts, true},
    {"layer.shared_", has_experts, false},
};

/* The row of the table above for a kind; NULL: all layers have it. */
static const struct layer_part *part_of(const struct weight_kind *kind)
{
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (strncmp(kind->name, parts[i].begin, strlen(parts[i].begin)) == 0)
            return &parts[i];
    return NULL;
}

bool weight_kind_has(const struct weight_kind *kind, const struct config *config, size_t layer)
{
    const struct layer_part *part = part_of(kind);
    return weight_kind_wanted(kind, config) && (!part || part->in_layer(&config->plan[layer]));
}

bool weight_kind_of_experts(const struct weight_kind *kind)
{
    const struct layer_part *part = part_of(kind);
    return part && part->stacked;
}

size_t weight_kind_stack(const struct weight_kind *kind, const struct config *config)
{
    return weight_kind_of_experts(kind) ? config->moe->experts : 0;
}

size_t weight_kind_shape(const struct weight_kind *kind, const struct config *config, size_t shape[4])
{
    const size_t stack = weight_kind_stack(kind, config);
    size_t n = 0;
    shape[0] = shape[1] = shape[2] = shape[3] = 1;
    if (stack)
        shape[n++] = stack;
    shape[n++] = config_dim(config, kind->out);
    if (kind->in != DIM_NONE)
        shape[n++] = config_dim(config, kind->in);
    return n;
}

bool weight_kind_is_router(const struct weight_kind *kind)
{
    return strcmp(kind->name, "layer.router.weight") == 0;
}

size_t weight_kind_copies(const struct weight_kind *kind, const struct config *config)
{
    return !weight_kind_wanted(kind, config) ? 0 : weight_kind_in_layer(kind) ? config->layers : 1;
}

void *weight_kind_at(const struct weight_kind *kind, const struct weights *weights, size_t layer)
{
    const void *base = weight_kind_in_layer(kind) ? (const void *)&weights->layer[layer] : weights;
    return (void *)((uintptr_t)base + kind->offset);
}

bool weight_kind_is_table(const struct weight_kind *kind)
{
    return strcmp(kind->name, "embed.weight") == 0 || strcmp(kind->name, "position.weight") == 0 ||
           strcmp(kind->name, "embed_layers.weight") == 0;
}

bool weight_kind_looked_up(const struct weight_kind *kind, const struct config *config)
{
    return strcmp(kind->name, "position.weight") == 0 ||
           strcmp(kind->name, "embed_layers.weight") == 0 ||
           (strcmp(kind->name, "embed.weight") == 0 && !config->tied_head);
}

enum layout weight_kind_layout(const struct weight_kind *kind, const struct config *config,
                               enum dtype type)
{
    const bool rows = weight_kind_looked_up(kind, config) && !dtype_is_quantized(type);
    return kind->in == DIM_NONE || rows ? LAYOUT_ROWS : LAYOUT_PACKED;
}

void weight_kind_tensor_name(const struct weight_kind *kind, size_t layer, char name[WEIGHT_NAME_SIZE])
{
    if (weight_kind_in_layer(kind))
        snprintf(name, WEIGHT_NAME_SIZE, "layers.%zu.%s", layer, kind->name + 6);
    else
        snprintf(name, WEIGHT_NAME_SIZE, "%s", kind->name);
}
