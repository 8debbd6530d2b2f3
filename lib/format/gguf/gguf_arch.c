/* Tables of GGUF's architectures and tensor names. */
#include "format/gguf/gguf_arch.h"

#include "base/text_util.h"
#include "format/detect.h"

static const struct gguf_arch archs[] = {
    {"llama", "LlamaForCausalLM", false},
    {"qwen2", "Qwen2ForCausalLM", false},
    {"qwen3", "Qwen3ForCausalLM", false},
    {"gemma", "GemmaForCausalLM", false},
    {"gemma2", "Gemma2ForCausalLM", false},
    {"phi3", "Phi3ForCausalLM", true},
    {"gpt2", "GPT2LMHeadModel", false},
    {"gptneox", "GPTNeoXForCausalLM", true},
    {"gptj", "GPTJForCausalLM", true},
    {"bloom", "BloomForCausalLM", false},
    {"falcon", "FalconForCausalLM", false},
    {"olmo2", "Olmo2ForCausalLM", false},
    {"deepseek2", "DeepseekV2ForCausalLM", true},
    {"smollm3", "SmolLM3ForCausalLM", false},
    {"granite", "GraniteForCausalLM", false},
    {"chatglm", "GlmForCausalLM", true},
    {"glm4", "Glm4ForCausalLM", true},
    {"olmo", "OlmoForCausalLM", false},
    {"phi2", "PhiForCausalLM", true},
    {"stablelm", "StableLmForCausalLM", true},
    {"starcoder2", "Starcoder2ForCausalLM", false},
    {"command-r", "CohereForCausalLM", false},
    {"cohere2", "Cohere2ForCausalLM", false},
    {"mpt", "MptForCausalLM", false},
    {"ernie4_5", "Ernie4_5ForCausalLM", false},
    {"exaone4", "Exaone4ForCausalLM", false},
    {"seed_oss", "SeedOssForCausalLM", false},
    {"hunyuan-dense", "HunYuanDenseV1ForCausalLM", false},
    {"gemma3", "Gemma3ForCausalLM", false},
    {"mistral3", "Ministral3ForCausalLM", false},
    {"qwen2moe", "Qwen2MoeForCausalLM", false},
    {"qwen3moe", "Qwen3MoeForCausalLM", false},
    {"olmoe", "OlmoeForCausalLM", false},
    {"granitemoe", "GraniteMoeForCausalLM", false},
    {"ernie4_5-moe", "Ernie4_5_MoeForCausalLM", false},
    {"gpt-oss", "GptOssForCausalLM", false},
    {"glm4moe", "Glm4MoeForCausalLM", true},
    {"lfm2", "Lfm2ForCausalLM", false},
    {"lfm2moe", "Lfm2MoeForCausalLM", false},
    {"qwen3next", "Qwen3NextForCausalLM", true},
    {"qwen35", "Qwen3_5ForCausalLM", true},
    {"qwen35moe", "Qwen3_5MoeForCausalLM", true},
    {"granitehybrid", "GraniteMoeHybridForCausalLM", true},
    {"falcon-h1", "FalconH1ForCausalLM", false},
    {"mamba2", "Mamba2ForCausalLM", false},
    {"nemotron_h", "NemotronHForCausalLM", true},
    {"nemotron_h_moe", "NemotronHForCausalLM", true},
    {"llama4", "Llama4ForCausalLM", false},
    {"gemma3n", "Gemma3nForCausalLM", false},
    {"gemma4", "Gemma4ForCausalLM", false},
    {"qwen2vl", "Qwen2_5_VLForConditionalGeneration", false},
    {"qwen3vl", "Qwen3VLForConditionalGeneration", false},
    {"qwen3vlmoe", "Qwen3VLMoeForConditionalGeneration", false},
    {"phimoe", "PhiMoEForCausalLM", false},
    {"hunyuan-moe", "HunYuanMoEV1ForCausalLM", false},
    {"minimax-m2", "MiniMaxM2ForCausalLM", true},
    {"exaone-moe", "ExaoneMoEForCausalLM", false},
    {"bailingmoe2", "BailingMoeV2ForCausalLM", true},
    {"mistral4", "Mistral4ForCausalLM", true},
    {"deepseek32", "DeepseekV32ForCausalLM", true},
    {"glm-dsa", "GlmMoeDsaForCausalLM", true},
    {"kimi-linear", "KimiLinearForCausalLM", true},
    {"step35", "Step3p5ForCausalLM", true},
    {"bitnet", "BitNetForCausalLM", false},
    {"bert", "BertModel", false},
    {"nomic-bert", "NomicBertModel", false},
    {"nomic-bert-moe", "NomicBertMoeModel", false},
    {"jina-bert-v2", "JinaBertModel", false},
    {"jina-bert-v3", "JinaEmbeddingsV3Model", false},
    {"modern-bert", "ModernBertModel", false},
    {"eurobert", "EuroBertModel", false},
    {"gemma-embedding", "Gemma3TextModel", false},
};

