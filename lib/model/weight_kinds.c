/* The table of weight kinds. */
#include "model/weight_kinds.h"

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
    case DIM_LAYER_INPUT: return config->layer_input.width;
    case DIM_LAYER_INPUTS: return config->layers * config->layer_input.width;
    case DIM_HIDDEN:
    case DIM_HIDDEN_WHOLE: return config->hidden;
    case DIM_STREAMS: return config->stream.n;
    case DIM_STREAM_PAIRS: return config->stream.n * config->stream.n;
    case DIM_INDEX_Q: return config->latent->index_heads * config->latent->index_dim;
    case DIM_INDEX_K: return config->latent->index_dim;
    case DIM_INDEX_HEADS: return config->latent->index_heads;
    case DIM_LAUREL: return config->stream.laurel_rank;
    case DIM_LAYER_VOCAB: return config->layer_input.vocab ? config->layer_input.vocab : config->vocab;
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
    case DIM_STATE_DECAYS:
        return config_dim(config, DIM_STATE_HEADS) *
               (config->recurrent->by_row ? config->recurrent->key_dim : 1);
    case DIM_STATE_RANK: return config->recurrent->rank;
    case DIM_STATE_NORM:
        return config_state_kind(config) == LAYER_DELTA ? config->recurrent->value_dim
                                                        : config_state_values(config);
    case DIM_CONV: return config_conv_width(config);
    case DIM_CONV_WEIGHT: return config->recurrent->conv_kernel * config_conv_width(config);
    case DIM_POSITIONS: return config->context + config->position_offset;
    case DIM_TOKEN_TYPES: return config->token_types;
    case DIM_POOLED: return config->pooled.dense;
    case DIM_POOLED_IN: return config->pooled.dense ? config->pooled.dense : config->hidden;
    case DIM_POOLED_OUT: return config->pooled.out;
    }
    return 1;
}

/* ---- which tensors a model and its layers have ---- */

/* Traits of a model and of its layers, and the conditions on which they have them; weight_kinds[] lists those that a
 * tensor needs. `plan` is that of the layer; NULL: of all layers, of which any may have it. A stacked tensor has the
 * weights of all experts. */
