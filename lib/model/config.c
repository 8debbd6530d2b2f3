/* The table of configuration keys, by which configurations are read and written. */
#include "model/config.h"

#include "base/number.h"
#include "format/source.h"
#include "model/config/config_keys.h"

static_assert((int)MAX_LAYERS == SOURCE_MAX_LAYERS, "sources have as many layers as models");
static_assert((int)MAX_LAYERS == KV_MAX_LAYERS, "caches have as many layers as models");

static const char *const norm_names[] = {"layer", "rms", NULL};
static const char *const qk_norm_names[] = {"none", "head", "whole", "each", NULL};
static const char *const position_names[] = {"learned", "rope", "alibi", NULL};
static const char *const mlp_names[] = {"plain", "gated", NULL};
static const char *const router_names[] = {"softmax",      "topk_softmax", "sigmoid",
                                           "topk_sigmoid", "sparsemixer",  NULL};
static const char *const router_group_names[] = {"max", "top2", NULL};
static const char *const attn_gate_names[] = {"false", "true", "head", NULL};
static const char *const state_gate_names[] = {"silu", "sigmoid", NULL};
static const char *const fusion_names[] = {"project", "attention", NULL};
static const char *const pooling_names[] = {"none", "mean", "last", "cls", "unsupported", NULL};
static const char *const pooled_names[] = {"none", "tanh", "gelu", "relu", NULL};
static const char *const bool_names[] = {"false", "true", NULL};

/* Canonical names first, then the spellings of other tools; the alias arrays have enum values. */
static const char *const activation_names[] = {"relu",           "silu",     "gelu",
                                               "gelu_tanh",      "relu2",    "quick_gelu",
                                               "clamped_swiglu", "gelu_new", "gelu_pytorch_tanh",
                                               "gelu_fast",      NULL};
static const int activation_alias[] = {ACT_RELU,      ACT_SILU,       ACT_GELU,           ACT_GELU_TANH,
                                       ACT_RELU2,     ACT_QUICK_GELU, ACT_CLAMPED_SWIGLU, ACT_GELU_TANH,
                                       ACT_GELU_TANH, ACT_GELU_TANH};
static const char *const scaling_names[] = {"none",     "linear", "llama3",  "yarn", "dynamic",
                                            "longrope", "ntk",    "default", "su",   NULL};
static const int scaling_alias[] = {ROPE_PLAIN,    ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN,    ROPE_DYNAMIC,
                                    ROPE_LONGROPE, ROPE_NTK,    ROPE_PLAIN,  ROPE_LONGROPE};

/* Names of a layer's traits: ours, then those of Hugging Face. */
static const char *const kind_names[] = {"full",
                                         "sliding",
                                         "chunked",
                                         "mlp",
                                         "experts",
                                         "conv",
                                         "delta",
                                         "mamba",
                                         "mamba+full",
                                         "full_attention",
                                         "sliding_attention",
                                         "chunked_attention",
                                         "linear_attention",
                                         "attention",
                                         "hybrid",
                                         "moe",
                                         NULL};
static const int kind_alias[] = {LAYER_FULL,       LAYER_SLIDING, LAYER_CHUNKED,    LAYER_MLP,
                                 LAYER_EXPERTS,    LAYER_CONV,    LAYER_DELTA,      LAYER_MAMBA,
                                 LAYER_MAMBA_FULL, LAYER_FULL,    LAYER_SLIDING,    LAYER_CHUNKED,
                                 LAYER_DELTA,      LAYER_FULL,    LAYER_MAMBA_FULL, LAYER_EXPERTS};
static const char *const index_names[] = {"full", "shared", NULL};
static const int index_alias[] = {INDEX_FULL, INDEX_SHARED};
static const char *const rope_names[] = {"rope", "local", "nope", "1", "0", NULL};
static const char *const rotation_names[] = {"rope", "local", "nope", NULL};
static const int rope_alias[] = {LAYER_ROPE, LAYER_ROPE_LOCAL, LAYER_NOPE, LAYER_ROPE, LAYER_NOPE};

enum key_kind { SIZE, REAL, CHOICE, BOOL, LIST, LAYERS };

/* A configuration and its keys, as they are read and written. */
#define AT(field)  offsetof(struct config_text, config.field)
#define KEY(field) offsetof(struct config_text, keys.field)

