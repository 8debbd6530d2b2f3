/* Converts GGUF metadata to config.json, and rejects files that are not models, lack required keys, or have unsupported
 * features. What a key becomes and who needs or supports it are rows of one table; functions below derive the rest
 * from tensors and the architecture. */
#include "format/gguf/gguf_config.h"

#include "base/text_util.h"
#include "format/gguf/gguf.h"
#include "format/gguf/gguf_config_layers.h"

/* ---- keys ---- */

#define ALL    "*"
#define LATENT "deepseek2 deepseek32 glm-dsa mistral4 kimi-linear"
#define RMS                                                                                            \
    "llama qwen2 qwen3 gemma gemma2 gemma3 phi3 olmo2 smollm3 granite chatglm glm4 ernie4_5 exaone4 "  \
    "seed_oss hunyuan-dense mistral3 " LATENT " gemma3n gemma4 qwen2vl qwen3vl bitnet " OTHER_ENCODERS

#define RMS_MOE                                                                                        \
    "qwen2moe qwen3moe olmoe glm4moe gpt-oss granitemoe ernie4_5-moe lfm2moe qwen3next qwen35moe "     \
    "llama4 phimoe " RMS_WIDTH
#define MOE RMS_MOE " nemotron_h_moe nomic-bert-moe"
/* Those that say how wide an expert is, and may have layers without experts. */
#define EXPERT_WIDTH RMS_WIDTH " nemotron_h_moe"
#define RMS_WIDTH    "qwen3vlmoe hunyuan-moe minimax-m2 exaone-moe bailingmoe2 step35"

#define DELTA    "qwen3next qwen35 qwen35moe"
#define NEMOTRON "nemotron_h nemotron_h_moe"
#define MAMBA    "granitehybrid falcon-h1 mamba2 " NEMOTRON
#define ENCODERS "bert nomic-bert nomic-bert-moe jina-bert-v2 jina-bert-v3 modern-bert"
/* encoders that have names of their own in all else */
#define OTHER_ENCODERS "eurobert gemma-embedding"
#define LAYER                                                                                          \
    "gpt2 gptneox gptj bloom falcon olmo phi2 stablelm starcoder2 command-r cohere2 mpt " ENCODERS

#define GRANITE    "granite granitemoe granitehybrid"
#define SHORT_CONV "lfm2 lfm2moe"

