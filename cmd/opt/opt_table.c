/* Access to option tables, and usage errors. */
#include "opt/opt.h"

#include <ctype.h>
#include <dirent.h>
#include <strings.h>

#include "attn/attn.h"
#include "backend/backend.h"
#include "base/cores.h"
#include "base/text_util.h"
#include "cli.h"
#include "format/gguf/block_types.h"
#include "kernel/gemm.h"
#include "kv/kv.h"
#include "model/convert/tensor_types.h"
#include "quant/cache_types.h"

static const struct opt common[] = {
    {OPT_HEADING, "Other", NULL, NULL, NULL, 0, 0, 0, NULL, false},
    {OPT_FLAG, "no-config", NULL, NULL,
     "do not read defaults of options from the configuration file (see bmc-config(5))", 0, 0, 0, NULL,
     false},
    {OPT_FLAG, "help", "h", NULL, "print this list and exit", 0, 0, 0, NULL, false},
    {OPT_FLAG, "version", NULL, NULL,
     "print version, git commit, compiler, libraries and instruction set, and exit", 0, 0, 0, NULL,
     false},
};

const struct opt *opt_nth(const struct program *program, size_t i)
{
    return i < program->n_opts ? &program->opts[i] : &common[i - program->n_opts];
}

size_t opt_count(const struct program *program) { return program->n_opts + ARRAY_LEN(common); }

bool opt_used_by(const struct program *program, size_t i, unsigned operand)
{
    return !program->used_by || i >= program->n_opts || (program->used_by[i] & 1u << operand);
}

static const char *usage_note = "";

void opt_add_to_usage_errors(const char *note) { usage_note = note; }

void opt_usage_error(const struct program *program, const char *format, ...)
{
    char text[8192];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    cli_say(stderr, "%s: %s (see %s --help%s)\n", program->name, text, program->name, usage_note);
    exit(CLI_USAGE);
}

const struct opt *opt_find_exact(const struct program *program, const char *name, size_t len,
                                 bool is_long)
{
    for (size_t i = 0; i < program->n_opts; i++) {
        const struct opt *opt = &program->opts[i];
        const char *known = is_long ? opt->name : opt->letters;
        if (opt->kind != OPT_HEADING && known && strlen(known) == len && memcmp(known, name, len) == 0)
            return opt;
    }
    return NULL;
}

/* ---- escapes text for man pages ---- */

void opt_put_roff(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (*text == '-')
            fputs("\\-", out);
        else if (*text == '\\')
            fputs("\\e", out);
        else
            fputc(*text, out);
    }
}

/* ---- choices from the library's tables, so that a new policy or kernel set is included ---- */

static const char *nth_isa(size_t i) { return kernel_sets[i] ? kernel_sets[i]->isa : NULL; }
static const char *nth_precision(size_t i) { return precision_names[i]; }
static const char *nth_backend(size_t i) { return backends[i] ? backends[i]->name : NULL; }
static const char *nth_attn(size_t i) { return attn_backends[i] ? attn_backends[i]->name : NULL; }

static const char *nth_cache(size_t i) { return cache_types[i].name; }

static const struct {
    const char *marker;
    const char *(*nth)(size_t i);
} lists[] = {
    {CHOICES_KV, kv_policy_name},       {CHOICES_ISA, nth_isa},
    {CHOICES_PRECISION, nth_precision}, {CHOICES_ATTN, nth_attn},
    {CHOICES_TYPES, random_types_name}, {CHOICES_IMPORTS, model_types_name},
    {CHOICES_CACHES, nth_cache},        {CHOICES_BACKEND, nth_backend},
};

const char *opt_choices(const struct opt *opt)
{
    static char text[ARRAY_LEN(lists)][512];
    if (!opt->choices || opt->choices[0] != '@')
        return opt->choices;
    for (size_t l = 0; l < ARRAY_LEN(lists); l++) {
        if (strcmp(lists[l].marker, opt->choices) != 0)
            continue;
        size_t used = 0;
        for (size_t i = 0; lists[l].nth(i) && used < sizeof text[l]; i++)
            used += (size_t)snprintf(text[l] + used, sizeof text[l] - used, "%s%s", i ? "|" : "",
                                     lists[l].nth(i));
        return text[l];
    }
    return NULL;
}