static const struct key {
    const char *name;
    enum key_kind kind;
    size_t at; /* offset in struct config_text */
    double min, max;
    const char *const *names;
    const int *alias;
    const char *fallback; /* value if the key is missing; NULL: it is required */
} key_table[] = {
    {"layers", SIZE, AT(layers), 1, MAX_LAYERS, NULL, NULL, NULL},
    {"hidden", SIZE, AT(hidden), 1, MAX_WIDTH, NULL, NULL, NULL},
    {"embed", SIZE, AT(embed), 1, MAX_WIDTH, NULL, NULL, NULL},
    {"heads", SIZE, AT(heads), 0, MAX_WIDTH, NULL, NULL, NULL},
    {"kv_heads", SIZE, AT(kv_heads), 0, MAX_WIDTH, NULL, NULL, NULL},
    {"head_dim", SIZE, AT(head_dim), 0, 1024, NULL, NULL, NULL},
    {"layer_heads", LAYERS, KEY(layer_heads), 1, UINT16_MAX, NULL, NULL, "none"},
    {"layer_kv_heads", LAYERS, KEY(layer_kv_heads), 1, UINT16_MAX, NULL, NULL, "none"},
    {"layer_head_dim", LAYERS, KEY(layer_head_dim), 1, 1024, NULL, NULL, "none"},
    {"full_heads", SIZE, KEY(full_heads), 0, MAX_WIDTH, NULL, NULL, "0"},
    {"full_kv_heads", SIZE, KEY(full_kv_heads), 0, MAX_WIDTH, NULL, NULL, "0"},
    {"full_head_dim", SIZE, KEY(full_head_dim), 0, 1024, NULL, NULL, "0"},
    {"kv_shared", SIZE, KEY(kv_shared), 0, MAX_LAYERS, NULL, NULL, "0"},
    {"kv_shared_ffn", SIZE, KEY(kv_shared_ffn), 0, MAX_WIDTH, NULL, NULL, "0"},
    {"kv_lora_rank", SIZE, KEY(latent.kv_rank), 0, 1024, NULL, NULL, "0"},
    {"q_lora_rank", SIZE, KEY(latent.q_rank), 0, MAX_WIDTH, NULL, NULL, "0"},
    {"nope_dim", SIZE, KEY(latent.nope_dim), 0, 1024, NULL, NULL, "0"},
    {"v_dim", SIZE, KEY(latent.v_dim), 0, 1024, NULL, NULL, "0"},
    {"index_heads", SIZE, KEY(latent.index_heads), 0, 1024, NULL, NULL, "0"},
    {"index_dim", SIZE, KEY(latent.index_dim), 0, 1024, NULL, NULL, "0"},
    {"index_topk", SIZE, KEY(latent.index_topk), 0, MAX_WIDTH, NULL, NULL, "0"},
    {"index_types", LAYERS, KEY(index_types), 0, 0, index_names, index_alias, "none"},
    {"lora_norm_eps", REAL, KEY(latent.norm_eps), 0, 1, NULL, NULL, "0"},
    {"ffn", SIZE, AT(ffn), 0, MAX_WIDTH, NULL, NULL, NULL},
    {"vocab", SIZE, AT(vocab), 1, MAX_VOCAB, NULL, NULL, NULL},
    {"mask_token", SIZE, AT(mask_token), 0, MAX_VOCAB, NULL, NULL, "0"},
    {"context", SIZE, AT(context), 1, MAX_VOCAB, NULL, NULL, NULL},
    {"features", SIZE, KEY(draft.features), 0, MAX_FEATURES, NULL, NULL, "0"},
    {"feature_hidden", SIZE, KEY(draft.feature_hidden), 0, MAX_WIDTH, NULL, NULL, "0"},
    {"input_vocab", SIZE, KEY(draft.input_vocab), 0, MAX_VOCAB, NULL, NULL, "0"},
    {"fusion", CHOICE, KEY(draft.fusion), 0, 0, fusion_names, NULL, "project"},
    {"feature_layers", LIST, KEY(draft.feature_layers), 0, MAX_LAYERS, NULL, NULL, "none"},
    {"norm_residual", BOOL, KEY(draft.norm_residual), 0, 0, bool_names, NULL, "false"},
    {"norm_output", BOOL, KEY(draft.norm_output), 0, 0, bool_names, NULL, "false"},
    {"mask_feature", BOOL, KEY(draft.mask_feature), 0, 0, bool_names, NULL, "false"},
    {"feature_norm", BOOL, KEY(draft.feature_norm), 0, 0, bool_names, NULL, "false"},
    {"bias_fusion", BOOL, KEY(draft.bias_fusion), 0, 0, bool_names, NULL, "false"},
    {"target_embed", BOOL, AT(target_embed), 0, 0, bool_names, NULL, "false"},
    {"target_head", BOOL, AT(target_head), 0, 0, bool_names, NULL, "false"},
    {"draft_map", BOOL, KEY(draft.map), 0, 0, bool_names, NULL, "false"},
    {"norm", CHOICE, AT(norm), 0, 0, norm_names, NULL, NULL},
    {"norm_place", CHOICE, AT(norm_place), 0, 0, config_place_names, NULL, NULL},
    {"qk_norm", CHOICE, AT(qk_norm), 0, 0, qk_norm_names, NULL, "none"},
    {"qk_norm_after_rope", BOOL, AT(qk_norm_after_rope), 0, 0, bool_names, NULL, "false"},
    {"qk_norm_affine", BOOL, AT(qk_norm_affine), 0, 0, bool_names, NULL, "true"},
    {"v_norm", BOOL, AT(v_norm), 0, 0, bool_names, NULL, "false"},
    {"v_is_k", BOOL, KEY(v_is_k), 0, 0, bool_names, NULL, "false"},
    {"layer_input", SIZE, AT(layer_input.width), 0, 65536, NULL, NULL, "0"},
    {"layer_input_vocab", SIZE, AT(layer_input.vocab), 0, MAX_VOCAB, NULL, NULL, "0"},
    {"streams", SIZE, AT(stream.n), 0, MAX_STREAMS, NULL, NULL, "0"},
    {"laurel_rank", SIZE, AT(stream.laurel_rank), 0, MAX_WIDTH, NULL, NULL, "0"},
    {"layer_scale", BOOL, AT(layer_scale), 0, 0, bool_names, NULL, "false"},
    {"qk_norm_rotated", BOOL, KEY(qk_norm_rotated), 0, 0, bool_names, NULL, "false"},
    {"block", CHOICE, AT(block), 0, 0, config_block_names, NULL, "sequential"},
    {"norm_eps", REAL, AT(norm_eps), 0, 1, NULL, NULL, NULL},
    {"no_attn_norm", BOOL, KEY(no_attn_norm), 0, 0, bool_names, NULL, "false"},
    {"norm_affine", BOOL, AT(norm_affine), 0, 0, bool_names, NULL, "true"},
    {"no_norm_bias", BOOL, AT(no_norm_bias), 0, 0, bool_names, NULL, "false"},
    {"round_inputs", BOOL, KEY(round_inputs), 0, 0, bool_names, NULL, "false"},
    {"sub_norm", BOOL, KEY(sub_norm), 0, 0, bool_names, NULL, "false"},
    {"final_norm", BOOL, AT(final_norm), 0, 0, bool_names, NULL, "true"},
    {"embed_scale", REAL, AT(embed_scale), 0, 1e6, NULL, NULL, "0"},
    {"residual_scale", REAL, AT(residual_scale), 0, 1e6, NULL, NULL, "0"},
    {"logit_scale", REAL, AT(logit_scale), 0, 1e6, NULL, NULL, "0"},
    {"attn_in_scale", REAL, AT(attn_in_scale), 0, 1e6, NULL, NULL, "0"},
    {"attn_out_scale", REAL, AT(attn_out_scale), 0, 1e6, NULL, NULL, "0"},
    {"key_scale", REAL, AT(key_scale), 0, 1e6, NULL, NULL, "0"},
    {"gate_scale", REAL, KEY(mlp.gate_scale), 0, 1e6, NULL, NULL, "0"},
    {"mlp_scale", REAL, KEY(mlp.out_scale), 0, 1e6, NULL, NULL, "0"},
    {"state_in_scale", REAL, KEY(recurrent.in_scale), 0, 1e6, NULL, NULL, "0"},
    {"state_out_scale", REAL, KEY(recurrent.out_scale), 0, 1e6, NULL, NULL, "0"},
    {"state_scales", LIST, KEY(recurrent.scales), 0, 1e6, NULL, NULL, "none"},
    {"token_types", SIZE, AT(token_types), 0, 1024, NULL, NULL, "0"},
    {"bidirectional", BOOL, KEY(bidirectional), 0, 0, bool_names, NULL, "false"},
    {"embed_norm", BOOL, AT(embed_norm), 0, 0, bool_names, NULL, "false"},
    {"position", CHOICE, AT(position), 0, 0, position_names, NULL, NULL},
    {"position_offset", SIZE, AT(position_offset), 0, 1024, NULL, NULL, "0"},
    {"rope_theta", REAL, KEY(rope.theta), 1, 1e12, NULL, NULL, "10000"},
    {"rope_scaling", CHOICE, KEY(rope.scaling), 0, 0, scaling_names, scaling_alias, "none"},
    {"rope_factor", REAL, KEY(rope.factor), 1, 1e6, NULL, NULL, "1"},
    {"rope_low", REAL, KEY(rope.low), 1e-6, 1e6, NULL, NULL, "1"},
    {"rope_high", REAL, KEY(rope.high), 1e-6, 1e6, NULL, NULL, "4"},
    {"rope_fast", REAL, KEY(rope.fast), 1e-6, 1e6, NULL, NULL, "32"},
    {"rope_slow", REAL, KEY(rope.slow), 1e-6, 1e6, NULL, NULL, "1"},
    {"rope_whole", BOOL, KEY(rope.whole), 0, 0, bool_names, NULL, "true"},
    {"rope_gain", REAL, KEY(rope.gain), 0, 1e6, NULL, NULL, "0"},
    {"rope_mscale", REAL, KEY(rope.mscale), 0, 1e6, NULL, NULL, "0"},
    {"rope_mscale_all", REAL, KEY(rope.mscale_all), 0, 1e6, NULL, NULL, "0"},
    {"rope_short", LIST, KEY(rope.short_factor), 1e-6, 1e6, NULL, NULL, "none"},
    {"rope_long", LIST, KEY(rope.long_factor), 1e-6, 1e6, NULL, NULL, "none"},
    {"rope_original", SIZE, KEY(rope.original), 1, MAX_VOCAB, NULL, NULL, "1"},
    {"rope_share", REAL, KEY(rope.share), 0, 1, NULL, NULL, "0"},
    {"rope_dim", SIZE, KEY(rope.dim), 0, 1024, NULL, NULL, "0"},
    {"window", SIZE, KEY(window), 0, MAX_VOCAB, NULL, NULL, "0"},
    {"window_every", SIZE, KEY(window_every), 0, MAX_LAYERS, NULL, NULL, "0"},
    {"last_full", BOOL, KEY(last_full), 0, 0, bool_names, NULL, "false"},
    {"one_sublayer", BOOL, KEY(one_sublayer), 0, 0, bool_names, NULL, "false"},
    {"layer_types", LAYERS, KEY(layer_types), 0, 0, kind_names, kind_alias, "none"},
    {"layer_rope", LAYERS, KEY(layer_rope), 0, 0, rope_names, rope_alias, "none"},
    {"rope_every", SIZE, KEY(rope_every), 0, MAX_LAYERS, NULL, NULL, "0"},
    {"rope_sliding", CHOICE, KEY(rope_sliding), 0, 0, rotation_names, NULL, "rope"},
    {"rope_full", CHOICE, KEY(rope_full), 0, 0, rotation_names, NULL, "rope"},
    {"rope_local_theta", REAL, KEY(rope_local_theta), 0, 1e12, NULL, NULL, "0"},
    {"rope_local_dim", SIZE, KEY(rope_local_dim), 0, 1024, NULL, NULL, "0"},
    {"experts", SIZE, KEY(moe.experts), 0, MAX_EXPERTS, NULL, NULL, "0"},
    {"experts_used", SIZE, KEY(moe.used), 0, MAX_EXPERTS, NULL, NULL, "0"},
    {"expert_ffn", SIZE, KEY(moe.ffn), 0, MAX_WIDTH, NULL, NULL, "0"},
    {"expert_first", SIZE, KEY(expert_first), 0, MAX_LAYERS, NULL, NULL, "0"},
    {"expert_every", SIZE, KEY(expert_every), 1, MAX_LAYERS, NULL, NULL, "1"},
    {"expert_last", SIZE, KEY(expert_last), 0, MAX_LAYERS, NULL, NULL, "0"},
    {"mlp_layers", LIST, KEY(mlp_layers), 0, MAX_LAYERS, NULL, NULL, "none"},
    {"expert_layers", LIST, KEY(expert_layers), 0, MAX_LAYERS, NULL, NULL, "none"},
    {"expert_beside", BOOL, KEY(moe.beside), 0, 0, bool_names, NULL, "false"},
    {"bias_experts", BOOL, KEY(moe.bias), 0, 0, bool_names, NULL, "false"},
    {"bias_moe", BOOL, KEY(moe.sum_bias), 0, 0, bool_names, NULL, "false"},
    {"router", CHOICE, KEY(moe.router), 0, 0, router_names, NULL, "softmax"},
    {"router_norm", BOOL, KEY(moe.norm_weights), 0, 0, bool_names, NULL, "false"},
    {"router_scale", REAL, KEY(moe.scale), 1e-6, 1e6, NULL, NULL, "1"},
    {"router_jitter", REAL, KEY(moe.jitter), 0, 1, NULL, NULL, "0"},
    {"router_groups", SIZE, KEY(moe.groups), 0, MAX_EXPERTS, NULL, NULL, "0"},
    {"router_groups_used", SIZE, KEY(moe.groups_used), 0, MAX_EXPERTS, NULL, NULL, "0"},
    {"router_group", CHOICE, KEY(moe.group_score), 0, 0, router_group_names, NULL, "max"},
    {"router_input", BOOL, KEY(moe.weigh_input), 0, 0, bool_names, NULL, "false"},
    {"router_select_bias", BOOL, KEY(moe.select_bias), 0, 0, bool_names, NULL, "false"},
    {"bias_router", BOOL, KEY(moe.bias_router), 0, 0, bool_names, NULL, "false"},
    {"shared_ffn", SIZE, KEY(moe.shared_ffn), 0, MAX_WIDTH, NULL, NULL, "0"},
    {"shared_gated", BOOL, KEY(moe.shared_gated), 0, 0, bool_names, NULL, "false"},
    {"conv_kernel", SIZE, KEY(recurrent.conv_kernel), 0, 64, NULL, NULL, "0"},
    {"state_heads", SIZE, KEY(recurrent.heads), 0, MAX_WIDTH, NULL, NULL, "0"},
    {"state_key_heads", SIZE, KEY(recurrent.key_heads), 0, MAX_WIDTH, NULL, NULL, "0"},
    {"state_key_dim", SIZE, KEY(recurrent.key_dim), 0, 4096, NULL, NULL, "0"},
    {"state_value_dim", SIZE, KEY(recurrent.value_dim), 0, 4096, NULL, NULL, "0"},
    {"state_by_row", BOOL, KEY(recurrent.by_row), 0, 0, bool_names, NULL, "false"},
    {"state_rank", SIZE, KEY(recurrent.rank), 0, MAX_WIDTH, NULL, NULL, "0"},
    {"state_gate", CHOICE, KEY(recurrent.gate), 0, 0, state_gate_names, NULL, "silu"},
    {"state_tiled", BOOL, KEY(recurrent.tiled), 0, 0, bool_names, NULL, "false"},
    {"bias_conv", BOOL, KEY(recurrent.bias_conv), 0, 0, bool_names, NULL, "false"},
    {"bias_state", BOOL, KEY(recurrent.bias), 0, 0, bool_names, NULL, "false"},
    {"state_norm", BOOL, KEY(recurrent.norm), 0, 0, bool_names, NULL, "true"},
    {"state_norm_first", BOOL, KEY(recurrent.norm_first), 0, 0, bool_names, NULL, "false"},
    {"attn_gate", CHOICE, AT(attn_gate), 0, 0, attn_gate_names, NULL, "false"},
    {"attn_scale", REAL, AT(attn_scale), 0, 1e6, NULL, NULL, "0"},
    {"attn_softcap", REAL, AT(attn_softcap), 0, 1e6, NULL, NULL, "0"},
    {"logit_softcap", REAL, AT(logit_softcap), 0, 1e6, NULL, NULL, "0"},
    {"attn_sinks", BOOL, AT(attn_sinks), 0, 0, bool_names, NULL, "false"},
    {"activation_sparsity", LIST, KEY(activation_sparsity), 0, 0.9999, NULL, NULL, "none"},
    {"mlp_limits", LIST, KEY(mlp_limits), 0, 1e6, NULL, NULL, "none"},
    {"expert_limits", LIST, KEY(expert_limits), 0, 1e6, NULL, NULL, "none"},
    {"swiglu_limit", REAL, KEY(mlp.limit), 0, 1e6, NULL, NULL, "0"},
    {"swiglu_alpha", REAL, KEY(mlp.alpha), 0, 1e6, NULL, NULL, "0"},
    {"clip_qkv", REAL, AT(clip_qkv), 0, 1e6, NULL, NULL, "0"},
    {"attn_temperature", REAL, KEY(temperature.scale), 0, 1e6, NULL, NULL, "0"},
    {"temperature_length", SIZE, KEY(temperature.length), 0, MAX_VOCAB, NULL, NULL, "0"},
    {"temperature_offset", SIZE, KEY(temperature.offset), 0, MAX_VOCAB, NULL, NULL, "0"},
    {"temperature_unrotated", BOOL, KEY(temperature_unrotated), 0, 0, bool_names, NULL, "false"},
    {"activation", CHOICE, KEY(mlp.activation), 0, 0, activation_names, activation_alias, NULL},
    {"mlp", CHOICE, KEY(mlp.kind), 0, 0, mlp_names, NULL, NULL},
    {"bias_qkv", BOOL, AT(bias_qkv), 0, 0, bool_names, NULL, NULL},
    {"bias_out", BOOL, AT(bias_out), 0, 0, bool_names, NULL, NULL},
    {"bias_mlp", BOOL, KEY(mlp.bias), 0, 0, bool_names, NULL, NULL},
    {"bias_down", BOOL, KEY(mlp.down_bias), 0, 0, bool_names, NULL, "false"},
    {"bias_head", BOOL, AT(bias_head), 0, 0, bool_names, NULL, "false"},
    {"tied_head", BOOL, AT(tied_head), 0, 0, bool_names, NULL, NULL},
    {"no_head", BOOL, AT(no_head), 0, 0, bool_names, NULL, "false"},
    {"pooling", CHOICE, AT(pooled.pooling), 0, 0, pooling_names, NULL, "none"},
    {"embed_normalize", BOOL, AT(pooled.normalize), 0, 0, bool_names, NULL, "true"},
    {"pooled_dense", SIZE, AT(pooled.dense), 0, MAX_WIDTH, NULL, NULL, "0"},
    {"pooled_out", SIZE, AT(pooled.out), 0, MAX_WIDTH, NULL, NULL, "0"},
    {"pooled_activation", CHOICE, AT(pooled.activation), 0, 0, pooled_names, NULL, "none"},
    {"pooled_norm", BOOL, AT(pooled.norm), 0, 0, bool_names, NULL, "false"},
    {"pooled_bias", BOOL, AT(pooled.bias), 0, 0, bool_names, NULL, "false"},
    {"pooled_out_bias", BOOL, AT(pooled.out_bias), 0, 0, bool_names, NULL, "false"},
    {"scores", BOOL, AT(pooled.scores), 0, 0, bool_names, NULL, "false"},
    {"pair_gap", SIZE, AT(pooled.pair_gap), 0, 4, NULL, NULL, "0"},
};

