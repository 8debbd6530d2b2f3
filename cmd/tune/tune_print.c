/* Prints the results of bmc-tune. */
#include "cli.h"
#include "tune/tune.h"

static json_t *points_json(const struct tune *tune, struct err *err)
{
    json_t *rows = json_array();
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < tune->n_points; i++)
        rc = add_point_row(rows, &tune->point[i], &tune->run, tune->shape, err);
    return json_or_null(rows, rc, err);
}

static json_t *by_point(const struct tune *tune,
                        int (*add)(json_t *rows, const struct config_point *point, struct err *err),
                        struct err *err)
{
    json_t *rows = json_array();
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < tune->n_points; i++)
        rc = add(rows, &tune->point[i], err);
    return json_or_null(rows, rc, err);
}

static json_t *machine_json(const struct machine *m)
{
    return json_pack("{s:s, s:I, s:I, s:s, s:I, s:s}", "cpu", m->cpu, "cores", (json_int_t)m->cores,
                     "threads", (json_int_t)m->threads, "isa", m->isa, "page_size",
                     (json_int_t)m->page_size, "alloc", m->alloc);
}

static json_t *speculation_json(const struct tune *tune, struct err *err)
{
    json_t *rows = json_array();
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < tune->n_speculations; i++) {
        const struct tune_speculation *s = &tune->speculation[i];
        const struct spec_plan *p = &s->plan;
        rc = json_push(rows,
                       json_pack("{s:I, s:I, s:I, s:s, s:I, s:I, s:f, s:f, s:I, s:f, s:f}", "N",
                                 (json_int_t)s->N, "batch", (json_int_t)s->batch, "T", (json_int_t)p->T,
                                 "shape", p->shape.tree ? "tree" : "chain", "draft_tokens",
                                 (json_int_t)p->shape.draft_tokens, "levels",
                                 (json_int_t)p->shape.levels, "tokens_per_step", p->tokens, "ms",
                                 p->seconds * 1e3, "plain_T", (json_int_t)p->plain_T, "plain_ms",
                                 p->plain_seconds * 1e3, "speedup", p->plain_seconds / p->seconds),
                       err);
    }
    return json_or_null(rows, rc, err);
}

static json_t *about_json(const struct tune *tune, struct err *err)
{
    struct tune_run run = tune->run;
    const struct profile *p = &tune->profile;
    const struct tuned_model *model = profile_model(p, tune->key);
    run.evictor = tune->options->state == TUNE_HOT ? NULL : &tune->evictor;
    run.batch = tune->batch[0];
    json_t *about =
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "version", BMC_RELEASE, "machine",
                  machine_json(&p->machine), "constants", constants_json(p, &run), "batch_knee",
                  batch_knee_json(profile_model(p, tune->knee_key)), "model",
                  json_text(tune->key, strlen(tune->key)), "policy",
                  model && model->policy[0] ? json_string(model->policy) : json_null(), "curve",
                  by_point(tune, add_point_curve, err), "points", constants_rows(p, err), "speculation",
                  speculation_json(tune, err));
    if (!about)
        err_no_memory(err, "rows");
    return about;
}

/* A table with a title: its rows and columns. */
#define TABLE(text, title, rows, format, err, ...)                                                     \
    add_table(text, title, rows, (const char *const[]){__VA_ARGS__, NULL}, format, err)

/* Adds a table with a title, unless it has no rows. Takes ownership of `rows`; NULL: out of
 * memory. */
static int add_table(struct buf *text, const char *title, json_t *rows, const char *const *columns,
                     enum table_format format, struct err *err)
{
    AUTO(json_auto) json_t *picked = NULL;
    size_t n = 0;
    while (columns[n])
        n++;
    int rc = rows ? table_pick(rows, columns, n, &picked, err) : -1;
    if (rc == 0 && json_array_size(picked) &&
        (buf_addf(text, err, "%s\n\n", title) < 0 || table_write(picked, NULL, format, text, err) < 0 ||
         buf_addf(text, err, "\n") < 0))
        rc = -1;
    json_decref(rows);
    return rc;
}

