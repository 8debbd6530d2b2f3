/* Resolves the path of an output file: follows symbolic links, so that their target is replaced
 * instead of the link, and recognises different paths of one file. */
#pragma once

#include <sys/stat.h>

#include "base/err.h"

enum output_path_kind {
    OUTPUT_NEW,    /* does not exist */
    OUTPUT_FILE,   /* a regular file */
    OUTPUT_FOLDER, /* cannot be an output */
    OUTPUT_STREAM, /* a device or FIFO: written directly */
    OUTPUT_OPEN    /* an open descriptor: "-", /dev/stdout, /dev/stderr, /dev/fd/N, /proc/self/fd/N */
};

struct output_path {
    enum output_path_kind kind;
    int fd; /* the descriptor of OUTPUT_OPEN; else -1 */
    /* stat() of the file; with OUTPUT_NEW of its folder, st_ino 0 if that does not exist either */
    struct stat st;
    char path[4096];
};

/* Resolves `path`. A dangling link resolves to the path that it points to. */
int output_path_find(struct output_path *output, const char *path, struct err *err) MUST_USE;

/* True if writing one output would replace the other. */
bool output_path_same(const struct output_path *a, const struct output_path *b);
