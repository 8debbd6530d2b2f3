/* Documentation generated from an option table. */
#pragma once

#include "opt/opt.h"

/* Prints --help. */
void optdoc_help(const struct program *program, FILE *out);

/* Prints the documentation named `kind`: man (the OPTIONS section), foreign (table of other
 * programs' options), bash, zsh, fish, shapes or aliases. False: unknown kind. */
bool optdoc_print(const struct program *program, const char *kind, FILE *out);