/* clang-format off */
#define TRAITS(X)                                                                                      \
    X(ALWAYS, true)                                                                                    \
    X(OWN_EMBED, !c->target_embed)                                                                     \
    X(OWN_HEAD, !c->target_head && !c->no_head)                                                        \
    X(BIAS_HEAD, c->bias_head && !c->no_head)                                                          \
    X(LEARNED, c->position == POSITION_LEARNED)                                                        \
    X(TYPED, c->token_types > 0)                                                                       \
    X(PROJECTED, c->embed != c->hidden)                                                                \
    X(EMBED_NORM, c->embed_norm)                                                                       \
    X(FINAL_NORM, c->final_norm)                                                                       \
    X(POOLED, c->pooled.dense > 0)                                                                     \
    X(POOLED_BIAS, c->pooled.bias)                                                                     \
    X(POOLED_NORM, c->pooled.norm)                                                                     \
    X(POOLED_OUT, c->pooled.out > 0)                                                                   \
    X(POOLED_OUT_BIAS, c->pooled.out_bias)                                                             \
    X(INPUTS, c->layer_input.width > 0)                                                                      \
    X(STREAMS, c->stream.n > 0)                                                                         \
    X(STREAMED, c->stream.n > 0)                                                                        \
    X(LAUREL, c->stream.laurel_rank > 0)                                                                      \
    X(GAIN, learned)                                                                                   \
    X(BIAS, c->norm == NORM_LAYER && learned && !c->no_norm_bias)                                      \
    X(DRAFT, config_is_draft_head(c))                                                                  \
    X(DRAFT_MAP, c->draft->map)                                                                        \
    X(BIAS_FUSION, c->draft->bias_fusion)                                                              \
    X(FEATURE_NORM, c->draft->feature_norm)                                                            \
    X(MASK_FEATURE, c->draft->mask_feature)                                                            \
    X(ATTENDS, !plan || plan->attends)                                                                 \
    X(OWNS_K, !plan || plan->owns_kv)                                                                  \
    X(OWNS_V, !plan || (plan->owns_kv && !plan->v_is_k))                                               \
    X(LATENT, c->latent->kv_rank > 0)                                                                  \
    X(INDEXER, c->latent->index_heads > 0 && (!plan || plan->has_index))                               \
    X(Q_LATENT, c->latent->q_rank > 0)                                                                 \
    X(Q_DIRECT, !c->latent->q_rank)                                                                    \
    X(KV_DIRECT, !c->latent->kv_rank)                                                                  \
    X(ATTN_NORM, before && (plan ? plan->attn_norm : c->layers > 1 || c->plan->attn_norm))             \
    X(QK_NORM, c->qk_norm && c->qk_norm_affine)                                                        \
    X(QK_BIAS, c->qk_norm && c->qk_norm_affine && c->qk_norm != QK_NORM_EACH)                          \
    X(GATE, c->attn_gate == ATTN_GATE_ELEMENT)                                                         \
    X(HEAD_GATE, c->attn_gate == ATTN_GATE_HEAD)                                                       \
    X(SINKS, c->attn_sinks)                                                                            \
    X(BIAS_QKV, c->bias_qkv)                                                                           \
    X(BIAS_OUT, c->bias_out)                                                                           \
    X(STATE, plan ? plan->has_state : r->conv_kernel > 0)                                              \
    X(RECURRENCE, r->heads > 0)                                                                        \
    X(STATE_DIRECT, !r->rank)                                                                          \
    X(STATE_LOW, r->rank > 0)                                                                          \
    X(STATE_B, !mamba)                                                                                 \
    X(STATE_SKIP, mamba)                                                                               \
    X(STATE_NORM, r->heads > 0 && r->norm)                                                             \
    X(BIAS_STATE, r->bias)                                                                             \
    X(BIAS_CONV, r->bias_conv)                                                                         \
    X(MLP, !plan || plan->has_mlp)                                                                     \
    X(GATED, c->mlp->kind == MLP_GATED)                                                                      \
    X(BIAS_MLP, c->mlp->bias)                                                                           \
    X(BIAS_DOWN, c->mlp->bias || c->mlp->down_bias)                                                     \
    X(MLP_NORM, before && c->block != BLOCK_PARALLEL_SHARED && (!plan || plan->has_mlp || plan->has_experts)) \
    X(SUB_NORM, (plan ? plan : c->plan)->sub_norm)                                                     \
    X(POST_NORM, config_norms_output(c))                                                               \
    X(SCALE, c->layer_scale)                                                                           \
    X(EXPERTS, experts)                                                                                \
    X(STACKED, experts)                                                                                \
    X(BIAS_EXPERTS, c->moe->bias)                                                                      \
    X(BIAS_MOE, c->moe->sum_bias)                                                                      \
    X(BIAS_ROUTER, c->moe->bias_router)                                                                \
    X(SELECT_BIAS, c->moe->select_bias)                                                                \
    X(SHARED, c->moe->shared_ffn > 0)                                                                  \
    X(SHARED_GATED, c->moe->shared_gated)                                                              \
    X(BESIDE, c->moe->beside)
/* clang-format on */
#define TRAIT_NAME(name, condition)      name,
#define TRAIT_CONDITION(name, condition) [name] = condition,

enum trait { TRAITS(TRAIT_NAME) };

static bool has_trait(const struct config *c, const struct layer_plan *plan, enum trait trait)
{
    const struct recurrent_plan *r = c->recurrent;
    const bool before = c->norm_place != NORM_ON_OUTPUT,
               learned = c->norm == NORM_RMS || c->norm_affine;
    const enum layer_kind kind = r->conv_kernel ? config_state_kind(c) : LAYER_FULL;
    const bool mamba = kind == LAYER_MAMBA || kind == LAYER_MAMBA_FULL;
    const bool experts = plan ? plan->has_experts : c->moe->experts > 0;
    const bool has[] = {TRAITS(TRAIT_CONDITION)};
    return has[trait];
}

#define IN_WEIGHTS(field) offsetof(struct weights, field)
#define IN_LAYER(field)   offsetof(struct layer, field)

