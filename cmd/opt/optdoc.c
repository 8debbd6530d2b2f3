/* Prints --help and the man page's OPTIONS from the option table. */
#include "opt/optdoc.h"

#include "opt/opt_hint.h"

/* ---- completions; scripts query the program for names of shapes, since users may add some ---- */

/* How an option's argument is completed. */
enum argument_kind { NOTHING, FILES, SHAPES, ONE, SEVERAL };

static enum argument_kind kind_of(const struct opt *opt)
{
    if (opt->choices && strcmp(opt->choices, CHOICES_SHAPES) == 0)
        return SHAPES;
    if (opt_choices(opt))
        return strcmp(opt->arg, "LIST") == 0 ? SEVERAL : ONE;
    return opt->file ? FILES : NOTHING;
}

static void put_words(const char *choices, FILE *out)
{
    for (; *choices; choices++)
        fputc(*choices == '|' ? ' ' : *choices, out);
}

/* What a completion script has before and after the choices of an argument, or before and after the
 * command that prints those. */
struct argument_text {
    const char *before, *after;
};

/* Prints the completion of the option's argument. `text` has an entry for each argument_kind. */
static void put_argument(const struct program *program, const struct opt *opt,
                         const struct argument_text *text, FILE *out)
{
    const enum argument_kind kind = kind_of(opt);
    fputs(text[kind].before, out);
    if (kind == SHAPES)
        fprintf(out, "%s --print-options shapes 2>/dev/null", program->name);
    else if (kind == ONE || kind == SEVERAL)
        put_words(opt_choices(opt), out);
    fputs(text[kind].after, out);
}

/* Sets *word to the choice at *at, in a list separated by '|', and advances *at to the next choice.
 * Returns the length of the word. */
static size_t next_choice(const char **at, const char **word)
{
    const size_t len = strcspn(*at, "|");
    *word = *at;
    *at += len + ((*at)[len] == '|');
    return len;
}

/* Lists the subcommands (choices of the first operand) that do not use option i. */
static void refusers(const struct program *program, size_t i, const char *between, char *text,
                     size_t size)
{
    const char *word;
    size_t used = 0;
    unsigned operand = 0;
    text[0] = 0;
    for (const char *at = program->operands ? program->operands : ""; *at && used < size; operand++) {
        const size_t len = next_choice(&at, &word);
        if (!opt_used_by(program, i, operand))
            used += (size_t)snprintf(text + used, size - used, "%s%.*s", used ? between : "", (int)len,
                                     word);
    }
}

static void bash_function(const struct program *program, char *name, size_t size)
{
    snprintf(name, size, "_%s", program->name);
    for (char *at = name; (at = strchr(at, '-'));)
        *at = '_';
}

static void bash_case(const struct program *program, const struct opt *opt, FILE *out)
{
    static const struct argument_text text[] = {
        [NOTHING] = {"", ""},
        [FILES] = {"$(compgen -f -- \"$cur\")", ""},
        [SHAPES] = {"$(compgen -W \"$(", ")\" -- \"$cur\") $(compgen -f -- \"$cur\")"},
        [ONE] = {"$(compgen -W '", "' -- \"$cur\")"},
        [SEVERAL] = {"$(compgen -P \"${cur%\"${cur##*,}\"}\" -W '", "' -- \"${cur##*,}\")"},
    };
    fprintf(out, "    --%s%s%s) COMPREPLY=(", opt->name, opt->letters ? " | -" : "",
            opt->letters ? opt->letters : "");
    put_argument(program, opt, text, out);
    fputs(") ;;\n", out);
}

enum { ALL = 32 }; /* stands for any first operand */

/* Prints the names of the options that a subcommand uses. */
static void bash_names(const struct program *program, unsigned operand, FILE *out)
{
    for (size_t i = 0, n = 0; i < opt_count(program); i++) {
        const struct opt *opt = opt_nth(program, i);
        if (opt->kind == OPT_HEADING || (operand != ALL && !opt_used_by(program, i, operand)))
            continue;
        if (opt->letters)
            fprintf(out, "%s-%s", n++ ? " " : "", opt->letters);
        fprintf(out, "%s--%s", n++ ? " " : "", opt->name);
    }
}

