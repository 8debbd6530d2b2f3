/* A small model in memory for tests of the generation loop. */
#ifndef BMC_TEST_TINY_MODEL_H
#define BMC_TEST_TINY_MODEL_H

#include "check.h"
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
static inline void add_chunks(struct config *config)
{
    config->layers = 3;
    config->layer_types = (struct layer_list){3, {LAYER_CHUNKED, LAYER_FULL, LAYER_CHUNKED}};
    config->layer_rope = (struct layer_list){3, {LAYER_ROPE, LAYER_NOPE, LAYER_ROPE}};
    config->window = 13;
    config->qk_norm = QK_NORM_HEAD;
    config->qk_norm_after_rope = config->qk_norm_rotated = true;
    config->attn_temperature = 0.2;
    config->temperature_length = 9;
    config->temperature_offset = 1;
    config->temperature_unrotated = true;
    config->experts = 4;
    config->experts_used = 2;
    config->expert_ffn = config->shared_ffn = 16;
    config->expert_every = 1;
    config->expert_layers = (struct factors){2, {0, 2}};
    config->router = ROUTER_TOPK_SIGMOID;
    config->router_input = true;
    config->router_scale = 1;
}

/* The traits of Gemma 4: heads of two sizes, layers that share keys and values, inputs of every layer of its own. */
static inline void add_sizes(struct config *config)
{
    config->layers = 5;
    config->layer_types =
        (struct layer_list){5, {LAYER_SLIDING, LAYER_FULL, LAYER_SLIDING, LAYER_FULL, LAYER_SLIDING}};
    config->window = 13;
    config->rope_sliding = LAYER_ROPE_LOCAL;
    config->rope_local_theta = 1000;
    config->rope_share = 0.5;
    config->full_head_dim = 12;
    config->full_kv_heads = 1;
    config->kv_shared = 2;
    config->kv_shared_ffn = 20;
    config->layer_input = 6;
    config->qk_norm = QK_NORM_HEAD;
    config->qk_norm_affine = config->v_norm = config->v_is_k = config->layer_scale = true;
    config->norm_place = NORM_AROUND;
    config->attn_scale = 1;
}

static inline void tiny_traits(struct config *c, unsigned traits)
{
    if (traits & (TINY_EXPERTS | TINY_GROUPS)) {
        c->experts = 8;
        c->experts_used = 3;
        c->expert_ffn = c->shared_ffn = 16;
        c->expert_first = c->expert_every = 1;
        c->shared_gated = traits & TINY_EXPERTS;
        c->router_norm = true;
        c->router_scale = 1.5;
    }
    if (traits & TINY_GROUPS) {
        c->router = ROUTER_SIGMOID;
        c->router_group = ROUTER_GROUP_TOP2;
        c->router_groups = 4;
        c->router_groups_used = 2;
        c->router_select_bias = true;
    }
    if (traits & TINY_BESIDE) {
        c->experts = 5;
        c->experts_used = 2;
        c->expert_ffn = 16;
        c->expert_every = 1;
        c->expert_beside = c->router_norm = true;
        c->router_scale = 1;
    }
    if (traits & TINY_LATENT) {
        c->kv_heads = 1;
        c->kv_lora_rank = 32;
        c->q_lora_rank = 16;
        c->nope_dim = 6;
        c->rope_dim = 4;
        c->v_dim = 16;
        c->head_dim = c->kv_lora_rank + c->rope_dim;
    }
    if (traits & TINY_SINKS) {
        c->attn_sinks = true;
        c->activation = ACT_CLAMPED_SWIGLU;
        c->swiglu_limit = 0.02;
        c->swiglu_alpha = 1.7;
        c->window = 20;
        c->layer_types = (struct layer_list){2, {LAYER_SLIDING, LAYER_FULL}};
    }
}

/* Synthetic weights of a type, and a tokenizer of bytes: vocabulary 61, two layers. Layers of a kind that has
 * recurrent state are added; kinds chunked and sliding have the traits of Llama 4 and Gemma 4. */
static inline struct model *tiny_model_with(size_t context, enum layer_kind kind, unsigned traits,
                                            enum dtype type)
{
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
                            .activation = ACT_SILU,
                            .mlp = MLP_GATED,
                            .final_norm = true,
                            .norm_eps = 1e-5,
                            .rope_theta = 1e4};
    static struct buf blob; /* stays: that of all models */
    struct model *model;
    struct err err;
    if (kind == LAYER_CHUNKED)
        add_chunks(&config);
    if (kind == LAYER_SLIDING)
        add_sizes(&config);
    if (layer_kind_has_state(kind)) {
        config.layers = 3;
        config.layer_types = (struct layer_list){
            3, {(uint8_t)kind, kind == LAYER_MAMBA_FULL ? (uint8_t)kind : LAYER_FULL, (uint8_t)kind}};
        config.conv_kernel = 4;
        config.attn_gate = config.state_norm = config.bias_conv = true;
    }
    if (layer_kind_has_state(kind) && kind != LAYER_CONV) {
        config.state_heads = 4;
        config.state_key_heads = 2;
        config.state_key_dim = 5;
        config.state_value_dim = 34;
    }
    tiny_traits(&config, traits);
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