/* Further architectures in config.json that GGUF does not tell from the one above. */
static const struct same {
    const char *arch, *architectures;
} same[] = {
    {"llama", "MistralForCausalLM MixtralForCausalLM"},
    {"olmo2", "Olmo3ForCausalLM"},
    {"deepseek2",
     "DeepseekV3ForCausalLM Glm4MoeLiteForCausalLM YoutuForCausalLM KimiK25ForConditionalGeneration"},
    {"granitehybrid", "BambaForCausalLM"},
    {"granitemoe", "GraniteMoeSharedForCausalLM"},
    {"mistral3", "Mistral3ForConditionalGeneration"},
    {"qwen2vl", "Qwen2VLForConditionalGeneration"},
    {"phimoe", "PhimoeForCausalLM"},
    {"exaone-moe", "ExaoneMoeForCausalLM"},
    {"step35", "Step3p7ForConditionalGeneration"},
};

bool gguf_arch_has(const struct gguf_arch *arch, const char *architecture)
{
    bool has = strcmp(arch->architecture, architecture) == 0;
    for (size_t i = 0; i < ARRAY_LEN(same); i++)
        has |= strcmp(same[i].arch, arch->name) == 0 &&
               text_lists(same[i].architectures, architecture, strlen(architecture));
    return has;
}

const struct gguf_arch *gguf_arch_of(const char *architecture, size_t nth)
{
    for (size_t i = 0; i < ARRAY_LEN(archs); i++)
        if (gguf_arch_has(&archs[i], architecture) && nth-- == 0)
            return &archs[i];
    return NULL;
}

/* Architectures with a fused QKV tensor: all Q, then all K, then all V. */
#define FUSED_QKV                                                                                      \
    "bloom falcon gpt2 gptneox mpt phi3 nomic-bert nomic-bert-moe jina-bert-v3 modern-bert "           \
    "bailingmoe2"

/* Architectures whose rotary pairs are adjacent in Q and K; those of chatglm may be fused. */
#define ADJACENT                                                                                       \
    "llama gptj smollm3 granite granitemoe glm4 chatglm olmo command-r cohere2 ernie4_5 ernie4_5-moe " \
    "mistral3 llama4"

/* Architectures with a tensor of gates and, after them, the other half of the MLP's first product. */
#define FUSED_GATE "phi3 chatglm glm4 jina-bert-v2 modern-bert"

#define LATENT     "deepseek2 deepseek32 glm-dsa mistral4"
#define SHORT_CONV "lfm2 lfm2moe"
#define DELTA      "qwen3next qwen35 qwen35moe"
#define NEMOTRON   "nemotron_h nemotron_h_moe"
#define MAMBA      "granitehybrid falcon-h1 mamba2 " NEMOTRON
#define ENCODERS   "bert nomic-bert nomic-bert-moe jina-bert-v2 jina-bert-v3"
/* Parts of Mamba-2's projection, in order. */
#define MAMBA_PARTS " of state_z,state_v,state_k,state_q,state_a"

/* Weight kinds, their GGUF tensor names (% is the layer), both without ".weight" or ".bias" or both with
 * their ending, and transforms as in bmc-family(5). Several rows for a kind are alternatives, in order. */
