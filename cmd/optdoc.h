/* What is printed from an option table. */
#ifndef BMC_OPTDOC_H
#define BMC_OPTDOC_H

#include "opt.h"

/* The program's options, then those that every program has. */
size_t optdoc_count(const struct program *program);
const struct opt *optdoc_nth(const struct program *program, size_t i);

void optdoc_help(const struct program *program, FILE *out);

/* Text for a man page. */
void optdoc_put_roff(const char *text, FILE *out);

/* `kind` is man (the OPTIONS section), foreign (the table of other programs' options), bash, zsh, fish or shapes; false for
 * anything else. */
bool optdoc_print(const struct program *program, const char *kind, FILE *out);

/* Completion scripts: opt_complete.c. */
void opt_complete_bash(const struct program *program, FILE *out);
void opt_complete_zsh(const struct program *program, FILE *out);
void opt_complete_fish(const struct program *program, FILE *out);

#endif
