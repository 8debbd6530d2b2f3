/* Mixtures of types: the table of rules, and the choice by it. */
#include "model/convert/type_mixtures.h"

#include "quant/pack.h"

/* X(name in MIX_.., name, base type) */
#define MIXTURES(X)                                                                                    \
    X(Q8_0, "q8_0", Q8_0)                                                                              \
    X(Q6_K, "q6_k", Q6_K)                                                                              \
    X(Q5_K_M, "q5_k_m", Q5_K)                                                                          \
    X(Q5_K_S, "q5_k_s", Q5_K)                                                                          \
    X(Q5_1, "q5_1", Q5_1)                                                                              \
    X(Q5_0, "q5_0", Q5_0)                                                                              \
    X(Q4_K_M, "q4_k_m", Q4_K)                                                                          \
    X(Q4_K_S, "q4_k_s", Q4_K)                                                                          \
    X(Q4_1, "q4_1", Q4_1)                                                                              \
    X(Q4_0, "q4_0", Q4_0)                                                                              \
    X(IQ4_NL, "iq4_nl", IQ4_NL)                                                                        \
    X(IQ4_XS, "iq4_xs", IQ4_XS)                                                                        \
    X(MXFP4, "mxfp4", MXFP4)                                                                           \
    X(MXFP4_MOE, "mxfp4_moe", Q8_0)                                                                    \
    X(Q3_K_L, "q3_k_l", Q3_K)                                                                          \
    X(Q3_K_M, "q3_k_m", Q3_K)                                                                          \
    X(Q3_K_S, "q3_k_s", Q3_K)                                                                          \
    X(IQ3_M, "iq3_m", IQ3_S)                                                                           \
    X(IQ3_S, "iq3_s", IQ3_S)                                                                           \
    X(IQ3_XS, "iq3_xs", IQ3_S)                                                                         \
    X(IQ3_XXS, "iq3_xxs", IQ3_XXS)                                                                     \
    X(Q2_K, "q2_k", Q2_K)                                                                              \
    X(Q2_K_S, "q2_k_s", Q2_K)                                                                          \
    X(IQ2_M, "iq2_m", IQ2_S)                                                                           \
    X(IQ2_S, "iq2_s", IQ2_XS)                                                                          \
    X(IQ2_XS, "iq2_xs", IQ2_XS)                                                                        \
    X(IQ2_XXS, "iq2_xxs", IQ2_XXS)                                                                     \
    X(TQ2_0, "tq2_0", TQ2_0)                                                                           \
    X(TQ1_0, "tq1_0", TQ1_0)                                                                           \
    X(IQ1_M, "iq1_m", IQ1_M)                                                                           \
    X(IQ1_S, "iq1_s", IQ1_S)

#define MIXTURE_INDEX(name, text, base) INDEX_##name,
#define MIXTURE_BIT(name, text, base)   MIX_##name = 1u << INDEX_##name,
#define MIXTURE_ROW(name, text, base)   {text, DTYPE_##base},
enum { MIXTURES(MIXTURE_INDEX) MIXTURE_COUNT };
enum mixture_bit { MIXTURES(MIXTURE_BIT) MIX_ALL = (int)~0u };
static const struct type_mixture mixtures[] = {MIXTURES(MIXTURE_ROW)};

/* Mixtures of 1 and 2 bits, which need an importance matrix. */
enum {
    MIX_IQ2_WIDE = MIX_IQ2_S | MIX_IQ2_M,
    MIX_IQ2_SLIM = MIX_IQ2_XXS | MIX_IQ2_XS,
    MIX_IQ1 = MIX_IQ1_S | MIX_IQ1_M,
    MIX_IQ12 = MIX_IQ2_WIDE | MIX_IQ2_SLIM | MIX_IQ1,
    MIX_IQ4 = MIX_IQ4_NL | MIX_IQ4_XS,
};

/* What a matrix is for. */
enum matrix_role {
    ROLE_HEAD,
    ROLE_TABLE,
    ROLE_V,
    ROLE_K,
    ROLE_Q,
    ROLE_OUT,
    ROLE_DOWN,
    ROLE_UP,
    ROLE_OTHER
};