/* GGUF keys without the prefix "llama." */
static const struct gguf_key {
    const char *gguf;
    const char *json; /* names in config.json, one per kind of family, all of which are set; or NULL */
    const char *needed; /* architectures that require it; NULL: none */
    /* architectures for which bmc supports the feature, NULL: all; what it is, and the values with which it is off */
    const char *supported, *what;
    double harmless, too;
    bool single; /* has one value for all layers, which functions below read */
} keys[] = {
    {"block_count", .json = "num_hidden_layers,n_layer,n_layers", .needed = ALL},
    {"context_length", .json = "max_position_embeddings,n_positions,n_ctx,seq_length,max_seq_len",
     .needed = ALL},
    {"embedding_length", .json = "hidden_size,n_embd,n_embed,d_model", .needed = ALL},
    {"feed_forward_length", .json = "intermediate_size,n_inner,ffn_hidden_size",
     .needed = RMS " gptneox olmoe granitemoe llama4 lfm2 qwen35 phimoe hunyuan-moe " MAMBA},
    {"attention.head_count", .json = "num_attention_heads,n_head,n_heads", .needed = ALL},
    {"attention.head_count_kv", .json = "num_key_value_heads,num_kv_heads"},
    {"attention.key_length", .json = "head_dim", .needed = "gemma3n gemma4"},
    {"attention.key_length_mla", .single = true},
    {"attention.key_length_swa", .single = true},
    {"attention.value_length", .single = true},
    {"attention.value_length_swa", .single = true},
    {"attention.value_length_mla", .json = "v_head_dim"},
    {"attention.kv_lora_rank", .json = "kv_lora_rank", .needed = LATENT},
    {"attention.q_lora_rank", .json = "q_lora_rank"},
    {"attention.layer_norm_rms_epsilon", .json = "rms_norm_eps",
     .needed = RMS " " RMS_MOE " lfm2 qwen35 granitehybrid falcon-h1 mamba2"},
    {"attention.layer_norm_epsilon", .json = "layer_norm_eps,layer_norm_epsilon,norm_epsilon,norm_eps",
     .needed = LAYER},
    {"attention.indexer.head_count", .json = "index_n_heads", .needed = "deepseek32 glm-dsa"},
    {"attention.indexer.key_length", .json = "index_head_dim", .needed = "deepseek32 glm-dsa"},
    {"attention.indexer.types", .json = NULL},
    {"attention.indexer.top_k", .json = "index_topk", .needed = "deepseek32 glm-dsa"},
    {"attention.causal", .supported = ENCODERS " " OTHER_ENCODERS,
     .what = "bidirectional attention (encoders)", .harmless = 1, .too = 1},
    {"attention.shared_kv_layers", .single = true},
    {"attention.sliding_window", .json = "sliding_window,local_attention",
     .supported =
         "gpt-oss gemma2 gemma3 gemma3n gemma4 phi3 olmo2 cohere2 exaone4 starcoder2 mistral3 phimoe "
         "exaone-moe step35 modern-bert gemma-embedding",
     .what = "sliding windows"},
    {"attention.sliding_window_pattern", .needed = "gemma3n gemma4 step35"},
    {"swiglu_clamp_exp", .supported = "step35", .what = "limits of activations"},
    {"swiglu_clamp_shexp", .supported = "step35", .what = "limits of activations"},
    {"attention.clamp_kqv", .json = "clip_qkv,attn_config.clip_qkv", .supported = "olmo mpt",
     .what = "clamped Q, K and V"},
    {"attention.max_alibi_bias", .json = "attn_config.alibi_bias_max", .supported = "bloom mpt",
     .what = "ALiBi biases"},
    {"attention.scale", .json = "attention_multiplier", .supported = GRANITE,
     .what = "custom attention scales"},
    {"attention.temperature_length", .json = "temperature_length", .supported = "mistral4",
     .what = "scores that grow with the position"},
    {"attention.temperature_scale", .json = "rope_scaling.llama_4_scaling_beta",
     .supported = "mistral3 mistral4", .what = "scores that grow with the position"},
    {"embedding_length_per_layer_input", .single = true},
    {"altup.num_inputs", .json = "altup_num_inputs", .needed = "gemma3n"},
    {"altup.active_idx", .json = "altup_active_idx"},
    {"embedding_scale", .json = "embedding_multiplier", .supported = GRANITE,
     .what = "scaled embeddings", .too = 1},
    {"residual_scale", .json = "residual_multiplier", .supported = GRANITE, .what = "scaled residuals",
     .too = 1},
    {"logit_scale", .json = "logit_scale,logits_scaling", .supported = GRANITE " command-r cohere2",
     .what = "scaled logits", .too = 1},
    {"attn_logit_softcapping", .json = "attn_logit_softcapping", .supported = "gemma2 gemma3",
     .what = "soft-capped attention scores"},
    {"final_logit_softcapping", .json = "final_logit_softcapping",
     .supported = "gemma2 gemma3 gemma3n gemma4", .what = "soft-capped logits"},
    {"rope.freq_base", .json = "rope_theta,rotary_emb_base,global_rope_theta"},
    {"rope.freq_base_swa", .json = "rope_local_base_freq,local_rope_theta"},
    {"rope.dimension_count", .json = "rotary_dim", .needed = LATENT},
    {"rope.dimension_count_swa", .single = true},
    {"rope.scaling.type", .json = "rope_scaling.rope_type"},
    /* in older files; the next row overrides it */
    {"rope.scale_linear", .json = "rope_scaling.factor"},
    {"rope.scaling.factor", .json = "rope_scaling.factor"},
    {"rope.scaling.original_context_length",
     .json = "rope_scaling.original_max_position_embeddings,original_max_position_embeddings"},
    {"rope.scaling.yarn_beta_fast", .json = "rope_scaling.beta_fast"},
    {"rope.scaling.yarn_beta_slow", .json = "rope_scaling.beta_slow"},
    {"rope.scaling.yarn_log_multiplier", .supported = LATENT " mistral3",
     .what = "YaRN with a custom attention factor", .single = true},
    {"rope.scaling.attn_factor", .json = "rope_scaling.attention_factor"},
    {"rope.scaling.finetuned", .json = "rope_finetuned"},
    {"expert_count", .json = "num_local_experts,num_experts,n_routed_experts,moe_num_experts",
     .needed = MOE, .supported = "llama granitehybrid gemma4 " LATENT " " MOE,
     .what = "mixtures of experts"},
    {"expert_used_count", .json = "num_experts_per_tok,moe_k,top_k_experts,moe_topk", .needed = MOE},
    {"moe_every_n_layers", .json = "moe_every_n_layers", .needed = "nomic-bert-moe"},
    {"expert_feed_forward_length", .json = "moe_intermediate_size",
     .needed = "qwen2moe qwen3moe glm4moe gpt-oss ernie4_5-moe lfm2moe qwen3next qwen35moe "
               "llama4 " EXPERT_WIDTH},
    {"expert_shared_feed_forward_length",
     .json = "shared_expert_intermediate_size,shared_intermediate_"
             "size,moe_shared_expert_intermediate_size,share_expert_dim"},
    {"expert_shared_count", .json = "n_shared_experts,moe_num_shared_experts,num_shared_experts",
     .supported =
         "qwen2moe glm4moe ernie4_5-moe hunyuan-moe exaone-moe bailingmoe2 nemotron_h_moe " LATENT,
     .what = "shared experts"},
    {"expert_group_count", .json = "n_group"},
    {"expert_group_used_count", .json = "topk_group"},
    {"expert_weights_norm", .json = "norm_topk_prob"},
    {"expert_weights_scale", .json = "routed_scaling_factor"},
    {"expert_gating_func",
     .supported = "glm4moe lfm2moe minimax-m2 exaone-moe bailingmoe2 step35 " LATENT,
     .what = "routers other than softmax", .too = 1},
    {"expert_gating_func", .supported = "", .what = "routers other than softmax and sigmoid",
     .harmless = 1, .too = 2, .single = true},
    {"moe_latent_size", .supported = "", .what = "experts on latent vectors"},
    {"interleave_moe_layer_step", .json = "moe_layer_interval,interleave_moe_layer_step",
     .supported = "ernie4_5-moe llama4", .what = "layers without experts in between", .too = 1},
    {"leading_dense_block_count",
     .json = "first_k_dense_replace,moe_layer_start_index,num_dense_layers",
     .supported = "glm4moe ernie4_5-moe lfm2moe exaone-moe bailingmoe2 step35 " LATENT,
     .what = "dense layers before those with experts"},
    {"nextn_predict_layers", .json = "num_nextn_predict_layers",
     .supported = "glm4moe exaone-moe bailingmoe2 step35 deepseek32 glm-dsa " DELTA,
     .what = "MTP layers"},
    {"full_attention_interval", .json = "full_attention_interval"},
    {"shortconv.l_cache", .json = "conv_L_cache", .needed = SHORT_CONV},
    {"ssm.inner_size", .json = "mamba_d_ssm", .needed = DELTA " " MAMBA},
    {"ssm.conv_kernel", .json = "linear_conv_kernel_dim,mamba_d_conv",
     .needed = "kimi-linear " DELTA " " MAMBA},
    {"kda.head_dim", .json = "linear_head_dim", .needed = "kimi-linear"},
    {"kda.gate_lower_bound", .supported = "", .what = "decays with a lower bound"},
    {"ssm.group_count", .json = "linear_num_key_heads,mamba_n_groups", .needed = DELTA " " MAMBA},
    {"ssm.time_step_rank", .json = "linear_num_value_heads,mamba_n_heads", .needed = DELTA " " MAMBA},
    {"ssm.state_size", .json = "linear_key_head_dim,mamba_d_state", .needed = DELTA " " MAMBA},
    {"use_parallel_residual", .json = "use_parallel_residual"},
    {"vocab_size", .json = "vocab_size"},
    {"hidden_activation", .json = "hidden_activation"},
};

