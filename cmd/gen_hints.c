/* Hints: one line on standard error each, unless -q is given. They change nothing and are no errors. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gen.h"

void gen_hint_terminal(const struct gen *gen, const char *what)
{
    const struct gen_options *o = gen->options;
    const bool reads_stdin = !o->prompt && (!o->file || strcmp(o->file, "-") == 0);
    if (!o->quiet && reads_stdin && isatty(STDIN_FILENO))
        fprintf(stderr, "%s: reading %s from the terminal; Ctrl-D ends the input\n", gen->program->name,
                what);
}