static const struct {
    const char *kind;
    enum matrix_role role;
} roles[] = {
    {"layer.v.weight", ROLE_V},
    {"layer.k.weight", ROLE_K},
    {"layer.q.weight", ROLE_Q},
    {"layer.out.weight", ROLE_OUT},
    {"layer.down.weight", ROLE_DOWN},
    {"layer.experts_down.weight", ROLE_DOWN},
    {"layer.shared_down.weight", ROLE_DOWN},
    {"layer.gate.weight", ROLE_UP},
    {"layer.up.weight", ROLE_UP},
    {"layer.experts_gate.weight", ROLE_UP},
    {"layer.experts_up.weight", ROLE_UP},
    {"layer.shared_gate.weight", ROLE_UP},
    {"layer.shared_up.weight", ROLE_UP},
};

/* Layers to which a rule applies, of those that have the matrix. Errors of the first layers pass through all others,
 * those of the last reach the output directly. */
enum rule_layers {
    LAYERS_ALL,
    LAYERS_FIRST_TWO,
    LAYERS_FIRST_FOUR,
    LAYERS_FIRST_16TH,
    LAYERS_FIRST_8TH,
    LAYERS_MIDDLE, /* all but the first and the last eighth */
    LAYERS_SPREAD  /* the first and the last eighth, and every third one between */
};

/* Conditions of rules. */
enum rule_when {
    WHEN_ALWAYS,
    WHEN_SHARED, /* four or more query heads share a KV head: V is small, and its errors reach all of them */
    WHEN_V_SMALL,   /* WHEN_SHARED, or four or more experts */
    WHEN_8_EXPERTS, /* attention is small beside the experts */
    WHEN_STACKED,   /* the matrices of experts */
    WHEN_IMATRIX,
    WHEN_NO_IMATRIX
};

/* The first rule that fits counts. Facts about llama.cpp's quantiser; its exceptions for Falcon and for models of
 * 70 billion parameters are left out. */
