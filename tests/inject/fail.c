/* A preloaded library that makes one call fail: the BMC_FAIL_AT-th of those that BMC_FAIL_CALL
 * names ("memory", "write", "fsync", "rename", "mmap", "read"). With "plain", all file systems lack
 * O_TMPFILE and O_DIRECT instead. The number of calls is written to descriptor BMC_FAIL_COUNT at
 * exit; without BMC_FAIL_AT calls are only counted. A test that is linked with this file chooses calls by
 * fail.h instead.
 *
 * glibc's stdio does not call the write() defined here, so standard output becomes a stream that
 * does. Programs write to no other stream except standard error, which must work for messages.
 *
 * Calls are forwarded to glibc's internal names and to system calls: dlsym() could need memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "tests/inject/fail.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

enum call { NONE, MEMORY, WRITE, FSYNC, RENAME, MMAP, READ, PLAIN };

static const char *const names[] = {"", "memory", "write", "fsync", "rename", "mmap", "read", "plain"};
static enum call chosen;
static unsigned long fail_at;
static atomic_ulong calls;

static ssize_t write_out(void *cookie, const char *bytes, size_t len)
{
    (void)cookie;
    const ssize_t n = write(STDOUT_FILENO, bytes, len);
    return n < 0 ? 0 : n;
}

void fail_next(const char *name, unsigned long at)
{
    chosen = NONE;
    for (int i = MEMORY; name && i <= PLAIN; i++)
        if (strcmp(name, names[i]) == 0)
            chosen = (enum call)i;
    fail_at = at;
    atomic_store(&calls, 0);
}

void fail_pause(void) { chosen = NONE; }

unsigned long fail_calls(void) { return atomic_load(&calls); }

__attribute__((constructor)) static void choose(void)
{
    const char *at = getenv("BMC_FAIL_AT");
    fail_next(getenv("BMC_FAIL_CALL"), at ? strtoul(at, NULL, 10) : 0);
    if (chosen == WRITE)
        stdout = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_out});
}

__attribute__((destructor)) static void tell(void)
{
    const char *fd = getenv("BMC_FAIL_COUNT");
    char text[32];
    if (fd)
        syscall(SYS_write, atoi(fd), text, snprintf(text, sizeof text, "%lu\n", atomic_load(&calls)));
}

/* True for the one call that must fail, with `reason` as errno. */
static int fails(enum call call, int reason)
{
    if (call != chosen || atomic_fetch_add(&calls, 1) + 1 != fail_at)
        return 0;
    errno = reason;
    return 1;
}

void *malloc(size_t size) { return fails(MEMORY, ENOMEM) ? NULL : __libc_malloc(size); }
void *calloc(size_t n, size_t size) { return fails(MEMORY, ENOMEM) ? NULL : __libc_calloc(n, size); }
void *realloc(void *block, size_t size)
{
    return fails(MEMORY, ENOMEM) ? NULL : __libc_realloc(block, size);
}
void *aligned_alloc(size_t alignment, size_t size)
{
    return fails(MEMORY, ENOMEM) ? NULL : __libc_memalign(alignment, size);
}
int posix_memalign(void **block, size_t alignment, size_t size)
{
    *block = fails(MEMORY, ENOMEM) ? NULL : __libc_memalign(alignment, size);
    return *block ? 0 : ENOMEM;
}

ssize_t write(int fd, const void *bytes, size_t len)
{
    return fails(WRITE, ENOSPC) ? -1 : syscall(SYS_write, fd, bytes, len);
}
ssize_t pwrite(int fd, const void *bytes, size_t len, off_t offset)
{
    return fails(WRITE, ENOSPC) ? -1 : syscall(SYS_pwrite64, fd, bytes, len, offset);
}
ssize_t pread(int fd, void *bytes, size_t len, off_t offset)
{
    return fails(READ, EIO) ? -1 : syscall(SYS_pread64, fd, bytes, len, offset);
}

int io_uring_queue_init(unsigned entries, void *ring, unsigned flags);

/* io_uring would bypass the calls defined here; some systems refuse it, too. */
int io_uring_queue_init(unsigned entries, void *ring, unsigned flags)
{
    (void)entries, (void)ring, (void)flags;
    return -EPERM;
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const int mode = va_arg(args, int);
    va_end(args);
    if (chosen == PLAIN && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
int fcntl(int fd, int command, ...)
{
    va_list args;
    va_start(args, command);
    const long value = va_arg(args, long);
    va_end(args);
    if (chosen == PLAIN && command == F_SETFL && (value & O_DIRECT)) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_fcntl, fd, command, value);
}
int fsync(int fd) { return fails(FSYNC, EIO) ? -1 : (int)syscall(SYS_fsync, fd); }
int rename(const char *from, const char *to)
{
    return fails(RENAME, EACCES) ? -1 : (int)syscall(SYS_renameat2, -100, from, -100, to, 0);
}
void *mmap(void *at, size_t len, int protection, int flags, int fd, off_t offset)
{
    if (fails(MMAP, ENOMEM))
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, len, protection, flags, fd, offset); // NOLINT
}
