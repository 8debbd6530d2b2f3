/* What a user's folders for bmc ($XDG_CONFIG_HOME/bmc, else ~/.config/bmc, and that of its cache) decide of a run: the tuned
 * profile, the kernel set that it favours, and where a device's programs are kept. */
#pragma once

#include "backend/backend.h"
#include "kernel/kernel.h"
#include "tune/profile.h"

/* The backend of an option --backend (CHOICES_BACKEND), made ready. NULL and an error: it cannot run, or --precision or --attn
 * (NULL: not given) are none of its own. */
const struct backend *tuned_backend(int choice, const char *precision, const char *attn,
                                    struct err *err);

/* The profile's path: `option` (--profile), else $XDG_CONFIG_HOME/bmc/profile, else
 * $HOME/.config/bmc/profile; of a device, profile-NAME of its backend. False: no home folder. */
bool tuned_path(const char *option, const struct backend *backend, char *path, size_t size);

/* Reads the profile. Ignores an unusable one with one line on stderr, and silently one made with
 * another instruction set, allocator or number of threads; but with --profile it must be usable.
 * `option` may be "none". */
int tuned_open(struct tuned *tuned, const char *program, const char *option,
               const struct backend *backend, const struct machine *here, struct err *err) MUST_USE;

/* Returns the kernel set named by `option`, else by BMC_ISA, else the fastest one by the tuned
 * profile's peak rates, or measured now if it has none. `profile` is the value of --profile: a
 * file, "none" or NULL. *from names the origin; may be NULL. */
const struct kernels *isa_select(const char *option, const char *profile, const char **from,
                                 struct err *err) MUST_USE;

/* True if neither `option` nor BMC_ISA names a kernel set. */
bool isa_is_default(const char *option);
