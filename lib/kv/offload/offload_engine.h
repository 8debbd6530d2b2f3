/* Asynchronous I/O engines: how offload_file.c executes its requests. */
#ifndef BMC_OFFLOAD_ENGINE_H
#define BMC_OFFLOAD_ENGINE_H

#include <sys/types.h>

#include "kv/offload/offload_file.h"

enum { OFFLOAD_QUEUE_DEPTH = 256 }; /* maximum number of requests in flight */

struct offload_request {
    struct offload_ticket *ticket;
    struct offload_request *next; /* next in a list of the engine or of struct offload_file */
    char *at;
    size_t offset, bytes;
    bool write;
    ssize_t result; /* bytes, or -errno */
};

struct offload_engine {
    /* Opens the engine for I/O on file `fd`; false if this system does not support it. */
    bool (*open)(void **state, int fd);
    void (*close)(void *state); /* no request may be in flight */

    /* Queues a request; submit() starts all queued requests. */
    void (*queue)(void *state, struct offload_request *request);
    void (*submit)(void *state);

    /* Waits until any request completes and returns it; at least one must be in flight. */
    struct offload_request *(*wait)(void *state);
};

extern const struct offload_engine offload_engine_uring, offload_engine_thread;

/* offload_thread.c: executes a request synchronously from its byte `done` on. Returns the bytes
 * transferred, including the first `done`, or -errno. */
ssize_t offload_request_run(int fd, const struct offload_request *request, size_t done);

#endif
