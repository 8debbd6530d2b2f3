/* Pieces by io_uring: the system reads and writes while nobody here waits. */
#include <errno.h>
#include <liburing.h>
#include <sched.h>
#include <stdlib.h>

#include "base/mem.h"
#include "kv/spill_engine.h"

struct ring {
    struct io_uring uring;
    int fd;
    struct spill_piece *piece[SPILL_PIECES]; /* under way */
    size_t n, submitted;                     /* of them, and those that the system has */
    int error; /* -errno of a ring that does no more: what is under way has failed; 0: none */
};

/* Systems without it, and those that refuse it, say so here. */
static bool open_ring(void **state, int fd)
{
    struct ring *ring = mem_zalloc(1, sizeof *ring);
    if (!ring || io_uring_queue_init(SPILL_PIECES, &ring->uring, 0) < 0) {
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

/* The ring has a place for each piece that can be under way. */
static void take(void *state, struct spill_piece *piece)
{
    struct ring *ring = state;
    ring->piece[ring->n++] = piece;
    if (ring->error)
        return;
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring->uring);
    if (piece->write)
        io_uring_prep_write(entry, ring->fd, piece->at, (unsigned)piece->bytes, piece->offset);
    else
        io_uring_prep_read(entry, ring->fd, piece->at, (unsigned)piece->bytes, piece->offset);
    io_uring_sqe_set_data(entry, piece);
}

/* It can do no more just now. */
static bool passes(int rc) { return rc == -EINTR || rc == -EAGAIN || rc == -EBUSY; }

static void begin(void *state)
{
    struct ring *ring = state;
    while (!ring->error && io_uring_sq_ready(&ring->uring)) {
        const int rc = io_uring_submit(&ring->uring);
        if (passes(rc))
            sched_yield();
        else if (rc < 0)
            ring->error = rc;
        else
            ring->submitted += (size_t)rc;
    }
}

/* The next piece that the system gives back; NULL: it has none. Its memory is the system's until then, so that even a ring that cannot
 * be waited for is looked at until it comes: what comes is in memory that both share. */
static struct spill_piece *wait_one(struct ring *ring)
{
    struct io_uring_cqe *entry = NULL;
    if (!ring->submitted)
        return NULL;
    for (int rc; (rc = io_uring_wait_cqe(&ring->uring, &entry)) < 0; sched_yield())
        if (!ring->error && !passes(rc))
            ring->error = rc;
    struct spill_piece *piece = io_uring_cqe_get_data(entry);
    piece->result = ring->error ? ring->error : entry->res;
    io_uring_cqe_seen(&ring->uring, entry);
    ring->submitted--;
    return piece;
}

static struct spill_piece *ended(void *state)
{
    struct ring *ring = state;
    struct spill_piece *piece = wait_one(ring);
    size_t at = 0;
    if (!piece) {
        piece = ring->piece[0];
        piece->result = ring->error;
    }
    while (ring->piece[at] != piece)
        at++;
    ring->piece[at] = ring->piece[--ring->n];
    return piece;
}

const struct spill_engine spill_engine_uring = {open_ring, take, begin, ended, close_ring};
