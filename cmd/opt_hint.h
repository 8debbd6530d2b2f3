/* Options that a program does not have: what was meant, or what other programs' users look for. */
#ifndef BMC_OPT_HINT_H
#define BMC_OPT_HINT_H

#include "opt.h"

/* One line on stderr that names the option meant, as far as that can be told, and exit 2. `word` has its dashes. */
void opt_unknown(const struct program *program, const char *word, size_t len) __attribute__((noreturn));

/* The body of the table "llama.cpp, bmc-gen" of the man page; it is the same for every program. */
void opt_print_foreign(const struct program *program, FILE *out);

#endif
