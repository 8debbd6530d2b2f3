/* Help, man page section and completions, all from the option table. */
#include "optdoc.h"

#include <string.h>

static const struct opt common[] = {
    {OPT_HEADING, "Other", NULL, NULL, NULL, 0, 0, 0, NULL, false},
    {OPT_FLAG, "help", "h", NULL, "print this list and exit", 0, 0, 0, NULL, false},
    {OPT_FLAG, "version", NULL, NULL,
     "print version, compiler, libraries and instruction set, and exit", 0, 0, 0, NULL, false},
};

/* The program's options, then those that every program has. */
static const struct opt *nth(const struct program *program, size_t i)
{
    return i < program->n_opts ? &program->opts[i] : &common[i - program->n_opts];
}

static size_t count(const struct program *program) { return program->n_opts + ARRAY_LEN(common); }

/* ---- --help ---- */

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

void optdoc_help(const struct program *program, FILE *out)
{
    enum { COLUMN = 30 };
    fprintf(out, "%s - %s\n\n", program->name, program->summary);
    for (size_t i = 0; program->usage[i]; i++)
        fprintf(out, "%s %s %s\n", i ? "      " : "usage:", program->name, program->usage[i]);
    for (size_t i = 0; i < count(program); i++) {
        const struct opt *opt = nth(program, i);
        char left[128];
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
        put_wrapped(opt->help, COLUMN, COLUMN, out);
    }
}

/* ---- man ---- */

static void put_roff(const char *text, FILE *out)
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

static void print_man(const struct program *program, FILE *out)
{
    fputs(".SH OPTIONS\n", out);
    for (size_t i = 0; i < count(program); i++) {
        const struct opt *opt = nth(program, i);
        if (opt->kind == OPT_HEADING) {
            fprintf(out, ".SS %s\n", opt->name);
            continue;
        }
        fputs(".TP\n\\fB", out);
        if (opt->letters) {
            fputs("\\-", out);
            put_roff(opt->letters, out);
            fputs("\\fR, \\fB", out);
        }
        fputs("\\-\\-", out);
        put_roff(opt->name, out);
        fputs("\\fR", out);
        if (opt->arg) {
            fputs(" \\fI", out);
            put_roff(opt->arg, out);
            fputs("\\fR", out);
        }
        fputc('\n', out);
        put_roff(opt->help, out);
        fputc('\n', out);
    }
}

/* ---- completions ---- */

static void put_choices(const char *choices, FILE *out)
{
    for (; *choices; choices++)
        fputc(*choices == '|' ? ' ' : *choices, out);
}

static void print_bash(const struct program *program, FILE *out)
{
    char function[64];
    snprintf(function, sizeof function, "_%s", program->name);
    for (char *at = function; (at = strchr(at, '-'));)
        *at = '_';
    fprintf(out,
            "# bash completion for %s\n%s()\n{\n    local cur=${COMP_WORDS[COMP_CWORD]} "
            "prev=${COMP_WORDS[COMP_CWORD - 1]}\n",
            program->name, function);
    fputs("    case $prev in\n", out);
    for (size_t i = 0; i < count(program); i++) {
        const struct opt *opt = nth(program, i);
        if (opt->kind == OPT_HEADING || !opt->arg)
            continue;
        fprintf(out, "    --%s%s%s)", opt->name, opt->letters ? " | -" : "",
                opt->letters ? opt->letters : "");
        if (opt->choices) {
            fputs(" COMPREPLY=($(compgen -W '", out);
            put_choices(opt->choices, out);
            fputs("' -- \"$cur\")) ;;\n", out);
        } else if (opt->file) {
            fputs(" COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n", out);
        } else {
            fputs(" COMPREPLY=() ;;\n", out);
        }
    }
    fputs("    *)\n        if [[ $cur == -* ]]; then\n            COMPREPLY=($(compgen -W '", out);
    for (size_t i = 0, n = 0; i < count(program); i++) {
        const struct opt *opt = nth(program, i);
        if (opt->kind == OPT_HEADING)
            continue;
        if (opt->letters)
            fprintf(out, "%s-%s", n++ ? " " : "", opt->letters);
        fprintf(out, "%s--%s", n++ ? " " : "", opt->name);
    }
    fputs("' -- \"$cur\"))\n        else\n            COMPREPLY=($(compgen -f -- \"$cur\"))\n        "
          "fi ;;\n    esac\n}\n",
          out);
    fprintf(out, "complete -o filenames -F %s %s\n", function, program->name);
}

/* Quotes for a shell's single-quoted word and zsh's [description]. */
static void put_quoted(const char *text, FILE *out)
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

static void print_zsh(const struct program *program, FILE *out)
{
    fprintf(out, "#compdef %s\n# zsh completion for %s\n_arguments -S \\\n", program->name,
            program->name);
    for (size_t i = 0; i < count(program); i++) {
        const struct opt *opt = nth(program, i);
        if (opt->kind == OPT_HEADING)
            continue;
        for (int form = opt->letters ? 0 : 1; form < 2; form++) {
            fprintf(out, "    '%s-%s%s[", opt->kind == OPT_LIST ? "*" : "", form ? "-" : "",
                    form ? opt->name : opt->letters);
            put_quoted(opt->help, out);
            fputc(']', out);
            if (opt->arg) {
                fprintf(out, ":%s:", opt->arg);
                if (opt->choices) {
                    fputc('(', out);
                    put_choices(opt->choices, out);
                    fputc(')', out);
                } else if (opt->file) {
                    fputs("_files", out);
                }
            }
            fputs("' \\\n", out);
        }
    }
    fputs("    '*:file:_files'\n", out);
}

static void print_fish(const struct program *program, FILE *out)
{
    fprintf(out, "# fish completion for %s\n", program->name);
    for (size_t i = 0; i < count(program); i++) {
        const struct opt *opt = nth(program, i);
        if (opt->kind == OPT_HEADING)
            continue;
        fprintf(out, "complete -c %s", program->name);
        if (opt->letters)
            fprintf(out, " -%c %s", strlen(opt->letters) == 1 ? 's' : 'o', opt->letters);
        fprintf(out, " -l %s", opt->name);
        if (opt->arg)
            fputs(opt->file ? " -r" : " -x", out);
        if (opt->choices) {
            fputs(" -a '", out);
            put_choices(opt->choices, out);
            fputc('\'', out);
        }
        fputs(" -d '", out);
        for (const char *at = opt->help; *at; at++)
            fprintf(out, *at == '\'' || *at == '\\' ? "\\%c" : "%c", *at);
        fputs("'\n", out);
    }
}

bool optdoc_print(const struct program *program, const char *kind, FILE *out)
{
    static const struct {
        const char *kind;
        void (*print)(const struct program *, FILE *);
    } printers[] = {{"man", print_man}, {"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; i < ARRAY_LEN(printers); i++)
        if (strcmp(kind, printers[i].kind) == 0) {
            printers[i].print(program, out);
            return true;
        }
    return false;
}
