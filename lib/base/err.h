/* Error messages: a fallible function returns 0, or -1 after filling in one line that says what was
 * wrong, what was found and what to do. Only programs print it. */
#pragma once

#include "base/base.h"

/* The kind of a failure, where programs and callers of the library treat it in another way than the rest. */
enum err_code {
    ERR_FAILED,  /* all others */
    ERR_INVALID, /* an argument of the public library, or the value of an option, is wrong */
    ERR_NO_MEMORY,
    ERR_FULL,        /* the tokens do not fit in the context */
    ERR_INTERRUPTED, /* the user ended the run */
    ERR_BUSY,        /* an object of the public library is in use, or a request had no time left */
};

struct err {
    char text[512];
    enum err_code code;
};

/* Sets the message and returns -1, so that callers write `return err_set(err, ...)`. */
int err_set(struct err *err, const char *format, ...) PRINTF_LIKE(2, 3);

/* Like err_set(), with a code other than ERR_FAILED. */
int err_code(struct err *err, enum err_code code, const char *format, ...) PRINTF_LIKE(3, 4);
int err_vset(struct err *err, enum err_code code, const char *format, va_list args);

/* Says "out of memory for ", and the formatted text, for what. */
int err_no_memory(struct err *err, const char *format, ...) PRINTF_LIKE(2, 3);

/* Like err_set(), with ": " and strerror(errno) appended; ENOMEM is ERR_NO_MEMORY. */
int err_errno(struct err *err, const char *format, ...) PRINTF_LIKE(2, 3);

/* Prepends the formatted text and ": " to the message in `err`, which keeps its code; returns -1. */
int err_prefix(struct err *err, const char *format, ...) PRINTF_LIKE(2, 3);

/* The error of whatever the user has ended. */
extern const struct err err_interrupted;

/* Returns the length in bytes of the control character at `at`; 0 if another character is there.
 * Control characters are those below 0x20, 0x7f, U+0080 to U+009F, and stray bytes of that range,
 * which 8-bit terminals obey. Sets *step to the length of the character at `at`, whatever it is. */
size_t text_control_bytes(const char *at, size_t left, size_t *step);

/* Replaces the control characters in text[len] by question marks, except those in `keep`. For text
 * from files that may be printed to a terminal. */
void text_make_printable(char *text, size_t len, const char *keep);

/* Macros that show the compiler that these functions always return -1, so that it does not warn
 * about uninitialised variables. */
static inline int err_minus_one(void) { return -1; }
#define err_set(...)       (err_set(__VA_ARGS__), err_minus_one())
#define err_code(...)      (err_code(__VA_ARGS__), err_minus_one())
#define err_no_memory(...) (err_no_memory(__VA_ARGS__), err_minus_one())
#define err_errno(...)     (err_errno(__VA_ARGS__), err_minus_one())
#define err_prefix(...)    (err_prefix(__VA_ARGS__), err_minus_one())