static const struct name {
    const char *archs; /* blank-separated; NULL: those without a row of their own for the kind */
    const char *kind, *tensor, *transform;
} names[] = {
    /* Latent attention: rotary pairs are adjacent; older files have kv_b, newer ones its two parts. */
    {LATENT, "layer.q_b", "blk.%.attn_q_b", " interleaved"},
    {LATENT, "layer.q", "blk.%.attn_q", " interleaved"},
    {NULL, "layer.q_a", "blk.%.attn_q_a", ""},
    {NULL, "layer.q_a_norm", "blk.%.attn_q_a_norm", ""},
    {NULL, "layer.kv_a", "blk.%.attn_kv_a_mqa", " interleaved"},
    {"kimi-linear", "layer.kv_a", "blk.%.attn_kv_a_mqa", ""}, /* without rotation */
    {NULL, "layer.kv_a_norm", "blk.%.attn_kv_a_norm", ""},
    {"glm-dsa", "layer.index_q", "blk.%.indexer.attn_q_b", " interleaved"},
    {"glm-dsa", "layer.index_k", "blk.%.indexer.attn_k", " interleaved"},
    {"glm-dsa", "layer.index_k_norm", "blk.%.indexer.k_norm", " interleaved"},
    {NULL, "layer.index_q", "blk.%.indexer.attn_q_b", ""},
    {NULL, "layer.index_k", "blk.%.indexer.attn_k", ""},
    {NULL, "layer.index_k_norm", "blk.%.indexer.k_norm", ""},
    {NULL, "layer.index_weights", "blk.%.indexer.proj", ""},
    {NULL, "layer.k_b", "blk.%.attn_k_b", ""},
    {NULL, "layer.k_b", "blk.%.attn_kv_b", " of_kv_b"},
    {NULL, "layer.v_b", "blk.%.attn_v_b", ""},
    {NULL, "layer.v_b", "blk.%.attn_kv_b", " of_kv_b"},
    {ADJACENT, "layer.q", "blk.%.attn_q", " interleaved"},
    {ADJACENT, "layer.k", "blk.%.attn_k", " interleaved"},
    {"granitehybrid", "layer.q", "blk.%.attn_q", " interleaved_head"}, /* Bamba rotates half of them */
    {"granitehybrid", "layer.k", "blk.%.attn_k", " interleaved_head"},
    {"chatglm", "layer.q", "blk.%.attn_qkv", " part q of q,k,v interleaved"},
    {"chatglm", "layer.k", "blk.%.attn_qkv", " part k of q,k,v interleaved"},
    {"chatglm phi2", "layer.v", "blk.%.attn_v", ""},
    {"chatglm phi2", "layer.v", "blk.%.attn_qkv", " part v of q,k,v"},
    {"phi2", "layer.q", "blk.%.attn_q", ""},
    {"phi2", "layer.k", "blk.%.attn_k", ""},
    {"phi2", "layer.q", "blk.%.attn_qkv", " part q of q,k,v"},
    {"phi2", "layer.k", "blk.%.attn_qkv", " part k of q,k,v"},
    {"command-r", "layer.q_norm", "blk.%.attn_q_norm", " interleaved"},
    {"command-r", "layer.k_norm", "blk.%.attn_k_norm", " interleaved"},
    {FUSED_QKV, "layer.q", "blk.%.attn_qkv", " part q of q,k,v"},
    {FUSED_QKV, "layer.k", "blk.%.attn_qkv", " part k of q,k,v"},
    {FUSED_QKV, "layer.v", "blk.%.attn_qkv", " part v of q,k,v"},
    {FUSED_GATE, "layer.gate", "blk.%.ffn_up", " part gate of gate,up"},
    {FUSED_GATE, "layer.up", "blk.%.ffn_up", " part up of gate,up"},
    {"seed_oss", "layer.mlp_norm", "blk.%.post_attention_norm", ""},
    /* Falcon models with two norms per layer use the second one before attention. */
    {"falcon", "layer.attn_norm", "blk.%.attn_norm_2", ""},
    {"falcon", "layer.attn_norm", "blk.%.attn_norm", ""},
    {"falcon", "layer.mlp_norm", "blk.%.attn_norm", ""},
    {"glm4moe gpt-oss " DELTA, "layer.mlp_norm", "blk.%.post_attention_norm", ""},
    /* Layers with recurrent state; older files of Qwen3-Next have its fused projection. */
    {DELTA, "layer.q", "blk.%.attn_q", " part q of q,attn_gate by_query_head"},
    {DELTA, "layer.attn_gate", "blk.%.attn_q", " part attn_gate of q,attn_gate by_query_head"},
    {DELTA, "layer.state_q", "blk.%.attn_qkv", " part state_q of state_q,state_k,state_v"},
    {DELTA, "layer.state_k", "blk.%.attn_qkv", " part state_k of state_q,state_k,state_v"},
    {DELTA, "layer.state_v", "blk.%.attn_qkv", " part state_v of state_q,state_k,state_v"},
    {DELTA, "layer.state_z", "blk.%.attn_gate", ""},
    {"qwen3next", "layer.state_q", "blk.%.ssm_in",
     " part state_q of state_q,state_k,state_v,state_z by_key_head"},
    {"qwen3next", "layer.state_k", "blk.%.ssm_in",
     " part state_k of state_q,state_k,state_v,state_z by_key_head"},
    {"qwen3next", "layer.state_v", "blk.%.ssm_in",
     " part state_v of state_q,state_k,state_v,state_z by_key_head"},
    {"qwen3next", "layer.state_z", "blk.%.ssm_in",
     " part state_z of state_q,state_k,state_v,state_z by_key_head"},
    {"qwen3next", "layer.state_a", "blk.%.ssm_ba", " part state_a of state_b,state_a by_key_head"},
    {"qwen3next", "layer.state_b", "blk.%.ssm_ba", " part state_b of state_b,state_a by_key_head"},
    {"qwen35 qwen35moe", "layer.state_a", "blk.%.ssm_alpha", ""},
    {"qwen35 qwen35moe", "layer.state_b", "blk.%.ssm_beta", ""},
    {"kimi-linear", "layer.state_q", "blk.%.attn_q", ""},
    {"kimi-linear", "layer.state_k", "blk.%.attn_k", ""},
    {"kimi-linear", "layer.state_v", "blk.%.attn_v", ""},
    {"kimi-linear", "layer.state_b", "blk.%.ssm_beta", ""},
    {"kimi-linear", "layer.state_conv.weight", "blk.%.ssm_conv1d_%.weight", " transposed"},
    {"kimi-linear", "layer.state_out", "blk.%.attn_output", ""},
    {NULL, "layer.state_a_in", "blk.%.ssm_f_a", ""},
    {NULL, "layer.state_a_out", "blk.%.ssm_f_b", ""},
    {NULL, "layer.state_z_in", "blk.%.ssm_g_a", ""},
    {NULL, "layer.state_z_out", "blk.%.ssm_g_b", ""},
    {SHORT_CONV, "layer.state_b", "blk.%.shortconv.in_proj",
     " part state_b of state_b,state_z,state_v"},
    {SHORT_CONV, "layer.state_z", "blk.%.shortconv.in_proj",
     " part state_z of state_b,state_z,state_v"},
    {SHORT_CONV, "layer.state_v", "blk.%.shortconv.in_proj",
     " part state_v of state_b,state_z,state_v"},
    {SHORT_CONV, "layer.state_conv.weight", "blk.%.shortconv.conv.weight", " transposed"},
    {SHORT_CONV, "layer.state_conv.bias", "blk.%.shortconv.conv.bias", ""},
    {SHORT_CONV, "layer.state_out", "blk.%.shortconv.out_proj", ""},
    {MAMBA, "layer.state_z", "blk.%.ssm_in", " part state_z" MAMBA_PARTS},
    {MAMBA, "layer.state_v", "blk.%.ssm_in", " part state_v" MAMBA_PARTS},
    {MAMBA, "layer.state_k", "blk.%.ssm_in", " part state_k" MAMBA_PARTS},
    {MAMBA, "layer.state_q", "blk.%.ssm_in", " part state_q" MAMBA_PARTS},
    {MAMBA, "layer.state_a", "blk.%.ssm_in", " part state_a" MAMBA_PARTS},
    {NEMOTRON, "layer.mlp_norm", "blk.%.attn_norm", ""},          /* of layers without attention */
    {"falcon-h1", "layer.mlp_norm.weight", "blk.%.ffn_norm", ""}, /* without its ending */
    {"falcon-h1", "layer.mlp_norm.weight", "blk.%.ffn_norm.weight", ""},
    {SHORT_CONV, "final_norm", "token_embd_norm", ""},
    {SHORT_CONV, "final_norm", "output_norm", ""},
    {NULL, "layer.state_conv.weight", "blk.%.ssm_conv1d.weight", " transposed"},
    {NULL, "layer.state_conv.bias", "blk.%.ssm_conv1d.bias", ""},
    {NULL, "layer.state_decay", "blk.%.ssm_a", " negated"},
    {NULL, "layer.state_step", "blk.%.ssm_dt.bias", ""},
    {NULL, "layer.state_skip", "blk.%.ssm_d", ""},
    {NULL, "layer.state_norm", "blk.%.ssm_norm", ""},
    {NULL, "layer.state_out", "blk.%.ssm_out", ""},
    {ENCODERS, "layer.attn_norm", "blk.%.attn_output_norm", ""},
    {ENCODERS, "layer.mlp_norm", "blk.%.layer_output_norm", ""},
    {NULL, "pooled_dense", "dense_2", ""},
    {NULL, "pooled_out", "dense_3", ""},
    {ENCODERS " modern-bert", "pooled_dense", "cls", ""},
    {ENCODERS " modern-bert", "pooled_norm", "cls.norm", ""},
    {ENCODERS " modern-bert", "pooled_out", "cls.output", ""},
    {NULL, "embed", "token_embd", ""},
    {NULL, "token_type", "token_types", ""},
    {NULL, "embed_norm", "token_embd_norm", ""},
    {NULL, "position", "position_embd", ""},
    {NULL, "layer.attn_norm", "blk.%.attn_norm", ""},
    {NULL, "layer.q", "blk.%.attn_q", ""},
    {NULL, "layer.k", "blk.%.attn_k", ""},
    {NULL, "layer.v", "blk.%.attn_v", ""},
    {NULL, "layer.q_norm", "blk.%.attn_q_norm", ""},
    {NULL, "layer.k_norm", "blk.%.attn_k_norm", ""},
    {NULL, "layer.out", "blk.%.attn_output", ""},
    {NULL, "layer.head_gate", "blk.%.attn_gate", ""},
    {NULL, "layer.sinks", "blk.%.attn_sinks", ""},
    {NULL, "layer.attn_post_norm", "blk.%.post_attention_norm", ""},
    {NULL, "layer.mlp_norm", "blk.%.ffn_norm", ""},
    {NULL, "layer.attn_sub_norm", "blk.%.attn_sub_norm", ""},
    {NULL, "layer.mlp_sub_norm", "blk.%.ffn_sub_norm", ""},
    {NULL, "layer.gate", "blk.%.ffn_gate", ""},
    {NULL, "layer.up", "blk.%.ffn_up", ""},
    {NULL, "layer.down", "blk.%.ffn_down", ""},
    {NULL, "layer.router", "blk.%.ffn_gate_inp", ""},
    {NULL, "layer.router_select", "blk.%.exp_probs_b", ""},
    {NULL, "layer.experts_gate", "blk.%.ffn_gate_exps", ""},
    {NULL, "layer.experts_gate", "blk.%.ffn_gate_up_exps",
     " part experts_gate of experts_gate,experts_up"},
    {NULL, "layer.experts_gate", "blk.%.ffn_gate.%", ""}, /* older files of Mixtral */
    {NULL, "layer.experts_up", "blk.%.ffn_up_exps", ""},
    {NULL, "layer.experts_up", "blk.%.ffn_gate_up_exps", " part experts_up of experts_gate,experts_up"},
    {NULL, "layer.experts_up", "blk.%.ffn_up.%", ""},
    {NULL, "layer.experts_down", "blk.%.ffn_down_exps", ""},
    {NULL, "layer.experts_down", "blk.%.ffn_down.%", ""},
    {NULL, "layer.shared_router", "blk.%.ffn_gate_inp_shexp", ""},
    {NULL, "layer.shared_gate", "blk.%.ffn_gate_shexp", ""},
    {NULL, "layer.shared_up", "blk.%.ffn_up_shexp", ""},
    {NULL, "layer.shared_down", "blk.%.ffn_down_shexp", ""},
    {NULL, "layer.mlp_post_norm", "blk.%.post_ffw_norm", ""},
    {NULL, "layer.mlp_own_norm", "blk.%.post_ffw_norm_1", ""},
    {NULL, "layer.moe_norm", "blk.%.pre_ffw_norm_2", ""},
    {NULL, "layer.moe_post_norm", "blk.%.post_ffw_norm_2", ""},
    {NULL, "layer.router_norm.weight", "blk.%.ffn_gate_inp.scale", ""},
    {NULL, "layer.router_gain.weight", "blk.%.ffn_down_exps.scale", ""},
    {NULL, "embed_layers", "per_layer_token_embd", ""},
    {NULL, "layer_inputs", "per_layer_model_proj", ""},
    {NULL, "layer_inputs_norm", "per_layer_proj_norm", ""},
    {NULL, "layer.input_gate", "blk.%.inp_gate", ""},
    {NULL, "layer.input_out", "blk.%.proj", ""},
    {NULL, "layer.input_norm", "blk.%.post_norm", ""},
    {NULL, "stream_in", "altup_proj", ""},
    {NULL, "stream_out", "altup_unembd_proj", ""},
    {NULL, "layer.stream_norm", "blk.%.altup_router_norm", ""},
    {NULL, "layer.stream_router", "blk.%.altup_router", ""},
    {NULL, "layer.stream_predict", "blk.%.altup_predict_coef", ""},
    {NULL, "layer.stream_correct", "blk.%.altup_correct_coef", ""},
    {NULL, "layer.stream_scale", "blk.%.altup_correct_scale", ""},
    {NULL, "layer.laurel_in", "blk.%.laurel_l", ""},
    {NULL, "layer.laurel_out", "blk.%.laurel_r", ""},
    {NULL, "layer.laurel_norm", "blk.%.laurel_post_norm", ""},
    {NULL, "layer.scale", "blk.%.layer_output_scale.weight", ""},
    {NULL, "final_norm", "output_norm", ""},
    {NULL, "head", "output", ""},
};

