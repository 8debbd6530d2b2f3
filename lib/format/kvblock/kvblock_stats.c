/* Counters of a folder of blocks. The file is read and written as a whole under a lock, which ends with the
 * process: a process that is killed loses what it has not added, and changes nothing else. */
#include "format/kvblock/kvblock_stats.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

struct stats_file {
    char magic[8];
    uint64_t version;
    struct kvblock_counts counts;
    uint64_t spare[8];
};

_Static_assert(sizeof(struct stats_file) == 128, "part of a file format");

static const struct stats_file empty = {.magic = "BMCKVSTA", .version = 1};

/* Opens the file if it is a regular one of this user that nobody else may write to; else -1. */
static int open_stats(int folder_fd, int flags)
{
    struct stat st;
    const int fd =
        openat(folder_fd, KVBLOCK_STATS_NAME, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
                   !(st.st_mode & (S_IWGRP | S_IWOTH))))
        return fd;
    close(fd);
    return -1;
}

static struct kvblock_counts read_counts(int fd)
{
    struct stats_file file;
    return pread(fd, &file, sizeof file, 0) == (ssize_t)sizeof file &&
                   memcmp(&file, &empty, offsetof(struct stats_file, counts)) == 0
               ? file.counts
               : empty.counts;
}

bool kvblock_stats_add(int folder_fd, const struct kvblock_counts *more)
{
    enum { COUNTERS = sizeof *more / sizeof(uint64_t) };
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    struct stats_file file = empty;
    uint64_t now[COUNTERS], add[COUNTERS];
    const int fd = open_stats(folder_fd, O_RDWR | O_CREAT);
    if (fd < 0 || fcntl(fd, F_OFD_SETLK, &lock) < 0) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    file.counts = read_counts(fd);
    memcpy(now, &file.counts, sizeof now);
    memcpy(add, more, sizeof add);
    for (size_t i = 0; i < COUNTERS; i++)
        now[i] += add[i];
    memcpy(&file.counts, now, sizeof now);
    const bool written = pwrite(fd, &file, sizeof file, 0) == (ssize_t)sizeof file;
    close(fd);
    return written;
}

struct kvblock_counts kvblock_stats_read(int folder_fd)
{
    const int fd = open_stats(folder_fd, O_RDONLY);
    const struct kvblock_counts counts = fd < 0 ? empty.counts : read_counts(fd);
    if (fd >= 0)
        close(fd);
    return counts;
}