/* Members of config.json that are fixed for an architecture, so GGUF does not store them. */
static const struct constant {
    const char *arch, *key, *value;
} constants[] = {
    {"gpt2", "activation_function", "gelu_new"},
    {"gptj", "activation_function", "gelu_new"},
    {"gptneox", "hidden_act", "gelu"},
    {"gemma", "hidden_act", "gelu_pytorch_tanh"},
    {"gemma", "hidden_activation", "gelu_pytorch_tanh"},
    {"gemma2", "hidden_act", "gelu_pytorch_tanh"},
    {"gemma2", "hidden_activation", "gelu_pytorch_tanh"},
    {"gemma3", "hidden_activation", "gelu_pytorch_tanh"},
    {"gemma3n", "hidden_activation", "gelu_pytorch_tanh"},
    {"gemma4", "hidden_activation", "gelu_pytorch_tanh"},
    {"gemma-embedding", "hidden_activation", "gelu_pytorch_tanh"},
    {"phi2", "hidden_act", "gelu_new"},
    {"starcoder2", "hidden_act", "gelu_pytorch_tanh"},
    {"qwen3moe", "norm_topk_prob", "true"},
    {"qwen3vlmoe", "norm_topk_prob", "true"},
    {"bailingmoe2", "use_qk_norm", "true"},
    {"bitnet", "hidden_act", "silu"},
    /* of Phi-3.5-MoE, the only published model */
    {"phimoe", "router_jitter_noise", "0.01"},
    {"phimoe", "rope_scaling.short_mscale", "1.243163121016122"},
    /* heads of recurrent layers are in another order than in folders */
    {"qwen35", "linear_head_order", "tiled"},
    {"qwen35moe", "linear_head_order", "tiled"},
    {"falcon-h1", "mamba_norm_before_gate", "false"},
    {"gpt-oss", "rope_scaling.truncate", "false"},
    {"nemotron_h", "mlp_hidden_act", "relu2"},
    {"nemotron_h_moe", "mlp_hidden_act", "relu2"},
};

/* ---- checks ---- */

/* Values of the key general.type in GGUF files that are not models, and what to do. */
static const struct {
    const char *type, *what;
} other_files[] = {
    {"adapter", "a LoRA adapter: convert its base model, and give the adapter to bmc-gen --lora"},
    {"imatrix", "an importance matrix: convert the model itself"},
    {"mmproj", "a multimodal projector: convert its language model"},
};

static bool is_text(const struct gguf_element *e, const char *text)
{
    return strlen(text) == e->len && memcmp(text, e->text, e->len) == 0;
}

static int check_type(const struct gguf_set *set, const char *path, struct err *err)
{
    const struct gguf_value *value = gguf_value(&set->file[0], "general.type");
    struct gguf_element type = gguf_elements(value);
    if (!gguf_is_text(value) || !gguf_next(&type) || is_text(&type, "model"))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(other_files); i++)
        if (is_text(&type, other_files[i].type))
            return err_set(err, "%s: is %s", path, other_files[i].what);
    return err_set(err, "%s: not a model: general.type is \"%s\"", path,
                   excerpt_of(type.text, type.len).text);
}

int gguf_check_kind(const struct gguf_set *set, const char *path, struct err *err)
{
    size_t tensors = 0;
    if (check_type(set, path, err) < 0)
        return -1;
    for (size_t i = 0; i < set->n_files; i++)
        tensors += set->file[i].n_tensors;
    return tensors || !gguf_value(&set->file[0], "tokenizer.ggml.tokens")
               ? 0
               : err_set(err, "%s: contains only a vocabulary; use it with --synth SHAPE --tokenizer",
                         path);
}

static int check_unread(const struct gguf_arch *arch, const struct gguf_set *set,
                        const struct gguf_key *u, const char *path, struct err *err)
{
    struct gguf_element e = gguf_elements(gguf_arch_value(arch, set, u->gguf));
    while (u->supported && !gguf_arch_listed(arch, u->supported) && e.of && gguf_next(&e)) {
        if (e.of->type == GGUF_STRING)
            return err_set(err, "%s: %s.%s is a string, expected a number", path, arch->name, u->gguf);
        if (e.real != u->harmless && e.real != u->too)
            return err_set(err, "%s: %s.%s is %g: %s are not supported for architecture %s", path,
                           arch->name, u->gguf, e.real, u->what, arch->name);
    }
    return 0;
}

