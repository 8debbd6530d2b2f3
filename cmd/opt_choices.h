/* What options may be set to, where a table elsewhere says it. */
#ifndef BMC_OPT_CHOICES_H
#define BMC_OPT_CHOICES_H

#include "opt.h"

/* The values, separated by '|'; NULL where the option has no list. */
const char *opt_choices(const struct opt *opt);

/* The help of an option; "{}" in it stands for the values, as "a, b or c". */
void opt_help_text(const struct opt *opt, char *text, size_t size);

/* The values, with `between` for all but the last, and `before_last`. */
void opt_join_choices(const char *choices, const char *between, const char *before_last, char *text,
                      size_t size);

/* Names of the shapes that came with the program, one a line. */
void opt_print_shapes(FILE *out);

#endif
