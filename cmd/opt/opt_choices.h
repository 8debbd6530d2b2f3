/* Choices of options, from tables of the library or spelled in the option table. */
#ifndef BMC_OPT_CHOICES_H
#define BMC_OPT_CHOICES_H

#include "base/err.h"
#include "opt/opt.h"

/* The option's choices, separated by '|'; NULL: it has none. */
const char *opt_choices(const struct opt *opt);

/* The option's help text, with "{}" replaced by its choices: "a, b or c". */
void opt_help_text(const struct opt *opt, char *text, size_t size);

/* The index of `text` in the choices, in any case; SIZE_MAX: it is none of them. */
size_t opt_choice_index(const char *choices, const char *text);

/* Copies the choice that is most similar to `text` to `near`; false: none is. */
bool opt_near_choice(const char *choices, const char *text, char *near, size_t size);

/* The value of --type that `text` is or is close to, NULL: there is none. */
const char *opt_find_type(const struct program *program, const char *text);

/* Exits with a usage error if the library has no policy, attention backend, kernel set or precision
 * of that name. NULL: option not given. */
void opt_names_check(const struct program *program, const char *kv, const char *attn, const char *isa,
                     const char *precision);

/* Checks that --type (negative: not given) goes with --shape, whose random weights have that type. */
void opt_type_check(const struct program *program, int type, const char *shape);

/* Checks the values of --cpu-mask (NULL: not given) and --cores (1: performance). opt_cores_use() lets the
 * calling thread, and those that it creates later, run on these cores only. */
void opt_cores_check(const struct program *program, const char *mask, int cores);
int opt_cores_use(const char *mask, int cores, struct err *err) MUST_USE;

/* Prints the names of installed shapes, one per line. */
void opt_print_shapes(FILE *out);

#endif
