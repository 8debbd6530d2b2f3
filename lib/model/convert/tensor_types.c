/* Chooses the type of each tensor: the general type, with exceptions by name pattern. */
#include "model/convert/tensor_types.h"

#include <fnmatch.h>
#include <strings.h>

#include "quant/quant_types.h"

static const enum dtype importable_types[] = {
    DTYPE_COUNT,  DTYPE_F32,     DTYPE_BF16,  DTYPE_F16,   DTYPE_Q8_CHANNEL, DTYPE_Q8_0,  DTYPE_Q6_K,
    DTYPE_Q5_K,   DTYPE_Q5_1,    DTYPE_Q5_0,  DTYPE_Q4_K,  DTYPE_Q4_1,       DTYPE_Q4_0,  DTYPE_IQ4_NL,
    DTYPE_IQ4_XS, DTYPE_MXFP4,   DTYPE_Q3_K,  DTYPE_IQ3_S, DTYPE_IQ3_XXS,    DTYPE_Q2_K,  DTYPE_IQ2_S,
    DTYPE_IQ2_XS, DTYPE_IQ2_XXS, DTYPE_TQ2_0, DTYPE_TQ1_0, DTYPE_IQ1_M,      DTYPE_IQ1_S,
};

/* The first types, which are no mixtures. */
enum { PLAIN = 5 };

const char *importable_type_name(size_t i)
{
    if (i >= ARRAY_LEN(importable_types))
        return NULL;
    return i ? dtype_name(importable_types[i]) : "auto";
}

struct tensor_types model_types(size_t i)
{
    if (i < PLAIN)
        return (struct tensor_types){.type = importable_types[i]};
    const struct type_mixture *mixture = type_mixture(i - PLAIN);
    return (struct tensor_types){.type = mixture->base, .mixture = mixture};
}

const char *model_types_name(size_t i)
{
    const struct type_mixture *mixture = i < PLAIN ? NULL : type_mixture(i - PLAIN);
    return mixture ? mixture->name : i < PLAIN ? importable_type_name(i) : NULL;
}

/* The mixture of random_types(), or NULL. */
static const struct type_mixture *random_mixture(size_t i)
{
    enum dtype same;
    size_t n = DTYPE_COUNT;
    for (size_t m = 0; type_mixture(m); m++)
        if (!dtype_parse(type_mixture(m)->name, &same) && n++ == i)
            return type_mixture(m);
    return NULL;
}

struct tensor_types random_types(size_t i)
{
    const struct type_mixture *mixture = random_mixture(i);
    return (struct tensor_types){.type = mixture ? mixture->base : (enum dtype)i, .mixture = mixture};
}

const char *random_types_name(size_t i)
{
    const struct type_mixture *mixture = random_mixture(i);
    return mixture ? mixture->name : i < DTYPE_COUNT ? dtype_names[i] : NULL;
}

const char *model_types_find(const char *text)
{
    char name[16];
    enum dtype type;
    const bool known = strcasecmp(text, "q4") != 0 && dtype_parse(text, &type);
    snprintf(name, sizeof name, "%s", known ? dtype_name(type) : text);
    for (int medium = 0; medium < 2; medium++) {
        for (size_t i = 0; model_types_name(i); i++)
            if (strcasecmp(name, model_types_name(i)) == 0)
                return model_types_name(i);
        snprintf(name, sizeof name, "%.9s_m", known ? dtype_name(type) : text);
    }
    return NULL;
}

static bool type_parse(const char *text, enum dtype *type)
{
    if (strcmp(text, "auto") == 0) {
        *type = DTYPE_COUNT;
        return true;
    }
    if (strcasecmp(text, "q4") == 0 || !dtype_parse(text, type)) /* "q4" was q4_1: ambiguous */
        return false;
    for (size_t i = 1; i < ARRAY_LEN(importable_types); i++)
        if (importable_types[i] == *type)
            return true;
    return false;
}

bool tensor_types_parse(const char *text, char pattern[WEIGHT_NAME_SIZE], enum dtype *type)
{
    const char *sign = strrchr(text, '=');
    const size_t len = sign ? (size_t)(sign - text) : 0;
    if (!len || len >= WEIGHT_NAME_SIZE)
        return false;
    memcpy(pattern, text, len);
    pattern[len] = 0;
    return type_parse(sign + 1, type);
}

/* True if the pattern matches the name; a tied embedding also has the name "head.weight". */
static bool matches(const char *pattern, const struct weight_kind *kind, const char *name,
                    const struct config *config)
{
    return fnmatch(pattern, name, 0) == 0 ||
           (config->tied_head && type_is_head(kind, config) && fnmatch(pattern, "head.weight", 0) == 0);
}

struct pattern_search {
    const char *pattern;
    const char *prefix;                    /* of names */
    size_t matrices, vectors;              /* number of matches */
    size_t seen;                           /* number of matrices compared */
    char some[128], last[DRAFT_NAME_SIZE]; /* names for the error message */
};

enum { SOME_NAMES = 3 };

static void search_kind(struct pattern_search *s, const struct config *config,
                        const struct weight_kind *kind, size_t layer)
{
    char name[DRAFT_NAME_SIZE];
    const bool vector = kind->in == DIM_NONE;
    const size_t len = strlen(s->prefix);
    memcpy(name, s->prefix, len);
    weight_kind_tensor_name(kind, layer, name + len);
    if (matches(s->pattern, kind, name, config))
        *(vector ? &s->vectors : &s->matrices) += 1;
    if (vector)
        return;
    const size_t used = strlen(s->some);
    if (s->seen++ < SOME_NAMES)
        snprintf(s->some + used, sizeof s->some - used, "%s, ", name);
    memcpy(s->last, name, sizeof name);
}

