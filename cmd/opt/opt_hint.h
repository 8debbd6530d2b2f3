/* Messages about unknown options. */
#pragma once

#include "opt/opt.h"

/* Prints one line that suggests the intended option if there is a likely one, and exits with 2.
 * `word` includes its dashes. */
void opt_unknown(const struct program *program, const char *word, size_t len) __attribute__((noreturn));

/* Exits with the error that there is an operand, and `advice`; `numa`: --numa was given, which has
 * values in llama.cpp. */
void opt_unexpected(const struct program *program, const char *word, bool numa, const char *advice)
    __attribute__((noreturn));

/* Prints the body of the man page's table of other programs' options, the same for all programs. */
void opt_print_foreign(const struct program *program, FILE *out);
