/* Startup, exit codes, errors, signals, progress bar, data folders and input of all programs. */
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <time.h>

#include "base/err.h"
#include "base/mem.h"

struct kernels;
struct model;
struct pages_options;

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* Called first in main(), before any input is read: standard descriptors, signals, libraries.
 * Exits if the program cannot run. */
void cli_begin(const char *program);

/* Descriptor to which the SIGBUS handler writes its message when a mapped file was truncated; the
 * program then exits with CLI_FAILED. */
extern int cli_last_words_fd;

/* Called last in main(): checks standard output. After SIGINT, SIGTERM or SIGHUP ends the process
 * by that signal, so that shell loops stop, too. Returns the exit code. */
int cli_end(const char *program, int code);

/* Makes SIGINT, SIGTERM and SIGHUP end the program at once, removing unfinished outputs: for
 * programs and phases without partial results. */
void cli_interrupt_ends(bool ends);

/* Makes SIGINT set *flag, and end cli_read(), in place of interrupting the program; NULL: as before. */
void cli_interrupt_to(volatile sig_atomic_t *flag);

/* Prints "program: sentence" on stderr; returns CLI_FAILED, or CLI_USAGE if the code is ERR_INVALID, of values of options. */
int cli_fail(const char *program, const struct err *err);

/* Prints one line; control characters except a final newline are replaced, since names may come
 * from untrusted files. */
void cli_say(FILE *to, const char *format, ...) PRINTF_LIKE(2, 3);

/* Writes whole characters of results to standard output, which may buffer them. On a terminal, control characters
 * other than newline and tab become U+FFFD, since the terminal would obey them; else nothing is changed. */
int cli_put(const char *text, size_t len, struct err *err) MUST_USE;

/* Flushes standard output; prints an error and returns -1 if that fails, as on a full disk. */
int cli_flush_stdout(const char *program);

/* The SIGINT, SIGTERM or SIGHUP received, else 0; a second one ends the program at once. */
extern volatile sig_atomic_t cli_interrupted;

/* With --quiet: progress is not printed. */
extern bool cli_quiet;

/* A progress bar on stderr, if that is a terminal. Callbacks get the struct as `arg`. */
struct cli_progress {
    const char *label;
    int percent; /* last percentage drawn; -1: none */
    bool hidden; /* stderr is not a terminal */
    bool lines; /* set by callers for work of minutes: where there is no bar, a line every 10 seconds */
    double line_ms;
};

void cli_progress_begin(struct cli_progress *progress, const char *label);
void cli_progress(void *progress, size_t done, size_t total);
void cli_progress_end(struct cli_progress *progress);

/* Sets `path` to `relative`, such as "../lib/x", resolved against the program's folder. */
int cli_beside(const char *relative, char *path, size_t size, struct err *err) MUST_USE;

/* The folder of model families, shapes and bundled models: ../models.d in the source tree,
 * ../share/bmc if installed. */
int cli_models_dir(char *path, size_t size, struct err *err) MUST_USE;

/* The path of a bundled model, "grimm" or its draft model; the error says that `option` was not
 * given. */
int cli_default_model(const char *name, const char *option, char *path, size_t size,
                      struct err *err) MUST_USE;

/* Formats a time as "2026-11-21T17:20:05Z"; "" if it has no such form. */
enum { CLI_TIME = 32 };
void cli_time(time_t at, char text[CLI_TIME]);

/* True if a read would not block. */
bool cli_readable(int fd);

/* Waits until a read would not block. False: a signal ended the wait, perhaps one that interrupts. */
bool cli_wait(int fd);

/* Opens an input for cli_read(), "-" for standard input, without waiting for the writer of a FIFO.
 * Returns a descriptor, or -1 with errno. */
int cli_open(const char *path) MUST_USE;

/* Reads up to `size` bytes and returns their number; 0 at the end, or if interrupted by a signal
 * while waiting. -1 with errno. */
ssize_t cli_read(int fd, void *bytes, size_t size) MUST_USE;

/* Reads a whole file, "-" for standard input, of at most CLI_TEXT_BYTES. */
enum { CLI_TEXT_BYTES = 1 << 30 };
int cli_read_all(const char *path, struct buf *text, struct err *err) MUST_USE;

/* Answers --version; `kernels` is the default set, chosen `from` an origin; NULL: there is none, for the reason in
 * `err`. */
void cli_print_version(const char *program, const struct kernels *kernels, const char *from,
                       const struct err *err);

/* The git commit of the build, as git describe prints it, "-dirty" with local changes; "" outside
 * git. From the Makefile. */
extern const char cli_commit[];

/* Registers a library that only some programs use for cli_print_version(), which calls version(). Borrows `library`. */
void cli_uses(const char *library, const char *(*version)(void));

/* Options --hugepages and --numa: model_use_pages(); on a machine with one NUMA node a note on standard error says
 * that --numa changes nothing. */
int cli_use_pages(const char *program, const struct model *model, const struct pages_options *options,
                  struct err *err) MUST_USE;
