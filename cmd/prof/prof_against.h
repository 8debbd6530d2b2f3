/* Runs two builds of bmc-prof alternately. */
#ifndef BMC_PROF_AGAINST_H
#define BMC_PROF_AGAINST_H

#include "prof/prof.h"
#include "prof/samples.h"

/* Exits with a usage error on subcommands and options that --against cannot run. */
void against_check_usage(const struct prof_options *options);

/* Runs all pairs: file[0] gets the other build's results, file[1] this build's, with one value per
 * figure and pair. Release both, after errors, too. */
int against_measure(const struct prof_options *options, struct measured file[2],
                    struct err *err) MUST_USE;

#endif