static void search_model(struct pattern_search *s, const struct config *config)
{
    for (size_t i = 0; i < n_weight_kinds; i++)
        for (size_t layer = 0; layer < weight_kind_copies(&weight_kinds[i], config); layer++)
            if (weight_kind_has(&weight_kinds[i], config, layer))
                search_kind(s, config, &weight_kinds[i], layer);
}

/* Names of GGUF tensors, and what the same are called here. The first that is in a pattern counts. */
static const char *const gguf_names[][2] = {
    {"ffn_gate_exps", "experts_gate"},
    {"ffn_up_exps", "experts_up"},
    {"ffn_down_exps", "experts_down"},
    {"ffn_gate_shexp", "shared_gate"},
    {"ffn_up_shexp", "shared_up"},
    {"ffn_down_shexp", "shared_down"},
    {"ffn_gate", "gate"},
    {"ffn_up", "up"},
    {"ffn_down", "down"},
    {"attn_q_a", "q_a"},
    {"attn_q_b", "q_b"},
    {"attn_kv_a", "kv_a"},
    {"attn_k_b", "k_b"},
    {"attn_v_b", "v_b"},
    {"attn_qkv", "?"},
    {"attn_q", "q"},
    {"attn_k", "k"},
    {"attn_v", "v"},
    {"attn_output", "out"},
};

/* Writes the pattern for our names that corresponds to one for those of GGUF; false: it is none. */
static bool from_gguf(const char *pattern, char ours[WEIGHT_NAME_SIZE])
{
    const char *layer = strncmp(pattern, "blk.", 4) == 0 ? pattern + 4 : "*.";
    const int len = (int)strcspn(layer, ".");
    if (strstr(pattern, "token_embd") || strncmp(pattern, "output", 6) == 0) {
        snprintf(ours, WEIGHT_NAME_SIZE, "%s", *pattern == 'o' ? "head.weight" : "embed.weight");
        return true;
    }
    for (size_t i = 0; i < ARRAY_LEN(gguf_names); i++)
        if (strstr(pattern, gguf_names[i][0]))
            return snprintf(ours, WEIGHT_NAME_SIZE, "layers.%.*s.%s.weight", len, layer,
                            gguf_names[i][1]) < WEIGHT_NAME_SIZE;
    return false;
}

static int check_pattern(const char *pattern, const struct config *config, const struct config *draft,
                         struct err *err)
{
    struct pattern_search s = {.pattern = pattern, .prefix = ""};
    search_model(&s, config);
    s.prefix = DRAFT_PREFIX;
    if (draft)
        search_model(&s, draft);
    if (s.matrices)
        return 0;
    if (s.vectors)
        return err_set(err, "--tensor-type %s: matches only vectors, which are always f32", pattern);
    char ours[WEIGHT_NAME_SIZE];
    if (from_gguf(pattern, ours))
        return err_set(err,
                       "--tensor-type %s: GGUF's names are not used here; the corresponding one is %s "
                       "(--info lists all)",
                       pattern, ours);
    return err_set(err, "--tensor-type %s: matches no tensor; tensors are %s... %s (--info lists all)",
                   pattern, s.some, s.last);
}

int tensor_types_check(const struct tensor_types *types, const struct config *config,
                       const struct config *draft, struct err *err)
{
    char pattern[WEIGHT_NAME_SIZE];
    enum dtype type;
    for (size_t i = 0; i < types->n_tensor_types; i++) {
        if (!tensor_types_parse(types->tensor_type[i], pattern, &type))
            return err_set(err, "--tensor-type %s: expected PATTERN=TYPE", types->tensor_type[i]);
        if (check_pattern(pattern, config, draft, err) < 0)
            return -1;
    }
    return 0;
}

/* The type of a matrix that no pattern matches. Routers stay unquantised: they are small, and their
 * errors choose other experts. */
static enum dtype usual_type(const struct tensor_types *types, const struct typed_matrix *m)
{
    const bool quantized = dtype_is_quantized(types->type) && types->type != DTYPE_COUNT;
    if ((types->leave_output_tensor && type_is_head(m->kind, m->config)) ||
        (quantized && weight_kind_stays_wide(m->kind)))
        return DTYPE_COUNT;
    return types->mixture ? type_mixture_choose(types->mixture, m) : types->type;
}

enum dtype tensor_types_choose(const struct tensor_types *types, const struct typed_matrix *m,
                               const char *name)
{
    char pattern[WEIGHT_NAME_SIZE];
    enum dtype type;
    if (m->kind->in == DIM_NONE)
        return DTYPE_F32;
    for (size_t i = types->n_tensor_types; i > 0; i--)
        if (tensor_types_parse(types->tensor_type[i - 1], pattern, &type) &&
            matches(pattern, m->kind, name, m->config))
            return type == DTYPE_COUNT ? m->from : type;
    type = usual_type(types, m);
    return type == DTYPE_COUNT ? m->from : type;
}

enum dtype tensor_types_random(const struct tensor_types *types, const struct config *config,
                               const struct weight_kind *kind, size_t layer)
{
    struct config own;
    const struct typed_matrix matrix = {.config = config,
                                        .kind = kind,
                                        .layer = layer,
                                        .columns =
                                            config_dim(config_of_layer(config, layer, &own), kind->in),
                                        .from = DTYPE_BF16};
    return tensor_types_choose(types, &matrix, "");
}
