/* Asynchronous I/O engines: how async_file.c executes its requests. */
#ifndef BMC_ASYNC_ENGINE_H
#define BMC_ASYNC_ENGINE_H

#include <sys/types.h>

#include "base/io/async_file.h"

enum { ASYNC_QUEUE_DEPTH = 256 }; /* maximum number of requests in flight */

struct async_request {
    struct async_ticket *ticket;
    struct async_request *next; /* next in a list of the engine or of struct async_file */
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

/* async_thread.c: executes a request synchronously from its byte `done` on, until the needed bytes are
 * transferred. Returns their number, including the first `done`, or -errno. */
ssize_t async_request_run(int fd, const struct async_request *request, size_t done);

#endif
