/* An open file and its I/O requests in flight. */
#include "base/io/async_file.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io/async_engine.h"
#include "base/mem.h"

enum {
    REQUEST_BYTES = 1 << 20,      /* per request; more if REQUESTS_OF_ONE are not enough */
    REQUESTS_OF_ONE = 64,         /* maximum requests per read or write */
    COMMON_BYTES_PER_MS = 1000000 /* throughput assumed before the first read: 1 GB/s */
};

struct async_file {
    int fd;
    size_t end;
    const struct async_engine *engine;
    void *state; /* the engine's data */
    struct async_request request[ASYNC_QUEUE_DEPTH];
    struct async_request *spare;
    size_t in_flight;
    double bytes_per_ms; /* 0: nothing was read yet */
};

static bool open_engine(struct async_file *file)
{
    static const struct async_engine *const engines[] = {&async_engine_uring, &async_engine_thread};
    for (size_t i = 0; i < ARRAY_LEN(engines); i++) {
        file->engine = engines[i];
        if (file->engine->open(&file->state, file->fd))
            return true;
    }
    file->engine = NULL;
    return false;
}

int async_file_open(struct async_file **out, int fd, size_t end, struct err *err)
{
    struct async_file *file = *out = mem_zalloc(1, sizeof *file);
    if (!file) {
        close(fd);
        return err_no_memory(err, "a file");
    }
    file->fd = fd;
    file->end = end;
    if (!open_engine(file)) {
        async_file_close(file);
        *out = NULL;
        return err_set(err, "cannot start io_uring or a thread for asynchronous I/O");
    }
    for (size_t i = 0; i < ASYNC_QUEUE_DEPTH; i++) {
        file->request[i].next = file->spare;
        file->spare = &file->request[i];
    }
    return 0;
}

/* Waits until a request completes and puts it on the list of spare ones. A short read or write is
 * finished synchronously. */
static void collect(struct async_file *file)
{
    struct async_request *request = file->engine->wait(file->state);
    struct async_ticket *ticket = request->ticket;
    ssize_t n = request->result;
    const bool again = n == -EINTR || n == -EAGAIN;
    if (again || (n >= 0 && (size_t)n < request->needed))
        n = async_request_run(file->fd, request, again ? 0 : (size_t)n / ASYNC_BLOCK * ASYNC_BLOCK);
    if ((n < 0 || (size_t)n < request->needed) && !ticket->error) {
        ticket->error = n < 0 ? (int)-n : EIO;
        ticket->ended = n >= 0;
        ticket->wrote = request->write;
    }
    ticket->pending--;
    file->in_flight--;
    request->next = file->spare;
    file->spare = request;
}

static struct async_request *spare_request(struct async_file *file)
{
    if (!file->spare) {
        file->engine->submit(file->state);
        collect(file);
    }
    struct async_request *request = file->spare;
    file->spare = request->next;
    return request;
}

static void start(struct async_file *file, struct async_ticket *ticket, bool write, char *at,
                  size_t offset, size_t bytes)
{
    const size_t most = size_max(REQUEST_BYTES, round_up(div_up(bytes, REQUESTS_OF_ONE), ASYNC_BLOCK));
    if (!ticket->bytes)
        ticket->since_ms = clock_ms();
    ticket->bytes += bytes;
    for (size_t done = 0, n; done < bytes; done += n) {
        n = size_min(most, bytes - done);
        const size_t from = offset + done, inside = file->end > from ? file->end - from : 0;
        struct async_request *request = spare_request(file);
        *request = (struct async_request){.ticket = ticket,
                                          .at = at + done,
                                          .offset = from,
                                          .bytes = n,
                                          .needed = write ? n : size_min(n, inside),
                                          .write = write};
        ticket->pending++;
        file->in_flight++;
        file->engine->queue(file->state, request);
    }
    file->engine->submit(file->state);
}

void async_file_read(struct async_file *file, struct async_ticket *ticket, void *at, size_t offset,
                     size_t bytes)
{
    start(file, ticket, false, at, offset, bytes);
}

void async_file_write(struct async_file *file, struct async_ticket *ticket, const void *at,
                      size_t offset, size_t bytes)
{
    ticket->wrote = true;
    start(file, ticket, true, (char *)(uintptr_t)at, offset, bytes);
}

void async_file_progress(struct async_file *file) { collect(file); }

bool async_file_wait(struct async_file *file, struct async_ticket *ticket,
                     struct async_failure *failure)
{
    while (ticket->pending)
        collect(file);
    const double ms = clock_ms() - ticket->since_ms;
    if (ticket->bytes && !ticket->wrote && ms > 0 && (double)ticket->bytes / ms > file->bytes_per_ms)
        file->bytes_per_ms = (double)ticket->bytes / ms;
    *failure = (struct async_failure){ticket->error, ticket->wrote, ticket->ended};
    *ticket = (struct async_ticket){0};
    return !failure->error;
}

double async_file_rate(const struct async_file *file)
{
    return file->bytes_per_ms > 0 ? file->bytes_per_ms : COMMON_BYTES_PER_MS;
}

void async_file_close(struct async_file *file)
{
    if (!file)
        return;
    while (file->in_flight)
        collect(file);
    if (file->engine)
        file->engine->close(file->state);
    close(file->fd);
    free(file);
}
