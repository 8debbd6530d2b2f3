/* bmc-tune --check: does the profile still fit this machine? */
#include <math.h>
#include <string.h>

#include "base/cache_types.h"
#include "cli.h"
#include "tune.h"
#include "tuned.h"

/* A profile whose T cost more than this beyond the best T no longer fits: the bound of a single cell. */
#define MOST 1.08

static struct tune_question question_of(const struct tune *tune, size_t N)
{
    const struct tune_run *run = &tune->run;
    return (struct tune_question){.attn = run->attn->name,
                                  .type = run->type,
                                  .heads = run->heads,
                                  .kv_heads = run->kv_heads,
                                  .head_dim = run->head_dim,
                                  .layers = tune->config.layers,
                                  .batch = tune->batch[0],
                                  .N = N,
                                  .k = 1,
                                  .m = 1};
}

/* What the profile's T costs by today's constants, beside today's T. */
static int compare(const struct tune *tune, const struct profile *old, json_t *rows, double *worst,
                   struct err *err)
{
    for (size_t i = 0; i < tune->n_N; i++) {
        const struct tune_question question = question_of(tune, tune->N[i]);
        struct cost_cell cell;
        struct cost_answer now;
        enum kv_T_from from;
        const size_t T = profile_T(old, &question, &from);
        if (!T)
            return err_set(err,
                           "the profile has no constants for attention %s and %s rows; run bmc-tune",
                           question.attn, cache_type_name(question.type));
        if (!profile_cell(&tune->profile, &question, &cell) || cost_answer(&cell, &now, err) < 0)
            return -1;
        const double ratio = cost_cell_seconds(&cell, T) / now.pow2_s;
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

/* How far the constants have moved, at the middle of their sizes. */
static int add_drift(const struct tune *tune, const struct profile *old, struct buf *text,
                     struct err *err)
{
    const struct tune_question question = question_of(tune, 1024);
    struct cost_cell then, now;
    if (!profile_cell(old, &question, &then) || !profile_cell(&tune->profile, &question, &now))
        return 0;
    const struct cost a = cost_of_cell(&then), b = cost_of_cell(&now);
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
    struct buf text = {0};
    if (tune->options->quiet)
        return 0;
    json_t *about = json_pack("{s:b, s:f, s:f}", "fits", fits, "worst_ratio", worst, "limit", MOST);
    int rc = about ? table_write(rows, about, format, &text, err)
                   : err_set(err, "out of memory for what was found");
    if (rc == 0 && brief)
        rc = buf_addf(&text, err,
                      "\n%s%s: the profile's T cost up to %.3f times today's; the limit is %.2f\n",
                      buf_text(drift), fits ? "fits" : "does not fit", worst, MOST);
    if (rc == 0 && text.len) {
        text_make_printable(text.data, text.len, "\t\n");
        fwrite(text.data, 1, text.len, stdout);
    }
    buf_release(&text);
    json_decref(about);
    return rc;
}

static int open_old(const struct tune *tune, struct profile *old, struct err *err)
{
    const struct machine *here = &tune->profile.machine;
    char path[8192];
    bool found = false;
    if (!tuned_path(tune->options->profile, path, sizeof path))
        return err_set(err, "there is no place for a profile; give --profile FILE");
    if (profile_open(old, path, &found, err) < 0)
        return -1;
    if (!found)
        return err_set(err, "%s does not exist; bmc-tune makes it", path);
    int rc = profile_check_machine(old, here, err);
    if (rc == 0 && (old->machine.threads != here->threads || strcmp(old->machine.isa, here->isa) != 0 ||
                    strcmp(old->machine.alloc, here->alloc) != 0))
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
    struct buf drift = {0};
    json_t *rows = json_array();
    double worst = 0;
    int rc = open_old(tune, &old, err);
    if (rc < 0)
        goto out;
    if ((rc = tune_calibrate(tune, err)) == 0 && (rc = compare(tune, &old, rows, &worst, err)) == 0 &&
        (rc = add_drift(tune, &old, &drift, err)) == 0)
        rc = print_check(tune, rows, &drift, worst, err);
    profile_release(&old);
    if (rc == 0)
        rc = worst > MOST;
out:
    json_decref(rows);
    buf_release(&drift);
    return rc;
}
