/* Selects the kernel set of a run. */
#ifndef BMC_ISA_H
#define BMC_ISA_H

#include "kernel/kernel.h"

/* Returns the kernel set named by `option`, else by BMC_ISA, else the fastest one by the tuned
 * profile's peak rates, or measured now if it has none. `profile` is the value of --profile: a
 * file, "none" or NULL. *from names the origin; may be NULL. */
const struct kernels *isa_select(const char *option, const char *profile, const char **from,
                                 struct err *err) MUST_USE;

/* True if neither `option` nor BMC_ISA names a kernel set. */
bool isa_is_default(const char *option);

#endif
