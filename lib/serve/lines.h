/* Lines in: splits an input, reading no further than the next line requires. Results out: a line each, in the order of
 * their input lines, or of completion. */
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "base/json.h"

/* Maximum bytes of an input line. A longer line is an error of that line only; the run goes on. */
enum { LINE_BYTES = 64 << 20 };

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

/* ---- results ---- */

/* Value of field "error" in the result of a failed input line: "line N: why", or only
 * "interrupted". `number`, the line's, counts from 0. NULL: out of memory. */
json_t *line_error(uint64_t number, const struct err *why) MUST_USE;

/* Results of a run that wait for earlier ones; {.write = .., .unordered = ..} initialises it. */
struct results {
    int (*write)(const struct buf *line, struct err *err); /* writes a result line, unbuffered */
    bool unordered;
    struct pending_result *pending; /* of announced lines from the first without a result on */
    size_t n, cap;
};

/* Announces that input line `line`, numbered from 0, will get a result, which keeps its place. Lines are announced in
 * their order; not all need be. */
int results_expect(struct results *results, uint64_t line, struct err *err) MUST_USE;

/* Sets the result of input line `line`; takes ownership of `text`. Writes it once the results of
 * all earlier lines have been written, or at once if unordered. */
int results_put(struct results *results, uint64_t line, struct buf *text, struct err *err) MUST_USE;

/* Ends a run: writes the results that still wait, although earlier lines have none. */
int results_end(struct results *results, struct err *err) MUST_USE;
void results_release(struct results *results);
