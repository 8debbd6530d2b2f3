/* Helpers of fuzz targets: a copy of the input guarded by sanitizers, and a mappable file. */
#ifndef BMC_FUZZ_INPUT_H
#define BMC_FUZZ_INPUT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "format/bmc/bmclayout.h"
#include "format/kvfile/kvfile.h"

/* Part of clang's sanitizer runtime; missing in builds for warnings only. */
#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes)   ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

/* An aligned, writable copy; reading beyond its end is an error. NULL if out of memory. */
static inline unsigned char *input_copy(const uint8_t *data, size_t size)
{
    unsigned char *copy = aligned_alloc(64, size + 64 - size % 64);
    if (!copy)
        return NULL;
    if (size)
        memcpy(copy, data, size);
    ASAN_POISON_MEMORY_REGION(copy + size, 64 - size % 64);
    return copy;
}

static inline void input_free(unsigned char *copy, size_t size)
{
    ASAN_UNPOISON_MEMORY_REGION(copy + size, 64 - size % 64);
    free(copy);
}

static inline void input_seal_image(unsigned char *copy, size_t size)
{
    struct bmc_head *head = (void *)copy;
    if (size < sizeof *head)
        return;
    head->file_bytes = size;
    if (head->header_bytes <= size && head->header_bytes >= sizeof *head)
        head->header_hash = bmc_header_hash(copy, (size_t)head->header_bytes);
}

/* Fixes sizes and header hashes of a model and of the draft head in it, which a fuzzer would not
 * find. */
static inline void input_seal_model(unsigned char *copy, size_t size)
{
    struct bmc_head *head = (void *)copy;
    if (size < sizeof *head)
        return;
    const size_t at = (size_t)head->draft.offset;
    if (at && at % BMC_ALIGN == 0 && at <= size - sizeof *head) {
        input_seal_image(copy + at, size - at);
        head->draft.bytes = size - at;
        head->draft_hash = ((const struct bmc_head *)(const void *)(copy + at))->header_hash;
    }
    input_seal_image(copy, size);
}

/* The same for a snapshot. */
static inline void input_seal_snapshot(unsigned char *copy, size_t size)
{
    struct kvfile_head *head = (void *)copy;
    if (size < KVFILE_ALIGN)
        return;
    head->file_bytes = size;
    if (head->tables_at <= size && head->tables_at >= KVFILE_ALIGN) {
        head->tables_bytes = size - head->tables_at;
        head->hash = kvfile_hash(copy, copy + head->tables_at, (size_t)head->tables_bytes);
    }
}

/* A memory file with these bytes; `path` receives its name. -1 on failure. */
static inline int input_file(const unsigned char *bytes, size_t size, char path[64])
{
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd >= 0)
        snprintf(path, 64, "/proc/self/fd/%d", fd);
    if (fd >= 0 && write(fd, bytes, size) == (ssize_t)size)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

#endif