/* Fails unless a key is missing, a number, or a list of equal numbers. */
static int check_single(const struct gguf_arch *arch, const struct gguf_set *set, const char *key,
                        const char *path, struct err *err)
{
    const struct gguf_value *value = gguf_arch_value(arch, set, key);
    struct gguf_element first = gguf_elements(value), next;
    if (!value)
        return 0;
    if (!gguf_is_number(value) || !gguf_next(&first))
        return err_set(err, "%s: %s.%s is no number", path, arch->name, key);
    for (next = first; gguf_next(&next);)
        if (next.real != first.real)
            return err_set(err,
                           "%s: %s.%s is %g for one layer and %g for another; only one value for "
                           "all layers is supported",
                           path, arch->name, key, first.real, next.real);
    return 0;
}

/* Fails if K and V have different head dimensions, except in latent attention. */
static int check_heads(const struct gguf_arch *arch, const struct gguf_set *set, const char *path,
                       struct err *err)
{
    struct gguf_element key = gguf_elements(gguf_arch_value(arch, set, "attention.key_length")),
                        value = gguf_elements(gguf_arch_value(arch, set, "attention.value_length"));
    if (gguf_arch_listed(arch, LATENT) || !key.of || !value.of || !gguf_next(&key) ||
        !gguf_next(&value) || key.integer == value.integer)
        return 0;
    return err_set(err,
                   "%s: %s.attention.key_length is %lld and value_length %lld: different head sizes "
                   "are not supported",
                   path, arch->name, (long long)key.integer, (long long)value.integer);
}

static bool needs(const struct gguf_key *key, const struct gguf_arch *arch)
{
    return key->needed && (strcmp(key->needed, ALL) == 0 || gguf_arch_listed(arch, key->needed));
}

int gguf_check_values(const struct gguf_arch *arch, const struct gguf_set *set, const char *path,
                      struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (check_unread(arch, set, &keys[i], path, err) < 0)
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (needs(&keys[i], arch) && !gguf_arch_value(arch, set, keys[i].gguf))
            return err_set(err, "%s: \"%s.%s\" is missing", path, arch->name, keys[i].gguf);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (keys[i].single && check_single(arch, set, keys[i].gguf, path, err) < 0)
            return -1;
    return check_heads(arch, set, path, err);
}

/* ---- config.json ---- */

/* Architectures whose layers without KV heads, and those without an MLP, are of another kind. */
#define SOME_ATTEND   SHORT_CONV " granitehybrid kimi-linear " NEMOTRON
#define SOME_HAVE_MLP NEMOTRON

/* True for keys of which gguf_put_gemma4() or gguf_put_step() reads the values of all layers. */
static bool is_own(const struct gguf_arch *arch, const char *key)
{
    const char *const own =
        gguf_arch_listed(arch, "gemma4")   ? "attention.head_count_kv feed_forward_length"
        : gguf_arch_listed(arch, "step35") ? "attention.head_count attention.head_count_kv"
                                           : "";
    return text_lists(own, key, strlen(key));
}

/* Copies a GGUF key to its names in config.json. Arrays (a value per layer) must be uniform, except that
 * layers without attention have no KV heads, and those without an MLP no width of it. */
static int put_key(struct config_job *job, const struct gguf_key *key, struct err *err)
{
    const struct gguf_value *value = gguf_arch_value(job->arch, job->set, key->gguf);
    struct gguf_element first = gguf_elements(value), next = first;
    if (!key->json || !value || !gguf_next(&first))
        return 0;
    const bool sparse =
        value->is_array &&
        ((strcmp(key->gguf, "attention.head_count_kv") == 0 &&
          gguf_arch_listed(job->arch, SOME_ATTEND)) ||
         (strcmp(key->gguf, "feed_forward_length") == 0 && gguf_arch_listed(job->arch, SOME_HAVE_MLP)));
    const bool own = is_own(job->arch, key->gguf);
    while (sparse && first.integer == 0 && gguf_next(&first))
        continue;
    while (!own && gguf_next(&next))
        if (sparse && next.integer == 0)
            continue;
        else if (value->type == GGUF_STRING ? value->count > 1 : next.real != first.real)
            return err_set(err, "%s: %s.%s differs between layers, which is not supported", job->path,
                           job->arch->name, key->gguf);
    return gguf_config_put(job->config, key->json, gguf_json(&first), err);
}

static int put_keys(struct config_job *job, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (put_key(job, &keys[i], err) < 0)
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(constants); i++)
        if (strcmp(constants[i].arch, job->arch->name) == 0 &&
            gguf_config_put(job->config, constants[i].key, json_string(constants[i].value), err) < 0)
            return -1;
    return 0;
}

/* Keys with a boolean per layer, or a number that is 0 or not, the list of words in config.json that they
 * become, and the name of the number that some files have in its place, NULL: it has another meaning. */
static const struct layer_key {
    const char *archs; /* NULL: all */
    const char *gguf, *list, *word[2], *number;
} layer_keys[] = {
    {NULL,
     "attention.sliding_window_pattern",
     "layer_types",
     {"full_attention", "sliding_attention"},
     "sliding_window_pattern,global_attn_every_n_layers"},
    {SHORT_CONV, "attention.head_count_kv", "layer_types", {"conv", "full_attention"}, NULL},
    {"granitehybrid", "attention.head_count_kv", "layer_types", {"mamba", "attention"}, NULL},
    {"glm-dsa", "attention.indexer.types", "indexer_types", {"shared", "full"}, NULL},
    {"kimi-linear",
     "attention.head_count_kv",
     "layer_types",
     {"linear_attention", "full_attention"},
     NULL},
};

