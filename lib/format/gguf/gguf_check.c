/* Tables of GGUF files that are not models, of required keys, and of keys with unsupported
 * features. */
#include "format/gguf/gguf_check.h"

#include <string.h>

#include "base/text_util.h"

/* Values of the key general.type in GGUF files that are not models, and what to do. */
static const struct {
    const char *type, *what;
} kinds[] = {
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
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (is_text(&type, kinds[i].type))
            return err_set(err, "%s: is %s", path, kinds[i].what);
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

/* Required keys, without the prefix "llama."; the key of epsilon depends on the norm. */
#define RMS                                                                                            \
    "llama qwen2 qwen3 gemma gemma2 gemma3 phi3 olmo2 smollm3 granite chatglm glm4 ernie4_5 exaone4 "  \
    "seed_oss hunyuan-dense mistral3 deepseek2 gemma4"
#define LATENT "deepseek2"
#define MOE                                                                                            \
    "qwen2moe qwen3moe olmoe glm4moe gpt-oss granitemoe ernie4_5-moe lfm2moe qwen3next qwen35moe "     \
    "llama4"
#define DELTA "qwen3next qwen35 qwen35moe"
#define MAMBA "granitehybrid falcon-h1"
#define LAYER "gpt2 gptneox gptj bloom falcon olmo phi2 stablelm starcoder2 command-r cohere2 mpt"

static const struct {
    const char *archs; /* NULL: all */
    const char *key;
} needed[] = {
    {NULL, "block_count"},
    {NULL, "context_length"},
    {NULL, "embedding_length"},
    {NULL, "attention.head_count"},
    {RMS " gptneox", "feed_forward_length"},
    {RMS, "attention.layer_norm_rms_epsilon"},
    {MOE, "attention.layer_norm_rms_epsilon"},
    {MOE, "expert_count"},
    {MOE, "expert_used_count"},
    {"qwen2moe qwen3moe glm4moe gpt-oss ernie4_5-moe lfm2moe qwen3next qwen35moe llama4",
     "expert_feed_forward_length"},
    {"olmoe granitemoe llama4", "feed_forward_length"},
    {LAYER, "attention.layer_norm_epsilon"},
    {"gemma4", "attention.sliding_window_pattern"},
    {"gemma4", "attention.key_length"},
    {LATENT, "attention.kv_lora_rank"},
    {LATENT, "rope.dimension_count"},
    {"lfm2 qwen35", "attention.layer_norm_rms_epsilon"},
    {"lfm2 qwen35", "feed_forward_length"},
    {"lfm2 lfm2moe", "shortconv.l_cache"},
    {MAMBA, "attention.layer_norm_rms_epsilon"},
    {MAMBA, "feed_forward_length"},
    {DELTA " " MAMBA, "ssm.conv_kernel"},
    {DELTA " " MAMBA, "ssm.group_count"},
    {DELTA " " MAMBA, "ssm.inner_size"},
    {DELTA " " MAMBA, "ssm.state_size"},
    {DELTA " " MAMBA, "ssm.time_step_rank"},
};

/* Keys of unsupported features, and the values with which the feature is off. */
static const struct unread {
    const char *key;
    double harmless, too;
    const char *archs; /* architectures for which bmc supports the feature */
    const char *what;
} unread[] = {
    {"attention.causal", 1, 1, "", "bidirectional attention (encoders)"},
    {"attention.clamp_kqv", 0, 0, "olmo mpt", "clamped Q, K and V"},
    {"attention.max_alibi_bias", 0, 0, "bloom mpt", "ALiBi biases"},
    {"attn_logit_softcapping", 0, 0, "gemma2 gemma3", "soft-capped attention scores"},
    {"final_logit_softcapping", 0, 0, "gemma2 gemma3 gemma4", "soft-capped logits"},
    {"attention.scale", 0, 0, "granite granitemoe granitehybrid", "custom attention scales"},
    {"attention.sliding_window", 0, 0,
     "gpt-oss gemma2 gemma3 gemma4 phi3 olmo2 cohere2 exaone4 starcoder2 mistral3", "sliding windows"},
    {"attention.temperature_scale", 0, 0, "mistral3", "scores that grow with the position"},
    {"embedding_scale", 0, 1, "granite granitemoe granitehybrid", "scaled embeddings"},
    {"expert_count", 0, 0, "llama granitehybrid gemma4 " LATENT " " MOE, "mixtures of experts"},
    {"expert_gating_func", 0, 1, "glm4moe lfm2moe " LATENT, "routers other than softmax"},
    {"expert_gating_func", 1, 2, "", "routers other than softmax and sigmoid"},
    {"expert_shared_count", 0, 0, "qwen2moe glm4moe ernie4_5-moe " LATENT, "shared experts"},
    {"leading_dense_block_count", 0, 0, "glm4moe ernie4_5-moe lfm2moe " LATENT,
     "dense layers before those with experts"},
    {"nextn_predict_layers", 0, 0, "glm4moe " DELTA, "MTP layers"},
    {"interleave_moe_layer_step", 0, 1, "ernie4_5-moe llama4", "layers without experts in between"},
    {"logit_scale", 0, 1, "granite granitemoe granitehybrid command-r cohere2", "scaled logits"},
    {"residual_scale", 0, 1, "granite granitemoe granitehybrid", "scaled residuals"},
    {"rope.scaling.yarn_log_multiplier", 0, 0, LATENT " mistral3",
     "YaRN with a custom attention factor"},
};

static int check_unread(const struct gguf_arch *arch, const struct gguf_set *set,
                        const struct unread *u, const char *path, struct err *err)
{
    struct gguf_element e = gguf_elements(gguf_arch_value(arch, set, u->key));
    while (!gguf_arch_listed(arch, u->archs) && e.of && gguf_next(&e)) {
        if (e.of->type == GGUF_STRING)
            return err_set(err, "%s: %s.%s is a string, expected a number", path, arch->name, u->key);
        if (e.real != u->harmless && e.real != u->too)
            return err_set(err, "%s: %s.%s is %g: %s are not supported for architecture %s", path,
                           arch->name, u->key, e.real, u->what, arch->name);
    }
    return 0;
}

/* Keys that gguf_config() and gguf_gemma4() read one number of; the other keys with one value for all layers are
 * those of gguf_config.c. */
static const char *const single[] = {
    "attention.key_length_mla", "attention.key_length_swa",   "attention.shared_kv_layers",
    "attention.value_length",   "attention.value_length_swa", "embedding_length_per_layer_input",
    "expert_gating_func",       "rope.dimension_count_swa",   "rope.scaling.yarn_log_multiplier",
};

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

int gguf_check_values(const struct gguf_arch *arch, const struct gguf_set *set, const char *path,
                      struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(unread); i++)
        if (check_unread(arch, set, &unread[i], path, err) < 0)
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(needed); i++)
        if ((!needed[i].archs || gguf_arch_listed(arch, needed[i].archs)) &&
            !gguf_arch_value(arch, set, needed[i].key))
            return err_set(err, "%s: \"%s.%s\" is missing", path, arch->name, needed[i].key);
    for (size_t i = 0; i < ARRAY_LEN(single); i++)
        if (check_single(arch, set, single[i], path, err) < 0)
            return -1;
    return check_heads(arch, set, path, err);
}
