/* Tables of kinds of GGUF files, and of values that must be there, or must be such that nothing follows from them. */
#include "format/gguf_check.h"

#include <stdio.h>
#include <string.h>

#include "base/words.h"

/* ---- kinds ---- */

/* general.type of files beside models. */
static const struct {
    const char *type, *what;
} kinds[] = {
    {"adapter", "a LoRA adapter, which changes another model: merge it into that one and convert the "
                "result"},
    {"imatrix", "an importance matrix, which other programs make models smaller with: convert the "
                "model itself"},
    {"mmproj", "the part of a model that reads pictures or sound: convert the file of the language "
               "model that it belongs to"},
};

static bool is_text(const struct gguf_element *e, const char *text)
{
    return strlen(text) == e->len && memcmp(text, e->text, e->len) == 0;
}

static int check_type(const struct gguf_set *set, const char *path, struct err *err)
{
    const struct gguf_value *value = gguf_value(&set->part[0], "general.type");
    struct gguf_element type = gguf_elements(value);
    if (!gguf_is_text(value) || !gguf_next(&type) || is_text(&type, "model"))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (is_text(&type, kinds[i].type))
            return err_set(err, "%s: holds %s", path, kinds[i].what);
    return err_set(err, "%s: holds no model, but says that it is of type \"%s\" (general.type)", path,
                   excerpt_of(type.text, type.len).text);
}

int gguf_check_kind(const struct gguf_set *set, const char *path, struct err *err)
{
    size_t tensors = 0;
    if (check_type(set, path, err) < 0)
        return -1;
    for (size_t i = 0; i < set->n_parts; i++)
        tensors += set->part[i].n_tensors;
    return tensors || !gguf_value(&set->part[0], "tokenizer.ggml.tokens")
               ? 0
               : err_set(err, "%s: holds a vocabulary only: use it with --synth SHAPE --tokenizer",
                         path);
}

/* ---- values ---- */

/* Keys behind "llama." that must be there; those of norms by the kind of norm. */
#define RMS   "llama qwen2 qwen3 gemma gemma2 phi3 olmo2"
#define LAYER "gpt2 gptneox gptj bloom falcon"

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
    {LAYER, "attention.layer_norm_epsilon"},
};

/* Values of which only these two are as if they were not there. */
static const struct unread {
    const char *key;
    double harmless, too;
    const char *archs; /* in which it is read, or known to be so always */
    const char *what;
} unread[] = {
    {"attention.causal", 1, 1, "", "positions that see those behind them: an encoder"},
    {"attention.clamp_kqv", 0, 0, "", "queries, keys and values that are cut off"},
    {"attention.max_alibi_bias", 0, 0, "bloom", "scores that fall with the distance"},
    {"attn_logit_softcapping", 0, 0, "gemma2", "scores that are bounded softly"},
    {"final_logit_softcapping", 0, 0, "gemma2", "logits that are bounded softly"},
    {"attention.scale", 0, 0, "", "another scale of scores"},
    {"attention.sliding_window", 0, 0, "gemma2 phi3", "layers that see a window only"},
    {"embedding_scale", 0, 1, "", "scaled embeddings"},
    {"expert_count", 0, 0, "", "a mixture of experts"},
    {"logit_scale", 0, 1, "", "scaled logits"},
    {"residual_scale", 0, 1, "", "halves of layers that are scaled"},
    {"rope.scaling.yarn_log_multiplier", 0, 0, "", "yarn with another gain"},
};

static const struct gguf_value *value_of(const struct gguf_arch *arch, const struct gguf_set *set,
                                         const char *key)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", arch->name, key);
    return gguf_value(&set->part[0], name);
}

static int check_unread(const struct gguf_arch *arch, const struct gguf_set *set,
                        const struct unread *u, const char *path, struct err *err)
{
    struct gguf_element e = gguf_elements(value_of(arch, set, u->key));
    while (!gguf_arch_listed(arch, u->archs) && e.of && gguf_next(&e)) {
        if (e.of->type == GGUF_STRING)
            return err_set(err, "%s: %s.%s is a text, a number is expected", path, arch->name, u->key);
        if (e.real != u->harmless && e.real != u->too)
            return err_set(err, "%s: %s.%s is %g: %s are not implemented for architecture %s", path,
                           arch->name, u->key, e.real, u->what, arch->name);
    }
    return 0;
}

/* Heads of values are as large as those of keys. */
static int check_heads(const struct gguf_arch *arch, const struct gguf_set *set, const char *path,
                       struct err *err)
{
    struct gguf_element key = gguf_elements(value_of(arch, set, "attention.key_length")),
                        value = gguf_elements(value_of(arch, set, "attention.value_length"));
    if (!key.of || !value.of || !gguf_next(&key) || !gguf_next(&value) || key.integer == value.integer)
        return 0;
    return err_set(err,
                   "%s: %s.attention.key_length is %lld and value_length %lld: heads of two sizes are "
                   "not implemented",
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
            !value_of(arch, set, needed[i].key))
            return err_set(err, "%s: has no \"%s.%s\", which its architecture needs", path, arch->name,
                           needed[i].key);
    return check_heads(arch, set, path, err);
}
