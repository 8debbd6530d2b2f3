/* Hints: one line on standard error each, unless -q is given. They change nothing and are no errors. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gen.h"

/* Of several ranks, rank 0 speaks. */
static bool silent(const struct gen *gen)
{
    return gen->options->quiet || (gen->ranks && gen->ranks->rank > 0);
}

void gen_hint_terminal(const struct gen *gen, const char *what)
{
    const struct gen_options *o = gen->options;
    const bool reads_stdin = !o->prompt && (!o->file || strcmp(o->file, "-") == 0);
    if (!silent(gen) && reads_stdin && isatty(STDIN_FILENO))
        fprintf(stderr, "%s: reading %s from the terminal; Ctrl-D ends the input\n", gen->program->name,
                what);
}

/* llama.cpp's -b counts tokens, and 512 or 2048 are common there. */
void gen_hint_batch(const struct gen *gen, size_t most)
{
    enum { PLAUSIBLE = 256 };
    const size_t batch = gen->options->batch;
    char has[64] = "it allows that many at a time";
    if (silent(gen) || batch <= (most ? most : PLAUSIBLE))
        return;
    if (most)
        snprintf(has, sizeof has, "this run has %zu", most);
    fprintf(stderr,
            "%s: -b %zu: -b counts sequences, not tokens, and %s; for tokens of a prompt at a time use "
            "--chunk\n",
            gen->program->name, batch, has);
}
