/* An unlinked temporary file for offloaded KV entries. */
#include "kv/offload/offload_file.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/offload/offload.h"

struct offload_file {
    const struct backend_memory *memory;
    char *dir;
    struct async_file *async;
    char *host; /* in place of the file, [host_bytes] */
    size_t host_bytes;
    double host_rate;
};

/* Creates a file and unlinks it at once, for file systems without O_TMPFILE. */
static int open_named(const char *dir)
{
    char path[OFFLOAD_DIR_SIZE + 64];
    for (int i = 0; i < 1000; i++) {
        snprintf(path, sizeof path, "%s/.bmc-%ld-%llx", dir, (long)getpid(),
                 (unsigned long long)(clock_ms() * 1e6));
        const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd >= 0 && unlink(path) == 0)
            return fd;
        if (fd >= 0)
            close(fd);
        if (errno != EEXIST)
            break;
    }
    return -1;
}

static int open_file(const char *dir)
{
    const int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) ? fd
                                                                                  : open_named(dir);
}

static bool write_block(int fd, void *block)
{
    const ssize_t n = pwrite(fd, block, OFFLOAD_BLOCK, 0);
    if (n >= 0 && n < OFFLOAD_BLOCK)
        errno = ENOSPC;
    return n == OFFLOAD_BLOCK && pread(fd, block, OFFLOAD_BLOCK, 0) == OFFLOAD_BLOCK;
}

/* Tests the file by writing and reading back a block; sets O_DIRECT if that is supported. */
static bool try_file(int fd)
{
    AUTO(free_auto) void *block = aligned_alloc(OFFLOAD_BLOCK, OFFLOAD_BLOCK);
    if (!block)
        return false;
    memset(block, 0, OFFLOAD_BLOCK);
    const bool direct = fcntl(fd, F_SETFL, O_DIRECT) == 0;
    bool ok = direct && write_block(fd, block);
    if (!ok && (!direct || errno == EINVAL))
        ok = fcntl(fd, F_SETFL, 0) == 0 && write_block(fd, block);
    return ok;
}

static int open_host(struct offload_file *file, const char *dir, size_t bytes, struct err *err)
{
    enum { FIRST_RATE = 10000000 }; /* bytes per ms, before the first copy is timed */
    if (*dir)
        return err_set(
            err,
            "dir=%s is for the CPU's cache: heads that are not in the device's memory are in "
            "that of the host, so leave it out",
            dir);
    file->host_rate = FIRST_RATE;
    file->host_bytes = bytes;
    file->host = vm_reserve(VM_MMAP, bytes);
    return file->host ? 0 : err_no_memory(err, "%zu bytes of address space; use a smaller -c", bytes);
}

int offload_file_open(struct offload_file **out, const struct backend_memory *memory, const char *dir,
                      size_t bytes, struct err *err)
{
    struct offload_file *file = *out = mem_zalloc(1, sizeof *file);
    int fd = -1, rc = -1;
    if (file && memory->exchange)
        rc = open_host(file, dir, bytes, err);
    else if (!file || !(file->dir = strdup(dir)))
        rc = err_no_memory(err, "a file of KV entries");
    else if ((fd = open_file(dir)) < 0)
        rc = err_errno(
            err, "%s: cannot make a file for the cache there; name another folder with dir=", dir);
    else if (!try_file(fd))
        rc = err_errno(err, "%s: cannot write a file for the cache there", dir);
    else {
        rc = async_file_open(&file->async, fd, SIZE_MAX, err);
        fd = -1;
    }
    if (rc == 0)
        file->memory = memory;
    if (fd >= 0)
        close(fd);
    if (rc < 0) {
        offload_file_close(file);
        *out = NULL;
    }
    return rc;
}

/* Starts a copy between the device's memory and that of the host. */
static void exchange(struct offload_file *file, struct async_ticket *ticket, struct device_addr at,
                     size_t offset, size_t bytes, bool to_host)
{
    if (!ticket->bytes)
        ticket->since_ms = clock_ms();
    ticket->bytes += bytes;
    file->memory->exchange(ticket, file->host + offset, at, bytes, to_host);
}

void offload_file_read(struct offload_file *file, struct async_ticket *ticket, struct device_addr at,
                       size_t offset, size_t bytes)
{
    if (file->host)
        exchange(file, ticket, at, offset, bytes, false);
    else
        file->memory->file_read(file->async, ticket, at, offset, bytes);
}

void offload_file_write(struct offload_file *file, struct async_ticket *ticket, struct device_addr at,
                        size_t offset, size_t bytes)
{
    if (!file->host)
        file->memory->file_write(file->async, ticket, at, offset, bytes);
    else if (vm_commit(file->host + offset, bytes))
        exchange(file, ticket, at, offset, bytes, true);
    else
        ticket->error = ENOMEM;
}

void offload_file_drop(struct offload_file *file, size_t offset, size_t bytes)
{
    if (file->host)
        vm_drop(file->host + offset, bytes);
}

static int wait_host(struct offload_file *file, struct async_ticket *ticket, struct err *err)
{
    const int error = ticket->error;
    if (ticket->copies) {
        file->memory->wait_exchange(ticket);
        const double ms = clock_ms() - ticket->since_ms;
        file->host_rate = fmax(file->host_rate, (double)ticket->bytes / fmax(ms, 1e-3));
    }
    *ticket = (struct async_ticket){0};
    return error ? err_no_memory(err, "KV entries that the device's memory does not hold")
                 : memory_failed(file->memory, err);
}

int offload_file_wait(struct offload_file *file, struct async_ticket *ticket, struct err *err)
{
    struct async_failure failure;
    if (file->host)
        return wait_host(file, ticket, err);
    if (async_file_wait(file->async, ticket, &failure))
        return 0;
    if (failure.ended)
        return err_set(err, "%s: the cache's file there %s", file->dir,
                       failure.wrote ? "cannot grow: the disk is full"
                                     : "is shorter than what was written");
    errno = failure.error;
    return err_errno(err, "%s: cannot %s the cache's file there", file->dir,
                     failure.wrote ? "write to" : "read from");
}

double offload_file_rate(const struct offload_file *file)
{
    return file->host ? file->host_rate : async_file_rate(file->async);
}

void offload_file_close(struct offload_file *file)
{
    if (!file)
        return;
    async_file_close(file->async);
    if (file->host)
        vm_release(file->host, file->host_bytes);
    free(file->dir);
    free(file);
}
