/* Completions for bash, zsh and fish, from the option table. Names of shapes are asked from the program when they are
 * wanted: the user may have added some. */
#include "opt_complete.h"

#include <string.h>

#include "opt_choices.h"

/* What completes an option's argument. */
enum kind { NOTHING, FILES, SHAPES, ONE, SEVERAL };

static enum kind kind_of(const struct opt *opt)
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

/* ---- bash ---- */

static void bash_function(const struct program *program, char *name, size_t size)
{
    snprintf(name, size, "_%s", program->name);
    for (char *at = name; (at = strchr(at, '-'));)
        *at = '_';
}

static void bash_case(const struct program *program, const struct opt *opt, FILE *out)
{
    fprintf(out, "    --%s%s%s) COMPREPLY=(", opt->name, opt->letters ? " | -" : "",
            opt->letters ? opt->letters : "");
    switch (kind_of(opt)) {
    case NOTHING: break;
    case FILES: fputs("$(compgen -f -- \"$cur\")", out); break;
    case SHAPES:
        fprintf(out,
                "$(compgen -W \"$(%s --print-options shapes 2>/dev/null)\" -- \"$cur\") $(compgen -f "
                "-- \"$cur\")",
                program->name);
        break;
    case ONE:
        fputs("$(compgen -W '", out);
        put_words(opt_choices(opt), out);
        fputs("' -- \"$cur\")", out);
        break;
    case SEVERAL:
        fputs("$(compgen -P \"${cur%\"${cur##*,}\"}\" -W '", out);
        put_words(opt_choices(opt), out);
        fputs("' -- \"${cur##*,}\")", out);
        break;
    }
    fputs(") ;;\n", out);
}

static void bash_options(const struct program *program, FILE *out)
{
    for (size_t i = 0, n = 0; i < opt_count(program); i++) {
        const struct opt *opt = opt_nth(program, i);
        if (opt->kind == OPT_HEADING)
            continue;
        if (opt->letters)
            fprintf(out, "%s-%s", n++ ? " " : "", opt->letters);
        fprintf(out, "%s--%s", n++ ? " " : "", opt->name);
    }
}

/* The first operand may be one of few words; all others are files. */
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
    fputs("    *)\n        if [[ $cur == -* ]]; then\n            COMPREPLY=($(compgen -W '", out);
    bash_options(program, out);
    fputs("' -- \"$cur\"))\n        else\n", out);
    bash_operands(program, out);
    fprintf(out,
            "        fi ;;\n    esac\n}\n"
            "complete -o filenames -F %s %s\n",
            function, program->name);
}

/* ---- zsh ---- */

/* Quotes for a single-quoted word and for zsh's [description]. */
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

static void zsh_argument(const struct program *program, const struct opt *opt, FILE *out)
{
    fprintf(out, ":%s:", opt->arg);
    switch (kind_of(opt)) {
    case NOTHING: break;
    case FILES: fputs("_files", out); break;
    case SHAPES:
        fprintf(out, "{ compadd -- ${(f)\"$(%s --print-options shapes 2>/dev/null)\"}; _files }",
                program->name);
        break;
    case ONE:
        fputc('(', out);
        put_words(opt_choices(opt), out);
        fputc(')', out);
        break;
    case SEVERAL:
        fprintf(out, "_values -s , %s ", opt->arg);
        put_words(opt_choices(opt), out);
        break;
    }
}

void opt_complete_zsh(const struct program *program, FILE *out)
{
    fprintf(out, "#compdef %s\n# zsh completion for %s\n_arguments -S \\\n", program->name,
            program->name);
    for (size_t i = 0; i < opt_count(program); i++) {
        const struct opt *opt = opt_nth(program, i);
        char help[1024];
        if (opt->kind == OPT_HEADING)
            continue;
        opt_help_text(opt, help, sizeof help);
        for (int form = opt->letters ? 0 : 1; form < 2; form++) {
            fprintf(out, "    '%s-%s%s%s[", opt->kind == OPT_LIST ? "*" : "", form ? "-" : "",
                    form ? opt->name : opt->letters, form && opt->arg ? "=" : "");
            zsh_quoted(help, out);
            fputc(']', out);
            if (opt->arg)
                zsh_argument(program, opt, out);
            fputs("' \\\n", out);
        }
    }
    if (program->operands) {
        fputs("    ':job:(", out);
        put_words(program->operands, out);
        fputs(")' \\\n", out);
    }
    fputs("    '*:file:_files'\n", out);
}

/* ---- fish ---- */

static void fish_argument(const struct program *program, const struct opt *opt, FILE *out)
{
    switch (kind_of(opt)) {
    case NOTHING: fputs(" -x", out); break;
    case FILES: fputs(" -r -F", out); break;
    case SHAPES:
        fprintf(out, " -r -F -a '(%s --print-options shapes 2>/dev/null)'", program->name);
        break;
    case ONE:
        fputs(" -x -a '", out);
        put_words(opt_choices(opt), out);
        fputc('\'', out);
        break;
    case SEVERAL:
        fputs(" -x -a '(__fish_append , ", out);
        put_words(opt_choices(opt), out);
        fputs(")'", out);
        break;
    }
}

static void fish_option(const struct program *program, const struct opt *opt, FILE *out)
{
    char help[1024];
    fprintf(out, "complete -c %s", program->name);
    if (opt->letters)
        fprintf(out, " -%c %s", strlen(opt->letters) == 1 ? 's' : 'o', opt->letters);
    fprintf(out, " -l %s", opt->name);
    if (opt->arg)
        fish_argument(program, opt, out);
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
            fish_option(program, opt_nth(program, i), out);
    if (program->operands) {
        fprintf(out, "complete -c %s -f -n 'not __fish_seen_subcommand_from ", program->name);
        put_words(program->operands, out);
        fputs("' -a '", out);
        put_words(program->operands, out);
        fputs("'\n", out);
    }
}
