/* Files: read-only mappings in, atomic replacements out. */
#ifndef BMC_FILE_H
#define BMC_FILE_H

#include <signal.h>

#include "base/err.h"

/* A whole file, mapped read-only and shared with every other process that maps it. */
struct file_map {
    const unsigned char *data; /* NULL when the file is empty */
    size_t size;
};

/* Maps the regular file at `path`. A folder, a device or an unreadable file is an error. */
int file_map(struct file_map *map, const char *path, struct err *err) MUST_USE;
void file_unmap(struct file_map *map);

/* What was read of it need not stay in this process's memory; it is read again when it is needed again. */
void file_map_forget(const struct file_map *map);

/* The same, and *fd stays open for file_map_private(); the caller closes it. */
int file_map_open(struct file_map *map, const char *path, int *fd, struct err *err) MUST_USE;

/* Maps bytes [offset, offset + bytes) of an open file once more, to be written to: pages are those of the file, shared
 * with every process, until one is written, which copies it for this mapping alone. `offset` is a multiple of the page
 * size, `name` what mapped_name() calls it. NULL with errno when it cannot be had. */
void *file_map_private(int fd, size_t offset, size_t bytes, const char *name);
void file_unmap_private(void *data, size_t bytes);

bool file_is_folder(const char *path);
bool file_exists(const char *path);

/* The first bytes of a regular file, at most `size`, and how many: 0 when it cannot be read. Needs no memory, so that
 * what a file is can be told when memory is short. */
size_t file_head(const char *path, void *bytes, size_t size);

/* What a line "KEY: N kB" of a file in /proc says, in bytes; 0 when there is none. */
size_t file_proc_bytes(const char *path, const char *key);

/* An output that appears under its name only when it is complete: a temporary name in the same folder,
 * then fsync and rename. An existing output that is no regular file (a device, a FIFO) and "-"
 * (standard output) are written directly and never renamed over; base/place.h says what a name stands for. */
struct outfile {
    int fd;         /* -1: not open */
    bool direct;    /* written in place: not removed, not renamed */
    bool seekable;  /* pwrite works: parts may be written in any order */
    int slot;       /* where the temporary name is remembered for file_remove_unfinished() */
    size_t written; /* bytes written with outfile_write() */
    char path[4096];
};

/* A file that is replaced keeps its mode, and its owner and group where that is possible. A new one can be read by
 * whom the umask allows, or by nobody else when it is private. */
int outfile_open(struct outfile *out, const char *path, struct err *err) MUST_USE;
int outfile_open_private(struct outfile *out, const char *path, struct err *err) MUST_USE;
int outfile_write(struct outfile *out, const void *bytes, size_t len, struct err *err) MUST_USE;

/* An output that is a FIFO waits for its reader, until *flag is not 0; without a flag for ever. */
void file_stop_waiting(const volatile sig_atomic_t *flag);

/* Writes at an offset without moving the end; only when `seekable`. */
int outfile_write_at(struct outfile *out, size_t offset, const void *bytes, size_t len,
                     struct err *err) MUST_USE;

/* Makes the output durable and gives it its name. On error nothing stays behind. */
int outfile_commit(struct outfile *out, struct err *err) MUST_USE;

/* Drops an output that was not committed; harmless after outfile_commit(). */
void outfile_abort(struct outfile *out);

/* All of that for bytes that are there already. */
int outfile_save(const char *path, const void *bytes, size_t len, struct err *err) MUST_USE;

/* Removes the temporary files of unfinished outputs. Safe in a signal handler. */
void file_remove_unfinished(void);

#endif
