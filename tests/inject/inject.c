/* Runs a command repeatedly, with another call failing in each run (fail.c), and checks how it
 * ends.
 *
 *   inject [-n] [-e TEXT] [-s STEP | -m MOST] [-o SEED] [-t TEMPLATE] [-k CONVERT] PRELOAD CALL
 *   COMMAND ARGUMENT..
 *
 * Each run gets a new folder ./run, empty or a copy of the folder TEMPLATE, as working directory;
 * the command's output files are named relative to it. A first run without failures counts the
 * calls and gives the expected results. Then every STEPth call fails, beginning at one that SEED
 * selects, and the last. MOST sets STEP for at most about so many runs; over all seeds every call
 * fails once. Correct is
 *   exit 0 with the expected standard output and files (the program could do without the call), or
 *   exit 1 with one line on standard error, every file as before or as expected, and standard
 *   output whose lines are the expected ones up to some line, or report an error themselves.
 * Files that end in .json contain times: their numbers may differ; of SVG files only begin and end
 * are checked. If a request failed, the snapshot has the others: one that is neither as before nor
 * as expected must pass `CONVERT --verify`.
 *
 * With -n the command measures: numbers may differ, and so may sentences. At exit 0 the first line
 * (column names) and the number of lines must be as expected; at exit 1 standard output is not
 * checked. Such a command may make fewer calls than in the first run: ending well before the call
 * that fails is correct, and so is ending like any of a few more runs without failures. Exit 1 is a
 * result like exit 0 if standard error is empty and standard output has the TEXT of -e. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_FILES = 16, SECONDS = 60 };

struct test_bytes {
    char *data;
    size_t len;
};

/* How a run ended: exit status, output, and the files in its folder. */
struct outcome {
    int status;
    struct test_bytes out, err;
    size_t n_files;
    char name[MAX_FILES][256];
    struct test_bytes file[MAX_FILES];
};

static bool numbers_vary;
static const char *negative; /* in the standard output of a negative result, which exits with 1 */
static const char *convert;  /* the program that verifies snapshots */

struct job {
    const char *preload, *call, *template;
    char **command;
};

static void die(const char *what)
{
    perror(what);
    exit(2);
}

/* Replaces every number by one # in place, and every run of blanks (column padding) by one. */
static void mask_numbers(struct test_bytes *text)
{
    size_t len = 0;
    for (size_t at = 0; at < text->len;) {
        const size_t n = strspn(text->data + at, "0123456789.e+-"),
                     blanks = strspn(text->data + at, " ");
        const bool number = strcspn(text->data + at, "0123456789") < n;
        text->data[len++] = number ? '#' : text->data[at];
        at += number ? n : blanks ? blanks : 1;
    }
    text->data[text->len = len] = 0;
}

static bool same(const struct test_bytes *a, const struct test_bytes *b)
{
    return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

static size_t count_lines(const struct test_bytes *text)
{
    size_t lines = 0;
    for (size_t i = 0; i < text->len; i++)
        lines += text->data[i] == '\n';
    return lines;
}

/* True if two complete outputs are equal; with -n, in first line and number of lines. */
static bool same_output(const struct test_bytes *a, const struct test_bytes *b)
{
    const size_t first = strcspn(a->data, "\n");
    return same(a, b) || (numbers_vary && count_lines(a) == count_lines(b) &&
                          first == strcspn(b->data, "\n") && memcmp(a->data, b->data, first) == 0);
}

static bool ends_with(const char *name, const char *end)
{
    const size_t len = strlen(name), end_len = strlen(end);
    return len >= end_len && strcmp(name + len - end_len, end) == 0;
}

static struct test_bytes read_file(const char *path)
{
    struct test_bytes text = {0};
    struct stat st;
    const int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &st) < 0)
        die(path);
    text.data = calloc((size_t)st.st_size + 1, 1);
    if (!text.data)
        die("memory");
    while (text.len < (size_t)st.st_size) {
        const ssize_t n = read(fd, text.data + text.len, (size_t)st.st_size - text.len);
        if (n <= 0)
            die(path);
        text.len += (size_t)n;
    }
    close(fd);
    if (numbers_vary || ends_with(path, ".json"))
        mask_numbers(&text);
    return text;
}

static void read_folder(struct outcome *o)
{
    DIR *folder = opendir("run");
    char path[512];
    if (!folder)
        die("run");
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.' && strlen(entry->d_name) < 3)
            continue;
        if (o->n_files == MAX_FILES)
            die("too many files");
        snprintf(path, sizeof path, "run/%s", entry->d_name);
        snprintf(o->name[o->n_files], sizeof o->name[0], "%s", entry->d_name);
        o->file[o->n_files++] = read_file(path);
    }
    closedir(folder);
}

static void outcome_release(struct outcome *o)
{
    free(o->out.data);
    free(o->err.data);
    for (size_t i = 0; i < o->n_files; i++)
        free(o->file[i].data);
}