static int put_layer_key(struct config_job *job, const struct layer_key *key, struct err *err)
{
    const int64_t all = gguf_config_integer(job, "block_count", 0),
                  layers = all - gguf_config_integer(job, "nextn_predict_layers", 0);
    const struct gguf_value *value = gguf_arch_value(job->arch, job->set, key->gguf);
    struct gguf_element e = gguf_elements(value);
    if (!value || (key->archs && !gguf_arch_listed(job->arch, key->archs)))
        return 0;
    if (!gguf_is_number(value))
        return err_set(err, "%s: %s.%s is no list of booleans", job->path, job->arch->name, key->gguf);
    if (!value->is_array)
        return key->number && gguf_next(&e)
                   ? gguf_config_put(job->config, key->number, gguf_json(&e), err)
                   : 0;
    /* lists count MTP layers, which come last, or not */
    if (layers < 0 || (value->count != (uint64_t)layers && value->count != (uint64_t)all))
        return err_set(err, "%s: %s.%s has %zu entries for %lld layers", job->path, job->arch->name,
                       key->gguf, value->count, (long long)layers);
    json_t *list = json_array();
    while (list && json_array_size(list) < (size_t)layers && gguf_next(&e))
        if (json_push(list, json_string(key->word[e.integer != 0]), err) < 0) {
            json_decref(list);
            return -1;
        }
    return gguf_config_put(job->config, key->list, list, err);
}

static int put_layer_keys(struct config_job *job, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(layer_keys); i++)
        if (put_layer_key(job, &layer_keys[i], err) < 0)
            return -1;
    return 0;
}

/* Layers of Nemotron-H: attention, an MLP or experts, or Mamba-2. */
static int put_nemotron(struct config_job *job, struct err *err)
{
    const char *mlp = strcmp(job->arch->name, "nemotron_h_moe") == 0 ? "moe" : "mlp";
    const struct gguf_value *kv = gguf_arch_value(job->arch, job->set, "attention.head_count_kv"),
                            *ffn = gguf_arch_value(job->arch, job->set, "feed_forward_length");
    const int64_t layers = gguf_config_integer(job, "block_count", 0);
    struct gguf_element kv_heads = gguf_elements(kv), width = gguf_elements(ffn);
    if (!gguf_arch_listed(job->arch, NEMOTRON))
        return 0;
    if (!gguf_is_number(kv) || !gguf_is_number(ffn) || layers < 0 || kv->count != (uint64_t)layers ||
        ffn->count != (uint64_t)layers)
        return err_set(
            err,
            "%s: %s.attention.head_count_kv and feed_forward_length must be lists of a number "
            "for each of %lld layers",
            job->path, job->arch->name, (long long)layers);
    if (!gguf_arch_value(job->arch, job->set, "attention.layer_norm_epsilon") &&
        !gguf_arch_value(job->arch, job->set, "attention.layer_norm_rms_epsilon"))
        return err_set(err,
                       "%s: neither %s.attention.layer_norm_epsilon nor layer_norm_rms_epsilon: the "
                       "epsilon of its norms is missing",
                       job->path, job->arch->name);
    json_t *list = json_array();
    while (list && gguf_next(&kv_heads) && gguf_next(&width))
        if (json_push(list,
                      json_string(kv_heads.integer ? "attention"
                                  : width.integer  ? mlp
                                                   : "mamba"),
                      err) < 0) {
            json_decref(list);
            return -1;
        }
    return gguf_config_put(job->config, "layers_block_type", list, err);
}

static bool has(const struct config_job *job, const char *name)
{
    return gguf_set_find(job->set, name) != NULL;
}

static int put_tensor_traits(struct config_job *job, struct err *err)
{
    static const struct {
        const char *key, *tensor, * or ;
        bool if_there;
        const char *archs; /* NULL: all */
    } traits[] = {
        {"tie_word_embeddings", "output.weight", "", false, NULL},
        {"attention_bias", "blk.0.attn_q.bias", "blk.0.attn_qkv.bias", true, NULL},
        {"mlp_bias", "blk.0.ffn_down.bias", "", true, NULL},
        {"bias", "blk.0.attn_output.bias", "", true, NULL},
        {"new_decoder_architecture", "blk.0.attn_norm_2.weight", "", true, NULL},
        {"attention_out_bias", "blk.0.attn_output.bias", "", true, NULL},
        {"use_bias", "blk.0.attn_output.bias", "", true, NULL},
        {"use_qkv_bias", "blk.0.attn_q.bias", "", true, NULL},
        {"lm_head_bias", "output.bias", "", true, "phimoe"},
        {"mamba_rms_norm", "blk.0.ssm_norm.weight", "", true, "falcon-h1"},
        {"conv_bias", "blk.0.shortconv.in_proj.bias", "", true, NULL},
        {"use_qk_norm", "blk.0.attn_q_norm.weight", "", true, "command-r"},
        {"qk_layernorm", "blk.0.attn_q_norm.weight", "", true, "stablelm"},
        {"use_parallel_residual", "blk.0.ffn_norm.weight", "", false, "stablelm"},
        {"qkv_proj_bias", "blk.0.attn_qkv.bias", "", true, "nomic-bert nomic-bert-moe"},
        {"mlp_fc1_bias", "blk.0.ffn_up.bias", "", true, "nomic-bert nomic-bert-moe"},
        {"norm_bias", "output_norm.bias", "", true, "modern-bert"},
    };
    const struct source_tensor *embedding = gguf_set_find(job->set, "token_embd.weight");
    for (size_t i = 0; i < ARRAY_LEN(traits); i++) {
        const bool there = has(job, traits[i].tensor) || has(job, traits[i].or);
        const bool applies = !traits[i].archs || gguf_arch_listed(job->arch, traits[i].archs);
        if (applies &&
            json_put(job->config, traits[i].key, json_boolean(there == traits[i].if_there), err) < 0)
            return -1;
    }
    const struct source_tensor *types = gguf_set_find(job->set, "token_types.weight");
    if (gguf_arch_listed(job->arch, ENCODERS) &&
        json_put(job->config, "type_vocab_size", json_integer(types ? (json_int_t)types->dim[0] : 0),
                 err) < 0)
        return -1;
    return embedding
               ? json_put(job->config, "vocab_size", json_integer((json_int_t)embedding->dim[0]), err)
               : 0;
}

