/* bmc-prof compare: compares two measurements, of files or of two builds. */
#include <sys/mman.h>
#include <unistd.h>

#include "cli.h"
#include "prof/compare.h"
#include "prof/prof.h"
#include "prof/prof_launch.h"
#include "prof/samples.h"
#include "report/stat.h"

/* ---- --against: runs this build and another one alternately ----
 *
 * Each run is a process that yields one value per figure, the median of its rounds, so that differences between
 * processes, such as memory placement, count as noise. The order within pairs alternates, so that drift of the machine
 * affects both builds alike. */

struct against {
    const struct prof_options *options;
    const char *build[2]; /* the other build, and this one */
    int input, errors;    /* memory files: empty standard input, standard error */
};

static bool has_samples(const char *subcommand)
{
    for (size_t i = 0; i < PROF_COMMANDS; i++)
        if (prof_rows[i].samples && strcmp(subcommand, prof_command_names[i]) == 0)
            return true;
    return false;
}

void against_check_usage(const struct prof_options *o)
{
    static const char *const own[] = {"--format", "--columns", "--plot", "--output",
                                      "-o",       "--help",    "-h",     "--version"};
    if (!o->n_measure)
        opt_usage_error(&prof_program, "--against: a subcommand to measure follows \"--\", as compare "
                                       "--against old/bmc-prof -- bench -p 512");
    if (!has_samples(o->measure[0]))
        opt_usage_error(&prof_program,
                        "--against: \"%s\" is none of policies, sweep, latency, bench and ranks, "
                        "which record their rounds",
                        o->measure[0]);
    for (size_t i = 1; i < o->n_measure; i++)
        for (size_t k = 0; k < ARRAY_LEN(own); k++) {
            const size_t len = strlen(own[k]);
            if (strncmp(o->measure[i], own[k], len) == 0 &&
                (!o->measure[i][len] || o->measure[i][len] == '='))
                opt_usage_error(&prof_program, "--against: %s cannot follow \"--\"", own[k]);
        }
}

/* Copies to `text` the last line that a measured program wrote to stderr, read from `fd`, without
 * the prefix "bmc-prof: ". */
static void last_words(int fd, char *text, size_t size)
{
    const off_t end = lseek(fd, 0, SEEK_END), from = end > (off_t)size - 1 ? end - (off_t)size + 1 : 0;
    const ssize_t n = pread(fd, text, size - 1, from);
    size_t len = n > 0 ? (size_t)n : 0;
    while (len && text[len - 1] == '\n')
        len--;
    text[len] = 0;
    const char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    if (strncmp(line, "bmc-prof: ", 10) == 0)
        line += 10;
    memmove(text, line, strlen(line) + 1);
    text_make_printable(text, strlen(text), "");
}

static int run_build(const struct against *a, const char *build, char *const *words, size_t n,
                     bool rows, struct buf *output, struct err *err)
{
    struct command command = {.errors = a->errors};
    char said[400];
    int rc = command_add(&command, err, "%s", build);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = command_add(&command, err, "%s", words[i]);
    if (rc == 0 && rows && (rc = command_add(&command, err, "--format")) == 0)
        rc = command_add(&command, err, "json");
    if (rc == 0 && ftruncate(a->errors, 0) < 0)
        rc = err_errno(err, "cannot hold what a program says");
    lseek(a->errors, 0, SEEK_SET);
    if (rc == 0 && (rc = command_run(&command, a->input, output, err)) < 0 && !cli_interrupted) {
        last_words(a->errors, said, sizeof said);
        if (*said)
            err_set(err, "%s: %s", build, said);
    }
    command_release(&command);
    return rc;
}

static int measure_build(const struct against *a, int which, struct measured *run, struct err *err)
{
    AUTO(buf_release) struct buf output = {0};
    int rc =
        run_build(a, a->build[which], a->options->measure, a->options->n_measure, true, &output, err);
    return rc < 0 ? -1 : measured_parse(run, output.data, output.len, a->build[which], err);
}

/* Checks, before measuring, that the other build is a bmc-prof. */
static int check_build(const struct against *a, struct err *err)
{
    static char version[] = "--version", *words[] = {version};
    AUTO(buf_release) struct buf output = {0};
    int rc = run_build(a, a->build[0], words, 1, false, &output, err);
    if (rc == 0 && strncmp(buf_text(&output), "bmc-prof ", 9) != 0)
        rc = err_set(err, "%s: is not a bmc-prof: --version does not name it", a->build[0]);
    return rc;
}

static const char *model_of(const struct measured *m)
{
    const char *id = json_string_value(json_object_get(m->row[0].all, "model_id"));
    return id ? id : "";
}

/* Checks that both results of the first pair have rows in common, and the same model. */
static int check_pair(const struct against *a, const struct measured *other, const struct measured *own,
                      struct err *err)
{
    const struct measured_row *found = NULL;
    for (size_t i = 0; i < other->n && !found; i++)
        if (measured_find(own, &other->row[i], &found, err) < 0)
            return -1;
    if (strcmp(model_of(other), model_of(own)) != 0)
        return err_set(err, "%s uses another model than this build: give both the same with -m",
                       a->build[0]);
    return found ? 0
                 : err_set(err,
                           "%s and this build have no measurement in common: their rows differ in "
                           "configuration, perhaps in the instruction set (--isa)",
                           a->build[0]);
}

