/* Tables of GGUF's architectures and of its names for tensors. */
#include "format/gguf_arch.h"

#include <stdio.h>
#include <string.h>

#include "base/words.h"
#include "format/foreign_archs.h"

static const struct gguf_arch archs[] = {
    {"llama", "LlamaForCausalLM", false},   {"qwen2", "Qwen2ForCausalLM", false},
    {"qwen3", "Qwen3ForCausalLM", false},   {"gemma", "GemmaForCausalLM", false},
    {"gemma2", "Gemma2ForCausalLM", false}, {"phi3", "Phi3ForCausalLM", true},
    {"gpt2", "GPT2LMHeadModel", false},     {"gptneox", "GPTNeoXForCausalLM", true},
    {"gptj", "GPTJForCausalLM", true},      {"bloom", "BloomForCausalLM", false},
    {"falcon", "FalconForCausalLM", false}, {"olmo2", "Olmo2ForCausalLM", false},
};

/* Those whose Q, K and V lie in one tensor: all of Q, all of K, all of V, however the model's own files have them. */
#define FUSED_QKV "bloom falcon gpt2 gptneox phi3"

/* Roles without ".weight" or ".bias", which both sides have, GGUF's names, and what is done to the tensor. Alternatives are
 * in order. */
static const struct name {
    const char *archs; /* with blanks between them; NULL: all that have no line of their own */
    const char *role, *tensor, *recipe;
} names[] = {
    /* What turns together lies side by side in these, not half a head apart. */
    {"llama gptj", "layer.q", "blk.%.attn_q", " interleaved"},
    {"llama gptj", "layer.k", "blk.%.attn_k", " interleaved"},
    {FUSED_QKV, "layer.q", "blk.%.attn_qkv", " part q of q,k,v"},
    {FUSED_QKV, "layer.k", "blk.%.attn_qkv", " part k of q,k,v"},
    {FUSED_QKV, "layer.v", "blk.%.attn_qkv", " part v of q,k,v"},
    {"phi3", "layer.gate", "blk.%.ffn_up", " part gate of gate,up"},
    {"phi3", "layer.up", "blk.%.ffn_up", " part up of gate,up"},
    /* Where Falcon has two, the second is that of attention. */
    {"falcon", "layer.attn_norm", "blk.%.attn_norm_2", ""},
    {"falcon", "layer.attn_norm", "blk.%.attn_norm", ""},
    {"falcon", "layer.mlp_norm", "blk.%.attn_norm", ""},
    {NULL, "embed", "token_embd", ""},
    {NULL, "embed_norm", "token_embd_norm", ""},
    {NULL, "position", "position_embd", ""},
    {NULL, "layer.attn_norm", "blk.%.attn_norm", ""},
    {NULL, "layer.q", "blk.%.attn_q", ""},
    {NULL, "layer.k", "blk.%.attn_k", ""},
    {NULL, "layer.v", "blk.%.attn_v", ""},
    {NULL, "layer.q_norm", "blk.%.attn_q_norm", ""},
    {NULL, "layer.k_norm", "blk.%.attn_k_norm", ""},
    {NULL, "layer.out", "blk.%.attn_output", ""},
    {NULL, "layer.attn_post_norm", "blk.%.post_attention_norm", ""},
    {NULL, "layer.mlp_norm", "blk.%.ffn_norm", ""},
    {NULL, "layer.gate", "blk.%.ffn_gate", ""},
    {NULL, "layer.up", "blk.%.ffn_up", ""},
    {NULL, "layer.down", "blk.%.ffn_down", ""},
    {NULL, "layer.mlp_post_norm", "blk.%.post_ffw_norm", ""},
    {NULL, "final_norm", "output_norm", ""},
    {NULL, "head", "output", ""},
};

bool gguf_arch_listed(const struct gguf_arch *arch, const char *list)
{
    const size_t len = strlen(arch->name);
    while (list) {
        if (strncmp(list, arch->name, len) == 0 && (list[len] == ' ' || !list[len]))
            return true;
        list = strchr(list, ' ');
        list = list ? list + 1 : NULL;
    }
    return false;
}

static bool has_own(const struct gguf_arch *arch, const char *role, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (names[i].archs && strlen(names[i].role) == len && memcmp(names[i].role, role, len) == 0 &&
            gguf_arch_listed(arch, names[i].archs))
            return true;
    return false;
}

bool gguf_tensor_line(const struct gguf_arch *arch, const char *role, size_t nth, char *line,
                      size_t size)
{
    const char *end = strrchr(role, '.');
    const size_t len = end ? (size_t)(end - role) : 0;
    const bool own = has_own(arch, role, len);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const struct name *n = &names[i];
        if (strlen(n->role) != len || memcmp(n->role, role, len) != 0 || own != (n->archs != NULL) ||
            (own && !gguf_arch_listed(arch, n->archs)) || nth-- > 0)
            continue;
        snprintf(line, size, "%s%s%s", n->tensor, end, n->recipe);
        return true;
    }
    return false;
}

static int refuse(const char *name, size_t len, const char *path, struct err *err)
{
    char known[256] = "";
    size_t used = 0;
    const struct excerpt shown = excerpt_of(name, len);
    const char *what = foreign_arch(shown.text);
    if (what)
        return err_set(err, "%s: is of architecture \"%s\", %s", path, shown.text, what);
    for (size_t i = 0; i < ARRAY_LEN(archs); i++)
        used +=
            (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", archs[i].name);
    return err_set(err, "%s: is of architecture \"%s\", which is not known here; known are %s", path,
                   shown.text, known);
}

int gguf_arch_find(const struct gguf_arch **arch, const struct gguf_set *set, const char *path,
                   struct err *err)
{
    const struct gguf_value *value = gguf_value(&set->part[0], "general.architecture");
    struct gguf_element name = gguf_elements(value);
    if (!gguf_is_text(value) || !gguf_next(&name))
        return err_set(err, "%s: names no architecture (general.architecture)", path);
    for (size_t i = 0; i < ARRAY_LEN(archs); i++)
        if (strlen(archs[i].name) == name.len && memcmp(archs[i].name, name.text, name.len) == 0) {
            *arch = &archs[i];
            return 0;
        }
    return refuse(name.text, name.len, path, err);
}
