/* A small model in memory for tests of the generation loop. */
#ifndef BMC_TEST_TINY_MODEL_H
#define BMC_TEST_TINY_MODEL_H

#include "check.h"
#include "model/config/config_keys.h"
#include "model/model.h"
#include "model/weight_kinds.h"
#include "text/import/tok_build.h"

/* Traits of a tiny model, beside a kind of layers with recurrent state. */
enum {
    TINY_EXPERTS = 1, /* in all layers but the first, with a gated shared expert */
    TINY_GROUPS = 2,  /* experts are chosen by biased sigmoids, from the best groups */
    TINY_LATENT = 4,  /* latent attention */
    TINY_BESIDE = 16, /* experts beside the MLP of all layers */
    TINY_SINKS = 8,   /* attention sinks, clamped SwiGLU, a window in one of two layers */
    TINY_INDEX = 32,  /* latent attention to 9 chosen positions, the same in both layers */
};

/* Random values in all vectors of layers with recurrent state, attention sinks and the choice of experts. */
static inline void fill_states(struct model *model, size_t layers)
{
    uint64_t state = check_state(11);
    for (size_t i = 0; i < n_weight_kinds; i++)
        for (size_t l = 0; l < layers; l++) {
            const struct weight_kind *kind = &weight_kinds[i];
            if (kind->in != DIM_NONE || !weight_kind_in_layer(kind) ||
                !weight_kind_has(kind, &model->config, l) ||
                (!strstr(kind->name, "state_") && !strstr(kind->name, "sinks") &&
                 !strstr(kind->name, "router_") && !strstr(kind->name, "moe_")))
                continue;
            float *x = *(float **)weight_kind_at(kind, &model->weights, l);
            for (size_t j = 0; j < config_dim(&model->config, kind->out); j++) {
                state ^= state << 13, state ^= state >> 7, state ^= state << 17;
                x[j] = 0.1f + (float)(state % 1000) / 1000;
            }
        }
}

/* The traits of Llama 4: chunks of 13 positions, a layer without rotation, and experts whose inputs are weighted. */
static inline void add_chunks(struct config *config, struct config_keys *keys)
{
    config->layers = 3;
    keys->layer_types = (struct layer_list){3, {LAYER_CHUNKED, LAYER_FULL, LAYER_CHUNKED}};
    keys->layer_rope = (struct layer_list){3, {LAYER_ROPE, LAYER_NOPE, LAYER_ROPE}};
    keys->window = 13;
    config->qk_norm = QK_NORM_HEAD;
    config->qk_norm_after_rope = keys->qk_norm_rotated = true;
    keys->temperature.scale = 0.2;
    keys->temperature.length = 9;
    keys->temperature.offset = 1;
    keys->temperature_unrotated = true;
    keys->moe.experts = 4;
    keys->moe.used = 2;
    keys->moe.ffn = keys->moe.shared_ffn = 16;
    keys->expert_every = 1;
    keys->expert_layers = (struct factors){2, {0, 2}};
    keys->moe.router = ROUTER_TOPK_SIGMOID;
    keys->moe.weigh_input = true;
    keys->moe.scale = 1;
}

/* The traits of Gemma 4: heads of two sizes, layers that share keys and values, inputs of every layer of its own. */
static inline void add_sizes(struct config *config, struct config_keys *keys)
{
    config->layers = 5;
    keys->layer_types =
        (struct layer_list){5, {LAYER_SLIDING, LAYER_FULL, LAYER_SLIDING, LAYER_FULL, LAYER_SLIDING}};
    keys->window = 13;
    keys->rope_sliding = LAYER_ROPE_LOCAL;
    keys->rope_local_theta = 1000;
    keys->rope.share = 0.5;
    keys->full_head_dim = 12;
    keys->full_kv_heads = 1;
    keys->kv_shared = 2;
    keys->kv_shared_ffn = 20;
    config->layer_input.width = 6;
    config->qk_norm = QK_NORM_HEAD;
    config->qk_norm_affine = config->v_norm = keys->v_is_k = config->layer_scale = true;
    config->norm_place = NORM_AROUND;
    config->attn_scale = 1;
}