static void *field(struct config_text *text, const struct key *key) { return (char *)text + key->at; }

/* Reads numbers separated by blanks or commas, or "none". */
static int read_list(struct factors *list, const struct key *key, const struct conf *conf,
                     struct err *err)
{
    const char *at = conf_get_once(conf, key->name, err);
    char number[64];
    if (!at)
        return -1;
    if (strcmp(at, "none") == 0)
        return 0;
    for (size_t len; *(at += strspn(at, " \t,")); at += len) {
        double x = 0;
        len = strcspn(at, " \t,");
        if (len < sizeof number) {
            memcpy(number, at, len);
            number[len] = 0;
        }
        if (list->n == MAX_FACTORS || len >= sizeof number || !parse_double(number, &x) ||
            !(x >= key->min && x <= key->max))
            return err_set(err, "%s: \"%s\" needs at most %d numbers from %g to %g, found \"%.32s\"",
                           conf->name, key->name, MAX_FACTORS, key->min, key->max, at);
        list->x[list->n++] = x;
    }
    return 0;
}

static struct layer_words words_of(const struct key *key)
{
    return (struct layer_words){key->name, key->names, key->alias, (size_t)key->min, (size_t)key->max};
}

static int read_layers(struct config_text *text, const struct key *key, const struct conf *conf,
                       struct err *err)
{
    const struct layer_words words = words_of(key);
    const char *line = conf_get_once(conf, key->name, err);
    return line ? config_read_layers(field(text, key), line, &words, text->config.layers, conf->name,
                                     err)
                : -1;
}

