/* Converts GGUF metadata to config.json. Most keys are rows of the table `keys`; functions below
 * it derive the rest from tensors and the architecture. */
#include "format/gguf/gguf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text_util.h"
#include "format/gguf/gguf_gemma4.h"
#include "format/gguf/gguf.h"

struct config_job {
    const struct gguf_arch *arch;
    const struct gguf_set *set;
    const char *path;
    json_t *config;
};

/* GGUF keys without the prefix "llama.", and their names in config.json, which differ between
 * families: all of them are set. */
static const struct gguf_key {
    const char *gguf, *json;
} keys[] = {
    {"block_count", "num_hidden_layers,n_layer,n_layers"},
    {"context_length", "max_position_embeddings,n_positions,n_ctx,seq_length,max_seq_len"},
    {"embedding_length", "hidden_size,n_embd,n_embed,d_model"},
    {"feed_forward_length", "intermediate_size,n_inner,ffn_hidden_size"},
    {"attention.head_count", "num_attention_heads,n_head,n_heads"},
    {"attention.head_count_kv", "num_key_value_heads,num_kv_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.kv_lora_rank", "kv_lora_rank"},
    {"attention.q_lora_rank", "q_lora_rank"},
    {"attention.value_length_mla", "v_head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.layer_norm_epsilon", "layer_norm_eps,layer_norm_epsilon,norm_epsilon"},
    {"attention.sliding_window", "sliding_window"},
    {"attention.clamp_kqv", "clip_qkv,attn_config.clip_qkv"},
    {"attention.max_alibi_bias", "attn_config.alibi_bias_max"},
    {"attention.scale", "attention_multiplier"},
    {"attention.temperature_scale", "rope_scaling.llama_4_scaling_beta"},
    {"embedding_scale", "embedding_multiplier"},
    {"residual_scale", "residual_multiplier"},
    {"logit_scale", "logit_scale,logits_scaling"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"rope.freq_base", "rope_theta,rotary_emb_base"},
    {"rope.freq_base_swa", "rope_local_base_freq"},
    {"rope.dimension_count", "rotary_dim"},
    {"rope.scaling.type", "rope_scaling.rope_type"},
    {"rope.scale_linear", "rope_scaling.factor"}, /* in older files; the next row overrides it */
    {"rope.scaling.factor", "rope_scaling.factor"},
    {"rope.scaling.original_context_length",
     "rope_scaling.original_max_position_embeddings,original_max_position_embeddings"},
    {"rope.scaling.yarn_beta_fast", "rope_scaling.beta_fast"},
    {"rope.scaling.yarn_beta_slow", "rope_scaling.beta_slow"},
    {"rope.scaling.attn_factor", "rope_scaling.attention_factor"},
    {"expert_count", "num_local_experts,num_experts,n_routed_experts,moe_num_experts"},
    {"expert_used_count", "num_experts_per_tok,moe_k,top_k_experts"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size,shared_intermediate_size"},
    {"expert_shared_count", "n_shared_experts,moe_num_shared_experts"},
    {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"},
    {"expert_weights_norm", "norm_topk_prob"},
    {"expert_weights_scale", "routed_scaling_factor"},
    {"interleave_moe_layer_step", "moe_layer_interval,interleave_moe_layer_step"},
    {"leading_dense_block_count", "first_k_dense_replace,moe_layer_start_index,num_dense_layers"},
    {"nextn_predict_layers", "num_nextn_predict_layers"},
    {"full_attention_interval", "full_attention_interval"},
    {"shortconv.l_cache", "conv_L_cache"},
    {"rope.scaling.finetuned", "rope_finetuned"},
    {"ssm.inner_size", "mamba_d_ssm"},
    {"ssm.conv_kernel", "linear_conv_kernel_dim,mamba_d_conv"},
    {"ssm.group_count", "linear_num_key_heads,mamba_n_groups"},
    {"ssm.time_step_rank", "linear_num_value_heads,mamba_n_heads"},
    {"ssm.state_size", "linear_key_head_dim,mamba_d_state"},
    {"use_parallel_residual", "use_parallel_residual"},
    {"vocab_size", "vocab_size"},
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
    {"gemma4", "hidden_activation", "gelu_pytorch_tanh"},
    {"phi2", "hidden_act", "gelu_new"},
    {"starcoder2", "hidden_act", "gelu_pytorch_tanh"},
    {"qwen3moe", "norm_topk_prob", "true"},
    /* heads of recurrent layers are in another order than in folders */
    {"qwen35", "linear_head_order", "tiled"},
    {"qwen35moe", "linear_head_order", "tiled"},
    {"falcon-h1", "mamba_norm_before_gate", "false"},
    {"gpt-oss", "rope_scaling.truncate", "false"},
};

/* Sets the member at path "a" or "a.b" of a JSON object, creating "a" if needed. */
static int put_at(json_t *object, const char *path, size_t len, json_t *value, struct err *err)
{
    char key[64];
    const char *dot = memchr(path, '.', len);
    if (dot) {
        snprintf(key, sizeof key, "%.*s", (int)(dot - path), path);
        if (!json_object_get(object, key) && json_put(object, key, json_object(), err) < 0) {
            json_decref(value);
            return -1;
        }
        object = json_object_get(object, key);
        len -= (size_t)(dot + 1 - path);
        path = dot + 1;
    }
    snprintf(key, sizeof key, "%.*s", (int)len, path);
    return json_put(object, key, value, err);
}

/* Sets `value` at each of the comma-separated paths of a JSON object. */
static int put_all(json_t *object, const char *paths, json_t *value, struct err *err)
{
    int rc = value ? 0 : err_no_memory(err, "\"%s\"", paths);
    while (rc == 0 && *paths) {
        const size_t len = strcspn(paths, ",");
        rc = put_at(object, paths, len, json_incref(value), err);
        paths += len + (paths[len] == ',');
    }
    json_decref(value);
    return rc;
}

static int64_t integer_of(const struct config_job *job, const char *key, int64_t fallback)
{
    struct gguf_element e = gguf_elements(gguf_arch_value(job->arch, job->set, key));
    return e.of && gguf_is_number(e.of) && gguf_next(&e) ? e.integer : fallback;
}

/* Architectures whose layers without KV heads are of another kind. */
#define SHORT_CONV  "lfm2 lfm2moe"
#define SOME_ATTEND SHORT_CONV " granitehybrid"

/* Architectures that gguf_gemma4() completes, and the keys of which it reads the values of all layers. */
#define OWN_SIZES "gemma4"
#define OWN_KEYS  "attention.head_count_kv feed_forward_length"

/* Copies a GGUF key to its names in config.json. Arrays (a value per layer) must be uniform, except that
 * layers without attention have no KV heads. */
static int put_key(struct config_job *job, const struct gguf_key *key, struct err *err)
{
    const struct gguf_value *value = gguf_arch_value(job->arch, job->set, key->gguf);
    struct gguf_element first = gguf_elements(value), next = first;
    if (!value || !gguf_next(&first))
        return 0;
    const bool sparse = value->is_array && strcmp(key->gguf, "attention.head_count_kv") == 0 &&
                        gguf_arch_listed(job->arch, SOME_ATTEND);
    const bool own =
        gguf_arch_listed(job->arch, OWN_SIZES) && text_lists(OWN_KEYS, key->gguf, strlen(key->gguf));
    while (sparse && first.integer == 0 && gguf_next(&first))
        continue;
    while (!own && gguf_next(&next))
        if (sparse && next.integer == 0)
            continue;
        else if (value->type == GGUF_STRING ? value->count > 1 : next.real != first.real)
            return err_set(err, "%s: %s.%s differs between layers, which is not supported", job->path,
                           job->arch->name, key->gguf);
    return put_all(job->config, key->json, gguf_json(&first), err);
}

static int put_keys(struct config_job *job, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (put_key(job, &keys[i], err) < 0)
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(constants); i++)
        if (strcmp(constants[i].arch, job->arch->name) == 0 &&
            put_all(job->config, constants[i].key, json_string(constants[i].value), err) < 0)
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
     "sliding_window_pattern"},
    {SHORT_CONV, "attention.head_count_kv", "layer_types", {"conv", "full_attention"}, NULL},
    {"granitehybrid", "attention.head_count_kv", "layer_types", {"mamba", "attention"}, NULL},
};

