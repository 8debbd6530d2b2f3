/* bmc-prof compare: compares two measurements. */
#include <stdlib.h>
#include <string.h>

#include "report/stat.h"
#include "cli.h"
#include "prof/prof.h"
#include "prof/prof_against.h"
#include "prof/compare.h"
#include "prof/rows.h"
#include "prof/samples.h"

struct comparison {
    const struct prof_options *options;
    struct measured file[2];
    json_t *rows;
    bool paired;         /* round i of A and round i of B are a pair */
    const char *name[2]; /* file names or builds, for messages */
    size_t count[VERDICT_NONE + 1];
    size_t matched;
};

/* Adds a result row: the fields that identify the measurement (`of`), then those of `result`, whose
 * reference it takes. Fails if `result` is NULL. */
static int add_row(struct comparison *c, const struct measured_row *of, json_t *result, struct err *err)
{
    json_t *row = json_object(); /* json_copy() drops members silently when out of memory */
    const bool ok =
        result && json_object_update(row, of->what) == 0 && json_object_update(row, result) == 0;
    const int rc = ok ? json_push(c->rows, json_incref(row), err) : err_no_memory(err, "a row");
    json_decref(row);
    json_decref(result);
    return rc;
}

/* The result for a figure that only one file has (0: A, 1: B); `figure` NULL: the whole row. */
static json_t *only_in(int which, const char *figure)
{
    return json_pack("{s:s?, s:n, s:n, s:n, s:n, s:n, s:n, s:n, s:s}", "figure", figure, "a", "b",
                     "ratio", "ratio_lo", "ratio_hi", "rounds_a", "rounds_b", "verdict",
                     which ? "only in B" : "only in A");
}

static int compare_figure(struct comparison *c, const struct measured_row *const row[2],
                          const char *figure, struct err *err)
{
    double round[2][COMPARE_ROUNDS];
    size_t n[2];
    bool less;
    for (int i = 0; i < 2; i++)
        n[i] = measured_rounds(row[i], figure, round[i]);
    if (!n[0] || !n[1])
        return add_row(c, row[0], only_in(!n[0], figure), err);
    figure_direction(figure, &less);
    const struct change change = c->paired ? change_of_pairs(round[0], round[1], n[0])
                                           : change_of(round[0], n[0], round[1], n[1]);
    const enum verdict verdict = change_verdict(&change, less, c->options->tolerance / 100);
    const bool bounded = change.there && change.bounded;
    c->count[verdict]++;
    return add_row(c, row[0],
                   json_pack("{s:s, s:f, s:f, s:o, s:o, s:o, s:I, s:I, s:s}", "figure", figure, "a",
                             stat_quantile(round[0], n[0], 0.5), "b",
                             stat_quantile(round[1], n[1], 0.5), "ratio",
                             rows_real_if(change.there, change.value), "ratio_lo",
                             rows_real_if(bounded, change.lo), "ratio_hi",
                             rows_real_if(bounded, change.hi), "rounds_a", (json_int_t)n[0], "rounds_b",
                             (json_int_t)n[1], "verdict", verdict_name(verdict)),
                   err);
}

/* Compares all figures of a row that both files have: first those of A, then those only in B. */
static int compare_row(struct comparison *c, const struct measured_row *const row[2], struct err *err)
{
    const char *figure;
    json_t *rounds;
    int rc = 0;
    c->matched++;
    for (int i = 0; i < 2; i++)
        json_object_foreach((json_t *)(uintptr_t)row[i]->samples, figure, rounds)
        {
            if (rc == 0 && (i == 0 || !json_object_get(row[0]->samples, figure)))
                rc = compare_figure(c, row, figure, err);
        }
    return rc;
}

/* Iterates over one file's rows. With `pairs` compares those that the other file has, too;
 * otherwise lists those that it lacks. */
static int walk(struct comparison *c, int which, bool pairs, struct err *err)
{
    const struct measured *mine = &c->file[which], *other = &c->file[!which];
    for (size_t i = 0; i < mine->n; i++) {
        const struct measured_row *row[2] = {&mine->row[i], NULL};
        if (measured_find(other, row[0], &row[1], err) < 0)
            return -1;
        if (pairs && row[1] && compare_row(c, row, err) < 0)
            return -1;
        if (!pairs && !row[1] && add_row(c, row[0], only_in(which, NULL), err) < 0)
            return -1;
    }
    return 0;
}

/* The distinct values of field `key` in a file's rows, as they occur; NULL: out of memory. */
static json_t *values_of(const struct measured *m, const char *key)
{
    json_t *values = json_object(), *list = json_array();
    bool ok = values && list;
    for (size_t i = 0; ok && i < m->n; i++) {
        const char *text = json_string_value(json_object_get(m->row[i].all, key));
        if (text && !json_object_get(values, text))
            ok = json_object_set_new(values, text, json_true()) == 0 &&
                 json_array_append_new(list, json_string(text)) == 0;
    }
    json_decref(values);
    if (!ok) {
        json_decref(list);
        list = NULL;
    }
    return list;
}

