/* The lines of an input, as they come. */
#ifndef BMC_GEN_LINES_H
#define BMC_GEN_LINES_H

#include "base/mem.h"

/* The longest line that is read. */
enum { LINE_BYTES = 64 << 20 };

struct lines {
    int fd;
    struct buf input; /* bytes read, of which those before `taken` are done with */
    size_t taken;
    bool ended;
    bool skipping; /* a line that was too long, up to its end */
    size_t done_bytes,
        total_bytes; /* taken so far, and of how many; total is 0 where that is not known */
};

/* `path` NULL or "-" is standard input. */
int lines_open(struct lines *lines, const char *path, struct err *err) MUST_USE;
void lines_close(struct lines *lines);

/* The next line, without its end: GEN_REQUEST, GEN_END, or GEN_LATER when a whole one is not there yet and we shall not
 * wait. It stands until the next call. NULL is a line that is too long, which lines_check() says: the rest of it is
 * skipped. */
int lines_next(struct lines *lines, bool wait, const char **line, size_t *len,
               struct err *err) MUST_USE;
int lines_check(const char *line, struct err *err) MUST_USE;

/* What a run says at its end when some of its lines failed: -1 and a sentence, unless it was interrupted anyway. */
int lines_verdict(uint64_t failed, uint64_t all, const char *what, struct err *err) MUST_USE;

#endif
