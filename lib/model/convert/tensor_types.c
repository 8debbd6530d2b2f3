/* Chooses the type of each tensor: the general type, with exceptions by name pattern. */
#include "model/convert/tensor_types.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "quant/quant_types.h"

static const enum dtype importable_types[] = {DTYPE_COUNT, DTYPE_F32,        DTYPE_BF16, DTYPE_F16,
                                              DTYPE_Q8_0,  DTYPE_Q8_CHANNEL, DTYPE_Q4_1, DTYPE_Q4_0};

enum dtype importable_type(size_t i) { return importable_types[i]; }

const char *importable_type_name(size_t i)
{
    if (i >= ARRAY_LEN(importable_types))
        return NULL;
    return i ? dtype_name(importable_types[i]) : "auto";
}

static bool type_parse(const char *text, enum dtype *type)
{
    if (strcmp(text, "auto") == 0) {
        *type = DTYPE_COUNT;
        return true;
    }
    if (!dtype_parse(text, type))
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

static bool is_head(const struct weight_kind *kind, const struct config *config)
{
    return strcmp(kind->name, config->tied_head ? "embed.weight" : "head.weight") == 0;
}

/* True if the pattern matches the name; a tied embedding also has the name "head.weight". */
static bool matches(const char *pattern, const struct weight_kind *kind, const char *name,
                    const struct config *config)
{
    return fnmatch(pattern, name, 0) == 0 ||
           (config->tied_head && is_head(kind, config) && fnmatch(pattern, "head.weight", 0) == 0);
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

/* The type of a matrix that no pattern matches. Embedding tables get 8 bits where other matrices
 * get 4, as a forward pass reads only single rows of them. */
static enum dtype usual_type(const struct tensor_types *types, const struct config *config,
                             const struct weight_kind *kind)
{
    const bool four = dtype_is_quantized(types->type) && types->type != DTYPE_COUNT &&
                      quant_types[types->type].bits == 4;
    if (types->leave_output_tensor && is_head(kind, config))
        return DTYPE_COUNT;
    return four && weight_kind_looked_up(kind, config) ? DTYPE_Q8_0 : types->type;
}

enum dtype tensor_types_choose(const struct tensor_types *types, const struct config *config,
                               const struct weight_kind *kind, const char *name, enum dtype from)
{
    char pattern[WEIGHT_NAME_SIZE];
    enum dtype type;
    if (kind->in == DIM_NONE)
        return DTYPE_F32;
    for (size_t i = types->n_tensor_types; i > 0; i--)
        if (tensor_types_parse(types->tensor_type[i - 1], pattern, &type) &&
            matches(pattern, kind, name, config))
            return type == DTYPE_COUNT ? from : type;
    type = usual_type(types, config, kind);
    return type == DTYPE_COUNT ? from : type;
}