/* clang-format off */
const struct weight_kind weight_kinds[] = {
    {"embed.weight",               DIM_TOKENS,       DIM_EMBED,       {OWN_EMBED},               FILL_RANDOM, IN_WEIGHTS(embed)},
    {"position.weight",            DIM_POSITIONS,    DIM_HIDDEN,      {LEARNED},                 FILL_RANDOM, IN_WEIGHTS(position)},
    {"token_type.weight",          DIM_TOKEN_TYPES,  DIM_HIDDEN,      {TYPED},                   FILL_RANDOM, IN_WEIGHTS(token_type)},
    {"project_in.weight",          DIM_HIDDEN,       DIM_EMBED,       {PROJECTED},               FILL_RANDOM, IN_WEIGHTS(project_in.weight)},
    {"embed_norm.weight",          DIM_HIDDEN,       DIM_NONE,        {EMBED_NORM, GAIN},        FILL_ONE,    IN_WEIGHTS(embed_norm.gain)},
    {"embed_norm.bias",            DIM_HIDDEN,       DIM_NONE,        {EMBED_NORM, BIAS},        FILL_ZERO,   IN_WEIGHTS(embed_norm.bias)},
    {"fusion.weight",              DIM_HIDDEN,       DIM_FUSION,      {DRAFT},                   FILL_RANDOM, IN_WEIGHTS(fusion.weight)},
    {"fusion.bias",                DIM_HIDDEN,       DIM_NONE,        {BIAS_FUSION},             FILL_ZERO,   IN_WEIGHTS(fusion.bias)},
    {"feature_norm.weight",        DIM_FEATURE,      DIM_NONE,        {FEATURE_NORM, GAIN},      FILL_ONE,    IN_WEIGHTS(feature_norm.gain)},
    {"mask_feature",               DIM_FEATURE,      DIM_NONE,        {MASK_FEATURE},            FILL_RANDOM, IN_WEIGHTS(mask_feature)},
    {"stream_in.weight",           DIM_HIDDEN_WHOLE, DIM_HIDDEN,      {STREAMED},                FILL_RANDOM, IN_WEIGHTS(stream_in.weight)},
    {"embed_layers.weight",        DIM_LAYER_VOCAB,    DIM_LAYER_INPUTS, {INPUTS},                  FILL_RANDOM, IN_WEIGHTS(embed_layers)},
    {"layer_inputs.weight",        DIM_LAYER_INPUTS, DIM_HIDDEN,      {INPUTS},                  FILL_RANDOM, IN_WEIGHTS(layer_inputs.weight)},
    {"layer_inputs_norm.weight",   DIM_LAYER_INPUT,  DIM_NONE,        {INPUTS},                  FILL_ONE,    IN_WEIGHTS(layer_inputs_norm.gain)},
    {"layer.attn_norm.weight",     DIM_HIDDEN,       DIM_NONE,        {ATTN_NORM, GAIN},         FILL_ONE,    IN_LAYER(attn_norm.gain)},
    {"layer.attn_norm.bias",       DIM_HIDDEN,       DIM_NONE,        {ATTN_NORM, BIAS},         FILL_ZERO,   IN_LAYER(attn_norm.bias)},
    {"layer.q_a.weight",           DIM_Q_LORA,       DIM_ATTN_IN,     {ATTENDS, Q_LATENT},       FILL_RANDOM, IN_LAYER(q_a.weight)},
    {"layer.q_a_norm.weight",      DIM_Q_LORA,       DIM_NONE,        {ATTENDS, Q_LATENT},       FILL_ONE,    IN_LAYER(q_a_norm.gain)},
    {"layer.q_b.weight",           DIM_Q,            DIM_Q_LORA,      {ATTENDS, Q_LATENT},       FILL_RANDOM, IN_LAYER(q.weight)},
    {"layer.q.weight",             DIM_Q,            DIM_ATTN_IN,     {ATTENDS, Q_DIRECT},       FILL_RANDOM, IN_LAYER(q.weight)},
    {"layer.k.weight",             DIM_KV,           DIM_ATTN_IN,     {OWNS_K, KV_DIRECT},       FILL_RANDOM, IN_LAYER(k.weight)},
    {"layer.v.weight",             DIM_KV,           DIM_ATTN_IN,     {OWNS_V, KV_DIRECT},       FILL_RANDOM, IN_LAYER(v.weight)},
    {"layer.kv_a.weight",          DIM_KV,           DIM_ATTN_IN,     {OWNS_K, LATENT},          FILL_RANDOM, IN_LAYER(k.weight)},
    {"layer.kv_a_norm.weight",     DIM_KV_LORA,      DIM_NONE,        {OWNS_K, LATENT},          FILL_ONE,    IN_LAYER(kv_a_norm.gain)},
    {"layer.k_b.weight",           DIM_K_B,          DIM_NOPE,        {OWNS_K, LATENT},          FILL_RANDOM, IN_LAYER(k_b.weight)},
    {"layer.v_b.weight",           DIM_ATTN_OUT,     DIM_KV_LORA,     {OWNS_V, LATENT},          FILL_RANDOM, IN_LAYER(v_b.weight)},
    {"layer.index_q.weight",       DIM_INDEX_Q,      DIM_Q_LORA,      {INDEXER},                 FILL_RANDOM, IN_LAYER(index_q.weight)},
    {"layer.index_k.weight",       DIM_INDEX_K,      DIM_ATTN_IN,     {INDEXER},                 FILL_RANDOM, IN_LAYER(index_k.weight)},
    {"layer.index_k_norm.weight",  DIM_INDEX_K,      DIM_NONE,        {INDEXER},                 FILL_ONE,    IN_LAYER(index_k_norm.gain)},
    {"layer.index_k_norm.bias",    DIM_INDEX_K,      DIM_NONE,        {INDEXER},                 FILL_ZERO,   IN_LAYER(index_k_norm.bias)},
    {"layer.index_weights.weight", DIM_INDEX_HEADS,  DIM_ATTN_IN,     {INDEXER},                 FILL_RANDOM, IN_LAYER(index_weights.weight)},
    {"layer.attn_gate.weight",     DIM_Q,            DIM_ATTN_IN,     {ATTENDS, GATE},           FILL_RANDOM, IN_LAYER(attn_gate.weight)},
    {"layer.attn_gate.bias",       DIM_Q,            DIM_NONE,        {ATTENDS, GATE, BIAS_QKV}, FILL_ZERO,   IN_LAYER(attn_gate.bias)},
    {"layer.head_gate.weight",     DIM_HEADS,        DIM_ATTN_IN,     {ATTENDS, HEAD_GATE},      FILL_RANDOM, IN_LAYER(attn_gate.weight)},
    {"layer.q.bias",               DIM_Q,            DIM_NONE,        {ATTENDS, BIAS_QKV},       FILL_ZERO,   IN_LAYER(q.bias)},
    {"layer.k.bias",               DIM_KV,           DIM_NONE,        {OWNS_K, BIAS_QKV},        FILL_ZERO,   IN_LAYER(k.bias)},
    {"layer.v.bias",               DIM_KV,           DIM_NONE,        {OWNS_V, BIAS_QKV},        FILL_ZERO,   IN_LAYER(v.bias)},
    {"layer.q_norm.weight",        DIM_Q_NORM,       DIM_NONE,        {ATTENDS, QK_NORM, GAIN},  FILL_ONE,    IN_LAYER(q_norm.gain)},
    {"layer.q_norm.bias",          DIM_Q_NORM,       DIM_NONE,        {ATTENDS, QK_BIAS, BIAS},  FILL_ZERO,   IN_LAYER(q_norm.bias)},
    {"layer.k_norm.weight",        DIM_K_NORM,       DIM_NONE,        {OWNS_K, QK_NORM, GAIN},   FILL_ONE,    IN_LAYER(k_norm.gain)},
    {"layer.k_norm.bias",          DIM_K_NORM,       DIM_NONE,        {OWNS_K, QK_BIAS, BIAS},   FILL_ZERO,   IN_LAYER(k_norm.bias)},
    {"layer.sinks.weight",         DIM_HEADS,        DIM_NONE,        {SINKS},                   FILL_ZERO,   IN_LAYER(sinks)},
    {"layer.attn_sub_norm.weight", DIM_ATTN_OUT,     DIM_NONE,        {ATTENDS, SUB_NORM, GAIN}, FILL_ONE,    IN_LAYER(attn_sub_norm.gain)},
    {"layer.out.weight",           DIM_HIDDEN,       DIM_ATTN_OUT,    {ATTENDS},                 FILL_RANDOM, IN_LAYER(out.weight)},
    {"layer.out.bias",             DIM_HIDDEN,       DIM_NONE,        {ATTENDS, BIAS_OUT},       FILL_ZERO,   IN_LAYER(out.bias)},
    {"layer.state_q.weight",       DIM_STATE_KEYS,   DIM_HIDDEN,      {STATE, RECURRENCE},       FILL_RANDOM, IN_LAYER(state_q.weight)},
    {"layer.state_k.weight",       DIM_STATE_KEYS,   DIM_HIDDEN,      {STATE, RECURRENCE},       FILL_RANDOM, IN_LAYER(state_k.weight)},
    {"layer.state_v.weight",       DIM_STATE_VALUES, DIM_HIDDEN,      {STATE},                   FILL_RANDOM, IN_LAYER(state_v.weight)},
    {"layer.state_z.weight",       DIM_STATE_VALUES, DIM_HIDDEN,      {STATE, STATE_DIRECT},     FILL_RANDOM, IN_LAYER(state_z.weight)},
    {"layer.state_a.weight",       DIM_STATE_DECAYS, DIM_HIDDEN,      {STATE, RECURRENCE, STATE_DIRECT}, FILL_RANDOM, IN_LAYER(state_a.weight)},
    {"layer.state_z_in.weight",    DIM_STATE_RANK,   DIM_HIDDEN,      {STATE, STATE_LOW},        FILL_RANDOM, IN_LAYER(state_z_in.weight)},
    {"layer.state_z_out.weight",   DIM_STATE_VALUES, DIM_STATE_RANK,  {STATE, STATE_LOW},        FILL_RANDOM, IN_LAYER(state_z.weight)},
    {"layer.state_a_in.weight",    DIM_STATE_RANK,   DIM_HIDDEN,      {STATE, STATE_LOW},        FILL_RANDOM, IN_LAYER(state_a_in.weight)},
    {"layer.state_a_out.weight",   DIM_STATE_DECAYS, DIM_STATE_RANK,  {STATE, STATE_LOW},        FILL_RANDOM, IN_LAYER(state_a.weight)},
    {"layer.state_b.weight",       DIM_STATE_HEADS,  DIM_HIDDEN,      {STATE, STATE_B},          FILL_RANDOM, IN_LAYER(state_b.weight)},
    {"layer.state_q.bias",         DIM_STATE_KEYS,   DIM_NONE,        {STATE, RECURRENCE, BIAS_STATE}, FILL_ZERO,   IN_LAYER(state_q.bias)},
    {"layer.state_k.bias",         DIM_STATE_KEYS,   DIM_NONE,        {STATE, RECURRENCE, BIAS_STATE}, FILL_ZERO,   IN_LAYER(state_k.bias)},
    {"layer.state_v.bias",         DIM_STATE_VALUES, DIM_NONE,        {STATE, BIAS_STATE},       FILL_ZERO,   IN_LAYER(state_v.bias)},
    {"layer.state_z.bias",         DIM_STATE_VALUES, DIM_NONE,        {STATE, BIAS_STATE},       FILL_ZERO,   IN_LAYER(state_z.bias)},
    {"layer.state_a.bias",         DIM_STATE_DECAYS, DIM_NONE,        {STATE, RECURRENCE, BIAS_STATE}, FILL_ZERO,   IN_LAYER(state_a.bias)},
    {"layer.state_b.bias",         DIM_STATE_HEADS,  DIM_NONE,        {STATE, STATE_B, BIAS_STATE}, FILL_ZERO,   IN_LAYER(state_b.bias)},
    {"layer.state_conv.weight",    DIM_CONV_WEIGHT,  DIM_NONE,        {STATE},                   FILL_ONE,    IN_LAYER(conv)},
    {"layer.state_conv.bias",      DIM_CONV,         DIM_NONE,        {STATE, BIAS_CONV},        FILL_ZERO,   IN_LAYER(conv_bias)},
    {"layer.state_decay",          DIM_STATE_HEADS,  DIM_NONE,        {STATE, RECURRENCE},       FILL_ONE,    IN_LAYER(decay)},
    {"layer.state_step",           DIM_STATE_DECAYS, DIM_NONE,        {STATE, RECURRENCE},       FILL_ONE,    IN_LAYER(step)},
    {"layer.state_skip",           DIM_STATE_HEADS,  DIM_NONE,        {STATE, STATE_SKIP},       FILL_ONE,    IN_LAYER(skip)},
    {"layer.state_norm.weight",    DIM_STATE_NORM,   DIM_NONE,        {STATE, STATE_NORM},       FILL_ONE,    IN_LAYER(state_norm)},
    {"layer.state_out.weight",     DIM_HIDDEN,       DIM_STATE_VALUES, {STATE},                   FILL_RANDOM, IN_LAYER(state_out.weight)},
    {"layer.state_out.bias",       DIM_HIDDEN,       DIM_NONE,        {STATE, BIAS_STATE},       FILL_ZERO,   IN_LAYER(state_out.bias)},
    {"layer.attn_post_norm.weight", DIM_HIDDEN,       DIM_NONE,        {POST_NORM, GAIN},         FILL_ONE,    IN_LAYER(attn_post_norm.gain)},
    {"layer.attn_post_norm.bias",  DIM_HIDDEN,       DIM_NONE,        {POST_NORM, BIAS},         FILL_ZERO,   IN_LAYER(attn_post_norm.bias)},
    {"layer.mlp_norm.weight",      DIM_HIDDEN,       DIM_NONE,        {MLP_NORM, GAIN},          FILL_ONE,    IN_LAYER(mlp_norm.gain)},
    {"layer.mlp_norm.bias",        DIM_HIDDEN,       DIM_NONE,        {MLP_NORM, BIAS},          FILL_ZERO,   IN_LAYER(mlp_norm.bias)},
    {"layer.mlp_sub_norm.weight",  DIM_FFN,          DIM_NONE,        {MLP, SUB_NORM, GAIN},     FILL_ONE,    IN_LAYER(mlp_sub_norm.gain)},
    {"layer.gate.weight",          DIM_FFN,          DIM_HIDDEN,      {MLP, GATED},              FILL_RANDOM, IN_LAYER(gate.weight)},
    {"layer.up.weight",            DIM_FFN,          DIM_HIDDEN,      {MLP},                     FILL_RANDOM, IN_LAYER(up.weight)},
    {"layer.gate.bias",            DIM_FFN,          DIM_NONE,        {MLP, GATED, BIAS_MLP},    FILL_ZERO,   IN_LAYER(gate.bias)},
    {"layer.up.bias",              DIM_FFN,          DIM_NONE,        {MLP, BIAS_MLP},           FILL_ZERO,   IN_LAYER(up.bias)},
    {"layer.down.weight",          DIM_HIDDEN,       DIM_FFN,         {MLP},                     FILL_RANDOM, IN_LAYER(down.weight)},
    {"layer.down.bias",            DIM_HIDDEN,       DIM_NONE,        {MLP, BIAS_DOWN},          FILL_ZERO,   IN_LAYER(down.bias)},
    {"layer.router.weight",        DIM_EXPERTS,      DIM_HIDDEN,      {EXPERTS},                 FILL_RANDOM, IN_LAYER(router.weight)},
    {"layer.router.bias",          DIM_EXPERTS,      DIM_NONE,        {EXPERTS, BIAS_ROUTER},    FILL_ZERO,   IN_LAYER(router.bias)},
    {"layer.router_select.bias",   DIM_EXPERTS,      DIM_NONE,        {EXPERTS, SELECT_BIAS},    FILL_ZERO,   IN_LAYER(select_bias)},
    {"layer.experts_gate.weight",  DIM_EXPERT_FFN,   DIM_HIDDEN,      {STACKED, GATED},          FILL_RANDOM, IN_LAYER(experts_gate.weight)},
    {"layer.experts_up.weight",    DIM_EXPERT_FFN,   DIM_HIDDEN,      {STACKED},                 FILL_RANDOM, IN_LAYER(experts_up.weight)},
    {"layer.experts_gate.bias",    DIM_EXPERT_FFN,   DIM_NONE,        {STACKED, GATED, BIAS_EXPERTS}, FILL_ZERO,   IN_LAYER(experts_gate.bias)},
    {"layer.experts_up.bias",      DIM_EXPERT_FFN,   DIM_NONE,        {STACKED, BIAS_EXPERTS},   FILL_ZERO,   IN_LAYER(experts_up.bias)},
    {"layer.experts_down.weight",  DIM_HIDDEN,       DIM_EXPERT_FFN,  {STACKED},                 FILL_RANDOM, IN_LAYER(experts_down.weight)},
    {"layer.experts_down.bias",    DIM_HIDDEN,       DIM_NONE,        {STACKED, BIAS_EXPERTS},   FILL_ZERO,   IN_LAYER(experts_down.bias)},
    {"layer.moe.bias",             DIM_HIDDEN,       DIM_NONE,        {EXPERTS, BIAS_MOE},       FILL_ZERO,   IN_LAYER(moe_bias)},
    {"layer.shared_gate.weight",   DIM_SHARED_FFN,   DIM_HIDDEN,      {EXPERTS, GATED, SHARED},  FILL_RANDOM, IN_LAYER(shared_gate.weight)},
    {"layer.shared_up.weight",     DIM_SHARED_FFN,   DIM_HIDDEN,      {EXPERTS, SHARED},         FILL_RANDOM, IN_LAYER(shared_up.weight)},
    {"layer.shared_down.weight",   DIM_HIDDEN,       DIM_SHARED_FFN,  {EXPERTS, SHARED},         FILL_RANDOM, IN_LAYER(shared_down.weight)},
    {"layer.shared_router.weight", DIM_HIDDEN,       DIM_NONE,        {EXPERTS, SHARED_GATED},   FILL_ZERO,   IN_LAYER(shared_router)},
    {"layer.mlp_own_norm.weight",  DIM_HIDDEN,       DIM_NONE,        {EXPERTS, BESIDE},         FILL_ONE,    IN_LAYER(mlp_own_norm.gain)},
    {"layer.moe_norm.weight",      DIM_HIDDEN,       DIM_NONE,        {EXPERTS, BESIDE},         FILL_ONE,    IN_LAYER(moe_norm.gain)},
    {"layer.moe_post_norm.weight", DIM_HIDDEN,       DIM_NONE,        {EXPERTS, BESIDE},         FILL_ONE,    IN_LAYER(moe_post_norm.gain)},
    {"layer.router_norm.weight",   DIM_HIDDEN,       DIM_NONE,        {EXPERTS, BESIDE},         FILL_ONE,    IN_LAYER(router_norm.gain)},
    {"layer.router_gain.weight",   DIM_EXPERTS,      DIM_NONE,        {EXPERTS, BESIDE},         FILL_ONE,    IN_LAYER(router_gain)},
    {"layer.mlp_post_norm.weight", DIM_HIDDEN,       DIM_NONE,        {POST_NORM, GAIN},         FILL_ONE,    IN_LAYER(mlp_post_norm.gain)},
    {"layer.mlp_post_norm.bias",   DIM_HIDDEN,       DIM_NONE,        {POST_NORM, BIAS},         FILL_ZERO,   IN_LAYER(mlp_post_norm.bias)},
    {"layer.input_gate.weight",    DIM_LAYER_INPUT,  DIM_HIDDEN,      {INPUTS},                  FILL_RANDOM, IN_LAYER(input_gate.weight)},
    {"layer.input_out.weight",     DIM_HIDDEN_WHOLE,    DIM_LAYER_INPUT, {INPUTS},                  FILL_RANDOM, IN_LAYER(input_out.weight)},
    {"layer.input_norm.weight",    DIM_HIDDEN,       DIM_NONE,        {INPUTS},                  FILL_ONE,    IN_LAYER(input_norm.gain)},
    {"layer.stream_norm.weight",   DIM_HIDDEN,       DIM_NONE,        {STREAMS},                 FILL_ONE,    IN_LAYER(stream_norm.gain)},
    {"layer.stream_router.weight", DIM_STREAMS,      DIM_HIDDEN,      {STREAMS},                 FILL_RANDOM, IN_LAYER(stream_router.weight)},
    {"layer.stream_predict.weight", DIM_STREAM_PAIRS, DIM_STREAMS,    {STREAMS},                 FILL_RANDOM, IN_LAYER(stream_predict.weight)},
    {"layer.stream_correct.weight", DIM_STREAMS,     DIM_STREAMS,     {STREAMS},                 FILL_RANDOM, IN_LAYER(stream_correct.weight)},
    {"layer.stream_scale.weight",  DIM_HIDDEN,       DIM_NONE,        {STREAMS},                 FILL_ONE,    IN_LAYER(stream_scale)},
    {"layer.laurel_in.weight",     DIM_LAUREL,       DIM_HIDDEN,      {LAUREL},                  FILL_RANDOM, IN_LAYER(laurel_in.weight)},
    {"layer.laurel_out.weight",    DIM_HIDDEN_WHOLE, DIM_LAUREL,      {LAUREL},                  FILL_RANDOM, IN_LAYER(laurel_out.weight)},
    {"layer.laurel_norm.weight",   DIM_HIDDEN,       DIM_NONE,        {LAUREL},                  FILL_ONE,    IN_LAYER(laurel_norm.gain)},
    {"layer.scale",                DIM_ONE,          DIM_NONE,        {SCALE},                   FILL_ONE,    IN_LAYER(scale)},
    {"stream_out.weight",          DIM_HIDDEN_WHOLE, DIM_HIDDEN,      {STREAMED},                FILL_RANDOM, IN_WEIGHTS(stream_out.weight)},
    {"final_norm.weight",          DIM_HIDDEN,       DIM_NONE,        {FINAL_NORM, GAIN},        FILL_ONE,    IN_WEIGHTS(final_norm.gain)},
    {"final_norm.bias",            DIM_HIDDEN,       DIM_NONE,        {FINAL_NORM, BIAS},        FILL_ZERO,   IN_WEIGHTS(final_norm.bias)},
    {"project_out.weight",         DIM_EMBED,        DIM_HIDDEN,      {PROJECTED},               FILL_RANDOM, IN_WEIGHTS(project_out.weight)},
    {"pooled_dense.weight",        DIM_POOLED,       DIM_HIDDEN,      {POOLED},                  FILL_RANDOM, IN_WEIGHTS(pooled_dense.weight)},
    {"pooled_dense.bias",          DIM_POOLED,       DIM_NONE,        {POOLED, POOLED_BIAS},     FILL_ZERO,   IN_WEIGHTS(pooled_dense.bias)},
    {"pooled_norm.weight",         DIM_POOLED,       DIM_NONE,        {POOLED, POOLED_NORM},     FILL_ONE,    IN_WEIGHTS(pooled_norm.gain)},
    {"pooled_norm.bias",           DIM_POOLED,       DIM_NONE,        {POOLED, POOLED_NORM, BIAS}, FILL_ZERO, IN_WEIGHTS(pooled_norm.bias)},
    {"pooled_out.weight",          DIM_POOLED_OUT,   DIM_POOLED_IN,   {POOLED_OUT},              FILL_RANDOM, IN_WEIGHTS(pooled_out.weight)},
    {"pooled_out.bias",            DIM_POOLED_OUT,   DIM_NONE,        {POOLED_OUT, POOLED_OUT_BIAS}, FILL_ZERO, IN_WEIGHTS(pooled_out.bias)},
    {"head.weight",                DIM_VOCAB,        DIM_EMBED,       {OWN_HEAD},                FILL_RANDOM, IN_WEIGHTS(head.weight)},
    {"head.bias",                  DIM_VOCAB,        DIM_NONE,        {BIAS_HEAD},               FILL_ZERO,   IN_WEIGHTS(head.bias)},
    {"draft_offset",               DIM_VOCAB,        DIM_NONE,        {DRAFT_MAP},                     FILL_IDS,    IN_WEIGHTS(draft_offset)},
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

static bool needs_met(const struct weight_kind *kind, const struct config *config,
                      const struct layer_plan *plan)
{
    bool met = true;
    for (size_t i = 0; i < ARRAY_LEN(kind->needs); i++)
        met = met && has_trait(config, plan, (enum trait)kind->needs[i]);
    return met;
}

bool weight_kind_has(const struct weight_kind *kind, const struct config *config, size_t layer)
{
    return needs_met(kind, config, weight_kind_in_layer(kind) ? &config->plan[layer] : NULL);
}

bool weight_kind_of_experts(const struct weight_kind *kind) { return kind->needs[0] == STACKED; }

bool weight_kind_of_streams(const struct weight_kind *kind) { return kind->needs[0] == STREAMED; }

size_t weight_kind_stack(const struct weight_kind *kind, const struct config *config)
{
    return weight_kind_of_experts(kind)   ? config->moe->experts
           : weight_kind_of_streams(kind) ? config->stream.n - 1
                                          : 0;
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

bool weight_kind_stays_wide(const struct weight_kind *kind)
{
    return strcmp(kind->name, "layer.router.weight") == 0 || kind->out == DIM_STREAMS ||
           kind->out == DIM_INDEX_HEADS || kind->in == DIM_STREAMS ||
           strncmp(kind->name, "pooled_", strlen("pooled_")) == 0;
}

size_t weight_kind_copies(const struct weight_kind *kind, const struct config *config)
{
    return !needs_met(kind, config, NULL) ? 0 : weight_kind_in_layer(kind) ? config->layers : 1;
}

size_t config_layer_macs(const struct config *config)
{
    size_t macs = 0;
    struct config own;
    for (const struct weight_kind *kind = weight_kinds; kind < weight_kinds + n_weight_kinds; kind++)
        for (size_t l = 0; l < weight_kind_copies(kind, config); l++) {
            if (!weight_kind_in_layer(kind) || kind->in == DIM_NONE ||
                !weight_kind_has(kind, config, l))
                continue;
            const struct config *c = config_of_layer(config, l, &own);
            const size_t stack =
                weight_kind_of_experts(kind) ? config->moe->used : weight_kind_stack(kind, config);
            macs = size_plus(macs,
                             size_times(size_times(config_dim(c, kind->out), config_dim(c, kind->in)),
                                        size_max(stack, 1)));
        }
    return macs;
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
