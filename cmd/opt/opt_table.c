/* Access to option tables, and usage errors. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "opt/opt.h"

static const struct opt common[] = {
    {OPT_HEADING, "Other", NULL, NULL, NULL, 0, 0, 0, NULL, false},
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

void opt_usage_error(const struct program *program, const char *format, ...)
{
    char text[8192];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    cli_say(stderr, "%s: %s (see %s --help)\n", program->name, text, program->name);
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