/* Prints bash code that completes option names: once a subcommand is given only those it uses. */
static void bash_options(const struct program *program, FILE *out)
{
    const char *word;
    unsigned operand = 0;
    fputs(program->used_by ? "            local word options='"
                           : "            COMPREPLY=($(compgen -W '",
          out);
    bash_names(program, ALL, out);
    if (!program->used_by) {
        fputs("' -- \"$cur\"))\n", out);
        return;
    }
    fputs("'\n            for word in \"${COMP_WORDS[@]:1}\"; do\n                case $word in\n",
          out);
    for (const char *at = program->operands; *at; operand++) {
        const size_t len = next_choice(&at, &word);
        fprintf(out, "                %.*s) options='", (int)len, word);
        bash_names(program, operand, out);
        fputs("' ;;\n", out);
    }
    fputs("                esac\n            done\n            COMPREPLY=($(compgen -W \"$options\" -- "
          "\"$cur\"))\n",
          out);
}

/* Prints bash code that completes the first operand from its choices, all others as file names. */
static void bash_operands(const struct program *program, FILE *out)
{
    const char *files = "COMPREPLY=($(compgen -f -- \"$cur\"))\n";
    if (!program->operands) {
        fprintf(out, "            %s", files);
        return;
    }
    fputs("            local word words='", out);
    put_words(program->operands, out);
    fprintf(out,
            "'\n            COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
            "            for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
            "                if [[ \" $words \" == *\" $word \"* ]]; then\n                    %s"
            "                fi\n            done\n",
            files);
}

static void opt_complete_bash(const struct program *program, FILE *out)
{
    char function[64];
    bash_function(program, function, sizeof function);
    fprintf(out,
            "# bash completion for %s\n%s()\n{\n    local cur=${COMP_WORDS[COMP_CWORD]} "
            "prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
            "    # readline makes three words of NAME=VALUE\n"
            "    if [[ $cur == = ]]; then\n        cur=\n"
            "    elif [[ $prev == = ]]; then\n        prev=${COMP_WORDS[COMP_CWORD - 2]}\n    fi\n"
            "    case $prev in\n",
            program->name, function);
    for (size_t i = 0; i < opt_count(program); i++) {
        const struct opt *opt = opt_nth(program, i);
        if (opt->kind != OPT_HEADING && opt->arg)
            bash_case(program, opt, out);
    }
    fputs("    *)\n        if [[ $cur == -* ]]; then\n", out);
    bash_options(program, out);
    fputs("        else\n", out);
    bash_operands(program, out);
    fprintf(out,
            "        fi ;;\n    esac\n}\n"
            "complete -o filenames -F %s %s\n",
            function, program->name);
}

/* Escapes text for a single-quoted word and zsh's [description]. */
static void zsh_quoted(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", out);
        else if (*text == '\\' || *text == '[' || *text == ']' || *text == ':')
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
    }
}

static void zsh_option(const struct program *program, const struct opt *opt, const char *end, FILE *out)
{
    static const struct argument_text text[] = {
        [NOTHING] = {"", ""},
        [FILES] = {"_files", ""},
        [ONE] = {"(", ")"},
        [SHAPES] = {"{ compadd -- ${(f)\"$(", ")\"}; _files }"},
        [SEVERAL] = {"_values -s , LIST ", ""},
    };
    char help[1024];
    opt_help_text(opt, help, sizeof help);
    for (int form = opt->letters ? 0 : 1; form < 2; form++) {
        fprintf(out, "    '%s-%s%s%s[", opt->kind == OPT_LIST ? "*" : "", form ? "-" : "",
                form ? opt->name : opt->letters, form && opt->arg ? "=" : "");
        zsh_quoted(help, out);
        fputc(']', out);
        if (opt->arg) {
            fprintf(out, ":%s:", opt->arg);
            put_argument(program, opt, text, out);
        }
        fputs(end, out);
    }
}

/* Prints zsh code that collects in an array the options of the given subcommand, or all options if
 * none is given yet. */
static void zsh_rows(const struct program *program, FILE *out)
{
    char refusing[256], before[256];
    bool open = false;
    fprintf(out, "local job=${words[(r)(%s)]}\nlocal -a rows\n", program->operands);
    for (size_t i = 0; i < opt_count(program); i++) {
        if (opt_nth(program, i)->kind == OPT_HEADING)
            continue;
        refusers(program, i, "|", refusing, sizeof refusing);
        if (open && strcmp(refusing, before) != 0)
            fputs(")\n", out);
        if (!open || strcmp(refusing, before) != 0) {
            if (*refusing)
                fprintf(out, "[[ $job != (%s) ]] && ", refusing);
            fputs("rows+=(\n", out);
        }
        open = true;
        strcpy(before, refusing);
        zsh_option(program, opt_nth(program, i), "'\n", out);
    }
    fputs(")\n_arguments -S $rows \\\n", out);
}

