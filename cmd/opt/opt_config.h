/* The user's configuration file: defaults of options, in sections [PROGRAM] and, for runs of one model, [PROGRAM MODEL].
 * Options of the command line and variables of the environment come first. */
#pragma once

#include "opt/opt.h"

/* How an option's value is parsed and stored; errors, which end the program, begin with `name`. */
typedef void opt_set(const struct program *program, const struct opt *opt, const char *name, char *text,
                     void *options);

/* Sets the options of the program's sections that the command line has not, and marks them as given. The file is
 * BMC_CONFIG, of which "none" means none, else bmc/config in the user's folder, if it exists. An entry that is no option
 * of the program ends it by a usage error, as does a section of no program. */
void opt_config_apply(const struct program *program, void *options, struct operands *operands,
                      opt_set *set);

/* The file whose entries count in this run, and these, as "temp 0.7, threads 8"; NULL: none does. */
const char *opt_config_file(void);
const char *opt_config_entries(void);