/* Warns if the rows of A and B differ in field `key`. */
static int tell_difference(const struct comparison *c, const char *key, struct err *err)
{
    json_t *values[2];
    struct buf text[2] = {{0}, {0}};
    int rc = 0;
    for (int i = 0; i < 2; i++) {
        values[i] = values_of(&c->file[i], key);
        if (rc == 0)
            rc = values[i] ? json_format(values[i], JSON_COMPACT, &text[i], err)
                           : err_no_memory(err, "the values of \"%s\"", key);
    }
    if (rc == 0 && !json_equal(values[0], values[1]))
        cli_say(stderr, "%s: %s differs: %.*s in A, %.*s in B\n", prof_program.name, key, 200,
                text[0].data, 200, text[1].data);
    for (int i = 0; i < 2; i++) {
        json_decref(values[i]);
        buf_release(&text[i]);
    }
    return rc;
}

static int tell_differences(const struct comparison *c, struct err *err)
{
    static const char *const keys[] = {"model_id", "isa", "cpu", "version", "commit"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (tell_difference(c, keys[i], err) < 0)
            return -1;
    return 0;
}

/* Prints the result rows. Columns are the fields that differ between rows, and the comparison. */
static int print(const struct comparison *c, struct err *err)
{
    static const char *const what[] = {
        "test",      "policy",   "n",     "batch",       "n_prompt", "n_gen", "depth",
        "shape",     "layers",   "N",     "weight_type", "kv_type",  "attn",  "isa",
        "precision", "attended", "alloc", "lockstep",    "threads",  "seed",
    };
    struct buf columns = {0};
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(what) && rc == 0; i++)
        if (i < 2 || !prof_same_in_all(c->rows, what[i]))
            rc = buf_addf(&columns, err, "%s ", what[i]);
    if (rc == 0)
        rc = buf_addf(&columns, err, "figure a b ratio ratio_lo ratio_hi verdict");
    if (rc == 0)
        rc = prof_print_rows(NULL, c->options, c->rows, columns.data, err);
    buf_release(&columns);
    return rc;
}

/* Sets the exit status, and the message that explains it. */
static int conclude(const struct comparison *c, struct err *err)
{
    const char *needed =
        c->paired ? "6 pairs, none of their values 0" : "4 rounds on both sides, none of them 0";
    size_t figures = 0;
    for (size_t i = 0; i <= VERDICT_NONE; i++)
        figures += c->count[i];
    if (!c->matched || !figures)
        return err_set(err, "%s and %s have no measurement in common", c->name[0], c->name[1]);
    if (c->count[VERDICT_NONE] == figures)
        return err_set(err,
                       "none of %zu figures has an interval, so there is no verdict: it takes %s: %s",
                       figures, needed,
                       c->paired ? "give --repeat 6 or more" : "measure both with --repeat 4 or more");
    if (c->count[VERDICT_NONE])
        fprintf(stderr, "%s: %zu of %zu figures have no interval: it takes %s\n", prof_program.name,
                c->count[VERDICT_NONE], figures, needed);
    if (c->count[VERDICT_WORSE])
        return err_set(err, "%zu of %zu figures are worse in %s than in %s, by more than %g %%",
                       c->count[VERDICT_WORSE], figures, c->name[1], c->name[0], c->options->tolerance);
    return 0;
}

static void tell_errors(const struct measured *measured, const char *path)
{
    const json_t *rows = json_object_get(measured->root, "rows");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *policy = json_string_value(json_object_get(row, "policy"));
        if (measured_error(row))
            cli_say(stderr, "%s: %s: %s was not measured: %s\n", prof_program.name, path,
                    policy ? policy : "a row", measured_error(row));
    }
}

static int read_file(const char *path, struct measured *measured, struct err *err)
{
    struct buf text = {0};
    int rc = cli_read_all(path, &text, err);
    if (rc == 0)
        rc = measured_parse(measured, text.data, text.len, path, err);
    if (rc == 0)
        tell_errors(measured, path);
    buf_release(&text);
    return rc;
}

int prof_compare(const struct prof_options *options, struct err *err)
{
    struct comparison c = {.options = options,
                           .rows = json_array(),
                           .paired = options->against != NULL,
                           .name = {options->file[0], options->file[1]}};
    int rc = c.rows ? 0 : err_no_memory(err, "rows");
    if (c.paired) {
        c.name[0] = options->against;
        c.name[1] = "this build";
    }
    if (rc == 0 && c.paired)
        rc = against_measure(options, c.file, err);
    for (int i = 0; i < 2 && rc == 0 && !c.paired; i++)
        rc = read_file(options->file[i], &c.file[i], err);
    if (rc == 0 && (walk(&c, 0, true, err) < 0 || walk(&c, 0, false, err) < 0 ||
                    walk(&c, 1, false, err) < 0 || tell_differences(&c, err) < 0 || print(&c, err) < 0))
        rc = -1;
    if (rc == 0)
        rc = conclude(&c, err);
    for (int i = 0; i < 2; i++)
        measured_release(&c.file[i]);
    json_decref(c.rows);
    return rc;
}
