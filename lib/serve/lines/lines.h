/* Splits an input into lines, reading no further than the next line requires. */
#ifndef BMC_LINES_H
#define BMC_LINES_H

#include <signal.h>
#include <sys/types.h>

#include "base/mem.h"

/* Maximum bytes of an input line. A longer line is an error of that line only; the run goes on. */
enum { LINE_BYTES = 64 << 20 };

/* Lines that are read before they can be served, so that those that cancel requests are found. */
enum { LINES_READ_AHEAD = 64 };

/* How to read the input, an open file or standard input. */
struct line_source {
    /* Reads up to `size` bytes. Returns 0 at the end or when interrupted, -1 with errno. */
    ssize_t (*read)(int fd, void *bytes, size_t size);
    bool (*readable)(int fd); /* true: read() would not block */
    int fd;
    const volatile sig_atomic_t *interrupted; /* not 0: treat the input as ended */
};

/* A line reader; {.source = ..} initialises it to the start of its input. */
struct lines {
    struct line_source source;
    bool json;        /* lines are JSON: those of white space are skipped, too, not only empty ones */
    uint64_t number;  /* of the line that lines_next() returned, from 0; skipped ones count */
    struct buf input; /* bytes read; those before `taken` were returned */
    size_t taken;
    bool ended;
    bool any;          /* a line was returned or skipped */
    bool skipping;     /* skipping the rest of a line that is too long */
    size_t done_bytes; /* bytes of the input returned or skipped so far */
};

void lines_release(struct lines *lines);

/* Sets *line to the next line that is not blank, without its line end, valid until the next call. Returns GEN_REQUEST;
 * GEN_END; or GEN_LATER if no complete line is available and `wait` is false. For a line longer
 * than LINE_BYTES sets *line to NULL (lines_check() reports the error) and skips its rest. Skips a
 * byte order mark at the start of the input, and an incomplete line when interrupted. */
int lines_next(struct lines *lines, bool wait, const char **line, size_t *len,
               struct err *err) MUST_USE;
int lines_check(const char *line, struct err *err) MUST_USE;

/* If any line failed, fails with an error such as "3 of 9 requests failed" (`what`: "requests"). */
int lines_failed(uint64_t failed, uint64_t all, const char *what, struct err *err) MUST_USE;

#endif
