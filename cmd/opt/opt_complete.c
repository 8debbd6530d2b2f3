/* Prints completions for bash, zsh and fish from the option table. Completion scripts query the
 * program for names of shapes, since users may add some. */
#include "opt/opt_complete.h"

#include <string.h>

#include "opt/opt_choices.h"

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

void opt_complete_bash(const struct program *program, FILE *out)
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

void opt_complete_zsh(const struct program *program, FILE *out)
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

void opt_complete_fish(const struct program *program, FILE *out)
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
