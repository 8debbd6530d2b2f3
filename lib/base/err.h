/* One sentence about what went wrong. A fallible function returns 0, or -1 after filling the
 * sentence: what was wrong, what was found, what to do. Only programs print it. */
#ifndef BMC_ERR_H
#define BMC_ERR_H

#include "base/base.h"

struct err {
    char text[512];
};

/* Fills the sentence and returns -1, so that callers write `return err_set(err, ...)`. */
int err_set(struct err *err, const char *format, ...) PRINTF_LIKE(2, 3);

/* The same, followed by ": " and what errno says. */
int err_errno(struct err *err, const char *format, ...) PRINTF_LIKE(2, 3);

/* Puts "prefix: " before the sentence that is there; returns -1. */
int err_prefix(struct err *err, const char *format, ...) PRINTF_LIKE(2, 3);

#endif