static inline void tiny_traits(struct config *c, struct config_keys *keys, unsigned traits)
{
    if (traits & (TINY_EXPERTS | TINY_GROUPS)) {
        keys->moe.experts = 8;
        keys->moe.used = 3;
        keys->moe.ffn = keys->moe.shared_ffn = 16;
        keys->expert_first = keys->expert_every = 1;
        keys->moe.shared_gated = traits & TINY_EXPERTS;
        keys->moe.norm_weights = true;
        keys->moe.scale = 1.5;
    }
    if (traits & TINY_GROUPS) {
        keys->moe.router = ROUTER_SIGMOID;
        keys->moe.group_score = ROUTER_GROUP_TOP2;
        keys->moe.groups = 4;
        keys->moe.groups_used = 2;
        keys->moe.select_bias = true;
    }
    if (traits & TINY_BESIDE) {
        keys->moe.experts = 5;
        keys->moe.used = 2;
        keys->moe.ffn = 16;
        keys->expert_every = 1;
        keys->moe.beside = keys->moe.norm_weights = true;
        keys->moe.scale = 1;
    }
    if (traits & TINY_LATENT) {
        c->kv_heads = 1;
        keys->latent.kv_rank = 32;
        keys->latent.q_rank = 16;
        keys->latent.nope_dim = 6;
        keys->rope.dim = 4;
        keys->latent.v_dim = 16;
        c->head_dim = keys->latent.kv_rank + keys->rope.dim;
        c->attn_gate = false;
        keys->recurrent.by_row = keys->recurrent.heads > 0; /* as in Kimi Linear */
        keys->recurrent.rank = keys->recurrent.heads ? 6 : 0;
        keys->recurrent.gate = keys->recurrent.heads ? STATE_GATE_SIGMOID : STATE_GATE_SILU;
    }
    if (traits & TINY_INDEX) {
        keys->latent.index_heads = 3;
        keys->latent.index_dim = 8;
        keys->latent.index_topk = 9;
        keys->index_types = (struct layer_list){2, {INDEX_FULL, INDEX_SHARED}};
    }
    if (traits & TINY_SINKS) {
        c->attn_sinks = true;
        keys->mlp.activation = ACT_CLAMPED_SWIGLU;
        keys->mlp.limit = 0.02;
        keys->mlp.alpha = 1.7;
        keys->window = 20;
        keys->layer_types = (struct layer_list){2, {LAYER_SLIDING, LAYER_FULL}};
    }
}

/* Synthetic weights of a type, and a tokenizer of bytes: vocabulary 61, two layers. Layers of a kind that has
 * recurrent state are added; kinds chunked and sliding have the traits of Llama 4 and Gemma 4. */
static inline struct model *tiny_model_with(size_t context, enum layer_kind kind, unsigned traits,
                                            enum dtype type)
{
    struct config_keys keys = {CONFIG_KEY_DEFAULTS, .mlp = {.activation = ACT_SILU, .kind = MLP_GATED}};
    struct config config = {.layers = 2,
                            .hidden = 32,
                            .embed = 32,
                            .heads = 4,
                            .kv_heads = 2,
                            .head_dim = 8,
                            .ffn = 48,
                            .vocab = 61,
                            .context = context,
                            .norm = NORM_RMS,
                            .position = POSITION_ROPE,
                            .final_norm = true,
                            .norm_eps = 1e-5,
                            .keys = &keys};
    static struct buf blob; /* stays: that of all models */
    struct model *model;
    struct err err;
    if (kind == LAYER_CHUNKED)
        add_chunks(&config, &keys);
    if (kind == LAYER_SLIDING)
        add_sizes(&config, &keys);
    if (layer_kind_has_state(kind)) {
        config.layers = 3;
        const uint16_t own = (uint16_t)kind, between = kind == LAYER_MAMBA_FULL ? own : LAYER_FULL;
        keys.layer_types = (struct layer_list){3, {own, between, own}};
        keys.recurrent.conv_kernel = 4;
        config.attn_gate = keys.recurrent.norm = keys.recurrent.bias_conv = true;
    }
    if (layer_kind_has_state(kind) && kind != LAYER_CONV) {
        keys.recurrent.heads = 4;
        keys.recurrent.key_heads = 2;
        keys.recurrent.key_dim = 5;
        keys.recurrent.value_dim = 34;
    }
    tiny_traits(&config, &keys, traits);
    if (model_synthesize(&model, &config, "a test", type, 5, &err) < 0 ||
        (!blob.len && tokenizer_build_bytes(256, &blob, &err) < 0) ||
        tokenizer_open(&model->tok, blob.data, blob.len, &err) < 0) {
        printf("not ok - %s\n", err.text);
        exit(1);
    }
    fill_states(model, config.layers);
    return model;
}

static inline struct model *tiny_model_of(size_t context, enum layer_kind kind)
{
    return tiny_model_with(context, kind, 0, DTYPE_F32);
}

static inline struct model *tiny_model(size_t context) { return tiny_model_of(context, LAYER_FULL); }

#endif
