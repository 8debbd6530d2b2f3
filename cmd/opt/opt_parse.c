/* Parses command lines by the option table. */
#include "base/number.h"
#include "base/text_util.h"
#include "cli.h"
#include "opt/opt.h"
#include "opt/opt_config.h"
#include "opt/opt_hint.h"
#include "opt/optdoc.h"
#include "quant/cache_types.h"
#include "tuned.h"

/* The option as the user wrote it, for messages. */
struct given_option {
    const char *text;
    int len;
};

void opt_number_sentence(const struct opt *opt, const char *text, char *sentence, size_t size)
{
    const char *kind = opt->kind == OPT_REAL ? "number" : "whole number";
    const bool open_end = opt->max >= OPT_MANY && opt->min > -OPT_MANY;
    const bool all = opt->max >= OPT_MANY && opt->min <= -OPT_MANY;
    double value;
    const bool beyond = parse_double(text, &value) && (value < opt->min || value > opt->max);
    char range[64] = "";
    if (opt->kind == OPT_SEED)
        snprintf(range, sizeof range, " from %.0f to %llu", opt->min, (unsigned long long)UINT64_MAX);
    else if (open_end && !(beyond && value > opt->max))
        snprintf(range, sizeof range, ", %.16g or more", opt->min);
    else if (!all || beyond)
        snprintf(range, sizeof range, " from %.16g to %.16g", opt->min, opt->max);
    snprintf(sentence, size, "needs a %s%s; found \"%s\"", kind, range, text);
}

static void bad_number(const struct program *program, const struct opt *opt, struct given_option name,
                       const char *text)
{
    char sentence[4096];
    opt_number_sentence(opt, text, sentence, sizeof sentence);
    opt_usage_error(program, "%.*s: %s", name.len, name.text, sentence);
}

/* Exits with the error that `text` is none of the choices. */
__attribute__((noreturn)) static void refuse_choice(const struct program *program,
                                                    const struct opt *opt, struct given_option name,
                                                    const char *text)
{
    char known[512], near[32];
    if (opt_alias_missing(opt, text))
        opt_usage_error(program, "%.*s: \"%s\" %s", name.len, name.text, text,
                        opt_alias_missing(opt, text));
    text_join_choices(opt_choices(opt), ", ", ", ", known, sizeof known);
    if (opt_near_choice(opt_choices(opt), text, near, sizeof near))
        opt_usage_error(program, "%.*s: did you mean %s? (\"%s\" is none of %s)", name.len, name.text,
                        near, text, known);
    opt_usage_error(program, "%.*s: \"%s\" is none of %s", name.len, name.text, text, known);
}

static void set_choice(const struct program *program, const struct opt *opt, struct given_option name,
                       const char *text, int *value)
{
    const size_t index = opt_choice_index(opt_choices(opt), opt_alias_value(opt, text));
    if (index == SIZE_MAX)
        refuse_choice(program, opt, name, text);
    *value = (int)index;
}

/* Gives a name of the library that is spelled in another case the library's spelling. Names that it
 * does not have are refused by opt_names_check(). */
static void spell_name(const struct opt *opt, char *text)
{
    static const char *const markers[] = {CHOICES_ISA, CHOICES_PRECISION, CHOICES_ATTN};
    for (size_t i = 0; opt->choices && i < ARRAY_LEN(markers); i++) {
        if (strcmp(opt->choices, markers[i]) != 0)
            continue;
        const char *at = opt_choices(opt);
        size_t index = opt_choice_index(at, text);
        if (index == SIZE_MAX)
            return;
        while (index-- > 0)
            at = strchr(at, '|') + 1;
        memcpy(text, at, strlen(text));
    }
}

/* Parses a whole number; an OPT_TOKENS value may have a suffix. */
static bool parse_whole(const struct opt *opt, const char *text, int64_t *whole)
{
    size_t count;
    if (parse_int64(text, whole))
        return true;
    if (!opt_counts_tokens(opt) || !parse_count(text, &count) || count > INT64_MAX)
        return false;
    *whole = (int64_t)count;
    return true;
}

bool opt_store_number(const struct opt *opt, const char *text, void *at)
{
    int64_t whole;
    double real;
    struct seed seed;
    if (opt->kind == OPT_SEED) {
        if (!seed_parse(text, &seed) || (seed.draw && opt->min == 0))
            return false;
        *(struct seed *)at = seed;
    } else if (opt->kind == OPT_REAL) {
        if (!parse_double(text, &real) || real < opt->min || real > opt->max)
            return false;
        *(double *)at = real;
    } else {
        if (!parse_whole(opt, text, &whole) || (double)whole < opt->min || (double)whole > opt->max)
            return false;
        if (opt->kind == OPT_SIZE || opt->kind == OPT_TOKENS)
            *(size_t *)at = (size_t)whole;
        else
            *(int64_t *)at = whole;
    }
    return true;
}

