/* Libraries that are loaded with dlopen(), only when they are needed. */
#pragma once

#include "base/err.h"

/* A function of a library, and the offset of its pointer in a structure. */
struct library_function {
    const char *name;
    size_t at;
};

struct library {
    const char *name;    /* for messages */
    const char *package; /* Debian's, with the build that is wanted */
    const struct library_function *function;
    size_t n_functions;
};

/* Loads a library from `file`, and writes the addresses of its functions, or of those of libraries that it
 * depends on, to `pointers`. It stays loaded, after an error, too: it may have started threads. */
int library_load(const struct library *library, const char *file, void *pointers,
                 struct err *err) MUST_USE;
