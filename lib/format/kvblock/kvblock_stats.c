/* Counters of a folder of blocks. The file is read and written as a whole under a lock, which ends with the
 * process: a process that is killed loses what it has not added, and changes nothing else. */
#include "format/kvblock/kvblock_stats.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

enum { TRIES = 20 };

struct stats_file {
    char magic[8];
    uint64_t version;
    struct kvblock_counts counts;
    uint64_t spare[8];
};

_Static_assert(sizeof(struct stats_file) == 128, "part of a file format");

static const struct stats_file empty = {.magic = "BMCKVSTA", .version = 1};

static int open_stats(int folder_fd, int flags)
{
    return openat(folder_fd, KVBLOCK_STATS_NAME, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
}

/* Checks that it is a regular file that only its owner may write to. */
static int check_stats(int fd, struct stat *st, struct err *err)
{
    if (fstat(fd, st) < 0)
        return err_errno(err, "cannot stat");
    if (!S_ISREG(st->st_mode))
        return err_set(err, "is no regular file");
    if (st->st_mode & (S_IWGRP | S_IWOTH))
        return err_set(err, "others may write to it");
    return 0;
}

static int read_counts(int fd, struct kvblock_counts *counts, struct err *err)
{
    struct stats_file file;
    const ssize_t n = pread(fd, &file, sizeof file, 0);
    *counts = empty.counts;
    if (n < 0)
        return err_errno(err, "cannot read");
    if (n == 0) /* another process has just created it */
        return 0;
    if (n != (ssize_t)sizeof file || memcmp(&file, &empty, offsetof(struct stats_file, counts)) != 0)
        return err_set(err, "has no counters of version %d", (int)empty.version);
    *counts = file.counts;
    return 0;
}

/* True if an open file has begun with the magic bytes, or is empty. */
static bool is_own(int fd)
{
    char magic[sizeof empty.magic];
    const ssize_t n = pread(fd, magic, sizeof magic, 0);
    return n == 0 || (n == (ssize_t)sizeof magic && memcmp(magic, empty.magic, sizeof magic) == 0);
}

enum kvblock_stats_state kvblock_stats_state(int folder_fd)
{
    struct stat st;
    if (fstatat(folder_fd, KVBLOCK_STATS_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return KVBLOCK_STATS_MISSING;
    const int fd = S_ISREG(st.st_mode) ? open_stats(folder_fd, O_RDONLY) : -1;
    const bool own = fd >= 0 && is_own(fd);
    if (fd >= 0)
        close(fd);
    return own ? KVBLOCK_STATS_OWN : KVBLOCK_STATS_FOREIGN;
}

/* Locks the file; tries again `tries` - 1 times, every millisecond, while another process has it. */
static bool lock_stats(int fd, short type, int tries)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_len = 1};
    const struct timespec wait = {.tv_nsec = 1000000};
    while (fcntl(fd, F_OFD_SETLK, &lock) < 0) {
        if (--tries <= 0 || (errno != EAGAIN && errno != EACCES))
            return false;
        nanosleep(&wait, NULL);
    }
    return true;
}

bool kvblock_stats_add(int folder_fd, const struct kvblock_counts *more, bool wait)
{
    enum { COUNTERS = sizeof *more / sizeof(uint64_t) };
    struct stats_file file = empty;
    uint64_t now[COUNTERS], add[COUNTERS];
    struct stat st;
    struct err err;
    const int fd = open_stats(folder_fd, O_RDWR | O_CREAT);
    if (fd < 0)
        return false;
    if (check_stats(fd, &st, &err) < 0 || st.st_uid != geteuid() || !is_own(fd) ||
        !lock_stats(fd, F_WRLCK, wait ? TRIES : 1)) {
        close(fd);
        return false;
    }
    (void)!read_counts(fd, &file.counts, &err); /* zeros replace damaged counters */
    memcpy(now, &file.counts, sizeof now);
    memcpy(add, more, sizeof add);
    for (size_t i = 0; i < COUNTERS; i++)
        now[i] += add[i];
    memcpy(&file.counts, now, sizeof now);
    const bool written = pwrite(fd, &file, sizeof file, 0) == (ssize_t)sizeof file;
    close(fd);
    return written;
}

int kvblock_stats_read(int folder_fd, struct kvblock_counts *counts, bool *exists, struct err *err)
{
    struct stat st;
    const int fd = open_stats(folder_fd, O_RDONLY);
    *counts = empty.counts;
    *exists = fd >= 0 || errno != ENOENT;
    if (fd < 0)
        return *exists ? err_errno(err, "cannot open") : 0;
    int rc = check_stats(fd, &st, err);
    if (rc == 0) {
        (void)lock_stats(fd, F_RDLCK, TRIES); /* who holds it for longer does not stop this process */
        rc = read_counts(fd, counts, err);
    }
    close(fd);
    return rc;
}