void opt_help_text(const struct opt *opt, char *text, size_t size)
{
    const char *hole = strstr(opt->help, "{}"), *choices = opt_choices(opt);
    char values[512];
    if (!hole || !choices) {
        snprintf(text, size, "%s", opt->help);
        return;
    }
    text_join_choices(choices, ", ", " or ", values, sizeof values);
    snprintf(text, size, "%.*s%s%s", (int)(hole - opt->help), opt->help, values, hole + 2);
}

size_t opt_choice_index(const char *choices, const char *text)
{
    char word[32] = ""; /* no choice is longer, or has capitals */
    const size_t n = strlen(text);
    for (size_t i = 0; n < sizeof word && i < n; i++)
        word[i] = (char)tolower((unsigned char)text[i]);
    return text_choice(choices, word);
}

/* The first characters of a name for comparisons, without what spellings of types and other names
 * differ in: case, '_', '-', '.', "MOSTLY_" of llama.cpp, and "float" for f. */
static void comparable_name(const char *name, size_t len, char word[32])
{
    size_t used = 0;
    for (size_t i = 0; i < len && used < 31; i++) {
        if (strncasecmp(name + i, "mostly", size_min(6, len - i)) == 0 && len - i > 6)
            i += 6;
        if (!strchr("_-.", name[i]))
            word[used++] = (char)tolower((unsigned char)name[i]);
        if (strncasecmp(name + i, "float", size_min(5, len - i)) == 0 && len - i > 5)
            i += 4;
    }
    word[used] = 0;
}

bool opt_near_choice(const char *choices, const char *text, char *near, size_t size)
{
    size_t least = SIZE_MAX;
    char word[32], name[32];
    comparable_name(text, strlen(text), word);
    for (const char *at = choices; *at;) {
        const size_t len = strcspn(at, "|");
        comparable_name(at, len, name);
        const size_t distance = edit_distance(word, name),
                     max = size_min(strlen(word), strlen(name)) / 3;
        if (distance < least && strlen(word) > 1 && (distance <= max || distance == 1)) {
            least = distance;
            snprintf(near, size, "%.*s", (int)len, at);
        }
        at += len + (at[len] == '|');
    }
    return least != SIZE_MAX;
}

const char *opt_find_type(const struct program *program, const char *text)
{
    static char near[32];
    const struct opt *opt = opt_find_exact(program, "type", strlen("type"), true);
    return opt_near_choice(opt_choices(opt), text, near, sizeof near) ? near : NULL;
}

/* Exits with the error; if `value` of the option is none of its choices, the closest is suggested. */
__attribute__((noreturn)) static void refuse_name(const struct program *program, const char *option,
                                                  const char *value, const struct err *err)
{
    const struct opt *opt = opt_find_exact(program, option, strlen(option), true);
    const char *choices = opt ? opt_choices(opt) : NULL;
    char name[32], near[32];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(value, ":"), value);
    if (choices && text_choice(choices, name) == SIZE_MAX &&
        opt_near_choice(choices, name, near, sizeof near))
        opt_usage_error(program, "--%s: did you mean %s? (%s)", option, near, err->text);
    opt_usage_error(program, "%s", err->text);
}

void opt_device_check(const struct program *program, const struct operands *operands, int backend)
{
    const size_t i = (size_t)(opt_find_exact(program, "isa", strlen("isa"), true) - program->opts);
    if (backend && operands->given[i] && !operands->configured[i])
        opt_usage_error(program, "--isa chooses kernels of the CPU: leave --backend %s out",
                        backends[backend]->name);
}