/* ---- rotary positions ---- */

/* Sets the fraction of head_dim that RoPE rotates, for architectures with partial rotation. */
static int put_rotary(struct config_job *job, struct err *err)
{
    const int64_t head = gguf_head_dim(job),
                  turned = gguf_config_integer(job, "rope.dimension_count", head);
    if (head <= 0 || (turned == head && !job->arch->partial))
        return 0;
    if (!job->arch->partial)
        return err_set(err, "%s: rotates %lld of %lld dimensions, architecture %s supports only all",
                       job->path, (long long)turned, (long long)head, job->arch->name);
    return gguf_config_put(job->config, "rotary_pct,partial_rotary_factor",
                           json_real((double)turned / (double)head), err);
}

/* Completes rope_scaling: type "none" removes it; as in llama.cpp, a factor alone means linear, and without one it
 * is 1. */
static int name_scaling(struct config_job *job, struct err *err)
{
    const char *type = json_string_value(json_at(job->config, "rope_scaling.rope_type"));
    const double factor = json_number_value(json_at(job->config, "rope_scaling.factor"));
    if (!type && factor > 0 && factor != 1)
        return gguf_config_put(job->config, "rope_scaling.rope_type", json_string("linear"), err);
    if (!type || strcmp(type, "none") == 0)
        json_object_del(job->config, "rope_scaling");
    else if (factor == 0)
        return gguf_config_put(job->config, "rope_scaling.factor", json_integer(1), err);
    return 0;
}

/* GGUF stores Llama 3 RoPE scaling as one frequency divisor per rotary pair. Its parameters are
 * recovered: the factor is the largest divisor, the three others are the same in all such models.
 * They are accepted if they reproduce the divisors. */
static const double llama3_low = 1;

/* Those of Llama 3, of Llama 4, which does not interpolate, and of Step 3.5 */
static const struct llama3 {
    double high;
    size_t original;
    bool step; /* of this architecture only */
} llama3s[] = {{4, 8192, false}, {1, 8192, false}, {32, 131072, true}};

double gguf_llama3_divisor(double theta, double factor, double high, size_t original, size_t pair,
                           size_t pairs)
{
    const double turn = 2 * M_PI * pow(theta, (double)pair / (double)pairs),
                 turns = (double)original / turn;
    if (turns > high)
        return 1;
    if (turns < llama3_low)
        return factor;
    const double smooth = (turns - llama3_low) / (high - llama3_low);
    return 1 / ((1 - smooth) / factor + smooth);
}

static bool is_llama3(const struct source_tensor *divisors, size_t pairs, double theta,
                      const struct llama3 *known, double *factor)
{
    float divisor;
    *factor = 1;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < pairs; i++) {
            memcpy(&divisor, divisors->data + 4 * i, sizeof divisor);
            if (pass == 0)
                *factor = fmax(*factor, (double)divisor);
            else if (!(fabs(
                           gguf_llama3_divisor(theta, *factor, known->high, known->original, i, pairs) /
                               (double)divisor -
                           1) < 1e-4))
                return false;
        }
    return true;
}

static bool is_step(const struct config_job *job) { return strcmp(job->arch->name, "step35") == 0; }

/* Rotary pairs of layers with full attention that have divisors. */
static size_t rotated_pairs(const struct config_job *job)
{
    return is_step(job) ? (size_t)(gguf_step_rotated(job) / 2) : SIZE_MAX;
}

static int put_llama3(struct config_job *job, struct err *err)
{
    const struct source_tensor *divisors = gguf_set_find(job->set, "rope_freqs.weight");
    const double theta = json_number_value(json_object_get(job->config, "rope_theta"));
    const bool vector = divisors && divisors->type == DTYPE_F32 && divisors->n_dims == 1;
    const struct llama3 *known = NULL;
    double factor;
    if (!divisors || strcmp(job->arch->name, "gemma4") == 0)
        return 0;
    const size_t pairs = vector ? size_min(divisors->dim[0], rotated_pairs(job)) : 0;
    for (size_t i = 0; pairs && !known && i < ARRAY_LEN(llama3s); i++)
        if (llama3s[i].step == is_step(job) &&
            is_llama3(divisors, pairs, theta > 0 ? theta : 10000, &llama3s[i], &factor))
            known = &llama3s[i];
    if (!known)
        return err_set(
            err, "%s: rope_freqs.weight is not a Llama 3 scaling; other divisors are not supported",
            job->path);
    if (factor == 1)
        return 0;
    json_t *scaling =
        json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor", gguf_shortest(factor),
                  "low_freq_factor", llama3_low, "high_freq_factor", known->high,
                  "original_max_position_embeddings", (json_int_t)known->original);
    return json_put(job->config, "rope_scaling", scaling, err);
}