/* Runs all pairs of the other build and of this one, in alternating order: file[0][i] and file[1][i] get their results. */
static int against_measure(const struct prof_options *options, struct measured file[2][COMPARE_ROUNDS],
                           struct err *err)
{
    char self[8192];
    const ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    struct against a = {.options = options, .build = {options->against, self}};
    struct cli_progress progress;
    if (len < 0)
        return err_errno(err, "cannot find this program");
    self[len] = 0;
    a.input = memfd_create("input", MFD_CLOEXEC);
    a.errors = memfd_create("errors", MFD_CLOEXEC);
    int rc = a.input < 0 || a.errors < 0 ? err_errno(err, "cannot hold what a program says")
                                         : check_build(&a, err);
    cli_progress_begin(&progress, "measuring");
    for (size_t i = 0, all = 2 * options->repeat; i < all && rc == 0; i++) {
        const size_t pair = i / 2, which = (i + pair) % 2;
        if ((rc = measure_build(&a, (int)which, &file[which][pair], err)) < 0)
            err_prefix(err, "run %zu of %zu", i + 1, all);
        cli_progress(&progress, i + 1, all);
        if (rc == 0 && i == 1)
            rc = check_pair(&a, file[0], file[1], err);
    }
    cli_progress_end(&progress);
    if (a.input >= 0)
        close(a.input);
    if (a.errors >= 0)
        close(a.errors);
    return rc;
}

/* ---- comparing ---- */

/* State of a comparison. */
static struct {
    const struct prof_options *options;
    /* results of A and of B: one each, or one of each pair of runs */
    struct measured file[2][COMPARE_ROUNDS];
    json_t *rows;
    size_t pairs;        /* of runs, of which round i of A and of B are a pair; 0: of files */
    const char *name[2]; /* file names or builds, for messages */
    size_t count[VERDICT_NONE + 1];
    size_t matched;
} run;

/* Adds a result row: the fields that identify the measurement (`of`), then those of the result. */
static int add_row(const struct measured_row *of, const struct comparison *result, struct err *err)
{
    json_t *row = json_object(); /* json_copy() drops members silently when out of memory */
    int rc = row && json_object_update(row, of->what) == 0 ? 0 : err_no_memory(err, "a row");
    if (rc == 0)
        rc = fields_put(row, prof_rows[PROF_COMPARE].fields, FIELD_ALL, result, 1, 0, err);
    return fields_end(rc, row, run.rows, err);
}

/* The result for a figure that only one file has (0: A, 1: B); `figure` NULL: the whole row. */
static struct comparison only_in(int which, const char *figure)
{
    return (struct comparison){
        figure, which ? "only in B" : "only in A", NAN, NAN, NAN, NAN, NAN, {SIZE_MAX, SIZE_MAX}};
}

/* The rounds of a figure; of pairs of runs the median of each run. *n is 0 if the (first) result lacks it. */
static int read_rounds(int which, const struct measured_row *row, const char *figure, double *round,
                       size_t *n, struct err *err)
{
    *n = measured_rounds(row, figure, round);
    for (size_t i = 0; *n && i < run.pairs; i++) {
        const struct measured_row *like = NULL;
        double x[COMPARE_ROUNDS];
        if (measured_find(&run.file[which][i], row, &like, err) < 0)
            return -1;
        const size_t rounds = like ? measured_rounds(like, figure, x) : 0;
        if (!rounds)
            return err_set(err,
                           "%s has measured something else in run %zu than in its first: no \"%.60s\"",
                           run.name[which], i + 1, figure);
        round[i] = stat_quantile(x, rounds, 0.5);
    }
    *n = *n && run.pairs ? run.pairs : *n;
    return 0;
}

static int compare_figure(const struct measured_row *const row[2], const char *figure, struct err *err)
{
    double round[2][COMPARE_ROUNDS];
    size_t n[2];
    bool less;
    for (int i = 0; i < 2; i++)
        if (read_rounds(i, row[i], figure, round[i], &n[i], err) < 0)
            return -1;
    if (!n[0] || !n[1]) {
        const struct comparison only = only_in(!n[0], figure);
        return add_row(row[0], &only, err);
    }
    figure_direction(figure, &less);
    const struct change change = run.pairs ? change_of_pairs(round[0], round[1], n[0])
                                           : change_of(round[0], n[0], round[1], n[1]);
    const enum verdict verdict = change_verdict(&change, less, run.options->tolerance / 100);
    const bool bounded = change.there && change.bounded;
    const struct comparison result = {.figure = figure,
                                      .verdict = verdict_name(verdict),
                                      .a = stat_quantile(round[0], n[0], 0.5),
                                      .b = stat_quantile(round[1], n[1], 0.5),
                                      .ratio = change.there ? change.value : NAN,
                                      .lo = bounded ? change.lo : NAN,
                                      .hi = bounded ? change.hi : NAN,
                                      .rounds = {n[0], n[1]}};
    run.count[verdict]++;
    return add_row(row[0], &result, err);
}

