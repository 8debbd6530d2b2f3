/* Pictures, through gnuplot where it is installed. */
#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "cli.h"
#include "prof.h"

extern char **environ;

static int add_value(struct buf *out, const json_t *row, const char *key, struct err *err)
{
    const json_t *value = json_object_get(row, key);
    if (json_is_string(value))
        return buf_addf(out, err, "\"%s\" ", json_string_value(value));
    if (!json_is_number(value))
        return buf_addf(out, err, "NaN ");
    return buf_addf(out, err, "%.9g ", json_number_value(value));
}

/* The columns as a gnuplot data block: x, then every y. */
static int add_data(struct buf *script, const json_t *rows, const char *x, char *const *y, size_t n,
                    struct err *err)
{
    if (buf_addf(script, err, "$data << END\n") < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (add_value(script, row, x, err) < 0)
            return -1;
        for (size_t k = 0; k < n; k++)
            if (add_value(script, row, y[k], err) < 0)
                return -1;
        if (buf_addf(script, err, "\n") < 0)
            return -1;
    }
    return buf_addf(script, err, "END\n");
}

static int add_plot(struct buf *script, bool bars, char *const *y, size_t n, struct err *err)
{
    if (buf_addf(script, err, "plot ") < 0)
        return -1;
    for (size_t k = 0; k < n; k++) {
        const char *with = bars ? (k ? "" : ":xtic(1)") : " with linespoints";
        const int rc = bars ? buf_addf(script, err, "%s$data using %zu%s title \"%s\"", k ? ", " : "",
                                       k + 2, with, y[k])
                            : buf_addf(script, err, "%s$data using 1:%zu%s title \"%s\"", k ? ", " : "",
                                       k + 2, with, y[k]);
        if (rc < 0)
            return -1;
    }
    return buf_addf(script, err, "\n");
}

static int make_script(struct buf *script, const json_t *rows, const char *title, const char *x,
                       char *const *y, size_t n, bool logarithmic, struct err *err)
{
    const bool bars = json_is_string(json_object_get(json_array_get(rows, 0), x));
    if (buf_addf(script, err,
                 "set terminal svg size 900,540 font 'sans,14' background rgb 'white'\n"
                 "set title \"%s\" noenhanced\nset key noenhanced outside bottom center horizontal\n"
                 "set ylabel 'ms'\nset yrange [0:*]\nset grid y\n%s",
                 title,
                 bars ? "set style data histograms\nset style histogram rowstacked\nset style fill "
                        "solid 0.8\n"
                        "set boxwidth 0.7\nset xtics noenhanced\n"
                      : "set pointsize 0.5\n") < 0)
        return -1;
    if (!bars &&
        buf_addf(script, err, "set xlabel '%s'\n%s", x, logarithmic ? "set logscale x 2\n" : "") < 0)
        return -1;
    if (add_data(script, rows, x, y, n, err) < 0)
        return -1;
    return add_plot(script, bars, y, n, err);
}

/* Runs gnuplot with the script on its standard input and the picture going to `out`. */
static int run_gnuplot(const struct buf *script, int out, struct err *err)
{
    char *const arguments[] = {(char[]){"gnuplot"}, NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int input[2], status = 0;
    if (pipe(input) < 0)
        return err_errno(err, "--plot: no pipe to gnuplot");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, input[1]);
    const int failed = posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(input[0]);
    if (failed) {
        close(input[1]);
        errno = failed;
        return err_errno(err,
                         "--plot: gnuplot cannot be run (Debian: gnuplot-nox); the data are above");
    }
    const char *at = script->data;
    size_t left = script->len;
    signal(SIGPIPE, SIG_IGN); /* a gnuplot that gives up is told below */
    for (ssize_t n; left && (n = write(input[1], at, left)) > 0; at += n)
        left -= (size_t)n;
    close(input[1]);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : err_set(err, "--plot: gnuplot failed");
}

int prof_plot(const char *path, const json_t *rows, const char *title, const char *x, const char *y,
              bool logarithmic, struct err *err)
{
    struct outfile out;
    struct buf script = {0};
    char *columns = strdup(y), *column[2 * PROF_MAX_LIST];
    size_t n = 0;
    int rc = -1;
    if (!columns)
        return err_set(err, "out of memory");
    for (char *rest = columns, *word; (word = strsep(&rest, " ")) && n < ARRAY_LEN(column);)
        column[n++] = word;
    fflush(stdout);
    if (make_script(&script, rows, title, x, column, n, logarithmic, err) == 0 &&
        outfile_open(&out, path, err) == 0) {
        rc = run_gnuplot(&script, out.fd, err);
        if (rc == 0)
            rc = outfile_commit(&out, err);
        outfile_abort(&out);
    }
    free(columns);
    buf_release(&script);
    return rc;
}
