/* Choices of options, from tables of the library or spelled in the option table. */
#ifndef BMC_OPT_CHOICES_H
#define BMC_OPT_CHOICES_H

#include "opt/opt.h"

/* The option's choices, separated by '|'; NULL: it has none. */
const char *opt_choices(const struct opt *opt);

/* The option's help text, with "{}" replaced by its choices: "a, b or c". */
void opt_help_text(const struct opt *opt, char *text, size_t size);

/* Exits with a usage error if the library has no policy, attention backend, kernel set or precision
 * of that name. NULL: option not given. */
void opt_names_check(const struct program *program, const char *kv, const char *attn, const char *isa,
                     const char *precision);

/* Checks the value of --cpu-mask; NULL: not given. */
void opt_mask_check(const struct program *program, const char *mask);

/* Prints the names of installed shapes, one per line. */
void opt_print_shapes(FILE *out);

#endif
