/* The profile file: reading and updating it, and --check, which tests whether it still suits this machine. */
#include <sys/stat.h>

#include "quant/cache_types.h"
#include "cli.h"
#include "tune/tune.h"
#include "tuned.h"

/* ---- updating ---- */

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
    AUTO(buf_release) struct buf text = {0};
    int rc = profile_write(old, &text, err);
    if (rc == 0 && text.len + new_bytes(tune) > PROFILE_BYTES)
        rc = err_set(err,
                     "%s: has %zu bytes of at most %d, too many to add to: give another --profile, or "
                     "remove this one",
                     path, text.len, PROFILE_BYTES);
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
    if (!tuned_path(tune->options->profile, tune->run.backend, path, sizeof path))
        return err_set(err, "no folder for the profile: set HOME or give --profile FILE");
    if (keep_old(tune, path, err) < 0 || profile_save(&tune->profile, path, err) < 0)
        return -1;
    return tune_say_end(tune, path, err);
}

/* ---- checking ---- */

/* largest acceptable time of the profile's T relative to the present best T */
#define MOST 1.08

static struct tune_query query_of(const struct tune *tune, size_t N)
{
    struct tune_query query = tune_query_of(&tune->run, tune->batch[0], N);
    query.layers = tune->config.layers;
    query.k = query.m = 1;
    query.hot = false;
    return query;
}

/* Predicts decode times with the profile's T and with the T that is best now, both from the rates
 * measured now, and adds a result row for each N. */
static int compare_T(const struct tune *tune, const struct profile *old, json_t *rows, double *worst,
                     struct err *err)
{
    for (size_t i = 0; i < tune->n_N; i++) {
        const struct tune_query query = query_of(tune, tune->N[i]);
        struct cost_config point;
        struct cost_answer now;
        enum kv_T_from from;
        const size_t T = profile_T(old, &query, &from);
        if (!T)
            return err_set(err,
                           "the profile has no constants for attention %s and %s rows; run bmc-tune",
                           query.attn, cache_type_name(query.type));
        if (!profile_cost_config(&tune->profile, &query, &point) || cost_answer(&point, &now, err) < 0)
            return -1;
        const double ratio = cost_config_seconds(&point, T) / now.pow2_s;
        *worst = fmax(*worst, ratio);
        if (json_push(rows,
                      json_pack("{s:I, s:I, s:s, s:I, s:f}", "N", (json_int_t)tune->N[i], "T_profile",
                                (json_int_t)T, "T_from", kv_T_from_name(from), "T_now",
                                (json_int_t)now.pow2, "cost_ratio", ratio),
                      err) < 0)
            return -1;
    }
    return 0;
}

/* Appends a line that compares rates of copying and attention in the profile with those measured
 * now, each at the middle of its size range. */
static int add_drift(const struct tune *tune, const struct profile *old, struct buf *text,
                     struct err *err)
{
    const struct tune_query query = query_of(tune, 1024);
    struct cost_config then, now;
    if (!profile_cost_config(old, &query, &then) || !profile_cost_config(&tune->profile, &query, &now))
        return 0;
    const struct cost a = cost_constant_rates(&then), b = cost_constant_rates(&now);
    return buf_addf(text, err,
                    "copy_elem_s %.4g in the profile, %.4g now (%.2f times); sdpa_mac_s %.4g, now %.4g "
                    "(%.2f times)\n",
                    a.copy_elem_s, b.copy_elem_s, b.copy_elem_s / a.copy_elem_s, a.sdpa_mac_s,
                    b.sdpa_mac_s, b.sdpa_mac_s / a.sdpa_mac_s);
}

static int print_check(const struct tune *tune, json_t *rows, const struct buf *drift, double worst,
                       struct err *err)
{
    const enum table_format format = (enum table_format)tune->options->format;
    const bool brief = format == TABLE_TEXT || format == TABLE_MD, fits = worst <= MOST;
    AUTO(buf_release) struct buf text = {0};
    if (tune->options->quiet)
        return 0;
    AUTO(json_auto)
    json_t *about = json_pack("{s:b, s:f, s:f}", "fits", fits, "worst_ratio", worst, "limit", MOST);
    int rc =
        about ? table_write(rows, about, format, &text, err) : err_no_memory(err, "what was found");
    if (rc == 0 && brief)
        rc = buf_addf(
            &text, err,
            "\n%s%s: the profile's T take up to %.3f times as long as today's; the limit is %.2f\n",
            buf_text(drift), fits ? "fits" : "does not fit", worst, MOST);
    if (rc == 0 && text.len) {
        text_make_printable(text.data, text.len, "\t\n");
        rc = cli_put(text.data, text.len, err);
    }
    return rc;
}

static int open_checked(const struct tune *tune, struct profile *old, struct err *err)
{
    const struct machine *here = &tune->profile.machine;
    char path[8192];
    bool found = false;
    if (!tuned_path(tune->options->profile, tune->run.backend, path, sizeof path))
        return err_set(err, "no folder for the profile: set HOME or give --profile FILE");
    if (profile_open(old, path, &found, err) < 0)
        return -1;
    if (!found)
        return err_set(err, "%s does not exist; bmc-tune makes it", path);
    int rc = profile_check_machine(old, here, err);
    if (rc == 0 && !machine_same_settings(&old->machine, here))
        rc = err_set(err, "made with %zu threads, isa %s, alloc %s; this is %zu, %s, %s",
                     old->machine.threads, old->machine.isa, old->machine.alloc, here->threads,
                     here->isa, here->alloc);
    if (rc < 0) {
        err_prefix(err, "%s", path);
        profile_release(old);
    }
    return rc;
}

int tune_check(struct tune *tune, struct err *err)
{
    struct profile old;
    AUTO(buf_release) struct buf drift = {0};
    double worst = 0;
    int rc = open_checked(tune, &old, err);
    if (rc < 0)
        return -1;
    AUTO(json_auto) json_t *rows = json_array();
    if ((rc = tune_calibrate(tune, err)) == 0 && (rc = compare_T(tune, &old, rows, &worst, err)) == 0 &&
        (rc = add_drift(tune, &old, &drift, err)) == 0)
        rc = print_check(tune, rows, &drift, worst, err);
    profile_release(&old);
    return rc == 0 ? worst > MOST : rc;
}
