/* The profile file of bmc-tune: what is there, and what goes into it. */
#include <string.h>
#include <sys/stat.h>

#include "cli.h"
#include "tune.h"
#include "tuned.h"

/* The profile that is there and holds what another run found out on this machine with the same settings. Else *keeps is
 * false, and there is nothing to release. */
static int open_old(const struct tune *tune, const char *path, struct profile *old, bool *keeps,
                    struct err *err)
{
    const struct machine *a = &old->machine, *b = &tune->profile.machine;
    struct err ignored; /* of another machine: it is replaced */
    struct stat st;
    bool found;
    *keeps = false;
    if (stat(path, &st) == 0 && (!S_ISREG(st.st_mode) || !st.st_size))
        return 0; /* written to only, or nothing yet */
    if (profile_open(old, path, &found, err) < 0)
        return err_prefix(err,
                          "the profile that is there cannot be added to, remove it or give another "
                          "name");
    *keeps = found && profile_check_machine(old, b, &ignored) == 0 && a->threads == b->threads &&
             strcmp(a->isa, b->isa) == 0 && strcmp(a->alloc, b->alloc) == 0;
    if (!*keeps)
        profile_release(old);
    return 0;
}

/* Entries that the run will add, at most. */
static size_t new_models(const struct tune *tune, const struct profile *old)
{
    const struct tune_options *o = tune->options;
    const char *rows_key = tune->machine ? TUNE_ROWS_SHAPE : tune->key;
    size_t n = !o->no_sweep && !profile_model(old, tune->key);
    if (!o->no_rows && !profile_model(old, rows_key))
        n += !n || strcmp(rows_key, tune->key) != 0;
    return n;
}

/* Bytes of text that the run will add, at most. */
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
    const int rc =
        old.n_models + new_models(tune, &old) > PROFILE_MODELS
            ? err_set(err,
                      "%s: has %zu models of at most %d, none can be added: give another --profile, "
                      "or remove this one",
                      path, old.n_models, PROFILE_MODELS)
            : check_bytes(tune, &old, path, err);
    profile_release(&old);
    return rc;
}

/* What is there stays, where this run has nothing new. */
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
        return err_set(err, "there is no place for the profile; give --profile FILE");
    if (keep_old(tune, path, err) < 0 || profile_save(&tune->profile, path, err) < 0)
        return -1;
    if (tune->options->format == TABLE_TEXT && !tune->options->quiet) {
        cli_say(stdout, "\n");
        cli_say(stdout, "profile written to %s\n", path);
    }
    return 0;
}