static int read_key(struct config_text *text, const struct key *key, const struct conf *conf,
                    struct err *err)
{
    int choice;
    struct conf_entry entry = {(char *)(uintptr_t)key->name, (char *)(uintptr_t)key->fallback, 0};
    const struct conf fallback = {.name = conf->name, .entry = &entry, .n_entries = 1};
    if (key->fallback && !conf_get(conf, key->name))
        conf = &fallback;
    switch (key->kind) {
    case SIZE:
        return conf_get_size(conf, key->name, (size_t)key->min, (size_t)key->max, field(text, key),
                             err);
    case REAL: return conf_get_double(conf, key->name, key->min, key->max, field(text, key), err);
    case CHOICE:
        if (conf_get_choice(conf, key->name, key->names, &choice, err) < 0)
            return -1;
        *(int *)field(text, key) = key->alias ? key->alias[choice] : choice;
        return 0;
    case BOOL:
        if (conf_get_choice(conf, key->name, key->names, &choice, err) < 0)
            return -1;
        *(bool *)field(text, key) = choice;
        return 0;
    case LIST: return read_list(field(text, key), key, conf, err);
    case LAYERS: return read_layers(text, key, conf, err);
    }
    return 0;
}

/* Resets what remains of the keys of experts in a model without them. */
static void reset_experts(struct config_keys *keys)
{
    const struct moe_plan old = keys->moe;
    keys->moe = (struct moe_plan){.used = old.used,
                                  .ffn = old.ffn,
                                  .shared_ffn = old.shared_ffn,
                                  .shared_gated = old.shared_gated,
                                  .beside = old.beside,
                                  .scale = 1};
    keys->expert_first = keys->expert_last = 0;
    keys->expert_every = 1;
    keys->mlp_layers.n = keys->expert_layers.n = 0;
}

