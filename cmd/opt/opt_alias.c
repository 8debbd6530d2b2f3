/* Old and alternative names of options and values. */
#include "opt/opt_alias.h"

#include <string.h>
#include <strings.h>

#include "format/gguf/block_types.h"
#include "model/convert/tensor_types.h"
#include "quant/cache_types.h"

/* An alias applies to programs that have the option `name` and no other option called `old`. */
static const struct {
    const char *old, *name;
} names[] = {
    {"-b", "-np"},
    {"-c", "-N"},
    {"--batch", "--parallel"},
    {"--kv-type", "--cache-type"},
    {"--rows", "--attend"},
    {"--heads", "--retrieval-heads"},
    {"--split", "--parallelism"},
    {"--in-flight", "--micro-batches"},
    {"--share-mb", "--prefix-cache-mb"},
    {"--shift", "--context-shift"},
    {"--free-rows", "--batch-knee"},
    {"--no-rows", "--no-batch-knee"},
    {"--fixed", "--draft-max"},
    {"--save-importance", "--save-imatrix"},
    {"--importance", "--imatrix"},
    {"--keep", "--tensor-type"},
    {"--keep-head", "--leave-output-tensor"},
    {"--chat-format", "--chat-template"},
};

static const struct {
    const char *option, *old, *value;
} values[] = {
    {"parallelism", "requests", "data"},
    {"parallelism", "layers", "pipeline"},
    {"attend", "policy", "padded"},
};

static const struct opt *find(const struct program *program, const char *word)
{
    const size_t dashes = strspn(word, "-");
    return opt_find_exact(program, word + dashes, strlen(word + dashes), dashes == 2);
}

bool opt_alias_nth(const struct program *program, size_t n, const char **old, const char **name)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (find(program, names[i].old) || !find(program, names[i].name) || n-- > 0)
            continue;
        *old = names[i].old;
        *name = names[i].name;
        return true;
    }
    return false;
}

const struct opt *opt_find(const struct program *program, const char *name, size_t len, bool is_long)
{
    const struct opt *opt = opt_find_exact(program, name, len, is_long);
    const size_t dashes = is_long ? 2 : 1;
    const char *old, *current;
    for (size_t i = 0; !opt && opt_alias_nth(program, i, &old, &current); i++)
        if (strspn(old, "-") == dashes && strlen(old + dashes) == len &&
            memcmp(old + dashes, name, len) == 0)
            opt = find(program, current);
    return opt;
}

static bool has_choices(const struct opt *opt, const char *marker)
{
    return opt->choices && strcmp(opt->choices, marker) == 0;
}

const char *opt_alias_value(const struct opt *opt, const char *text)
{
    enum dtype type;
    if (has_choices(opt, CHOICES_CACHES))
        return cache_type_find(text, &type) ? cache_type_name(type) : text;
    for (size_t i = 0; has_choices(opt, CHOICES_IMPORTS) && model_types_name(i); i++)
        if (strcasecmp(text, model_types_name(i)) == 0)
            return model_types_name(i);
    if (has_choices(opt, CHOICES_TYPES) || has_choices(opt, CHOICES_IMPORTS))
        return dtype_parse(text, &type) && strcasecmp(text, "q4") != 0 ? dtype_name(type) : text;
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        if (strcmp(opt->name, values[i].option) == 0 && strcmp(text, values[i].old) == 0)
            return values[i].value;
    return text;
}

/* True if bmc-convert reads GGUF tensors of this type but does not quantise to it. */
static bool only_read(const char *text)
{
    enum dtype type;
    bool made = false;
    if (!dtype_parse(text, &type))
        return false;
    for (size_t i = 1; importable_type_name(i); i++)
        made |= importable_type(i) == type;
    return block_types[type].name && !made;
}

const char *opt_alias_missing(const struct opt *opt, const char *text)
{
    enum dtype type;
    if ((has_choices(opt, CHOICES_TYPES) || has_choices(opt, CHOICES_IMPORTS)) &&
        strcasecmp(text, "q4") == 0)
        return "is a type of caches; weights have q4_0 (one scale per 32 weights), q4_1 (a scale and a "
               "minimum) and q4_k";
    if (has_choices(opt, CHOICES_IMPORTS) && only_read(text))
        return "is read from GGUF files that have it, but bmc-convert does not quantise to it";
    if (has_choices(opt, CHOICES_CACHES) && strstr(text, ":scales="))
        return "has shared scales, which only bmc-gen and bmc-spec use";
    if (has_choices(opt, CHOICES_CACHES) && dtype_parse(text, &type) &&
        (type == DTYPE_Q8_0 || type == DTYPE_Q4_0))
        return "is a type of weights; the cache has q8 (one scale per KV entry), q4 (that of q4_1) and "
               "q4h";
    return NULL;
}