static int put_layer_key(struct config_job *job, const struct layer_key *key, struct err *err)
{
    const int64_t layers = integer_of(job, "block_count", 0);
    const struct gguf_value *value = gguf_arch_value(job->arch, job->set, key->gguf);
    struct gguf_element e = gguf_elements(value);
    if (!value || (key->archs && !gguf_arch_listed(job->arch, key->archs)))
        return 0;
    if (!gguf_is_number(value))
        return err_set(err, "%s: %s.%s is no list of booleans", job->path, job->arch->name, key->gguf);
    if (!value->is_array)
        return key->number && gguf_next(&e) ? put_all(job->config, key->number, gguf_json(&e), err) : 0;
    if (layers < 0 || value->count != (uint64_t)layers)
        return err_set(err, "%s: %s.%s has %zu entries for %lld layers", job->path, job->arch->name,
                       key->gguf, value->count, (long long)layers);
    json_t *list = json_array();
    while (list && gguf_next(&e))
        if (json_push(list, json_string(key->word[e.integer != 0]), err) < 0) {
            json_decref(list);
            return -1;
        }
    return put_all(job->config, key->list, list, err);
}

static int put_layer_keys(struct config_job *job, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(layer_keys); i++)
        if (put_layer_key(job, &layer_keys[i], err) < 0)
            return -1;
    return 0;
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
        {"mamba_rms_norm", "blk.0.ssm_norm.weight", "", true, "falcon-h1"},
        {"conv_bias", "blk.0.shortconv.in_proj.bias", "", true, NULL},
        {"use_qk_norm", "blk.0.attn_q_norm.weight", "", true, "command-r"},
        {"qk_layernorm", "blk.0.attn_q_norm.weight", "", true, "stablelm"},
        {"use_parallel_residual", "blk.0.ffn_norm.weight", "", false, "stablelm"},
    };
    const struct source_tensor *embedding = gguf_set_find(job->set, "token_embd.weight");
    for (size_t i = 0; i < ARRAY_LEN(traits); i++) {
        const bool there = has(job, traits[i].tensor) || has(job, traits[i].or);
        const bool applies = !traits[i].archs || gguf_arch_listed(job->arch, traits[i].archs);
        if (applies &&
            json_put(job->config, traits[i].key, json_boolean(there == traits[i].if_there), err) < 0)
            return -1;
    }
    return embedding
               ? json_put(job->config, "vocab_size", json_integer((json_int_t)embedding->dim[0]), err)
               : 0;
}