static void opt_complete_zsh(const struct program *program, FILE *out)
{
    fprintf(out, "#compdef %s\n# zsh completion for %s\n", program->name, program->name);
    if (program->used_by)
        zsh_rows(program, out);
    else
        fputs("_arguments -S \\\n", out);
    for (size_t i = 0; !program->used_by && i < opt_count(program); i++)
        if (opt_nth(program, i)->kind != OPT_HEADING)
            zsh_option(program, opt_nth(program, i), "' \\\n", out);
    if (program->operands) {
        fputs("    ':job:(", out);
        put_words(program->operands, out);
        fputs(")' \\\n", out);
    }
    fputs("    '*:file:_files'\n", out);
}

static void fish_option(const struct program *program, size_t i, FILE *out)
{
    static const struct argument_text text[] = {
        [NOTHING] = {" -x", ""},
        [FILES] = {" -r -F", ""},
        [SHAPES] = {" -r -F -a '(", ")'"},
        [ONE] = {" -x -a '", "'"},
        [SEVERAL] = {" -x -a '(__fish_append , ", ")'"},
    };
    const struct opt *opt = opt_nth(program, i);
    char help[1024], refusing[256];
    fprintf(out, "complete -c %s", program->name);
    refusers(program, i, " ", refusing, sizeof refusing);
    if (*refusing)
        fprintf(out, " -n 'not __fish_seen_subcommand_from %s'", refusing);
    if (opt->letters)
        fprintf(out, " -%c %s", strlen(opt->letters) == 1 ? 's' : 'o', opt->letters);
    fprintf(out, " -l %s", opt->name);
    if (opt->arg)
        put_argument(program, opt, text, out);
    fputs(" -d '", out);
    opt_help_text(opt, help, sizeof help);
    for (const char *at = help; *at; at++)
        fprintf(out, *at == '\'' || *at == '\\' ? "\\%c" : "%c", *at);
    fputs("'\n", out);
}

static void opt_complete_fish(const struct program *program, FILE *out)
{
    fprintf(out, "# fish completion for %s\n", program->name);
    for (size_t i = 0; i < opt_count(program); i++)
        if (opt_nth(program, i)->kind != OPT_HEADING)
            fish_option(program, i, out);
    if (program->operands) {
        fprintf(out, "complete -c %s -f -n 'not __fish_seen_subcommand_from ", program->name);
        put_words(program->operands, out);
        fputs("' -a '", out);
        put_words(program->operands, out);
        fputs("'\n", out);
    }
}

static void put_wrapped(const char *text, size_t column, size_t indent, FILE *out)
{
    while (*text) {
        const size_t len = strcspn(text, " ");
        if (column > indent && column + 1 + len > 100) {
            fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', out);
            column++;
        }
        fwrite(text, 1, len, out);
        column += len;
        text += len + (text[len] == ' ');
    }
    fputc('\n', out);
}

/* A note about number suffixes; NULL: no option needs it. */
static const char *about_numbers(const struct program *program)
{
    for (size_t i = 0; i < opt_count(program); i++)
        if (opt_counts_tokens(opt_nth(program, i)))
            return "Numbers of tokens may end in K, M or G: 8K is 8192.";
    return NULL;
}

void optdoc_help(const struct program *program, FILE *out)
{
    enum { COLUMN = 30 };
    fprintf(out, "%s - %s\n\n", program->name, program->summary);
    for (size_t i = 0; program->usage[i]; i++)
        fprintf(out, "%s %s %s\n", i ? "      " : "usage:", program->name, program->usage[i]);
    if (about_numbers(program))
        fprintf(out, "\n%s\n", about_numbers(program));
    for (size_t i = 0; i < opt_count(program); i++) {
        const struct opt *opt = opt_nth(program, i);
        char left[128], help[1024];
        if (opt->kind == OPT_HEADING) {
            fprintf(out, "\n%s:\n", opt->name);
            continue;
        }
        snprintf(left, sizeof left, "  %s%s%s--%s%s%s", opt->letters ? "-" : "    ",
                 opt->letters ? opt->letters : "", opt->letters ? ", " : "", opt->name,
                 opt->arg ? " " : "", opt->arg ? opt->arg : "");
        fprintf(out, "%-*s", COLUMN, left);
        size_t column = strlen(left);
        if (column >= COLUMN) {
            fprintf(out, "\n%*s", COLUMN, "");
        }
        opt_help_text(opt, help, sizeof help);
        put_wrapped(help, COLUMN, COLUMN, out);
    }
}

