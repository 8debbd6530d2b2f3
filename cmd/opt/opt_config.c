/* The user's configuration file. */
#include "opt/opt_config.h"

#include "base/conf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text_util.h"
#include "cli.h"
#include "userdir.h"

/* The section of an entry. */
struct section {
    bool own;          /* it is the program's */
    const char *model; /* whose runs it is for; "": all */
};

/* What a run has from the file. It lives as long as the process, as its values are options. */
static struct {
    struct conf conf;
    struct section *of; /* [conf.n_entries] */
    struct buf entries, note;
} config;

const char *opt_config_file(void) { return config.entries.len ? config.conf.name : NULL; }
const char *opt_config_entries(void) { return buf_text(&config.entries); }

/* Variables that are values of options. */
static const struct {
    const char *option, *variable;
} variables[] = {{"model", "BMC_MODEL"}, {"isa", "BMC_ISA"}};

static bool is_in_environment(const struct opt *opt)
{
    for (size_t i = 0; i < ARRAY_LEN(variables); i++) {
        const char *value = getenv(variables[i].variable);
        if (strcmp(opt->name, variables[i].option) == 0 && value && *value)
            return true;
    }
    return false;
}

/* Opens the file, if there is one. */
static bool open_config(const struct program *program)
{
    const char *named = getenv("BMC_CONFIG");
    char path[8192];
    struct err err;
    if (named && strcmp(named, "none") == 0)
        return false;
    if (!(named && *named) &&
        (!userdir_path(USER_CONFIG, "config", path, sizeof path) || !file_exists(path)))
        return false;
    if (conf_open(&config.conf, named && *named ? named : path, &err) < 0)
        opt_usage_error(program, "%s%s; --no-config runs without it",
                        named && *named ? "BMC_CONFIG: " : "", err.text);
    return true;
}

__attribute__((noreturn)) static void refuse_entry(const struct program *program,
                                                   const struct conf_entry *entry, const char *what)
{
    opt_usage_error(program, "%s: line %d: \"%s\" %s", config.conf.name, entry->line,
                    excerpt_of(entry->key, strlen(entry->key)).text, what);
}

/* ---- sections ---- */

/* True for a model that is called `name`, its path or the last part of it, with or without its ending. */
static bool is_called(const char *model, const char *name)
{
    const char *slash = strrchr(model, '/'), *last = slash && slash[1] ? slash + 1 : model;
    const size_t len = strlen(name);
    return strcmp(model, name) == 0 || strcmp(last, name) == 0 ||
           (strncmp(last, name, len) == 0 &&
            (strcmp(last + len, ".bmc") == 0 || strcmp(last + len, ".gguf") == 0));
}

/* Parses a heading, "[PROGRAM]" or "[PROGRAM MODEL]", which was split at its first blank. */
static struct section read_heading(const struct program *program, const struct conf_entry *entry)
{
    static const char programs[] = "bmc-gen bmc-spec bmc-serve bmc-prof bmc-tune bmc-convert";
    char *last = *entry->value ? entry->value : entry->key, *end = last + strlen(last) - 1;
    if (end == entry->key || *end != ']')
        refuse_entry(program, entry, "is no heading: [PROGRAM] or [PROGRAM MODEL] is expected");
    *end = 0;
    const char *name = entry->key + 1;
    if (!*name || !text_lists(programs, name, strlen(name)))
        refuse_entry(program, entry, "names no program of this suite: [bmc-gen] is one, for example");
    return (struct section){strcmp(name, program->name) == 0, entry->value};
}

static void read_sections(const struct program *program)
{
    struct err err;
    struct section in = {false, ""};
    config.of = mem_zalloc(config.conf.n_entries + 1, sizeof *config.of);
    if (!config.of) {
        err_no_memory(&err, "%s", config.conf.name);
        exit(cli_fail(program->name, &err));
    }
    for (size_t i = 0; i < config.conf.n_entries; i++) {
        const struct conf_entry *entry = &config.conf.entry[i];
        const bool heading = *entry->key == '[';
        if (heading)
            in = read_heading(program, entry);
        else if (i == 0)
            refuse_entry(program, entry, "is in no section: a heading as [bmc-gen] comes first");
        config.of[i] = heading ? (struct section){false, ""} : in;
    }
}