/* clang-format off */
static const struct type_rule {
    unsigned mixtures;
    enum matrix_role role;
    enum rule_layers layers;
    enum rule_when when;
    enum dtype type;
} rules[] = {
    {MIX_Q8_0 | MIX_MXFP4_MOE,            ROLE_HEAD, LAYERS_ALL, WHEN_ALWAYS, DTYPE_Q8_0},
    {MIX_IQ12 | MIX_IQ3_XXS,              ROLE_HEAD, LAYERS_ALL, WHEN_ALWAYS, DTYPE_Q5_K},
    {MIX_ALL,                             ROLE_HEAD, LAYERS_ALL, WHEN_ALWAYS, DTYPE_Q6_K},

    {MIX_IQ2_SLIM | MIX_IQ1,              ROLE_TABLE, LAYERS_ALL, WHEN_ALWAYS, DTYPE_Q2_K},
    {MIX_IQ2_WIDE | MIX_IQ3_XXS,          ROLE_TABLE, LAYERS_ALL, WHEN_ALWAYS, DTYPE_IQ3_S},
    {MIX_TQ1_0 | MIX_TQ2_0,               ROLE_TABLE, LAYERS_ALL, WHEN_ALWAYS, DTYPE_Q4_K},

    {MIX_MXFP4_MOE,                       ROLE_UP,   LAYERS_ALL, WHEN_STACKED, DTYPE_MXFP4},
    {MIX_MXFP4_MOE,                       ROLE_DOWN, LAYERS_ALL, WHEN_STACKED, DTYPE_MXFP4},

    {MIX_IQ12,                            ROLE_V, LAYERS_ALL,        WHEN_V_SMALL,    DTYPE_Q4_K},
    {MIX_IQ2_WIDE,                        ROLE_V, LAYERS_ALL,        WHEN_ALWAYS,     DTYPE_IQ3_S},
    {MIX_IQ12,                            ROLE_V, LAYERS_ALL,        WHEN_ALWAYS,     DTYPE_Q2_K},
    {MIX_ALL,                             ROLE_V, LAYERS_ALL,        WHEN_8_EXPERTS,  DTYPE_Q8_0},
    {MIX_Q2_K | MIX_Q2_K_S | MIX_IQ3_XXS | MIX_IQ3_XS | MIX_IQ3_S, ROLE_V, LAYERS_ALL, WHEN_SHARED, DTYPE_Q4_K},
    {MIX_Q2_K,                            ROLE_V, LAYERS_ALL,        WHEN_ALWAYS,     DTYPE_Q3_K},
    {MIX_IQ3_XXS,                         ROLE_V, LAYERS_ALL,        WHEN_NO_IMATRIX, DTYPE_IQ3_S},
    {MIX_Q3_K_M,                          ROLE_V, LAYERS_FIRST_TWO,  WHEN_ALWAYS,     DTYPE_Q5_K},
    {MIX_Q3_K_M | MIX_IQ3_M,              ROLE_V, LAYERS_ALL,        WHEN_ALWAYS,     DTYPE_Q4_K},
    {MIX_Q3_K_L,                          ROLE_V, LAYERS_ALL,        WHEN_ALWAYS,     DTYPE_Q5_K},
    {MIX_IQ4,                             ROLE_V, LAYERS_ALL,        WHEN_SHARED,     DTYPE_Q5_K},
    {MIX_Q4_K_M | MIX_Q5_K_M,             ROLE_V, LAYERS_SPREAD,     WHEN_ALWAYS,     DTYPE_Q6_K},
    {MIX_Q4_K_S,                          ROLE_V, LAYERS_FIRST_FOUR, WHEN_ALWAYS,     DTYPE_Q5_K},

    {MIX_IQ12,                            ROLE_K, LAYERS_ALL, WHEN_8_EXPERTS, DTYPE_Q4_K},
    {MIX_ALL,                             ROLE_K, LAYERS_ALL, WHEN_8_EXPERTS, DTYPE_Q8_0},
    {MIX_IQ3_XS,                          ROLE_K, LAYERS_ALL, WHEN_ALWAYS,    DTYPE_IQ3_XXS},
    {MIX_IQ3_XXS,                         ROLE_K, LAYERS_ALL, WHEN_ALWAYS,    DTYPE_IQ2_S},
    {MIX_IQ3_XS,                          ROLE_Q, LAYERS_ALL, WHEN_ALWAYS,    DTYPE_IQ3_XXS},
    {MIX_IQ3_XXS,                         ROLE_Q, LAYERS_ALL, WHEN_ALWAYS,    DTYPE_IQ2_S},

    {MIX_IQ12 | MIX_Q2_K | MIX_IQ3_XS | MIX_IQ3_XXS | MIX_Q3_K_S | MIX_Q3_K_M | MIX_IQ3_S | MIX_IQ3_M | MIX_Q4_K_S |
         MIX_Q4_K_M | MIX_IQ4,            ROLE_OUT, LAYERS_ALL, WHEN_8_EXPERTS, DTYPE_Q5_K},
    {MIX_Q3_K_L,                          ROLE_OUT, LAYERS_ALL, WHEN_8_EXPERTS, DTYPE_Q3_K},
    {MIX_IQ1,                             ROLE_OUT, LAYERS_ALL, WHEN_ALWAYS,    DTYPE_IQ2_XXS},
    {MIX_IQ2_WIDE | MIX_IQ3_XXS,          ROLE_OUT, LAYERS_ALL, WHEN_ALWAYS,    DTYPE_IQ3_S},
    {MIX_Q2_K,                            ROLE_OUT, LAYERS_ALL, WHEN_ALWAYS,    DTYPE_Q3_K},
    {MIX_Q3_K_M | MIX_IQ3_M,              ROLE_OUT, LAYERS_ALL, WHEN_ALWAYS,    DTYPE_Q4_K},
    {MIX_Q3_K_L,                          ROLE_OUT, LAYERS_ALL, WHEN_ALWAYS,    DTYPE_Q5_K},

    {MIX_IQ2_WIDE,                        ROLE_DOWN, LAYERS_FIRST_8TH,  WHEN_ALWAYS,     DTYPE_IQ3_S},
    {MIX_IQ12,                            ROLE_DOWN, LAYERS_FIRST_8TH,  WHEN_ALWAYS,     DTYPE_Q2_K},
    {MIX_Q2_K,                            ROLE_DOWN, LAYERS_ALL,        WHEN_ALWAYS,     DTYPE_Q3_K},
    {MIX_Q2_K_S,                          ROLE_DOWN, LAYERS_FIRST_8TH,  WHEN_ALWAYS,     DTYPE_Q4_K},
    {MIX_IQ3_XXS,                         ROLE_DOWN, LAYERS_FIRST_8TH,  WHEN_NO_IMATRIX, DTYPE_Q4_K},
    {MIX_IQ3_XXS,                         ROLE_DOWN, LAYERS_ALL,        WHEN_NO_IMATRIX, DTYPE_Q3_K},
    {MIX_Q3_K_M,                          ROLE_DOWN, LAYERS_FIRST_16TH, WHEN_ALWAYS,     DTYPE_Q5_K},
    {MIX_Q3_K_M,                          ROLE_DOWN, LAYERS_ALL,        WHEN_ALWAYS,     DTYPE_Q4_K},
    {MIX_IQ3_M,                           ROLE_DOWN, LAYERS_FIRST_8TH,  WHEN_ALWAYS,     DTYPE_Q4_K},
    {MIX_IQ3_M,                           ROLE_DOWN, LAYERS_SPREAD,     WHEN_8_EXPERTS,  DTYPE_Q4_K},
    {MIX_Q3_K_L,                          ROLE_DOWN, LAYERS_ALL,        WHEN_ALWAYS,     DTYPE_Q5_K},
    {MIX_Q4_K_M | MIX_Q5_K_M,             ROLE_DOWN, LAYERS_SPREAD,     WHEN_ALWAYS,     DTYPE_Q6_K},
    {MIX_IQ4,                             ROLE_DOWN, LAYERS_FIRST_8TH,  WHEN_NO_IMATRIX, DTYPE_Q5_K},
    {MIX_Q4_K_S,                          ROLE_DOWN, LAYERS_FIRST_8TH,  WHEN_ALWAYS,     DTYPE_Q5_K},
    {MIX_Q4_0,                            ROLE_DOWN, LAYERS_FIRST_8TH,  WHEN_IMATRIX,    DTYPE_Q4_1},
    {MIX_Q5_0,                            ROLE_DOWN, LAYERS_FIRST_8TH,  WHEN_IMATRIX,    DTYPE_Q5_1},

    {MIX_IQ3_XS,                          ROLE_UP, LAYERS_MIDDLE, WHEN_ALWAYS, DTYPE_IQ3_XXS},
};
/* clang-format on */

