/* Asynchronous I/O by io_uring. */
#include <errno.h>
#include <liburing.h>
#include <sched.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/io/async_engine.h"

struct ring {
    struct io_uring uring;
    int fd;
    struct async_request *request[ASYNC_QUEUE_DEPTH]; /* in flight */
    size_t n, submitted; /* requests in flight; of these, submitted to the kernel */
    int error;           /* -errno of a broken ring: all requests have failed; 0: none */
};

/* Opens the ring; returns false on systems that lack or forbid io_uring. */
static bool open_ring(void **state, int fd)
{
    struct ring *ring = mem_zalloc(1, sizeof *ring);
    if (!ring || io_uring_queue_init(ASYNC_QUEUE_DEPTH, &ring->uring, 0) < 0) {
        free(ring);
        return false;
    }
    ring->fd = fd;
    *state = ring;
    return true;
}

static void close_ring(void *state)
{
    struct ring *ring = state;
    io_uring_queue_exit(&ring->uring);
    free(ring);
}

/* Adds a request to the submission queue, which has an entry for every request in flight. */
static void queue(void *state, struct async_request *request)
{
    struct ring *ring = state;
    ring->request[ring->n++] = request;
    if (ring->error)
        return;
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring->uring);
    if (request->write)
        io_uring_prep_write(entry, ring->fd, request->at, (unsigned)request->bytes, request->offset);
    else
        io_uring_prep_read(entry, ring->fd, request->at, (unsigned)request->bytes, request->offset);
    io_uring_sqe_set_data(entry, request);
}

/* True for error codes after which the io_uring call is to be repeated. */
static bool is_busy(int rc) { return rc == -EINTR || rc == -EAGAIN || rc == -EBUSY; }

static void submit(void *state)
{
    struct ring *ring = state;
    while (!ring->error && io_uring_sq_ready(&ring->uring)) {
        const int rc = io_uring_submit(&ring->uring);
        if (is_busy(rc))
            sched_yield();
        else if (rc < 0)
            ring->error = rc;
        else
            ring->submitted += (size_t)rc;
    }
}

/* Waits for the kernel to complete a request and returns it; NULL if none was submitted. The kernel
 * may access a request's memory until then, so if waiting fails, the completion queue, in shared
 * memory, is polled. */
static struct async_request *wait_one(struct ring *ring)
{
    struct io_uring_cqe *entry = NULL;
    if (!ring->submitted)
        return NULL;
    for (int rc; (rc = io_uring_wait_cqe(&ring->uring, &entry)) < 0; sched_yield())
        if (!ring->error && !is_busy(rc))
            ring->error = rc;
    struct async_request *request = io_uring_cqe_get_data(entry);
    request->result = ring->error ? ring->error : entry->res;
    io_uring_cqe_seen(&ring->uring, entry);
    ring->submitted--;
    return request;
}

static struct async_request *wait_any(void *state)
{
    struct ring *ring = state;
    struct async_request *request = wait_one(ring);
    size_t at = 0;
    if (!request) {
        request = ring->request[0];
        request->result = ring->error;
    }
    while (ring->request[at] != request)
        at++;
    ring->request[at] = ring->request[--ring->n];
    return request;
}

const struct async_engine async_engine_uring = {open_ring, close_ring, queue, submit, wait_any};