static json_t *steps_rows(const struct batch_knee *r, struct err *err)
{
    json_t *rows = json_array();
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < r->n; i++)
        rc = json_push(rows,
                       json_pack("{s:I, s:f, s:f, s:f}", "tokens", (json_int_t)knee_counts[i],
                                 "step_ms", r->step_ms[i], "spread", r->spread[i], "over_one",
                                 r->step_ms[i] / r->step_ms[0]),
                       err);
    return json_or_null(rows, rc, err);
}

static int add_knee(struct buf *text, const struct tuned_model *model, enum table_format format,
                    struct err *err)
{
    char title[256];
    if (!model || !model->knee.n)
        return 0;
    snprintf(title, sizeof title,
             "Step times of %s by number of tokens, fastest of %zu rounds:", model->name,
             model->knee.samples);
    if (TABLE(text, title, steps_rows(&model->knee, err), format, err, "tokens", "step_ms", "spread",
              "over_one") < 0 ||
        tune_add_knee(text, model, err) < 0 ||
        buf_addf(text, err, "Best draft length by acceptance probability:") < 0)
        return -1;
    for (size_t i = 0; i < KNEE_ACCEPTANCES; i++) {
        double speedup;
        const size_t k = batch_knee_k(&model->knee, knee_acceptance[i], &speedup);
        if (buf_addf(text, err, "%s %g: k = %zu (%.2f times)", i ? "," : "", knee_acceptance[i], k,
                     speedup) < 0)
            return -1;
    }
    return buf_addf(text, err, ".\n");
}

/* Adds the T to use, and its time relative to the best T, fitted and measured. */
static int add_T(struct buf *text, const struct config_point *c, struct err *err)
{
    const struct regret *r = &c->regret;
    if (buf_addf(text, err,
                 "N = %zu, batch %zu, %s: use T = %zu; it takes %.3f (90 %%: %.3f to %.3f) times as "
                 "long as the best T of the fit, %.1f (%.1f to %.1f), and ",
                 c->N, c->batch, c->cold ? "cold" : "hot", c->answer.pow2, r->ratio, r->lo, r->hi,
                 r->fit.T, r->T_lo, r->T_hi) < 0)
        return -1;
    if (r->best == c->used)
        return buf_addf(text, err, "was the fastest measured");
    /* a ratio below 1 is noise */
    if (r->raw.value <= 1 || (r->raw.lo <= 1 && r->raw.hi >= 1))
        return buf_addf(text, err, "about as long as T = %.0f, the fastest measured", c->T[r->best]);
    return buf_addf(text, err, "%.3f (%.3f to %.3f) times as long as T = %.0f, the fastest measured",
                    r->raw.value, r->raw.lo, r->raw.hi, c->T[r->best]);
}

/* Adds the fastest policy, and whether the difference exceeds noise. */
static int add_fastest(struct buf *text, const struct config_point *c, struct err *err)
{
    struct ratio ratio;
    const char *fastest = config_point_fastest(c, &ratio);
    if (!(c->over_bmc[POINT_ITERATIVE].value > 0))
        return 0;
    if (strcmp(fastest, "bmc") == 0)
        return buf_addf(text, err, "; fastest policy: bmc");
    return buf_addf(text, err, "; fastest policy: %s, %.3f (%.3f to %.3f) times as long as bmc%s",
                    fastest, ratio.value, ratio.lo, ratio.hi,
                    ratio.hi < 1 ? "" : ", which is not significant");
}

static int add_verdict(struct buf *text, const struct config_point *c, struct err *err)
{
    if (c->refusal)
        return buf_addf(text, err, "N = %zu, batch %zu: not measured, %s.\n", c->N, c->batch,
                        c->refusal);
    if (!c->measured)
        return 0;
    if (add_T(text, c, err) < 0 || add_fastest(text, c, err) < 0)
        return -1;
    if (c->batch_run < c->batch &&
        buf_addf(text, err, "; %zu of %zu sequences were run", c->batch_run, c->batch) < 0)
        return -1;
    return buf_addf(text, err, ".\n");
}