static void shell(const char *format, const char *name)
{
    char line[8192];
    snprintf(line, sizeof line, format, name);
    if (system(line) != 0)
        die(line);
}

static void redirect(const char *path, int flags, int to)
{
    const int fd = open(path, flags, 0666);
    if (fd < 0 || dup2(fd, to) < 0)
        die(path);
}

/* In the child process: executes the command, with its call number `at` failing; 0: only counts. */
static void become(const struct job *job, unsigned long at)
{
    char text[32];
    redirect("count", O_CREAT | O_TRUNC | O_WRONLY, 9);
    redirect("/dev/null", O_RDONLY, 0);
    redirect("out", O_CREAT | O_TRUNC | O_WRONLY, 1);
    redirect("err", O_CREAT | O_TRUNC | O_WRONLY, 2);
    snprintf(text, sizeof text, "%lu", at);
    if (chdir("run") < 0)
        die("run");
    setenv("BMC_FAIL_CALL", job->call, 1);
    setenv("BMC_FAIL_COUNT", "9", 1);
    setenv("BMC_FAIL_AT", text, 1);
    setenv("LD_PRELOAD", job->preload, 1);
    alarm(SECONDS);
    execvp(job->command[0], job->command);
    die(job->command[0]);
}

static struct outcome run(const struct job *job, unsigned long at)
{
    struct outcome o = {0};
    shell("rm -rf run%s", "");
    if (job->template)
        shell("cp -a '%s' run", job->template);
    else if (mkdir("run", 0777) < 0)
        die("run");
    const pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child == 0)
        become(job, at);
    if (waitpid(child, &o.status, 0) < 0)
        die("waitpid");
    o.out = read_file("out");
    o.err = read_file("err");
    read_folder(&o);
    return o;
}

static bool is_whole(const struct test_bytes *bytes, const char *begin, const char *end)
{
    const size_t head = strlen(begin), tail = strlen(end);
    return bytes->len > head + tail && memcmp(bytes->data, begin, head) == 0 &&
           memcmp(bytes->data + bytes->len - tail, end, tail) == 0;
}

/* True if the run left a file of that name and content. Of charts, and of JSON statistics unless
 * the run was complete (`all`), only begin and end are checked. */
static bool has(const struct outcome *o, const char *name, const struct test_bytes *bytes, bool all)
{
    for (size_t i = 0; i < o->n_files; i++)
        if (strcmp(o->name[i], name) == 0)
            return ends_with(name, ".svg")            ? is_whole(bytes, "<", "</svg>\n")
                   : ends_with(name, ".json") && !all ? is_whole(bytes, "{", "}\n")
                                                      : same(&o->file[i], bytes);
    return false;
}

/* True for a valid snapshot of a run in which requests failed, which lacks those. */
static bool is_partial_snapshot(const struct outcome *o, const char *name)
{
    char line[4096];
    snprintf(line, sizeof line, "'%s' --verify 'run/%s' >/dev/null", convert ? convert : "false", name);
    return ends_with(name, ".kv") && strstr(o->err.data, "requests failed") && system(line) == 0;
}

/* Checks that every file is as `before` or `after` the whole run; with `all`, all are as `after`.
 * Returns the name of a wrong file, or NULL. */
static const char *wrong_files(const struct outcome *o, const struct outcome *before,
                               const struct outcome *after, bool all)
{
    for (size_t i = 0; i < o->n_files; i++)
        if (!has(after, o->name[i], &o->file[i], all) &&
            (all ||
             (!has(before, o->name[i], &o->file[i], all) && !is_partial_snapshot(o, o->name[i]))))
            return o->name[i];
    for (size_t i = 0; i < before->n_files; i++)
        if (!all && !has(o, before->name[i], &before->file[i], all) &&
            !has(after, before->name[i], &before->file[i], all))
            return before->name[i];
    return all && o->n_files != after->n_files ? "a missing file" : NULL;
}

/* True if `text` has this line. */
static bool has_line(const struct test_bytes *text, const char *line, size_t len)
{
    for (const char *at = text->data; *at;) {
        const size_t n = strcspn(at, "\n");
        if (n == len && memcmp(at, line, len) == 0)
            return true;
        at += n + (at[n] == '\n');
    }
    return false;
}

/* Checks the output of a run that failed: it must be the beginning of the expected output, or
 * consist of expected lines and of lines that report an error. */
static bool partial_is_right(const struct test_bytes *out, const struct test_bytes *whole)
{
    if (numbers_vary)
        return true;
    if (out->len <= whole->len && memcmp(out->data, whole->data, out->len) == 0)
        return true;
    for (const char *at = out->data; *at;) {
        const size_t n = strcspn(at, "\n");
        const char *error = memmem(at, n, "\"error\":\"", 9);
        if (!error && !has_line(whole, at, n))
            return false;
        at += n + (at[n] == '\n');
    }
    return true;
}

