/* Selects the kernel set of a run. */
#include "isa.h"

#include <stdlib.h>
#include <string.h>

#include "base/vm.h"
#include "base/threads.h"
#include "tune/profile.h"
#include "userdir.h"

static const char *named(const char *option)
{
    const char *env = getenv("BMC_ISA");
    return option && *option ? option : env && *env ? env : NULL;
}

bool isa_is_default(const char *option) { return !named(option); }

/* The kernel set that the profile's peak rates favour. Ignores unusable profiles, which
 * tuned_open() reports. */
static const struct kernels *of_profile(const char *option)
{
    char path[8192];
    struct profile profile;
    struct machine here;
    struct err ignored;
    bool found;
    if (option && strcmp(option, "none") == 0)
        return NULL;
    if (!option && !userdir_path("profile", path, sizeof path))
        return NULL;
    if (profile_open(&profile, option ? option : path, &found, &ignored) < 0)
        return NULL;
    machine_of(&here, "", VM_MALLOC, threads_allowed());
    const struct kernels *chosen = found && profile_check_machine(&profile, &here, &ignored) == 0
                                       ? profile_kernels(&profile)
                                       : NULL;
    profile_release(&profile);
    return chosen;
}

const struct kernels *isa_select(const char *option, const char *profile, const char **from,
                                 struct err *err)
{
    const char *isa = named(option), *unused;
    const struct kernels *kernels = isa ? NULL : of_profile(profile);
    from = from ? from : &unused;
    *from = isa ? (option && *option ? "option" : "BMC_ISA") : kernels ? "profile" : "measured";
    if (!kernels && !(kernels = kernels_select(isa, err)) && !(option && *option))
        err_prefix(err, "BMC_ISA");
    return kernels;
}
