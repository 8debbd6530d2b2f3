/* Prints --help and the man page's OPTIONS from the option table. */
#include "opt/optdoc.h"

#include <string.h>

#include "opt/opt_alias.h"
#include "opt/opt_choices.h"
#include "opt/opt_complete.h"
#include "opt/opt_hint.h"
#include "opt/opt_roff.h"

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