/* Without MLPs, or without experts, in any layer, their keys have no effect. */
static void reset_sublayers(struct config_text *text)
{
    bool mlp = false, experts = false;
    for (size_t layer = 0; layer < text->config.layers; layer++) {
        mlp |= keys_kind(&text->config, layer) == LAYER_MLP;
        experts |= keys_kind(&text->config, layer) == LAYER_EXPERTS;
    }
    if (!mlp)
        text->config.ffn = 0;
    if (!experts)
        text->keys.moe = (struct moe_plan){.scale = 1};
    text->keys.expert_layers.n = text->keys.mlp_layers.n = 0;
    text->keys.expert_first = text->keys.expert_last = 0;
    text->keys.expert_every = 1;
}

/* A list of the layers with experts replaces the keys that say the same otherwise. */
static void reset_expert_layers(struct config_text *text)
{
    struct config_keys *keys = &text->keys;
    bool same = true;
    if (!keys->expert_layers.n)
        return;
    for (size_t layer = 0; layer < text->config.layers; layer++)
        same &= keys_list_experts(&text->config, layer) == keys_default_experts(&text->config, layer);
    if (same) {
        keys->expert_layers.n = 0;
        return;
    }
    keys->expert_first = keys->expert_last = keys->mlp_layers.n = 0;
    keys->expert_every = 1;
    while (keys->expert_first < text->config.layers &&
           !keys_list_experts(&text->config, keys->expert_first))
        keys->expert_first++;
    same = keys->expert_layers.n == text->config.layers - keys->expert_first;
    for (size_t layer = keys->expert_first; layer < text->config.layers; layer++)
        same &= keys_list_experts(&text->config, layer);
    *(same ? &keys->expert_layers.n : &keys->expert_first) = 0;
}

