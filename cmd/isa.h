/* The kernel set of a run. */
#ifndef BMC_ISA_H
#define BMC_ISA_H

#include "kernel/kernel.h"

/* The set that `option` names, else BMC_ISA; else the fastest of this machine, by the throughputs in the tuned profile, or
 * measured now where the profile has none: `profile` is --profile, a file, "none" or NULL. *from says which of these it was;
 * it may be NULL. */
const struct kernels *isa_select(const char *option, const char *profile, const char **from,
                                 struct err *err) MUST_USE;

/* True when neither the option nor BMC_ISA names a set. */
bool isa_is_default(const char *option);

#endif
