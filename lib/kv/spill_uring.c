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
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring->uring);
    if (piece->write)
        io_uring_prep_write(entry, ring->fd, piece->at, (unsigned)piece->bytes, piece->offset);
    else
        io_uring_prep_read(entry, ring->fd, piece->at, (unsigned)piece->bytes, piece->offset);
    io_uring_sqe_set_data(entry, piece);
}

static void begin(void *state)
{
    struct ring *ring = state;
    while (io_uring_sq_ready(&ring->uring) && io_uring_submit(&ring->uring) < 0)
        sched_yield();
}

static struct spill_piece *ended(void *state)
{
    struct ring *ring = state;
    struct io_uring_cqe *entry = NULL;
    while (io_uring_wait_cqe(&ring->uring, &entry) < 0 || !entry)
        sched_yield();
    struct spill_piece *piece = io_uring_cqe_get_data(entry);
    piece->result = entry->res;
    io_uring_cqe_seen(&ring->uring, entry);
    return piece;
}

const struct spill_engine spill_engine_uring = {open_ring, take, begin, ended, close_ring};