/* True if standard error is one line of a bmc program, besides warnings and expected `notes`. */
static bool one_line(const struct test_bytes *err, const struct test_bytes *notes)
{
    size_t lines = 0;
    for (const char *at = err->data; *at;) {
        const size_t n = strcspn(at, "\n");
        if (!at[n] || n < 5 || memcmp(at, "bmc-", 4) != 0)
            return false;
        lines += !memmem(at, n, ": warning: ", 11) && !has_line(notes, at, n);
        at += n + 1;
    }
    return lines == 1;
}

/* True if a run ended with a result: at exit 0, or at exit 1 if it is one that -e describes. */
static bool has_result(const struct outcome *o)
{
    return o->status == 0 || (negative && WIFEXITED(o->status) && WEXITSTATUS(o->status) == 1 &&
                              o->err.len == 0 && strstr(o->out.data, negative));
}

/* Compares a run with the expected results; NULL: it ended correctly, else the reason. */
static const char *compare(const struct outcome *o, const struct outcome *before,
                           const struct outcome *after)
{
    static char text[512];
    const char *file;
    if (WIFSIGNALED(o->status)) {
        snprintf(text, sizeof text, "ended by signal %d", WTERMSIG(o->status));
        return text;
    }
    const int code = WEXITSTATUS(o->status);
    const bool whole = has_result(o) && same_output(&o->out, &after->out);
    if (code == 0 && !whole)
        return "exit 0 with another standard output";
    if ((file = wrong_files(o, before, after, whole))) {
        snprintf(text, sizeof text, "exit %d leaves %s", code, file);
        return text;
    }
    if (whole ||
        (code == 1 && one_line(&o->err, &after->err) && partial_is_right(&o->out, &after->out)))
        return NULL;
    snprintf(text, sizeof text, "exit %d, standard error \"%.200s\"%s", code, o->err.data,
             partial_is_right(&o->out, &after->out) ? "" : ", and wrong standard output");
    return text;
}

static unsigned long counted(void)
{
    unsigned long n = 0;
    FILE *count = fopen("count", "r");
    const bool told = count && fscanf(count, "%lu", &n) == 1; /* killed runs write none */
    if (count)
        fclose(count);
    return told ? n : 0;
}

/* compare(), but with -n the run may also end as some other run without failures does. */
static const char *verdict(const struct job *job, unsigned long at, const struct outcome *o,
                           const struct outcome *before, const struct outcome *after)
{
    enum { RUNS = 5 };
    const bool met = counted() >= at, ended = WIFEXITED(o->status);
    const char *what = compare(o, before, after);
    if (numbers_vary && !met && ended && has_result(o))
        return NULL;
    for (int i = 0; what && numbers_vary && ended && i < RUNS; i++) {
        struct outcome again = run(job, 0);
        what = compare(o, before, &again);
        outcome_release(&again);
    }
    return what;
}

int main(int argc, char **argv)
{
    struct job job = {0};
    unsigned long step = 1, most = 0, seed = 0, runs = 0, wrong = 0;
    for (int c; (c = getopt(argc, argv, "+ne:s:m:o:t:k:")) != -1;) {
        if (c == 'k')
            convert = optarg;
        else if (c == 'e')
            negative = optarg;
        else if (c == 't')
            job.template = optarg;
        else if (c == 'n')
            numbers_vary = true;
        else if (c == 's' || c == 'm' || c == 'o')
            *(c == 's' ? &step : c == 'm' ? &most : &seed) = strtoul(optarg, NULL, 10);
        else
            return 2;
    }
    if (argc - optind < 3 || !step)
        return 2;
    job.preload = argv[optind];
    job.call = argv[optind + 1];
    job.command = argv + optind + 2;
    struct outcome before = {0};
    struct outcome after = run(&job, 0);
    const unsigned long calls = counted();
    if (!has_result(&after)) {
        printf("the command fails by itself: %s", after.err.data);
        return 2;
    }
    shell(job.template ? "rm -rf run && cp -a '%s' run" : "rm -rf run%s && mkdir run",
          job.template ? job.template : "");
    read_folder(&before);
    if (most && calls > most)
        step = (calls + most - 1) / most;
    for (unsigned long at = 1 + seed % step; calls && at <= calls;
         runs++, at = at < calls && at + step > calls ? calls : at + step) {
        struct outcome o = run(&job, at);
        const char *what = verdict(&job, at, &o, &before, &after);
        if (what)
            printf("%s %lu of %lu: %s\n", job.call, at, calls, what);
        wrong += what != NULL;
        outcome_release(&o);
    }
    outcome_release(&before);
    outcome_release(&after);
    printf("%s: %lu calls, %lu runs, %lu wrong\n", job.call, calls, runs, wrong);
    return wrong > 0;
}
