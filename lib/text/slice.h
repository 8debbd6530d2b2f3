/* Part of a text that belongs to somebody else. */
#ifndef BMC_SLICE_H
#define BMC_SLICE_H

#include "base/err.h"
#include "base/mem.h"

/* Bytes; {NULL, 0} is no text at all. */
struct slice {
    const char *data;
    size_t size;
};

/* Replaces `from`, which is not empty, by `to` in a text, appending the result to `out`, which must not
 * become longer than `limit`: steps of hostile tables may multiply a text again and again. */
int slice_replace(struct slice text, struct slice from, struct slice to, size_t limit, struct buf *out,
                  struct err *err) MUST_USE;

#endif
