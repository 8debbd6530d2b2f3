/* Reads beginnings of files, and the small files of /proc and /sys. Allocates nothing, so that it works when
 * memory is exhausted. */
#pragma once

#include "base/base.h"

/* Reads the first bytes of a regular file, up to `size`, and returns their number; 0 if it cannot
 * be read. */
size_t file_head(const char *path, void *bytes, size_t size);

/* Returns, in bytes, the value of the line "KEY: N kB" in a file of /proc; 0 if there is no such
 * line. */
size_t file_proc_bytes(const char *path, const char *key);