/* Factors of 1 are none. */
static void reset_factors(struct config_text *text)
{
    struct config *c = &text->config;
    struct recurrent_plan *state = &text->keys.recurrent;
    double *const factor[] = {&c->attn_in_scale,         &c->attn_out_scale, &c->key_scale,
                              &state->in_scale,          &state->out_scale,  &text->keys.mlp.out_scale,
                              &text->keys.mlp.gate_scale};
    bool any = false;
    for (size_t i = 0; i < ARRAY_LEN(factor); i++)
        if (*factor[i] == 1)
            *factor[i] = 0;
    for (size_t i = 0; i < state->scales.n; i++)
        any |= state->scales.x[i] != 1;
    if (!any)
        state->scales.n = 0;
}

/* Resets keys of rotations and windows that have no effect. */
static void reset_rotation(struct config_text *text)
{
    struct config_keys *keys = &text->keys;
    struct rope_plan *rope = &keys->rope;
    bool local = false;
    if (!keys->window)
        keys->rope_sliding = keys->rope_full = LAYER_ROPE;
    for (size_t layer = 0; layer < text->config.layers; layer++)
        local |= keys_rope(&text->config, layer) == LAYER_ROPE_LOCAL;
    if (!local) {
        keys->rope_local_theta = 0;
        keys->rope_local_dim = 0;
    }
    if (keys->rope_local_dim == config_rope_dim(&text->config))
        keys->rope_local_dim = 0;
    if (rope->share == 1)
        rope->share = 0;
    if (rope->scaling != ROPE_YARN || (rope->mscale == 0 && !keys->latent.kv_rank))
        rope->mscale_all = 0;
    if (rope->mscale_all == 0)
        rope->mscale = 0;
}