/* Copies LongRoPE factors, which GGUF stores as a tensor, to a list in config.json. */
static int put_list(struct config_job *job, const char *tensor_name, const char *key, struct err *err)
{
    const struct source_tensor *factors = gguf_set_find(job->set, tensor_name);
    float factor;
    if (!factors)
        return 0;
    if (factors->type != DTYPE_F32 || factors->n_dims != 1)
        return err_set(err, "%s: %s is not a vector of F32", job->path, tensor_name);
    json_t *list = json_array();
    for (size_t i = 0; i < factors->dim[0] && list; i++) {
        memcpy(&factor, factors->data + 4 * i, sizeof factor);
        if (json_push(list, isfinite(factor) ? json_real(gguf_shortest((double)factor)) : json_null(),
                      err) < 0) {
            json_decref(list);
            return -1;
        }
    }
    return gguf_config_put(job->config, key, list, err);
}

static int put_longrope(struct config_job *job, struct err *err)
{
    if (!has(job, "rope_factors_long.weight"))
        return 0;
    if (gguf_config_put(job->config, "rope_scaling.rope_type", json_string("longrope"), err) < 0 ||
        put_list(job, "rope_factors_long.weight", "rope_scaling.long_factor", err) < 0)
        return -1;
    return put_list(job, "rope_factors_short.weight", "rope_scaling.short_factor", err);
}

/* Gemma 2 and 3: completes the configuration. Attention scores are scaled by 1 / sqrt(head_dim), in
 * the largest model by 1 / sqrt(width / heads). */
static int put_gemma(struct config_job *job, struct err *err)
{
    const int64_t width = gguf_config_integer(job, "embedding_length", 0),
                  heads = gguf_config_integer(job, "attention.head_count", 1),
                  layers = gguf_config_integer(job, "block_count", 0);
    const bool second = strcmp(job->arch->name, "gemma2") == 0,
               third = gguf_arch_listed(job->arch, "gemma3 gemma-embedding");
    if (!second && !third)
        return 0;
    const int64_t scalar =
        layers == (second ? 46 : 62) && heads > 0 ? width / heads : gguf_head_dim(job);
    return json_put(job->config, "query_pre_attn_scalar", json_integer(scalar), err);
}

/* Latent attention only: sizes of heads, and YaRN's attention factor. Older files have the sizes of heads
 * in keys that describe latents in newer ones. */
static int put_latent(struct config_job *job, struct err *err)
{
    const int64_t key = gguf_config_integer(job, "attention.key_length_mla", gguf_head_dim(job)),
                  rope = gguf_config_integer(job, "rope.dimension_count", 0);
    struct gguf_element log =
        gguf_elements(gguf_arch_value(job->arch, job->set, "rope.scaling.yarn_log_multiplier"));
    if (!json_object_get(job->config, "kv_lora_rank"))
        return 0;
    if (!json_object_get(job->config, "v_head_dim") &&
        gguf_config_put(job->config, "v_head_dim",
                        json_integer(gguf_config_integer(job, "attention.value_length", 0)), err) < 0)
        return -1;
    if (json_object_get(job->config, "n_group") &&
        gguf_config_put(job->config, "topk_method", json_string("group_limited_greedy"), err) < 0)
        return -1;
    if (gguf_config_put(job->config, "qk_rope_head_dim", json_integer(rope), err) < 0 ||
        gguf_config_put(job->config, "qk_nope_head_dim", json_integer(key > rope ? key - rope : 0),
                        err) < 0)
        return -1;
    if (!log.of || !gguf_next(&log))
        return 0;
    /* the converter multiplies by 0.1; the factor of cosines and sines is 1, as with equal mscales */
    return gguf_config_put(
        job->config, "rope_scaling.mscale,rope_scaling.mscale_all_dim",
        isfinite(log.real) ? json_real(gguf_shortest(10 * gguf_shortest(log.real))) : json_null(), err);
}

static int put_falcon(struct config_job *job, struct err *err)
{
    if (strcmp(job->arch->name, "falcon") != 0)
        return 0;
    const bool one = gguf_config_integer(job, "attention.head_count_kv", 0) == 1;
    if (json_put(job->config, "multi_query", json_boolean(one), err) < 0)
        return -1;
    return json_put(job->config, "parallel_attn", json_true(), err);
}

/* Ministral 3: YaRN's attention factor; files lack the member mscale, which is 1. */
static int put_mistral3(struct config_job *job, struct err *err)
{
    static const struct gguf_key key = {.gguf = "rope.scaling.yarn_log_multiplier",
                                        .json = "rope_scaling.mscale_all_dim"};
    if (!gguf_arch_value(job->arch, job->set, key.gguf))
        return 0;
    return put_key(job, &key, err) < 0
               ? -1
               : gguf_config_put(job->config, "rope_scaling.mscale", json_integer(1), err);
}

/* ModernBERT's classifiers, which are another architecture in config.json. */
static int put_modernbert(struct config_job *job, struct err *err)
{
    enum { POOLING_CLS = 2 };
    const bool cls = gguf_config_integer(job, "classifier.pooling_type", 0) == POOLING_CLS;
    if (!has(job, "cls.output.weight"))
        return 0;
    if (json_put(job->config, "classifier_pooling", json_string(cls ? "cls" : "mean"), err) < 0)
        return -1;
    return json_put(job->config, "architectures",
                    json_pack("[s]", "ModernBertForSequenceClassification"), err);
}

