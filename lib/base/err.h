/* Error messages: a fallible function returns 0, or -1 after filling in one line that says what was
 * wrong, what was found and what to do. Only programs print it. */
#ifndef BMC_ERR_H
#define BMC_ERR_H

#include "base/base.h"

struct err {
    char text[512];
};

/* Sets the message and returns -1, so that callers write `return err_set(err, ...)`. */
int err_set(struct err *err, const char *format, ...) PRINTF_LIKE(2, 3);

/* Like err_set(), with ": " and strerror(errno) appended. */
int err_errno(struct err *err, const char *format, ...) PRINTF_LIKE(2, 3);

/* Prepends the formatted text and ": " to the message in `err`; returns -1. */
int err_prefix(struct err *err, const char *format, ...) PRINTF_LIKE(2, 3);

/* Replaces the control characters in text[len] by question marks, except those in `keep`. For text
 * from files that may be printed to a terminal. */
void text_make_printable(char *text, size_t len, const char *keep);

/* Macros that show the compiler that these functions always return -1, so that it does not warn
 * about uninitialised variables. */
static inline int err_minus_one(void) { return -1; }
#define err_set(...)    (err_set(__VA_ARGS__), err_minus_one())
#define err_errno(...)  (err_errno(__VA_ARGS__), err_minus_one())
#define err_prefix(...) (err_prefix(__VA_ARGS__), err_minus_one())

#endif