/* Types with blocks of 256 weights, and what takes their place where rows are no multiple of that. */
static const enum dtype fallback[DTYPE_COUNT] = {
    [DTYPE_Q6_K] = DTYPE_Q8_0,      [DTYPE_Q5_K] = DTYPE_Q5_1,     [DTYPE_Q4_K] = DTYPE_Q5_0,
    [DTYPE_Q3_K] = DTYPE_Q4_0,      [DTYPE_Q2_K] = DTYPE_Q4_0,     [DTYPE_TQ1_0] = DTYPE_Q4_0,
    [DTYPE_TQ2_0] = DTYPE_Q4_0,     [DTYPE_IQ4_XS] = DTYPE_IQ4_NL, [DTYPE_IQ3_S] = DTYPE_IQ4_NL,
    [DTYPE_IQ3_XXS] = DTYPE_IQ4_NL, [DTYPE_IQ2_S] = DTYPE_IQ4_NL,  [DTYPE_IQ2_XS] = DTYPE_IQ4_NL,
    [DTYPE_IQ2_XXS] = DTYPE_IQ4_NL, [DTYPE_IQ1_M] = DTYPE_IQ4_NL,  [DTYPE_IQ1_S] = DTYPE_IQ4_NL,
};

const struct type_mixture *type_mixture(size_t i) { return i < MIXTURE_COUNT ? &mixtures[i] : NULL; }

