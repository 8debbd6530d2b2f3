/* Files: read-only mappings for input, atomic replacement for output. */
#pragma once

#include <signal.h>

#include "base/err.h"

/* A whole file, mapped read-only; its pages are shared with other processes. */
struct file_map {
    const unsigned char *data; /* NULL when the file is empty */
    size_t size;
};

/* Maps the regular file at `path`. A folder, a device or an unreadable file is an error. */
int file_map(struct file_map *map, const char *path, struct err *err) MUST_USE;
void file_unmap(struct file_map *map);

/* Drops a mapping's pages from this process's memory; the next access reads them again. */
void file_map_release_pages(const struct file_map *map);

/* Like file_map(), but leaves the file open for file_map_private(); the caller closes *fd. */
int file_map_open(struct file_map *map, const char *path, int *fd, struct err *err) MUST_USE;

/* Maps bytes [offset, offset + bytes) of an open file copy-on-write: pages are shared with other
 * processes until they are written. `offset` is a multiple of the page size; mapped_name() reports
 * `name`. NULL with errno set on failure. */
void *file_map_private(int fd, size_t offset, size_t bytes, const char *name);
void file_unmap_private(void *data, size_t bytes);

bool file_is_folder(const char *path);
bool file_exists(const char *path);

/* Creates missing parent folders of a path, accessible to the user only (XDG). Failures show when the file is opened. */
void file_make_parents(const char *path);

/* An output that appears under its name only when it is complete: it is written under a temporary
 * name in the same folder, then fsync and rename. Devices, FIFOs and open descriptors ("-") are
 * written directly (base/output_path.h). */
struct outfile {
    int fd;         /* -1: not open */
    bool direct;    /* written in place: neither renamed nor removed */
    bool seekable;  /* outfile_write_at() works */
    int slot;       /* index of its temporary file, for file_remove_unfinished() */
    size_t written; /* bytes given to outfile_write() */

    /* Set after opening: writes whole, aligned huge pages (and the rest at the end), and so reports errors
     * later. File systems with large folios (ext4 since Linux 6.16, XFS since 5.18) cache what one such
     * write brings in one huge page, which mappings of the file then use. */
    bool whole_pages;
    char *held; /* the last bytes, [n_held], that are not in the file yet; NULL: none so far */
    size_t n_held;
    char path[4096];
};

/* Opens an output. A replaced file keeps its mode, and its owner and group if permitted; a new one
 * has mode 0666 (outfile_open_private(): 0600) less the umask. */
int outfile_open(struct outfile *out, const char *path, struct err *err) MUST_USE;
int outfile_open_private(struct outfile *out, const char *path, struct err *err) MUST_USE;
int outfile_write(struct outfile *out, const void *bytes, size_t len, struct err *err) MUST_USE;

/* Sets a flag that stops outfile_open() from waiting for the reader of a FIFO, once *flag is not 0.
 * By default it waits forever. */
void file_stop_waiting(const volatile sig_atomic_t *flag);

/* Writes at a byte offset of the output; requires `seekable`. */
int outfile_write_at(struct outfile *out, size_t offset, const void *bytes, size_t len,
                     struct err *err) MUST_USE;

/* Syncs, closes and renames the output to its final name. On error no temporary file remains. */
int outfile_commit(struct outfile *out, struct err *err) MUST_USE;

/* Discards an output that was not committed; no effect after outfile_commit(). */
void outfile_abort(struct outfile *out);

/* Opens an output, writes all its bytes and commits it. */
int outfile_save(const char *path, const void *bytes, size_t len, struct err *err) MUST_USE;
int outfile_save_private(const char *path, const void *bytes, size_t len, struct err *err) MUST_USE;

/* Removes the temporary files of unfinished outputs. Async-signal-safe. */
void file_remove_unfinished(void);

/* ---- names of mapped files by address, to report in a SIGBUS handler which file was truncated ---- */

/* Registers a mapping with the name to use in messages. */
void mapped_add(const void *data, size_t size, const char *name);
void mapped_remove(const void *data);

/* The name of the mapping that contains an address, or NULL. Async-signal-safe. */
const char *mapped_name(const void *address);

/* ---- mappings of large files at addresses where they can be replaced by huge pages ---- */

/* Called with the memory of a copy before it is populated. */
typedef void map_huge_place(void *arg, char *copy);

/* Replaces a mapping of map_huge_file() by a copy in transparent huge pages, at the same address. `place` may be
 * NULL. False: out of memory; nothing has changed. */
bool map_huge_copy(void *mapped, size_t bytes, map_huge_place *place, void *arg);
