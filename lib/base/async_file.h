/* An open file that is read and written asynchronously, past the page cache where the file system
 * supports that (O_DIRECT). Only one thread at a time may use it.
 *
 * Addresses, offsets and sizes are multiples of ASYNC_BLOCK. */
#pragma once

#include <sys/types.h>

#include "base/err.h"

enum { ASYNC_BLOCK = 4096 };

struct async_file;

/* A set of reads and writes for which one async_file_wait() waits. Starts as all zeros. */
struct async_ticket {
    size_t pending; /* requests in flight */
    size_t bytes;   /* submitted since the last wait */
    double since_ms;
    int error;         /* errno of the first request that failed; 0: none */
    bool wrote, ended; /* the failed request was a write; it met the end of the file or disk */
    void *copies;      /* for copies by others than a file: what they wait for */
};

/* Why the requests of a ticket failed, as in struct async_ticket. */
struct async_failure {
    int error;
    bool wrote, ended;
};

/* Takes over descriptor `fd`, which is closed on error, too. Reads may extend beyond byte `end`, the size
 * of the file, up to the end of its block; SIZE_MAX: they may not. */
int async_file_open(struct async_file **file, int fd, size_t end, struct err *err) MUST_USE;

/* Waits for requests in flight. NULL is accepted. */
void async_file_close(struct async_file *file);

/* Starts to read bytes [offset, offset + bytes) of the file to `at`, or to write them from there:
 * the memory must not be touched until async_file_wait(). */
void async_file_read(struct async_file *file, struct async_ticket *ticket, void *at, size_t offset,
                     size_t bytes);
void async_file_write(struct async_file *file, struct async_ticket *ticket, const void *at,
                      size_t offset, size_t bytes);

/* Waits until any request of the file completes; at least one must be in flight. A ticket is complete
 * when its `pending` is 0. */
void async_file_progress(struct async_file *file);

/* Waits for all requests of a ticket and resets it; false with *failure filled if one failed. */
bool async_file_wait(struct async_file *file, struct async_ticket *ticket,
                     struct async_failure *failure) MUST_USE;

/* Best read throughput of a ticket so far in bytes per ms; before the first read, 1 GB/s. */
double async_file_rate(const struct async_file *file);

/* ---- how requests are executed: by io_uring, or where there is none by a thread ---- */

enum { ASYNC_QUEUE_DEPTH = 256 }; /* maximum number of requests in flight */

struct async_request {
    struct async_ticket *ticket;
    struct async_request *next; /* next in a queue of the engine, or in the list of free ones */
    char *at;
    size_t offset, bytes;
    size_t needed; /* leading bytes that must be transferred: fewer than `bytes` at the end of a file */
    bool write;
    ssize_t result; /* bytes, or -errno */
};

struct async_engine {
    /* Opens the engine for I/O on file `fd`; false if this system does not support it. */
    bool (*open)(void **state, int fd);
    void (*close)(void *state); /* no request may be in flight */

    /* Queues a request; submit() starts all queued requests. */
    void (*queue)(void *state, struct async_request *request);
    void (*submit)(void *state);

    /* Waits until any request completes and returns it; at least one must be in flight. */
    struct async_request *(*wait)(void *state);
};

extern const struct async_engine async_engine_uring, async_engine_thread;