/* ---- entries ---- */

/* True if the command line, or a section that comes first, sets the option. */
static bool is_set(const struct program *program, const bool *given, const struct opt *opt)
{
    for (size_t i = 0; i < program->n_opts; i++)
        if (given[i] && program->opts[i].at == opt->at && program->opts[i].kind != OPT_HEADING)
            return true;
    return false;
}

static const struct opt *option_of(const struct program *program, const struct conf_entry *entry)
{
    const struct opt *opt = opt_find(program, entry->key, strlen(entry->key), true);
    if (!opt)
        refuse_entry(program, entry, "is no long option, without its dashes, of this program");
    if (opt->kind == OPT_FLAG && *entry->value)
        refuse_entry(program, entry, "takes no value");
    if (opt->kind != OPT_FLAG && !*entry->value)
        refuse_entry(program, entry, "needs a value");
    return opt;
}

static void note_entry(const struct program *program, const struct conf_entry *entry)
{
    struct err err;
    config.note.len = 0;
    if (buf_addf(&config.entries, &err, "%s%s%s%s", config.entries.len ? ", " : "", entry->key,
                 *entry->value ? " " : "", entry->value) < 0 ||
        buf_addf(&config.note, &err, "; %s sets %s, unless --no-config is given", config.conf.name,
                 buf_text(&config.entries)) < 0)
        exit(cli_fail(program->name, &err));
    opt_add_to_usage_errors(buf_text(&config.note));
}

/* The first operand's number among the subcommands. */
static unsigned subcommand(const struct program *program, const struct operands *operands)
{
    const size_t i =
        program->operands && operands->n ? opt_choice_index(program->operands, operands->text[0]) : 0;
    return i == SIZE_MAX ? 0 : (unsigned)i;
}

/* The model of the run: of the command line, the environment or the program's section; "": another. */
static const char *model_of(const struct program *program, const void *options,
                            const struct operands *operands)
{
    const struct opt *opt = opt_find_exact(program, "model", strlen("model"), true);
    const char *model = opt ? *(const char *const *)((const char *)options + opt->at) : NULL;
    if (!opt || is_set(program, operands->given, opt))
        return model ? model : "";
    if (is_in_environment(opt))
        return getenv("BMC_MODEL");
    for (size_t i = 0; i < config.conf.n_entries; i++)
        if (config.of[i].own && !*config.of[i].model &&
            option_of(program, &config.conf.entry[i]) == opt)
            model = config.conf.entry[i].value;
    return model ? model : "";
}

/* Checks all entries of the program's sections, and applies those for the model, or else those for all. */
static void apply(const struct program *program, const char *model, void *options,
                  struct operands *operands, opt_set *set)
{
    char name[8192 + 64];
    bool before[OPT_MAX];
    memcpy(before, operands->given, sizeof before);
    for (size_t i = 0; i < config.conf.n_entries; i++) {
        const struct conf_entry *entry = &config.conf.entry[i];
        const struct section *in = &config.of[i];
        if (!in->own)
            continue;
        const struct opt *opt = option_of(program, entry);
        const size_t index = (size_t)(opt - program->opts);
        const bool meant = model ? *in->model && is_called(model, in->model) : !*in->model;
        if (!meant || is_set(program, before, opt) || is_in_environment(opt) ||
            !opt_used_by(program, index, subcommand(program, operands)))
            continue;
        snprintf(name, sizeof name, "%s: line %d: %s", config.conf.name, entry->line, entry->key);
        set(program, opt, name, entry->value, options);
        operands->given[index] = operands->configured[index] = true;
        note_entry(program, entry);
    }
}

void opt_config_apply(const struct program *program, void *options, struct operands *operands,
                      opt_set *set)
{
    if (!open_config(program))
        return;
    read_sections(program);
    apply(program, model_of(program, options, operands), options, operands, set);
    apply(program, NULL, options, operands, set);
}