int tune_warnings(const struct tune *tune, struct err *err)
{
    bool written = false;
    for (size_t i = 0; i < tune->n_points; i++) {
        const struct config_point *c = &tune->point[i];
        const struct regret *r = &c->regret;
        if (!config_point_contradicts(c))
            continue;
        written = written || (c->cold && c->k == 1);
        if (!tune->options->quiet)
            fprintf(stderr,
                    "%s: warning: N = %zu, batch %zu, %s: fit and measurement disagree: T = %zu takes "
                    "%.3f (%.3f to %.3f) times as long as the best T by the fit, %.3f (%.3f to %.3f) "
                    "as measured\n",
                    tune_program.name, c->N, c->batch, c->cold ? "cold" : "hot", c->answer.pow2,
                    r->ratio, r->lo, r->hi, r->raw.value, r->raw.lo, r->raw.hi);
    }
    if (!written || tune->options->force || tune->options->dry_run)
        return 0;
    return err_set(
        err,
        "the profile was not written, because fit and measurement disagree, in each of %d "
        "measurements: measure again with more --rounds on an idle machine, or write it with "
        "--force",
        TUNE_ATTEMPTS);
}

static int add_sentences(struct buf *text, const struct tune *tune, struct err *err)
{
    for (size_t i = 0; i < tune->n_points; i++)
        if (add_verdict(text, &tune->point[i], err) < 0)
            return -1;
    return tune_add_policy(text, profile_model(&tune->profile, tune->key), err);
}

static int print_brief(const struct tune *tune, struct buf *text, enum table_format format,
                       struct err *err)
{
    if (tune_add_machine(text, tune, err) < 0 || buf_add(text, "\n", 1, err) < 0 ||
        TABLE(text, "Rates by bytes of K and V:", constants_rows(&tune->profile, err), format, err,
              "constant", "attn", "kv_type", "G", "query_rows", "batch", "state", "bytes", "value",
              "spread", "samples") < 0 ||
        TABLE(text, "Times of one layer over T:", by_point(tune, add_point_curve, err), format, err,
              "N", "batch", "state", "T", "predicted_ms", "measured_ms", "measured_ms_q1",
              "measured_ms_q3", "fit_ms", "used") < 0 ||
        TABLE(text, "T:", points_json(tune, err), format, err, "N", "batch", "state", "T_closed",
              "T_closed_gq", "T_pow2", "T_model", "T_fit", "T_fit_lo", "T_fit_hi", "T_measured",
              "predicted_ms", "measured_ms", "regret", "regret_lo", "regret_hi", "regret_raw",
              "regret_raw_lo", "regret_raw_hi") < 0 ||
        TABLE(text, "Policies:", by_point(tune, add_point_policies, err), format, err, "N", "batch",
              "state", "policy", "ms", "ms_q1", "ms_q3", "over_bmc", "over_bmc_lo",
              "over_bmc_hi") < 0 ||
        TABLE(text, "Speculation, expected of a decode to N tokens:", speculation_json(tune, err),
              format, err, "N", "batch", "T", "shape", "draft_tokens", "levels", "tokens_per_step",
              "ms", "plain_T", "plain_ms", "speedup") < 0 ||
        add_sentences(text, tune, err) < 0)
        return -1;
    return add_knee(text, profile_model(&tune->profile, tune->knee_key), format, err);
}

static int print_rows(const struct tune *tune, struct buf *text, enum table_format format,
                      struct err *err)
{
    AUTO(json_auto) json_t *rows = points_json(tune, err), *about = rows ? about_json(tune, err) : NULL;
    return about ? table_write(rows, about, format, text, err) : -1;
}

int tune_print(const struct tune *tune, struct err *err)
{
    const struct tune_options *o = tune->options;
    const enum table_format format = (enum table_format)o->format;
    AUTO(buf_release) struct buf text = {0};
    if (o->quiet)
        return 0;
    int rc = o->format == TUNE_SUMMARY                    ? tune_add_summary(tune, &text, err)
             : format == TABLE_TEXT || format == TABLE_MD ? print_brief(tune, &text, format, err)
                                                          : print_rows(tune, &text, format, err);
    if (rc == 0 && text.len) {
        text_make_printable(text.data, text.len, "\t\n");
        rc = cli_put(text.data, text.len, err);
    }
    return rc;
}