/* Resets keys that have no effect beside the others: equal models have equal text. */
static void reset_unused(struct config_text *text)
{
    struct config *config = &text->config;
    struct config_keys *keys = &text->keys;
    if (keys->one_sublayer)
        reset_sublayers(text);
    if (!keys->moe.experts)
        reset_experts(keys);
    reset_factors(text);
    reset_expert_layers(text);
    if (keys->expert_last + 1 >= config->layers)
        keys->expert_last = 0;
    reset_rotation(text);
    if (keys->temperature.scale == 0) {
        keys->temperature.length = keys->temperature.offset = 0;
        keys->temperature_unrotated = false;
    }
    if (!config->qk_norm) {
        config->qk_norm_affine = true;
        keys->qk_norm_rotated = false;
    }
}

static int read_eos(struct config *config, const struct conf *conf, struct err *err)
{
    for (size_t i = 0; i < conf->n_entries; i++) {
        size_t id;
        if (strcmp(conf->entry[i].key, "eos") != 0)
            continue;
        if (config->n_eos == MAX_EOS || !parse_size(conf->entry[i].value, &id) || id >= config->vocab)
            return err_set(err, "%s: line %d: expected at most %d eos ids below %zu, found \"%s\"",
                           conf->name, conf->entry[i].line, MAX_EOS, config->vocab,
                           conf->entry[i].value);
        config->eos[config->n_eos++] = (uint32_t)id;
    }
    return 0;
}

