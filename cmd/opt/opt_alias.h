/* Accepts option names and values of earlier versions, names that the other programs have for an option, and type
 * names of other programs. --help and completions do not list them. */
#ifndef BMC_OPT_ALIAS_H
#define BMC_OPT_ALIAS_H

#include "opt/opt.h"

/* The n-th alias of any of the program's options: sets *old and *name, with dashes. False: no more. */
bool opt_alias_nth(const struct program *program, size_t n, const char **old, const char **name);

/* Translates an alias of a value into an entry of the option's choices; else returns `text`. */
const char *opt_alias_value(const struct opt *opt, const char *text);

/* The end of the error message for a value that users may expect but that does not exist, or NULL. */
const char *opt_alias_missing(const struct opt *opt, const char *text);

#endif