/* Compares all figures of a row that both files have: first those of A, then those only in B. */
static int compare_row(const struct measured_row *const row[2], struct err *err)
{
    const char *figure;
    json_t *rounds;
    int rc = 0;
    run.matched++;
    for (int i = 0; i < 2; i++)
        json_object_foreach((json_t *)(uintptr_t)row[i]->samples, figure, rounds)
        {
            if (rc == 0 && (i == 0 || !json_object_get(row[0]->samples, figure)))
                rc = compare_figure(row, figure, err);
        }
    return rc;
}

/* Iterates over one file's rows. With `pairs` compares those that the other file has, too;
 * otherwise lists those that it lacks. */
static int walk_rows(int which, bool pairs, struct err *err)
{
    const struct measured *mine = run.file[which], *other = run.file[!which];
    for (size_t i = 0; i < mine->n; i++) {
        const struct measured_row *row[2] = {&mine->row[i], NULL};
        if (measured_find(other, row[0], &row[1], err) < 0)
            return -1;
        if (pairs && row[1] && compare_row(row, err) < 0)
            return -1;
        const struct comparison only = only_in(which, NULL);
        if (!pairs && !row[1] && add_row(row[0], &only, err) < 0)
            return -1;
    }
    return 0;
}

static bool is_in(const json_t *list, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_array_get(list, i), value))
            return true;
    return false;
}

/* The distinct values of field `key` in a file's rows, as they occur; NULL: out of memory. */
static json_t *values_of(const struct measured *m, const char *key, struct err *err)
{
    json_t *list = json_array();
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < m->n; i++) {
        json_t *value = json_object_get(m->row[i].all, key);
        if (json_is_string(value) && !is_in(list, value))
            rc = json_push(list, json_incref(value), err);
    }
    return json_or_null(list, rc, err);
}

/* Warns if the rows of A and B differ in field `key`. */
static int tell_difference(const char *key, struct err *err)
{
    json_t *values[2];
    struct buf text[2] = {{0}, {0}};
    int rc = 0;
    for (int i = 0; i < 2; i++) {
        values[i] = values_of(run.file[i], key, err);
        rc = rc == 0 && values[i] ? json_format(values[i], JSON_COMPACT, &text[i], err) : -1;
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

static int tell_differences(struct err *err)
{
    static const char *const keys[] = {"model_id", "isa", "cpu", "version", "commit"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (tell_difference(keys[i], err) < 0)
            return -1;
    return 0;
}

/* Sets the exit status, and the message that explains it. */
int prof_conclude_compare(struct prof *prof, struct err *err)
{
    const char *needed =
        run.pairs ? "6 pairs, none of their values 0" : "4 rounds on both sides, none of them 0";
    size_t figures = 0;
    (void)prof;
    for (size_t i = 0; i <= VERDICT_NONE; i++)
        figures += run.count[i];
    if (!run.matched || !figures)
        return err_set(err, "%s and %s have no measurement in common", run.name[0], run.name[1]);
    if (run.count[VERDICT_NONE] == figures)
        return err_set(err,
                       "none of %zu figures has an interval, so there is no verdict: it takes %s: %s",
                       figures, needed,
                       run.pairs ? "give --repeat 6 or more" : "measure both with --repeat 4 or more");
    if (run.count[VERDICT_NONE])
        fprintf(stderr, "%s: %zu of %zu figures have no interval: it takes %s\n", prof_program.name,
                run.count[VERDICT_NONE], figures, needed);
    if (run.count[VERDICT_WORSE])
        return err_set(err, "%zu of %zu figures are worse in %s than in %s, by more than %g %%",
                       run.count[VERDICT_WORSE], figures, run.name[1], run.name[0],
                       run.options->tolerance);
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
    AUTO(buf_release) struct buf text = {0};
    int rc = cli_read_all(path, &text, err);
    if (rc == 0)
        rc = measured_parse(measured, text.data, text.len, path, err);
    if (rc == 0)
        tell_errors(measured, path);
    return rc;
}

int prof_measure_compare(struct prof *prof, struct err *err)
{
    const struct prof_options *o = &prof->options;
    run.options = o;
    run.rows = prof->rows;
    run.pairs = o->against ? o->repeat : 0;
    run.name[0] = o->against ? o->against : o->file[0];
    run.name[1] = o->against ? "this build" : o->file[1];
    int rc = o->against ? against_measure(o, run.file, err) : 0;
    for (int i = 0; i < 2 && rc == 0 && !o->against; i++)
        rc = read_file(o->file[i], run.file[i], err);
    if (rc == 0 && (walk_rows(0, true, err) < 0 || walk_rows(0, false, err) < 0 ||
                    walk_rows(1, false, err) < 0 || tell_differences(err) < 0))
        rc = -1;
    for (size_t i = 0; i < COMPARE_ROUNDS; i++) {
        measured_release(&run.file[0][i]);
        measured_release(&run.file[1][i]);
    }
    return rc;
}
