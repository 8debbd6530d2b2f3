/* A folder of a fuzz target's own, which is removed when the process ends. */
#ifndef BMC_FUZZ_SCRATCH_H
#define BMC_FUZZ_SCRATCH_H

#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch_folder[256];

static inline int scratch_remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    return at->level ? remove(path) : 0;
}

/* Removes all files in it. */
static inline void scratch_clear(void)
{
    (void)nftw(scratch_folder, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void scratch_end(void)
{
    scratch_clear();
    (void)rmdir(scratch_folder);
}

/* Makes the folder, once; true the first time. */
static inline bool scratch_begin(void)
{
    const char *tmpdir = getenv("TMPDIR");
    if (*scratch_folder)
        return false;
    snprintf(scratch_folder, sizeof scratch_folder, "%s/fuzz-XXXXXX", tmpdir ? tmpdir : "/tmp");
    if (!mkdtemp(scratch_folder))
        abort();
    atexit(scratch_end);
    return true;
}

/* Writes a file in the folder, or makes a folder there if `data` is NULL; false: that is not possible. */
static inline bool scratch_write(const char *name, const uint8_t *data, size_t size)
{
    char path[8192];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", scratch_folder, name) >= sizeof path)
        return false;
    if (!data)
        return mkdir(path, 0700) == 0;
    FILE *file = fopen(path, "wb");
    if (!file)
        return false;
    const bool written = fwrite(data, 1, size, file) == size;
    return fclose(file) == 0 && written;
}

static inline bool scratch_has(const char *name)
{
    char path[8192];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", scratch_folder, name);
    return lstat(path, &st) == 0;
}

#endif
