/* Runs two builds of bmc-prof alternately. */
#ifndef BMC_PROF_AGAINST_H
#define BMC_PROF_AGAINST_H

#include "prof/prof.h"
#include "prof/compare.h"
#include "prof/samples.h"

/* Exits with a usage error on subcommands and options that --against cannot run. */
void against_check_usage(const struct prof_options *options);

/* Runs all pairs of the other build and of this one, in alternating order: file[0][i] and file[1][i] get their results.
 * Release all, after errors, too. */
int against_measure(const struct prof_options *options, struct measured file[2][COMPARE_ROUNDS],
                    struct err *err) MUST_USE;

#endif
