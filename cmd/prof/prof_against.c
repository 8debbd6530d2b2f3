/* bmc-prof compare --against: runs this build and another one alternately. Each run is a process
 * that yields one value per figure, the median of its rounds, so that differences between
 * processes, such as memory placement, count as noise. The order within pairs alternates, so that
 * drift of the machine affects both builds alike. */
#include "prof/prof_against.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli.h"
#include "prof/prof_launch.h"

struct against {
    const struct prof_options *options;
    const char *build[2]; /* the other build, and this one */
    int input, errors;    /* memory files: empty standard input, standard error */
};

static bool has_samples(const char *subcommand)
{
    static const enum prof_command with[] = {PROF_POLICIES, PROF_SWEEP,     PROF_LATENCY, PROF_BENCH,
                                             PROF_USECASES, PROF_INSTANCES, PROF_RANKS};
    for (size_t i = 0; i < ARRAY_LEN(with); i++)
        if (strcmp(subcommand, prof_command_names[with[i]]) == 0)
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
                        "--against: \"%s\" is none of policies, sweep, latency, bench, usecases, "
                        "instances and ranks, which record their rounds",
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
    struct buf output = {0};
    int rc =
        run_build(a, a->build[which], a->options->measure, a->options->n_measure, true, &output, err);
    if (rc == 0)
        rc = measured_parse(run, output.data, output.len, a->build[which], err);
    buf_release(&output);
    return rc;
}

/* Checks, before measuring, that the other build is a bmc-prof. */
static int check_build(const struct against *a, struct err *err)
{
    static char version[] = "--version", *words[] = {version};
    struct buf output = {0};
    int rc = run_build(a, a->build[0], words, 1, false, &output, err);
    if (rc == 0 && strncmp(buf_text(&output), "bmc-prof ", 9) != 0)
        rc = err_set(err, "%s: is not a bmc-prof: --version does not name it", a->build[0]);
    buf_release(&output);
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

int against_measure(const struct prof_options *options, struct measured file[2][COMPARE_ROUNDS],
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
