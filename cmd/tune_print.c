/* Printing what bmc-tune found. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "tune.h"

static json_t *cells_json(const struct tune *tune)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < tune->n_cells; i++)
        json_array_append_new(rows, cell_row(&tune->cell[i], &tune->run, tune->shape));
    return rows;
}

static json_t *curves_json(const struct tune *tune)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < tune->n_cells; i++) {
        json_t *one = cell_curve(&tune->cell[i]);
        json_array_extend(rows, one);
        json_decref(one);
    }
    return rows;
}

static json_t *machine_json(const struct machine *m)
{
    return json_pack("{s:s, s:I, s:I, s:s, s:I, s:s}", "cpu", m->cpu, "cores", (json_int_t)m->cores,
                     "threads", (json_int_t)m->threads, "isa", m->isa, "page_size",
                     (json_int_t)m->page_size, "alloc", m->alloc);
}

static json_t *about_json(const struct tune *tune)
{
    struct tune_run run = tune->run;
    const struct profile *p = &tune->profile;
    run.sweeper = tune->options->state == TUNE_HOT ? NULL : &tune->sweeper;
    run.batch = tune->batch[0];
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "version", BMC_RELEASE, "machine",
                     machine_json(&p->machine), "constants", constants_json(p, &run), "free_rows",
                     free_rows_json(p), "policy", p->policy[0] ? json_string(p->policy) : json_null(),
                     "curve", curves_json(tune), "points", constants_rows(p));
}

/* The members of every row that `columns` names. */
static json_t *pick(const json_t *rows, const char *columns)
{
    json_t *picked = json_array();
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_object();
        char name[64];
        for (const char *at = columns; *at; at += *at == ' ') {
            const size_t len = strcspn(at, " ");
            snprintf(name, sizeof name, "%.*s", (int)len, at);
            json_object_set(row, name, json_object_get(json_array_get(rows, i), name));
            at += len;
        }
        json_array_append_new(picked, row);
    }
    return picked;
}

static int add_table(struct buf *text, const char *title, json_t *rows, const char *columns,
                     enum table_format format, struct err *err)
{
    json_t *picked = pick(rows, columns);
    int rc = json_array_size(rows) ? buf_addf(text, err, "%s\n\n", title) : 0;
    if (rc == 0 && json_array_size(rows))
        rc = table_write(picked, NULL, format, text, err);
    if (rc == 0 && json_array_size(rows))
        rc = buf_addf(text, err, "\n");
    json_decref(picked);
    json_decref(rows);
    return rc;
}

static json_t *steps_rows(const struct profile *p)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < p->rows.n; i++)
        json_array_append_new(rows,
                              json_pack("{s:I, s:f, s:f, s:f}", "rows", (json_int_t)free_row_counts[i],
                                        "step_ms", p->rows.step_ms[i], "spread", p->rows.spread[i],
                                        "over_one_row", p->rows.step_ms[i] / p->rows.step_ms[0]));
    return rows;
}

static int add_free_rows(struct buf *text, const struct profile *p, enum table_format format,
                         struct err *err)
{
    static const double acceptance[] = {0.5, 0.6, 0.7, 0.8, 0.9};
    char title[256];
    if (!p->rows.n)
        return 0;
    snprintf(title, sizeof title, "A step of %s by rows, medians of %zu rounds:", p->step_model,
             p->rows.samples);
    if (add_table(text, title, steps_rows(p), "rows step_ms spread over_one_row", format, err) < 0 ||
        buf_addf(
            text, err,
            "Up to %zu rows take no longer than 1.15 times one row.\nCandidates to verify at a time, "
            "by the probability that each is accepted:",
            p->rows.free) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(acceptance); i++) {
        double speedup;
        const size_t k = free_rows_k(&p->rows, acceptance[i], &speedup);
        if (buf_addf(text, err, "%s %g: k = %zu (%.2f times)", i ? "," : "", acceptance[i], k,
                     speedup) < 0)
            return -1;
    }
    return buf_addf(text, err, ".\n");
}

/* What the T of a measured cell saves, in a sentence. */
static int add_verdict(struct buf *text, const struct cell *c, struct err *err)
{
    if (c->refusal)
        return buf_addf(text, err, "N = %zu, batch %zu: not measured, %s.\n", c->N, c->batch,
                        c->refusal);
    if (!c->measured)
        return 0;
    double ratio;
    const char *fastest = cell_fastest(c, &ratio);
    if (buf_addf(
            text, err,
            "N = %zu, batch %zu, %s: use T = %zu; %.3f of the fitted best (T = %.1f, 90 %% in %.1f "
            "to %.1f)",
            c->N, c->batch, c->cold ? "cold" : "hot", c->answer.pow2, c->regret.ratio, c->regret.fit.T,
            c->regret.T_lo, c->regret.T_hi) < 0)
        return -1;
    if (c->over_bmc[CELL_ITERATIVE].value > 0 &&
        buf_addf(text, err, "; iterative takes %.2f, upfront %.2f, reserve %.2f times as long",
                 c->over_bmc[CELL_ITERATIVE].value, c->over_bmc[CELL_UPFRONT].value,
                 c->over_bmc[CELL_RESERVE].value) < 0)
        return -1;
    if (c->batch_run < c->batch &&
        buf_addf(text, err, "; %zu of %zu sequences were run", c->batch_run, c->batch) < 0)
        return -1;
    return buf_addf(text, err, "; fastest: %s.\n", fastest);
}

static int print_brief(const struct tune *tune, struct buf *text, enum table_format format,
                       struct err *err)
{
    const struct machine *m = &tune->profile.machine;
    if (buf_addf(text, err, "%s, %zu cores, %zu threads, isa %s, alloc %s; shape %s\n\n", m->cpu,
                 m->cores, m->threads, m->isa, m->alloc, tune->shape) < 0 ||
        add_table(text, "Constants by bytes of K and V:", constants_rows(&tune->profile),
                  "constant attn kv_type G query_rows batch state bytes value spread samples", format,
                  err) < 0 ||
        add_table(text, "Times of one layer over T:", curves_json(tune),
                  "N batch state T predicted_ms measured_ms measured_ms_q1 measured_ms_q3 fit_ms used",
                  format, err) < 0 ||
        add_table(text, "T:", cells_json(tune),
                  "N batch state T_closed T_closed_gq T_pow2 T_model T_fit T_measured predicted_ms "
                  "measured_ms regret regret_raw",
                  format, err) < 0)
        return -1;
    for (size_t i = 0; i < tune->n_cells; i++)
        if (add_verdict(text, &tune->cell[i], err) < 0)
            return -1;
    return add_free_rows(text, &tune->profile, format, err);
}

int tune_print(const struct tune *tune, struct err *err)
{
    const enum table_format format = (enum table_format)tune->options->format;
    struct buf text = {0};
    int rc;
    if (format == TABLE_TEXT || format == TABLE_MD) {
        rc = print_brief(tune, &text, format, err);
    } else {
        json_t *rows = cells_json(tune), *about = about_json(tune);
        rc = rows && about ? table_write(rows, about, format, &text, err)
                           : err_set(err, "out of memory for rows");
        json_decref(rows);
        json_decref(about);
    }
    if (rc == 0 && text.len) {
        text_make_printable(text.data, text.len, "\t\n");
        fwrite(text.data, 1, text.len, stdout);
    }
    buf_release(&text);
    return rc;
}