static void set_value(const struct program *program, const struct opt *opt, struct given_option name,
                      char *text, void *options)
{
    void *at = (char *)options + opt->at;
    struct err err;
    struct opt_list *list = at;
    switch (opt->kind) {
    case OPT_TEXT:
        spell_name(opt, text);
        *(const char **)at = text;
        break;
    case OPT_LIST:
        if (mem_grow(&list->text, &list->cap, list->n, sizeof *list->text, &err) < 0)
            exit(cli_fail(program->name, &err));
        list->text[list->n++] = text;
        break;
    case OPT_SIZE:
    case OPT_TOKENS:
    case OPT_INT:
    case OPT_TOKENS_INT:
    case OPT_SEED:
    case OPT_REAL:
        if (!opt_store_number(opt, text, at))
            bad_number(program, opt, name, text);
        break;
    case OPT_CHOICE: set_choice(program, opt, name, text, at); break;
    case OPT_FLAG: *(bool *)at = true; break;
    case OPT_HEADING: break;
    }
}

static void print_version(const char *name)
{
    struct err err;
    const char *from;
    const struct kernels *kernels = isa_select(NULL, NULL, &from, &err);
    cli_print_version(name, kernels, from, &err);
}

/* Handles the options common to all programs, and the hidden one that prints documentation. */
static void answer_common(const struct program *program, const char *word, const char *next)
{
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        optdoc_help(program, stdout);
    else if (strcmp(word, "--version") == 0)
        print_version(program->name);
    else if (strncmp(word, "--help=", 7) == 0 || strncmp(word, "--version=", 10) == 0)
        opt_usage_error(program, "%.*s takes no value", (int)strcspn(word, "="), word);
    else if (strcmp(word, "--print-options") == 0 && next && optdoc_print(program, next, stdout))
        ;
    else
        return;
    exit(cli_flush_stdout(program->name) < 0 ? CLI_FAILED : CLI_OK);
}

/* True for options that hold a text, a list or a file: of two, one would be lost unseen. Other options and models may
 * be repeated, and the last counts, so that aliases and scripts can set defaults. */
static bool is_content(const struct opt *opt)
{
    return opt->kind == OPT_TEXT &&
           !text_lists("model draft model-draft", opt->name, strlen(opt->name)) &&
           (opt->file || text_lists("TEXT IDS JSON RE A|B LIST FILE", opt->arg, strlen(opt->arg)));
}

/* Refuses a second value of such an option, under this or another name, unless it is the same. */
static void check_repeated(const struct program *program, const struct opt *opt,
                           struct given_option name, const char *text, const void *options,
                           const struct operands *operands)
{
    const char *before = *(const char *const *)((const char *)options + opt->at);
    bool given = false;
    for (size_t i = 0; i < program->n_opts; i++)
        given = given || (operands->given[i] && program->opts[i].at == opt->at);
    if (given && before && strcmp(before, text) != 0)
        opt_usage_error(program, "%.*s is given twice, with \"%s\" and \"%s\": give one", name.len,
                        name.text, excerpt_of(before, strlen(before)).text,
                        excerpt_of(text, strlen(text)).text);
}

/* Parses a word that begins with a dash, and its value, which may be the next word; returns whether it is. */
static bool parse_option(const struct program *program, char *word, char *next, void *options,
                         struct operands *operands)
{
    const bool is_long = word[1] == '-';
    char *name = word + 1 + is_long, *value = is_long ? strchr(name, '=') : NULL;
    const size_t len = value ? (size_t)(value - name) : strlen(name);
    const struct given_option given = {word, (int)((size_t)(name - word) + len)};
    const struct opt *opt = opt_find(program, name, len, is_long);
    const bool separate = !value;
    if (!opt)
        opt_unknown(program, given.text, (size_t)given.len);
    if (opt->kind == OPT_FLAG && value)
        opt_usage_error(program, "%.*s takes no value", given.len, given.text);
    if (opt->kind != OPT_FLAG) {
        value = separate ? next : value + 1;
        if (!value)
            opt_usage_error(program, "%.*s needs a value: %s", given.len, given.text, opt->arg);
        if (is_content(opt))
            check_repeated(program, opt, given, value, options, operands);
    }
    operands->given[opt - program->opts] = true;
    set_value(program, opt, given, value, options);
    return separate && opt->kind != OPT_FLAG;
}

