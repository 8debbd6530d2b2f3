/* What the programs share: exit codes, the error line, signals, the progress bar, where the data lie.
 */
#ifndef BMC_CLI_H
#define BMC_CLI_H

#include <signal.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/mem.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* First thing in main(), before any input is read: standard descriptors, signals, libraries. Exits when the program
 * cannot run. */
void cli_begin(const char *program);

/* Where the handler of SIGBUS writes its sentence about a mapped file that was truncated; the program ends with CLI_FAILED then. */
extern int cli_last_words_fd;

/* Last thing in main(): checks standard output; after SIGINT, SIGTERM or SIGHUP ends by that signal, so that a
 * shell's loop ends too. Returns the exit code. */
int cli_end(const char *program, int code);

/* These signals end the program at once, without half-written outputs: for programs that have no partial result. */
void cli_interrupt_ends(void);

/* "program: sentence" on stderr; returns CLI_FAILED. */
int cli_fail(const char *program, const struct err *err);

/* One line for people, without the control characters that names from outside may hold: only a final newline stays. */
void cli_say(FILE *to, const char *format, ...) PRINTF_LIKE(2, 3);

/* Flushes and checks standard output: a full disk is an error. -1 after printing the error line. */
int cli_flush_stdout(const char *program);

/* The number of SIGINT, SIGTERM or SIGHUP once one has come, else 0; a second one ends the program at once. */
extern volatile sig_atomic_t cli_interrupted;

/* A progress bar on stderr, only when that is a terminal. `arg` is the struct. */
struct cli_progress {
    const char *label;
    int percent; /* shown last; -1: nothing shown */
    bool hidden; /* stderr is no terminal */
};

void cli_progress_begin(struct cli_progress *progress, const char *label);
void cli_progress(void *progress, size_t done, size_t total);
void cli_progress_end(struct cli_progress *progress);

/* A path that begins at the program's own folder, as "../lib/x". */
int cli_beside(const char *relative, char *path, size_t size, struct err *err) MUST_USE;

/* The folder with families, shapes and default models: beside the program's folder in the source tree
 * (../models.d), or installed (../share/bmc). */
int cli_models_dir(char *path, size_t size, struct err *err) MUST_USE;

/* The file of a model that came with the program, "grimm" or its draft; an error says that `option` was not given. */
int cli_default_model(const char *name, const char *option, char *path, size_t size,
                      struct err *err) MUST_USE;

/* True when a read would not wait. */
bool cli_readable(int fd);

/* Opens an input for cli_read(), "-" being standard input, without waiting for who will write it. -1 with errno. */
int cli_open(const char *path) MUST_USE;

/* Reads up to `size` bytes; 0 at the end, or when a signal came while nothing was there. -1 with errno. */
ssize_t cli_read(int fd, void *bytes, size_t size) MUST_USE;

/* Reads a whole file, "-" being standard input; one that is longer than this is an error. */
enum { CLI_TEXT_BYTES = 1 << 30 };
int cli_read_all(const char *path, struct buf *text, struct err *err) MUST_USE;

void cli_print_version(const char *program);

/* The git commit that was built, as git describe spells it, with "-dirty" where files differed from it; empty for a build
 * outside git. From the Makefile. */
extern const char cli_commit[];

/* A library that only some programs use: cli_print_version() names it, too. Texts are kept, not copied. */
void cli_uses(const char *library, const char *version);

#endif