static void man_aliases(const struct program *program, FILE *out)
{
    const char *old, *name;
    for (size_t i = 0; opt_alias_nth(program, i, &old, &name); i++) {
        fputs(i ? ", \\%" : ".SS Aliases\nThese names are accepted, too: \\%", out);
        opt_put_roff(old, out);
        fputs(" (\\%", out);
        opt_put_roff(name, out);
        fputc(')', out);
    }
    if (opt_alias_nth(program, 0, &old, &name))
        fputs(".\n", out);
}

/* The options of each subcommand, "a, b and c". */
static void man_subcommands(const struct program *program, FILE *out)
{
    const char *word;
    unsigned operand = 0;
    fputs(".SS Options of each subcommand\nOther options are refused.\n", out);
    for (const char *at = program->operands; *at; operand++) {
        const size_t len = next_choice(&at, &word);
        fprintf(out, ".TP\n.B %.*s\n", (int)len, word);
        size_t left = 0;
        for (size_t i = 0; i < program->n_opts; i++)
            left += opt_used_by(program, i, operand);
        for (size_t i = 0; i < program->n_opts; i++) {
            if (!opt_used_by(program, i, operand))
                continue;
            fputs(--left > 1 ? ".BR \\-\\-" : ".B \\-\\-", out);
            opt_put_roff(program->opts[i].name, out);
            fputs(left > 1 ? " ,\n" : left ? "\nand\n" : "\n", out);
        }
    }
}

static void print_man(const struct program *program, FILE *out)
{
    fputs(".SH OPTIONS\n", out);
    if (about_numbers(program))
        fprintf(out, "%s\n", about_numbers(program));
    fputs("Options that name a text, a list or a file are given once, unless their description says "
          "repeatable; of others, and of models, the last counts.\n",
          out);
    for (size_t i = 0; i < opt_count(program); i++) {
        const struct opt *opt = opt_nth(program, i);
        char help[1024];
        if (opt->kind == OPT_HEADING) {
            fprintf(out, ".SS %s\n", opt->name);
            continue;
        }
        fputs(".TP\n\\fB", out);
        if (opt->letters) {
            fputs("\\-", out);
            opt_put_roff(opt->letters, out);
            fputs("\\fR, \\fB", out);
        }
        fputs("\\-\\-", out);
        opt_put_roff(opt->name, out);
        fputs("\\fR", out);
        if (opt->arg) {
            fputs(" \\fI", out);
            opt_put_roff(opt->arg, out);
            fputs("\\fR", out);
        }
        fputc('\n', out);
        opt_help_text(opt, help, sizeof help);
        opt_put_roff(help, out);
        fputc('\n', out);
    }
    man_aliases(program, out);
    if (program->used_by)
        man_subcommands(program, out);
}

/* Prints "OLD NAME" for each alias. */
static void print_aliases(const struct program *program, FILE *out)
{
    const char *old, *name;
    for (size_t i = 0; opt_alias_nth(program, i, &old, &name); i++)
        fprintf(out, "%s %s\n", old, name);
}

static void print_shapes(const struct program *program, FILE *out)
{
    (void)program;
    opt_print_shapes(out);
}

bool optdoc_print(const struct program *program, const char *kind, FILE *out)
{
    static const struct {
        const char *kind;
        void (*print)(const struct program *, FILE *);
    } printers[] = {
        {"man", print_man},         {"foreign", opt_print_foreign}, {"bash", opt_complete_bash},
        {"zsh", opt_complete_zsh},  {"fish", opt_complete_fish},    {"shapes", print_shapes},
        {"aliases", print_aliases},
    };
    for (size_t i = 0; i < ARRAY_LEN(printers); i++)
        if (strcmp(kind, printers[i].kind) == 0) {
            printers[i].print(program, out);
            return true;
        }
    return false;
}