bool type_is_head(const struct weight_kind *kind, const struct config *config)
{
    return strcmp(kind->name, config->tied_head ? "embed.weight" : "head.weight") == 0;
}

bool type_needs_imatrix(enum dtype type) { return quant_types[type].grid.each == 8; }

static enum matrix_role role_of(const struct typed_matrix *m)
{
    if (type_is_head(m->kind, m->config))
        return ROLE_HEAD;
    if (weight_kind_is_table(m->kind))
        return m->config->tied_head ? ROLE_HEAD : ROLE_TABLE;
    for (size_t i = 0; i < ARRAY_LEN(roles); i++)
        if (strcmp(roles[i].kind, m->kind->name) == 0)
            return roles[i].role;
    return ROLE_OTHER;
}

/* The number of layers before `end` that have the matrix. */
static size_t layers_before(const struct typed_matrix *m, size_t end)
{
    size_t n = 0;
    for (size_t layer = 0; layer < end && weight_kind_in_layer(m->kind); layer++)
        n += weight_kind_has(m->kind, m->config, layer);
    return n;
}

static bool in_layers(enum rule_layers layers, const struct typed_matrix *m)
{
    const size_t layer = layers_before(m, m->layer), n = layers_before(m, m->config->layers);
    const bool ends = layer < n / 8 || layer >= 7 * n / 8;
    switch (layers) {
    case LAYERS_ALL: return true;
    case LAYERS_FIRST_TWO: return layer < 2;
    case LAYERS_FIRST_FOUR: return layer < 4;
    case LAYERS_FIRST_16TH: return layer < n / 16;
    case LAYERS_FIRST_8TH: return layer < n / 8;
    case LAYERS_MIDDLE: return !ends;
    case LAYERS_SPREAD: return ends || (layer - n / 8) % 3 == 2;
    }
    return false;
}

static bool holds(enum rule_when when, const struct typed_matrix *m)
{
    const bool shared = m->config->heads >= 4 * m->config->kv_heads;
    switch (when) {
    case WHEN_ALWAYS: return true;
    case WHEN_SHARED: return shared;
    case WHEN_V_SMALL: return shared || m->config->moe->experts >= 4;
    case WHEN_8_EXPERTS: return m->config->moe->experts == 8;
    case WHEN_STACKED: return weight_kind_of_experts(m->kind);
    case WHEN_IMATRIX: return m->imatrix;
    case WHEN_NO_IMATRIX: return !m->imatrix;
    }
    return false;
}

static enum dtype ruled_type(const struct type_mixture *mixture, const struct typed_matrix *m)
{
    const enum matrix_role role = role_of(m);
    if (role == ROLE_HEAD && fallback[mixture->base] && m->columns % QK_SUPER)
        return DTYPE_Q8_0;
    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        if (rules[i].mixtures >> (mixture - mixtures) & 1 && rules[i].role == role &&
            in_layers(rules[i].layers, m) && holds(rules[i].when, m))
            return rules[i].type;
    return mixture->base;
}

/* Matrices that mixtures leave as they are. */
static bool stays(const struct weight_kind *kind)
{
    return weight_kind_stays_wide(kind) || strcmp(kind->name, "position.weight") == 0 ||
           strcmp(kind->name, "layer_inputs.weight") == 0;
}

enum dtype type_mixture_choose(const struct type_mixture *mixture, const struct typed_matrix *m)
{
    if (stays(m->kind))
        return DTYPE_COUNT;
    const enum dtype type = ruled_type(mixture, m);
    const enum dtype fits = m->columns % QK_SUPER && fallback[type] ? fallback[type] : type;
    /* the source's blocks are exact: types that take no fewer bytes would lose and save nothing */
    const bool keeps = m->from != DTYPE_COUNT && dtype_is_quantized(m->from) &&
                       pack_row_bytes(m->from, m->columns) <= pack_row_bytes(fits, m->columns);
    return keeps ? m->from : fits;
}
