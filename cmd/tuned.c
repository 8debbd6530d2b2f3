/* The tuned profile, and the kernel set of a run, which follows from it. */
#include "tuned.h"

#include "base/threads.h"
#include "cli.h"
#include "userdir.h"

/* ---- the tuned profile ---- */

const struct backend *tuned_backend(int choice, const char *precision, const char *attn,
                                    struct err *err)
{
    char cache[4096];
    const char *name = backends[choice]->name;
    if (backends[choice]->only_f32 && precision && strcmp(precision, "f32") != 0) {
        err_code(err, ERR_INVALID, "--backend %s computes in f32: leave --precision %s out", name,
                 precision);
        return NULL;
    }
    if (tune_on_device(backends[choice]) && attn) {
        err_code(err, ERR_INVALID, "--attn %s is attention of the CPU: leave --backend %s out", attn,
                 name);
        return NULL;
    }
    return backend_find(backends[choice]->name,
                        userdir_path(USER_CACHE, "kernels", cache, sizeof cache) ? cache : NULL, err);
}

bool tuned_path(const char *option, const struct backend *backend, char *path, size_t size)
{
    char name[32] = "profile";
    if (tune_on_device(backend))
        snprintf(name, sizeof name, "profile-%s", backend->name);
    const int len = option ? snprintf(path, size, "%s", option) : -1;
    return option ? len > 0 && (size_t)len < size : userdir_path(USER_CONFIG, name, path, size);
}

int tuned_open(struct tuned *tuned, const char *program, const char *option,
               const struct backend *backend, const struct machine *here, struct err *err)
{
    char path[8192];
    bool exists;
    *tuned = (struct tuned){.found = false};
    if ((option && strcmp(option, "none") == 0) || !tuned_path(option, backend, path, sizeof path))
        return 0;
    if (tuned_read(tuned, path, here, &exists, err) < 0) {
        tuned_close(tuned);
        if (option)
            return err_prefix(err, "--profile");
        cli_say(stderr, "%s: ignoring the tuned profile: %s\n", program, err->text);
        return 0;
    }
    return option && !exists ? err_set(err, "--profile: %s does not exist; bmc-tune makes it", path)
                             : 0;
}

/* ---- the kernel set ---- */

static const char *isa_name(const char *option)
{
    const char *env = getenv("BMC_ISA");
    return option && *option ? option : env && *env ? env : NULL;
}

bool isa_is_default(const char *option) { return !isa_name(option); }

/* The kernel set that the profile's peak rates favour. Ignores unusable profiles, which
 * tuned_open() reports. */
static const struct kernels *profile_choice(const char *option)
{
    char path[8192];
    struct profile profile;
    struct machine here;
    struct err ignored;
    bool found;
    if (option && strcmp(option, "none") == 0)
        return NULL;
    if (!option && !userdir_path(USER_CONFIG, "profile", path, sizeof path))
        return NULL;
    if (profile_open(&profile, option ? option : path, &found, &ignored) < 0)
        return NULL;
    machine_of(&here, NULL, "", VM_POOL, threads_allowed());
    const struct kernels *chosen = found && profile_check_machine(&profile, &here, &ignored) == 0
                                       ? profile_kernels(&profile)
                                       : NULL;
    profile_release(&profile);
    return chosen;
}

const struct kernels *isa_select(const char *option, const char *profile, const char **from,
                                 struct err *err)
{
    const char *isa = isa_name(option), *unused;
    const struct kernels *kernels = isa ? NULL : profile_choice(profile);
    from = from ? from : &unused;
    *from = isa ? (option && *option ? "option" : "BMC_ISA") : kernels ? "profile" : "measured";
    if (!kernels && !(kernels = kernels_select(isa, err)) && !(option && *option))
        err_prefix(err, "BMC_ISA");
    return kernels;
}