/* ---- rotary positions ---- */

/* The model's head_dim, or 0 if unknown. */
static int64_t head_dim(const struct config_job *job)
{
    const int64_t width = integer_of(job, "embedding_length", 0),
                  heads = integer_of(job, "attention.head_count", 0);
    return integer_of(job, "attention.key_length", heads > 0 ? width / heads : 0);
}

/* Sets the fraction of head_dim that RoPE rotates, for architectures with partial rotation. */
static int put_rotary(struct config_job *job, struct err *err)
{
    const int64_t head = head_dim(job), turned = integer_of(job, "rope.dimension_count", head);
    if (head <= 0 || (turned == head && !job->arch->partial))
        return 0;
    if (!job->arch->partial)
        return err_set(err, "%s: rotates %lld of %lld dimensions, architecture %s supports only all",
                       job->path, (long long)turned, (long long)head, job->arch->name);
    return put_all(job->config, "rotary_pct,partial_rotary_factor",
                   json_real((double)turned / (double)head), err);
}

/* Completes rope_scaling: type "none" removes it; as in llama.cpp, a factor alone means linear, and without one it
 * is 1. */
static int name_scaling(struct config_job *job, struct err *err)
{
    const char *type = json_string_value(json_at(job->config, "rope_scaling.rope_type"));
    const double factor = json_number_value(json_at(job->config, "rope_scaling.factor"));
    if (!type && factor > 0 && factor != 1)
        return put_all(job->config, "rope_scaling.rope_type", json_string("linear"), err);
    if (!type || strcmp(type, "none") == 0)
        json_object_del(job->config, "rope_scaling");
    else if (factor == 0)
        return put_all(job->config, "rope_scaling.factor", json_integer(1), err);
    return 0;
}

/* GGUF stores Llama 3 RoPE scaling as one frequency divisor per rotary pair. Its parameters are
 * recovered: the factor is the largest divisor, the three others are the same in all such models.
 * They are accepted if they reproduce the divisors. */
