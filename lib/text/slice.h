/* Borrowed strings. */
#ifndef BMC_SLICE_H
#define BMC_SLICE_H

#include "base/err.h"
#include "base/mem.h"

/* A borrowed string; {NULL, 0}: none. */
struct slice {
    const char *data;
    size_t size;
};

/* The bytes [start, end) of a text. */
struct span {
    size_t start, end;
};

/* Appends `text` to `out` with every non-empty `from` replaced by `to`. Fails if `out` would exceed
 * `limit` bytes: untrusted tokenizer tables could multiply a text repeatedly. */
int slice_replace(struct slice text, struct slice from, struct slice to, size_t limit, struct buf *out,
                  struct err *err) MUST_USE;

#endif