void opt_names_check(const struct program *program, const char *kv, const char *attn, const char *isa,
                     const char *precision)
{
    struct kv_spec spec;
    enum precision parsed;
    struct err err;
    if (kv && kv_spec_parse(&spec, kv, &err) < 0)
        refuse_name(program, "kv", kv, &err);
    if (attn && !attn_find(attn, &err))
        refuse_name(program, "attn", attn, &err);
    if (isa && !*isa)
        opt_usage_error(program, "--isa: the name is empty");
    if (isa && !kernels_select(isa, &err))
        refuse_name(program, "isa", isa, &err);
    if (precision && !*precision)
        opt_usage_error(program, "--precision: the name is empty");
    if (precision_parse(&parsed, precision, *kernel_sets, WEIGHTS_F32, NULL, &err) < 0)
        refuse_name(program, "precision", precision, &err);
}

void opt_type_check(const struct program *program, int type, const char *shape)
{
    if (type >= 0 && !shape)
        opt_usage_error(program, "--type is that of random weights: it goes with --shape");
}

void opt_cores_check(const struct program *program, const char *mask, int cores)
{
    struct err err;
    if (mask && cpu_check_mask(mask, &err) < 0)
        opt_usage_error(program, "%s", err.text);
    if (mask && cores)
        opt_usage_error(program, "--cpu-mask and --cores exclude each other");
}

int opt_cores_use(const char *mask, int cores, struct err *err)
{
    if (mask)
        return cpu_use_mask(mask, err);
    return cores ? cpu_use_fastest("/sys", err) : 0;
}

/* Names that shells can take as words without expanding anything. */
static int is_shape(const struct dirent *entry)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const size_t len = strlen(entry->d_name), end = strlen(".shape");
    return len > end && strcmp(entry->d_name + len - end, ".shape") == 0 &&
           entry->d_name[strspn(entry->d_name, plain)] == 0 && !strchr(".-", entry->d_name[0]);
}

void opt_print_shapes(FILE *out)
{
    char models[4096], shapes[4200];
    struct dirent **entry = NULL;
    struct err err;
    if (cli_models_dir(models, sizeof models, &err) < 0)
        return;
    snprintf(shapes, sizeof shapes, "%s/shapes", models);
    const int n = scandir(shapes, &entry, is_shape, alphasort);
    for (int i = 0; i < n; i++) {
        fprintf(out, "%.*s\n", (int)(strlen(entry[i]->d_name) - strlen(".shape")), entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
}

/* ---- old and alternative names of options and values ---- */

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

static const struct opt *find_dashed(const struct program *program, const char *word)
{
    const size_t dashes = strspn(word, "-");
    return opt_find_exact(program, word + dashes, strlen(word + dashes), dashes == 2);
}

bool opt_alias_nth(const struct program *program, size_t n, const char **old, const char **name)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (find_dashed(program, names[i].old) || !find_dashed(program, names[i].name) || n-- > 0)
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
            opt = find_dashed(program, current);
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
    if (has_choices(opt, CHOICES_IMPORTS) && model_types_find(text))
        return model_types_find(text);
    if (has_choices(opt, CHOICES_TYPES))
        return dtype_parse(text, &type) && strcasecmp(text, "q4") != 0 ? dtype_name(type) : text;
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        if (strcmp(opt->name, values[i].option) == 0 && strcmp(text, values[i].old) == 0)
            return values[i].value;
    return text;
}

const char *opt_alias_missing(const struct opt *opt, const char *text)
{
    enum dtype type;
    if ((has_choices(opt, CHOICES_TYPES) || has_choices(opt, CHOICES_IMPORTS)) &&
        strcasecmp(text, "q4") == 0)
        return "is a type of caches; weights have q4_0 (one scale per 32 weights), q4_1 (a scale and a "
               "minimum) and q4_k";
    if (has_choices(opt, CHOICES_CACHES) && strstr(text, ":scales="))
        return "has shared scales, which only bmc-gen, bmc-spec and bmc-prof quality use";
    if (has_choices(opt, CHOICES_CACHES) && dtype_parse(text, &type) &&
        (type == DTYPE_Q8_0 || type == DTYPE_Q4_0))
        return "is a type of weights; the cache has q8, q6, q5 and q4, of rotated K and V, with a "
               "scale per "
               "KV entry";
    return NULL;
}
