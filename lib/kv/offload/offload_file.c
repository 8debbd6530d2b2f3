/* An unlinked temporary file for offloaded KV entries, and its I/O requests in flight. */
#include "kv/offload/offload_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/offload/offload.h"
#include "kv/offload/offload_engine.h"

enum {
    REQUEST_BYTES = 1 << 20,      /* per request; more if REQUESTS_OF_ONE are not enough */
    REQUESTS_OF_ONE = 64,         /* maximum requests per read or write */
    COMMON_BYTES_PER_MS = 1000000 /* throughput assumed before the first read: 1 GB/s */
};

struct offload_file {
    int fd;
    char *dir;
    const struct offload_engine *engine;
    void *state; /* the engine's data */
    struct offload_request request[OFFLOAD_QUEUE_DEPTH];
    struct offload_request *spare;
    size_t in_flight;
    double bytes_per_ms; /* 0: nothing was read yet */
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
    void *block = aligned_alloc(OFFLOAD_BLOCK, OFFLOAD_BLOCK);
    if (!block)
        return false;
    memset(block, 0, OFFLOAD_BLOCK);
    const bool direct = fcntl(fd, F_SETFL, O_DIRECT) == 0;
    bool ok = direct && write_block(fd, block);
    if (!ok && (!direct || errno == EINVAL))
        ok = fcntl(fd, F_SETFL, 0) == 0 && write_block(fd, block);
    free(block);
    return ok;
}

static bool open_engine(struct offload_file *file)
{
    static const struct offload_engine *const engines[] = {&offload_engine_uring,
                                                           &offload_engine_thread};
    for (size_t i = 0; i < ARRAY_LEN(engines); i++) {
        file->engine = engines[i];
        if (file->engine->open(&file->state, file->fd))
            return true;
    }
    file->engine = NULL;
    return false;
}

int offload_file_open(struct offload_file **out, const char *dir, struct err *err)
{
    struct offload_file *file = *out = mem_zalloc(1, sizeof *file);
    int rc = -1;
    if (file)
        file->fd = -1;
    if (!file || !(file->dir = strdup(dir)))
        rc = err_set(err, "out of memory");
    else if ((file->fd = open_file(dir)) < 0)
        rc = err_errno(
            err, "%s: cannot make a file for the cache there; name another folder with dir=", dir);
    else if (!try_file(file->fd))
        rc = err_errno(err, "%s: cannot write a file for the cache there", dir);
    else if (!open_engine(file))
        rc = err_set(err, "cannot start io_uring or a thread for the cache's file");
    else
        rc = 0;
    for (size_t i = 0; rc == 0 && i < OFFLOAD_QUEUE_DEPTH; i++) {
        file->request[i].next = file->spare;
        file->spare = &file->request[i];
    }
    if (rc < 0) {
        offload_file_close(file);
        *out = NULL;
    }
    return rc;
}

/* Waits until a request completes and puts it on the list of spare ones. A short read or write is
 * finished synchronously. */
static void collect(struct offload_file *file)
{
    struct offload_request *request = file->engine->wait(file->state);
    struct offload_ticket *ticket = request->ticket;
    ssize_t n = request->result;
    const bool again = n == -EINTR || n == -EAGAIN;
    if (again || (n >= 0 && (size_t)n < request->bytes))
        n = offload_request_run(file->fd, request,
                                again ? 0 : (size_t)n / OFFLOAD_BLOCK * OFFLOAD_BLOCK);
    if ((n < 0 || (size_t)n < request->bytes) && !ticket->error) {
        ticket->error = n < 0 ? (int)-n : EIO;
        ticket->ended = n >= 0;
        ticket->wrote = request->write;
    }
    ticket->pending--;
    file->in_flight--;
    request->next = file->spare;
    file->spare = request;
}

static struct offload_request *spare_request(struct offload_file *file)
{
    if (!file->spare) {
        file->engine->submit(file->state);
        collect(file);
    }
    struct offload_request *request = file->spare;
    file->spare = request->next;
    return request;
}

static void start(struct offload_file *file, struct offload_ticket *ticket, bool write, char *at,
                  size_t offset, size_t bytes)
{
    const size_t most =
        size_max(REQUEST_BYTES, round_up(div_up(bytes, REQUESTS_OF_ONE), OFFLOAD_BLOCK));
    if (!ticket->bytes)
        ticket->since_ms = clock_ms();
    ticket->bytes += bytes;
    for (size_t done = 0, n; done < bytes; done += n) {
        n = size_min(most, bytes - done);
        struct offload_request *request = spare_request(file);
        *request = (struct offload_request){
            .ticket = ticket, .at = at + done, .offset = offset + done, .bytes = n, .write = write};
        ticket->pending++;
        file->in_flight++;
        file->engine->queue(file->state, request);
    }
    file->engine->submit(file->state);
}

void offload_file_read(struct offload_file *file, struct offload_ticket *ticket, void *at,
                       size_t offset, size_t bytes)
{
    start(file, ticket, false, at, offset, bytes);
}

void offload_file_write(struct offload_file *file, struct offload_ticket *ticket, const void *at,
                        size_t offset, size_t bytes)
{
    ticket->wrote = true;
    start(file, ticket, true, (char *)(uintptr_t)at, offset, bytes);
}

static int report(const struct offload_file *file, const struct offload_ticket *ticket, struct err *err)
{
    if (ticket->ended)
        return err_set(err, "%s: the cache's file there %s", file->dir,
                       ticket->wrote ? "cannot grow: the disk is full"
                                     : "is shorter than what was written");
    errno = ticket->error;
    return err_errno(err, "%s: cannot %s the cache's file there", file->dir,
                     ticket->wrote ? "write to" : "read from");
}

int offload_file_wait(struct offload_file *file, struct offload_ticket *ticket, struct err *err)
{
    while (ticket->pending)
        collect(file);
    const double ms = clock_ms() - ticket->since_ms;
    if (ticket->bytes && !ticket->wrote && ms > 0 && (double)ticket->bytes / ms > file->bytes_per_ms)
        file->bytes_per_ms = (double)ticket->bytes / ms;
    const int rc = ticket->error ? report(file, ticket, err) : 0;
    *ticket = (struct offload_ticket){0};
    return rc;
}

double offload_file_rate(const struct offload_file *file)
{
    return file->bytes_per_ms > 0 ? file->bytes_per_ms : COMMON_BYTES_PER_MS;
}

void offload_file_close(struct offload_file *file)
{
    if (!file)
        return;
    while (file->in_flight)
        collect(file);
    if (file->engine)
        file->engine->close(file->state);
    if (file->fd >= 0)
        close(file->fd);
    free(file->dir);
    free(file);
}
