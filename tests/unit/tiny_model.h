/* A small model in memory for tests of the generation loop. */
#ifndef BMC_TEST_TINY_MODEL_H
#define BMC_TEST_TINY_MODEL_H

#include "check.h"
#include "model/model.h"
#include "model/weight_kinds.h"
#include "text/import/tok_build.h"

/* Random values in all vectors of layers with recurrent state. */
static inline void fill_states(struct model *model, size_t layers)
{
    uint64_t state = check_state(11);
    for (size_t i = 0; i < n_weight_kinds; i++)
        for (size_t l = 0; l < layers; l++) {
            const struct weight_kind *kind = &weight_kinds[i];
            if (kind->in != DIM_NONE || !weight_kind_in_layer(kind) ||
                !weight_kind_has(kind, &model->config, l) || !strstr(kind->name, "state_"))
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

/* Synthetic weights, and a tokenizer of bytes: vocabulary 61, two layers. Layers of a kind that has recurrent state
 * are added; with chunks come other traits. */
static inline struct model *tiny_model_of(size_t context, enum layer_kind kind)
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
    if (model_synthesize(&model, &config, "a test", DTYPE_F32, 5, &err) < 0 ||
        (!blob.len && tokenizer_build_bytes(256, &blob, &err) < 0) ||
        tokenizer_open(&model->tok, blob.data, blob.len, &err) < 0) {
        printf("not ok - %s\n", err.text);
        exit(1);
    }
    fill_states(model, config.layers);
    return model;
}

static inline struct model *tiny_model(size_t context) { return tiny_model_of(context, LAYER_FULL); }

#endif