static void set_configured(const struct program *program, const struct opt *opt, const char *name,
                           char *text, void *options)
{
    set_value(program, opt, (struct given_option){name, (int)strlen(name)}, text, options);
}

void opt_parse(const struct program *program, int argc, char **argv, void *options,
               struct operands *operands)
{
    bool configured = true, only_operands = false;
    assert(program->n_opts <= OPT_MAX);
    *operands = (struct operands){.text = argv};
    for (int i = 1; i < argc; i++) {
        char *word = argv[i];
        if (only_operands || word[0] != '-' || word[1] == 0) {
            operands->text[operands->n++] = word;
            continue;
        }
        answer_common(program, word, argv[i + 1]);
        if (strcmp(word, "--") == 0)
            only_operands = true;
        else if (strcmp(word, "--no-config") == 0)
            configured = false;
        else
            i += parse_option(program, word, argv[i + 1], options, operands);
    }
    if (configured)
        opt_config_apply(program, options, operands, set_configured);
    const struct opt *quiet = opt_find_exact(program, "quiet", strlen("quiet"), true);
    cli_quiet = quiet && *(const bool *)((const char *)options + quiet->at);
}

void opt_no_empty_entry(const struct program *program, const char *option, const char *list)
{
    size_t n = 1;
    if (!*list)
        opt_usage_error(program, "%s: the list is empty", option);
    for (const char *at = list; at; n++) {
        const char *comma = strchr(at, ',');
        if (comma == at || !*at)
            opt_usage_error(program,
                            "%s: entry %zu of \"%s\" is empty: one comma goes between two entries, "
                            "none before the first or after the last",
                            option, n, list);
        at = comma ? comma + 1 : NULL;
    }
}

__attribute__((noreturn)) static void refuse_sizes(const struct program *program,
                                                   const struct opt_sizes *sizes, const char *text)
{
    if (sizes->max_entries == 1)
        opt_usage_error(program, "%s: \"%s\" is not a whole number from %zu to %zu", sizes->option,
                        text, sizes->min, sizes->max);
    opt_usage_error(program,
                    "%s: \"%s\" is not a list of at most %zu whole numbers from %zu to %zu, as 1,8,32",
                    sizes->option, text, sizes->max_entries, sizes->min, sizes->max);
}

void opt_sizes(const struct program *program, const struct opt_sizes *sizes, const char *text,
               size_t *list, size_t *n)
{
    *n = 0;
    opt_no_empty_entry(program, sizes->option, text);
    for (const char *at = text; *at;) {
        char number[32];
        const size_t len = strcspn(at, ",");
        snprintf(number, sizeof number, "%.*s", (int)size_min(len, sizeof number - 1), at);
        if (*n == sizes->max_entries || len >= sizeof number || !parse_count(number, &list[*n]) ||
            list[*n] < sizes->min || list[*n] > sizes->max)
            refuse_sizes(program, sizes, text);
        (*n)++;
        at += len + (at[len] == ',');
    }
}

size_t opt_bytes(const struct program *program, const char *option, const char *text)
{
    size_t bytes;
    if (parse_bytes(text, &bytes))
        return bytes;
    opt_usage_error(program, "%s: needs a size, as 4G, 512M or a number of bytes; found \"%s\"", option,
                    text);
}

struct cache_types opt_cache_types(const struct program *program, const char *option, const char *text,
                                   const char **scales)
{
    struct cache_types types = cache_types_alike(DTYPE_F32);
    const char *path = NULL;
    struct err err;
    const bool ok = !text || cache_types_parse(&types, text, &path, &err) == 0;
    if (scales)
        *scales = path;
    if (ok && (scales || !path))
        return types;
    const size_t len = strcspn(text, ":");
    enum dtype type;
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)size_min(len, sizeof name - 1), text);
    if (!strchr(name, '=') && (!scales || !cache_type_find(name, &type)))
        refuse_choice(program, opt_find_exact(program, option + 2, strlen(option + 2), true),
                      (struct given_option){option, (int)strlen(option)}, scales ? name : text);
    if (text[len])
        opt_usage_error(program,
                        "%s: \"%s\" is expected to be a type, q8:scales=FILE or q4:scales=FILE", option,
                        text);
    opt_usage_error(program, "%s: %s", option, err.text);
}
