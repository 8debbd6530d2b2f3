/* Finds the tuned profile for all programs. */
#ifndef BMC_TUNED_H
#define BMC_TUNED_H

#include "tune/profile.h"

/* The profile's path: `option` (--profile), else $XDG_CONFIG_HOME/bmc/profile, else
 * $HOME/.config/bmc/profile. False: no home folder. */
bool tuned_path(const char *option, char *path, size_t size);

/* Reads the profile. Ignores an unusable one with one line on stderr, and silently one made with
 * another instruction set, allocator or number of threads; but with --profile it must be usable.
 * `option` may be "none". */
int tuned_open(struct tuned *tuned, const char *program, const char *option, const char *isa,
               enum vm_alloc alloc, int threads, struct err *err) MUST_USE;

#endif
