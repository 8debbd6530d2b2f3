/* Reads and updates the profile file. */
#include <string.h>
#include <sys/stat.h>

#include "cli.h"
#include "tune/tune.h"
#include "tuned.h"

/* Opens the existing profile if its machine and configuration are the present ones; otherwise sets
 * *keeps to false and opens nothing. */
static int open_old(const struct tune *tune, const char *path, struct profile *old, bool *keeps,
                    struct err *err)
{
    const struct machine *here = &tune->profile.machine;
    struct err ignored; /* ignored: a profile of another machine is replaced */
    struct stat st;
    bool found;
    *keeps = false;
    if (stat(path, &st) == 0 && (!S_ISREG(st.st_mode) || !st.st_size))
        return 0; /* not a regular file, or empty */
    if (profile_open(old, path, &found, err) < 0)
        return err_prefix(err,
                          "the existing profile cannot be updated: remove it or give another name");
    *keeps = found && profile_check_machine(old, here, &ignored) == 0 &&
             machine_same_settings(&old->machine, here);
    if (!*keeps)
        profile_release(old);
    return 0;
}

/* Upper bound of the models that this run adds. */
static size_t new_models(const struct tune *tune, const struct profile *old)
{
    const struct tune_options *o = tune->options;
    const char *knee_key = tune->machine ? TUNE_KNEE_SHAPE : tune->key;
    size_t n = !o->no_sweep && !profile_model(old, tune->key);
    if (!o->no_knee && !profile_model(old, knee_key))
        n += !n || strcmp(knee_key, tune->key) != 0;
    return n;
}

/* Upper bound of the bytes that this run adds. */
static size_t new_bytes(const struct tune *tune)
{
    enum { MODEL = 4096, LINE = 160, POINTS = 8, MACHINE_CURVES = 32 };
    const size_t curves = 4 * (2 + 2 * tune->n_batch) + (tune->machine ? MACHINE_CURVES : 0);
    return 2 * MODEL + LINE * (POINTS * curves + tune->n_N * tune->n_batch);
}

static int check_bytes(const struct tune *tune, const struct profile *old, const char *path,
                       struct err *err)
{
    struct buf text = {0};
    int rc = profile_write(old, &text, err);
    if (rc == 0 && text.len + new_bytes(tune) > PROFILE_BYTES)
        rc = err_set(err,
                     "%s: has %zu bytes of at most %d, too many to add to: give another --profile, or "
                     "remove this one",
                     path, text.len, PROFILE_BYTES);
    buf_release(&text);
    return rc;
}

int tune_check_room(const struct tune *tune, const char *path, struct err *err)
{
    struct profile old;
    bool keeps;
    if (open_old(tune, path, &old, &keeps, err) < 0)
        return -1;
    if (!keeps)
        return 0;
    const int rc = old.n_models + new_models(tune, &old) > PROFILE_MODELS
                       ? err_set(err,
                                 "%s: has %zu models of at most %d, none can be added: give another "
                                 "--profile, or remove this one",
                                 path, old.n_models, PROFILE_MODELS)
                       : check_bytes(tune, &old, path, err);
    profile_release(&old);
    return rc;
}

static int keep_old(struct tune *tune, const char *path, struct err *err)
{
    struct profile old;
    bool keeps;
    if (open_old(tune, path, &old, &keeps, err) < 0)
        return -1;
    if (!keeps)
        return 0;
    const int rc = profile_merge(&old, &tune->profile, err);
    profile_release(&tune->profile);
    tune->profile = old;
    return rc;
}

int tune_save(struct tune *tune, struct err *err)
{
    char path[8192];
    if (!tuned_path(tune->options->profile, path, sizeof path))
        return err_set(err, "no folder for the profile: set HOME or give --profile FILE");
    if (keep_old(tune, path, err) < 0 || profile_save(&tune->profile, path, err) < 0)
        return -1;
    if (tune->options->format == TABLE_TEXT && !tune->options->quiet) {
        cli_say(stdout, "\n");
        cli_say(stdout, "profile written to %s\n", path);
    }
    return 0;
}