enum { LLAMA3_ORIGINAL = 8192 };
static const double llama3_low = 1;

/* llama3_high of Llama 3, and of Llama 4, which does not interpolate */
static const double llama3_highs[] = {4, 1};

static double llama3_divisor(double theta, double factor, double high, size_t pair, size_t pairs)
{
    const double turn = 2 * M_PI * pow(theta, (double)pair / (double)pairs),
                 turns = LLAMA3_ORIGINAL / turn;
    if (turns > high)
        return 1;
    if (turns < llama3_low)
        return factor;
    const double smooth = (turns - llama3_low) / (high - llama3_low);
    return 1 / ((1 - smooth) / factor + smooth);
}

static bool is_llama3(const struct source_tensor *divisors, double theta, double high, double *factor)
{
    const size_t pairs = divisors->dim[0];
    float divisor;
    *factor = 1;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < pairs; i++) {
            memcpy(&divisor, divisors->data + 4 * i, sizeof divisor);
            if (pass == 0)
                *factor = fmax(*factor, (double)divisor);
            else if (!(fabs(llama3_divisor(theta, *factor, high, i, pairs) / (double)divisor - 1) <
                       1e-4))
                return false;
        }
    return true;
}

static int put_llama3(struct config_job *job, struct err *err)
{
    const struct source_tensor *divisors = gguf_set_find(job->set, "rope_freqs.weight");
    const double theta = json_number_value(json_object_get(job->config, "rope_theta"));
    const bool vector = divisors && divisors->type == DTYPE_F32 && divisors->n_dims == 1;
    double factor, high = 0;
    if (!divisors || gguf_arch_listed(job->arch, OWN_SIZES))
        return 0;
    for (size_t i = 0; vector && high == 0 && i < ARRAY_LEN(llama3_highs); i++)
        if (is_llama3(divisors, theta > 0 ? theta : 10000, llama3_highs[i], &factor))
            high = llama3_highs[i];
    if (high == 0)
        return err_set(
            err, "%s: rope_freqs.weight is not a Llama 3 scaling; other divisors are not supported",
            job->path);
    if (factor == 1)
        return 0;
    json_t *scaling =
        json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor", gguf_shortest(factor),
                  "low_freq_factor", llama3_low, "high_freq_factor", high,
                  "original_max_position_embeddings", LLAMA3_ORIGINAL);
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
    return put_all(job->config, key, list, err);
}

static int put_longrope(struct config_job *job, struct err *err)
{
    if (!has(job, "rope_factors_long.weight"))
        return 0;
    if (put_all(job->config, "rope_scaling.rope_type", json_string("longrope"), err) < 0 ||
        put_list(job, "rope_factors_long.weight", "rope_scaling.long_factor", err) < 0)
        return -1;
    return put_list(job, "rope_factors_short.weight", "rope_scaling.short_factor", err);
}

/* Gemma 2 and 3: completes the configuration. Attention scores are scaled by 1 / sqrt(head_dim), in
 * the largest model by 1 / sqrt(width / heads). */
static int put_gemma(struct config_job *job, struct err *err)
{
    const int64_t width = integer_of(job, "embedding_length", 0),
                  heads = integer_of(job, "attention.head_count", 1),
                  layers = integer_of(job, "block_count", 0);
    const bool second = strcmp(job->arch->name, "gemma2") == 0,
               third = strcmp(job->arch->name, "gemma3") == 0;
    if (!second && !third)
        return 0;
    const int64_t scalar = layers == (second ? 46 : 62) && heads > 0 ? width / heads : head_dim(job);
    return json_put(job->config, "query_pre_attn_scalar", json_integer(scalar), err);
}

/* Latent attention only: sizes of heads, and YaRN's attention factor. Older files have the sizes of heads
 * in keys that describe latents in newer ones. */