/* What is implied by the architecture and by other members. */
static int put_implied(struct config_job *job, struct err *err)
{
    const char *arch = job->arch->name;
    const int64_t head = gguf_head_dim(job);
    const json_t *theta = json_object_get(job->config, "rope_theta");
    if (head > 0 && !json_object_get(job->config, "head_dim") &&
        json_put(job->config, "head_dim", json_integer(head), err) < 0)
        return -1;
    if (strcmp(arch, "mistral3") == 0)
        return put_mistral3(job, err);
    if (strcmp(arch, "modern-bert") == 0)
        return put_modernbert(job, err);
    if (strcmp(arch, "granitehybrid") == 0 && !json_object_get(job->config, "num_local_experts"))
        return json_put(job->config, "num_local_experts", json_integer(0), err);
    /* in config.json, none means 4096 positions, and layers without rotation */
    if (strcmp(arch, "exaone4") == 0 && gguf_config_integer(job, "attention.sliding_window", 0) <= 0)
        return json_put(job->config, "sliding_window", json_null(), err);
    if (strcmp(arch, "olmo2") != 0 || gguf_config_integer(job, "attention.sliding_window", 0) <= 0)
        return 0;
    /* OLMo 3, whose layers with a window have the same base */
    if (theta && !json_object_get(job->config, "rope_local_base_freq") &&
        json_put(job->config, "rope_local_base_freq", json_deep_copy(theta), err) < 0)
        return -1;
    return json_put(job->config, "architectures", json_pack("[s]", "Olmo3ForCausalLM"), err);
}

/* Architectures with another name in config.json for models whose key has a value. */
static const struct arch_variant {
    const char *arch, *key;
    int64_t from, to; /* values */
    const char *architecture;
} variants[] = {
    {"llama", "expert_count", 1, INT64_MAX, "MixtralForCausalLM"},
    {"deepseek2", "expert_gating_func", 2, 2, "DeepseekV3ForCausalLM"}, /* sigmoid */
};

static const char *architecture_of(const struct config_job *job)
{
    for (size_t i = 0; i < ARRAY_LEN(variants); i++) {
        const struct arch_variant *v = &variants[i];
        const int64_t found = gguf_config_integer(job, v->key, 0);
        if (strcmp(job->arch->name, v->arch) == 0 && found >= v->from && found <= v->to)
            return v->architecture;
    }
    /* Bamba has Granite's architecture, but none of its factors */
    if (strcmp(job->arch->name, "granitehybrid") == 0 &&
        !gguf_arch_value(job->arch, job->set, "attention.scale"))
        return "BambaForCausalLM";
    return job->arch->architecture;
}

/* Takes MTP layers off the number of layers, which counts them. */
static int put_mtp(struct config_job *job, struct err *err)
{
    const int64_t layers = gguf_config_integer(job, "block_count", 0),
                  mtp = gguf_config_integer(job, "nextn_predict_layers", 0);
    if (mtp == 0)
        return 0;
    if (mtp < 0 || mtp >= layers)
        return err_set(err, "%s: %s.nextn_predict_layers is %lld of %lld layers", job->path,
                       job->arch->name, (long long)mtp, (long long)layers);
    return json_put(job->config, "num_hidden_layers", json_integer(layers - mtp), err);
}

/* Whether there are QK norms, where files do not say it: in larger models of GLM-4-MoE; and, without gains, in
 * all of Llama 4 but that with 128 experts. */
static int put_qk_norm(struct config_job *job, struct err *err)
{
    const bool llama4 = strcmp(job->arch->name, "llama4") == 0;
    if (!llama4 && strcmp(job->arch->name, "glm4moe") != 0)
        return 0;
    const bool there = llama4 ? gguf_config_integer(job, "expert_count", 0) != 128
                              : has(job, "blk.0.attn_q_norm.weight");
    return json_put(job->config, "use_qk_norm", json_boolean(there), err);
}

/* The size of a head's values, which recurrent layers store for all heads together. */
static int put_state(struct config_job *job, struct err *err)
{
    const int64_t inner = gguf_config_integer(job, "ssm.inner_size", 0),
                  heads = gguf_config_integer(job, "ssm.time_step_rank", 0);
    if (!inner)
        return 0;
    if (inner < 0 || heads <= 0 || inner % heads)
        return err_set(err, "%s: %s.ssm.inner_size is %lld, not a multiple of ssm.time_step_rank, %lld",
                       job->path, job->arch->name, (long long)inner, (long long)heads);
    return json_put(job->config, "linear_value_head_dim", json_integer(inner / heads), err);
}

int gguf_config(json_t **config, const struct gguf_arch *arch, const struct gguf_set *set,
                const char *path, struct err *err)
{
    struct config_job job = {arch, set, path, NULL, 0};
    *config = job.config = json_pack("{s:[s]}", "architectures", architecture_of(&job));
    if (!job.config)
        return err_no_memory(err, "%s: its configuration", path);
    if (put_keys(&job, err) < 0 || put_layer_keys(&job, err) < 0 || put_nemotron(&job, err) < 0 ||
        put_tensor_traits(&job, err) < 0 || put_rotary(&job, err) < 0 || put_longrope(&job, err) < 0 ||
        name_scaling(&job, err) < 0 || put_llama3(&job, err) < 0 || put_gemma(&job, err) < 0 ||
        put_latent(&job, err) < 0 || put_implied(&job, err) < 0 || put_qk_norm(&job, err) < 0 ||
        put_mtp(&job, err) < 0 || put_state(&job, err) < 0)
        return -1;
    if (put_falcon(&job, err) < 0 || gguf_put_gemma3n(&job, err) < 0 || gguf_put_step(&job, err) < 0)
        return -1;
    return gguf_put_gemma4(&job, err);
}

bool gguf_config_key(const struct gguf_arch *arch, size_t nth, const char **key, const char **members,
                     bool *needed)
{
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (!keys[i].json || nth-- > 0)
            continue;
        *key = keys[i].gguf;
        *members = keys[i].json;
        *needed = needs(&keys[i], arch);
        return true;
    }
    return false;
}
