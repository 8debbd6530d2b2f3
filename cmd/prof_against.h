/* Two builds of bmc-prof run in turns. */
#ifndef BMC_PROF_AGAINST_H
#define BMC_PROF_AGAINST_H

#include "prof.h"
#include "prof/samples.h"

/* Refuses what cannot be measured so, as wrong usage. */
void against_check_usage(const struct prof_options *options);

/* Runs the pairs. file[0] has the runs of the other build, file[1] those of this one, each with as many values of a figure
 * as there were pairs. To be released after an error, too. */
int against_measure(const struct prof_options *options, struct measured file[2],
                    struct err *err) MUST_USE;

#endif