bool gguf_arch_listed(const struct gguf_arch *arch, const char *list)
{
    return text_lists(list, arch->name, strlen(arch->name));
}

const struct gguf_value *gguf_arch_value(const struct gguf_arch *arch, const struct gguf_set *set,
                                         const char *key)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", arch->name, key);
    return gguf_value(&set->file[0], name);
}

/* The ending of a kind's name that a row for it lacks: "", ".weight" or ".bias"; NULL: it is another kind's
 * row. */
static const char *ending_of(const struct name *row, const char *kind)
{
    const size_t len = strlen(row->kind);
    const char *rest = kind + len;
    return strncmp(row->kind, kind, len) == 0 &&
                   (!*rest || strcmp(rest, ".weight") == 0 || strcmp(rest, ".bias") == 0)
               ? rest
               : NULL;
}

static bool has_own(const struct gguf_arch *arch, const char *kind)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (names[i].archs && ending_of(&names[i], kind) && gguf_arch_listed(arch, names[i].archs))
            return true;
    return false;
}

bool gguf_tensor_line(const struct gguf_arch *arch, const char *kind, size_t nth, char *line,
                      size_t size)
{
    const bool own = has_own(arch, kind);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const struct name *n = &names[i];
        const char *end = ending_of(n, kind);
        if (!end || own != (n->archs != NULL) || (own && !gguf_arch_listed(arch, n->archs)) ||
            nth-- > 0)
            continue;
        snprintf(line, size, "%s%s%s", n->tensor, end, n->transform);
        return true;
    }
    return false;
}

static int refuse(const char *name, size_t len, const char *path, struct err *err)
{
    char known[1024] = "";
    size_t used = 0;
    const struct excerpt shown = excerpt_of(name, len);
    const char *what = unsupported_arch(shown.text);
    if (what)
        return err_set(err, "%s: architecture \"%s\" is %s", path, shown.text, what);
    for (size_t i = 0; i < ARRAY_LEN(archs) && used < sizeof known; i++)
        used +=
            (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", archs[i].name);
    return err_set(err, "%s: architecture \"%s\" is unknown; supported are %s", path, shown.text,
                   known);
}

int gguf_arch_find(const struct gguf_arch **arch, const struct gguf_set *set, const char *path,
                   struct err *err)
{
    const struct gguf_value *value = gguf_value(&set->file[0], "general.architecture");
    struct gguf_element name = gguf_elements(value);
    if (!gguf_is_text(value) || !gguf_next(&name))
        return err_set(err, "%s: general.architecture is missing", path);
    for (size_t i = 0; i < ARRAY_LEN(archs); i++)
        if (strlen(archs[i].name) == name.len && memcmp(archs[i].name, name.text, name.len) == 0) {
            *arch = &archs[i];
            return 0;
        }
    return refuse(name.text, name.len, path, err);
}
