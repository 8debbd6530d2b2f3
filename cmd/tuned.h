/* What a user's folder for bmc ($XDG_CONFIG_HOME/bmc, else ~/.config/bmc) decides of a run: the tuned profile, and
 * the kernel set that it favours. */
#pragma once

#include "kernel/kernel.h"
#include "tune/profile.h"

/* The profile's path: `option` (--profile), else $XDG_CONFIG_HOME/bmc/profile, else
 * $HOME/.config/bmc/profile. False: no home folder. */
bool tuned_path(const char *option, char *path, size_t size);

/* Reads the profile. Ignores an unusable one with one line on stderr, and silently one made with
 * another instruction set, allocator or number of threads; but with --profile it must be usable.
 * `option` may be "none". */
int tuned_open(struct tuned *tuned, const char *program, const char *option, const char *isa,
               enum vm_alloc alloc, int threads, struct err *err) MUST_USE;

/* Returns the kernel set named by `option`, else by BMC_ISA, else the fastest one by the tuned
 * profile's peak rates, or measured now if it has none. `profile` is the value of --profile: a
 * file, "none" or NULL. *from names the origin; may be NULL. */
const struct kernels *isa_select(const char *option, const char *profile, const char **from,
                                 struct err *err) MUST_USE;

/* True if neither `option` nor BMC_ISA names a kernel set. */
bool isa_is_default(const char *option);