static int put_latent(struct config_job *job, struct err *err)
{
    const int64_t key = integer_of(job, "attention.key_length_mla", head_dim(job)),
                  rope = integer_of(job, "rope.dimension_count", 0);
    struct gguf_element log =
        gguf_elements(gguf_arch_value(job->arch, job->set, "rope.scaling.yarn_log_multiplier"));
    if (!json_object_get(job->config, "kv_lora_rank"))
        return 0;
    if (!json_object_get(job->config, "v_head_dim") &&
        put_all(job->config, "v_head_dim", json_integer(integer_of(job, "attention.value_length", 0)),
                err) < 0)
        return -1;
    if (json_object_get(job->config, "n_group") &&
        put_all(job->config, "topk_method", json_string("group_limited_greedy"), err) < 0)
        return -1;
    if (put_all(job->config, "qk_rope_head_dim", json_integer(rope), err) < 0 ||
        put_all(job->config, "qk_nope_head_dim", json_integer(key > rope ? key - rope : 0), err) < 0)
        return -1;
    if (!log.of || !gguf_next(&log))
        return 0;
    /* the converter multiplies by 0.1; the factor of cosines and sines is 1, as with equal mscales */
    return put_all(
        job->config, "rope_scaling.mscale,rope_scaling.mscale_all_dim",
        isfinite(log.real) ? json_real(gguf_shortest(10 * gguf_shortest(log.real))) : json_null(), err);
}

static int put_falcon(struct config_job *job, struct err *err)
{
    if (strcmp(job->arch->name, "falcon") != 0)
        return 0;
    const bool one = integer_of(job, "attention.head_count_kv", 0) == 1;
    if (json_put(job->config, "multi_query", json_boolean(one), err) < 0)
        return -1;
    return json_put(job->config, "parallel_attn", json_true(), err);
}

/* Ministral 3: YaRN's attention factor; files lack the member mscale, which is 1. */
static int put_mistral3(struct config_job *job, struct err *err)
{
    static const struct gguf_key key = {"rope.scaling.yarn_log_multiplier",
                                        "rope_scaling.mscale_all_dim"};
    if (!gguf_arch_value(job->arch, job->set, key.gguf))
        return 0;
    return put_key(job, &key, err) < 0
               ? -1
               : put_all(job->config, "rope_scaling.mscale", json_integer(1), err);
}

/* What is implied by the architecture and by other members. */
static int put_implied(struct config_job *job, struct err *err)
{
    const char *arch = job->arch->name;
    const int64_t head = head_dim(job);
    const json_t *theta = json_object_get(job->config, "rope_theta");
    if (head > 0 && !json_object_get(job->config, "head_dim") &&
        json_put(job->config, "head_dim", json_integer(head), err) < 0)
        return -1;
    if (strcmp(arch, "mistral3") == 0)
        return put_mistral3(job, err);
    if (strcmp(arch, "granitehybrid") == 0 && !json_object_get(job->config, "num_local_experts"))
        return json_put(job->config, "num_local_experts", json_integer(0), err);
    if (strcmp(arch, "olmo2") != 0 || integer_of(job, "attention.sliding_window", 0) <= 0)
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
        const int64_t found = integer_of(job, v->key, 0);
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
    const int64_t layers = integer_of(job, "block_count", 0),
                  mtp = integer_of(job, "nextn_predict_layers", 0);
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
    const bool there =
        llama4 ? integer_of(job, "expert_count", 0) != 128 : has(job, "blk.0.attn_q_norm.weight");
    return json_put(job->config, "use_qk_norm", json_boolean(there), err);
}

/* The size of a head's values, which recurrent layers store for all heads together. */
static int put_state(struct config_job *job, struct err *err)
{
    const int64_t inner = integer_of(job, "ssm.inner_size", 0),
                  heads = integer_of(job, "ssm.time_step_rank", 0);
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
    struct config_job job = {arch, set, path, NULL};
    *config = job.config = json_pack("{s:[s]}", "architectures", architecture_of(&job));
    if (!job.config)
        return err_no_memory(err, "%s: its configuration", path);
    if (put_keys(&job, err) < 0 || put_layer_keys(&job, err) < 0 || put_tensor_traits(&job, err) < 0 ||
        put_rotary(&job, err) < 0 || put_longrope(&job, err) < 0 || name_scaling(&job, err) < 0 ||
        put_llama3(&job, err) < 0 || put_gemma(&job, err) < 0 || put_latent(&job, err) < 0 ||
        put_implied(&job, err) < 0 || put_qk_norm(&job, err) < 0 || put_mtp(&job, err) < 0 ||
        put_state(&job, err) < 0)
        return -1;
    return put_falcon(&job, err) < 0 ? -1 : gguf_gemma4(job.config, arch, set, path, err);
}
