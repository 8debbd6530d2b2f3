/* What is printed from an option table. */
#ifndef BMC_OPTDOC_H
#define BMC_OPTDOC_H

#include "opt.h"

/* --help. */
void optdoc_help(const struct program *program, FILE *out);

/* `kind` is man (the OPTIONS section), foreign (the table of other programs' options), bash, zsh, fish or shapes; false for
 * anything else. */
bool optdoc_print(const struct program *program, const char *kind, FILE *out);

#endif
