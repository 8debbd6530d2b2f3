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

/* Replaces the control characters of `len` bytes by question marks, those in `keep` left out: for text from files on its
 * way to a terminal. */
void text_make_printable(char *text, size_t len, const char *keep);

/* Lets the compiler see that these always give -1: it can then tell what is set on success. */
static inline int err_minus_one(void) { return -1; }
#define err_set(...)    (err_set(__VA_ARGS__), err_minus_one())
#define err_errno(...)  (err_errno(__VA_ARGS__), err_minus_one())
#define err_prefix(...) (err_prefix(__VA_ARGS__), err_minus_one())

#endif