int config_read(struct config *out, const struct conf *conf, struct err *err)
{
    struct config_text text = {0};
    struct config *config = &text.config;
    const char *family = conf_get(conf, "family");
    *out = (struct config){0};
    if (!family || !*family || strlen(family) >= sizeof config->family)
        return err_set(err, "%s: line \"family\" is missing or unusable", conf->name);
    strcpy(config->family, family);
    config_borrow_keys(config, &text.keys);
    for (size_t i = 0; i < ARRAY_LEN(key_table); i++)
        if (read_key(&text, &key_table[i], conf, err) < 0)
            return -1;
    if (read_eos(config, conf, err) < 0)
        return -1;
    reset_unused(&text);
    config_reset_state(&text);
    if (config_finish_layers(&text, conf->name, err) < 0 || config_plan(config, err) < 0)
        return -1;
    if (config_check(config, conf->name, err) < 0) {
        config_close(config);
        return -1;
    }
    *out = *config;
    return 0;
}

static int write_list(const struct factors *list, const char *name, struct buf *text, struct err *err)
{
    if (buf_addf(text, err, list->n ? "%s" : "%s none", name) < 0)
        return -1;
    for (size_t i = 0; i < list->n; i++)
        if (buf_addf(text, err, " %.17g", list->x[i]) < 0)
            return -1;
    return buf_addf(text, err, "\n");
}

static int write_key(const struct config_text *all, const struct key *key, struct buf *text,
                     struct err *err)
{
    const void *at = (const char *)all + key->at;
    const struct layer_words words = words_of(key);
    switch (key->kind) {
    case SIZE: return buf_addf(text, err, "%s %zu\n", key->name, *(const size_t *)at);
    case REAL: return buf_addf(text, err, "%s %.17g\n", key->name, *(const double *)at);
    case CHOICE: return buf_addf(text, err, "%s %s\n", key->name, key->names[*(const int *)at]);
    case BOOL: return buf_addf(text, err, "%s %s\n", key->name, key->names[*(const bool *)at]);
    case LIST: return write_list(at, key->name, text, err);
    case LAYERS: return config_write_layers(at, &words, all->config.layers, text, err);
    }
    return 0;
}

int config_write(const struct config *config, struct buf *text, struct err *err)
{
    const struct config_text all = {*config, *config->keys};
    if (buf_addf(text, err, "family %s\n", config->family) < 0)
        return -1;
    for (const struct key *key = key_table; key < key_table + ARRAY_LEN(key_table); key++) {
        const size_t before = text->len;
        char fallback[128];
        if (write_key(&all, key, text, err) < 0)
            return -1;
        snprintf(fallback, sizeof fallback, "%s %s\n", key->name, key->fallback ? key->fallback : "");
        if (strcmp(text->data + before, fallback) == 0)
            text->data[text->len = before] = 0;
    }
    for (size_t i = 0; i < config->n_eos; i++)
        if (buf_addf(text, err, "eos %u\n", config->eos[i]) < 0)
            return -1;
    return 0;
}

int config_get(const struct config *config, const char *name, struct buf *value,
               enum config_value *kind, bool *usual, struct err *err)
{
    static const enum config_value kinds[] = {
        [SIZE] = CONFIG_SIZE, [REAL] = CONFIG_REAL, [CHOICE] = CONFIG_WORD,
        [BOOL] = CONFIG_BOOL, [LIST] = CONFIG_LIST, [LAYERS] = CONFIG_LIST};
    const struct config_text all = {*config, *config->keys};
    const struct key *key = key_table;
    struct buf line = {0};
    while (key < key_table + ARRAY_LEN(key_table) && strcmp(key->name, name) != 0)
        key++;
    if (key == key_table + ARRAY_LEN(key_table))
        return err_set(err, "there is no configuration key \"%s\"", name);
    int rc = write_key(&all, key, &line, err);
    if (rc == 0) {
        line.data[line.len - 1] = 0;
        const char *text = line.data + strlen(name) + 1;
        *kind = kinds[key->kind];
        *usual = key->fallback && strcmp(text, key->fallback) == 0;
        rc = buf_addf(value, err, "%s", text);
    }
    buf_release(&line);
    return rc;
}

static int choice_of(const char *const *names, const char *name, int otherwise)
{
    for (int i = 0; name && names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return otherwise;
}

int config_pooling(const char *name) { return choice_of(pooling_names, name, POOLING_UNSUPPORTED); }

int config_pooled_activation(const char *name) { return choice_of(pooled_names, name, POOLED_PLAIN); }

bool config_has_key(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(key_table); i++)
        if (strcmp(key_table[i].name, name) == 0)
            return true;
    return false;
}
