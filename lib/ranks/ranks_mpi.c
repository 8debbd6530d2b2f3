/* MPI driver of ranks: a shared library that lib/ranks/ranks.c loads. All calls come from the
 * thread that opened the ranks. */
#include <limits.h>
#include <mpi.h>
#include <time.h>

#include "base/clock.h"
#include "ranks/ranks.h"

/* A copy of a sent message, kept until MPI has transferred it. */
struct sent {
    struct sent *next;
    MPI_Request request;
    char data[];
};

/* A non-blocking all-gather in flight. */
struct pending_mpi_gather {
    struct pending_mpi_gather *next;
    MPI_Request request;
    int rc;       /* result of the last MPI call for this all-gather */
    int layout[]; /* for MPI: byte counts of all ranks, then displacements */
};

struct mpi {
    int *layout; /* byte counts and displacements for blocking all-gathers */
    struct sent *sent;
    struct pending_mpi_gather *oldest, **end; /* all-gathers in flight; where to link the next */
};

/* receive() polls without pauses for the first EAGER_MS, for the lowest latency, then every
 * PAUSE_NS, which leaves the core to other processes. */
enum { EAGER_MS = 2, PAUSE_NS = 100000 };

static int check_mpi(int rc, const char *operation, struct err *err)
{
    char why[MPI_MAX_ERROR_STRING] = "";
    int len;
    if (rc == MPI_SUCCESS)
        return 0;
    MPI_Error_string(rc, why, &len);
    return err_set(err, "MPI cannot %s: %s", operation, why);
}

static int int_bytes(size_t bytes, int *n, struct err *err)
{
    if (bytes > INT_MAX)
        return err_set(err, "%zu bytes are more than an MPI message can have; use a smaller --chunk",
                       bytes);
    *n = (int)bytes;
    return 0;
}

/* Fills in byte counts and displacements of an all-gather, and adds its bytes to the totals. */
static int make_layout(struct ranks *ranks, int *layout, const size_t *bytes, struct err *err)
{
    size_t sum = 0;
    for (int r = 0; r < ranks->size; r++) {
        if (int_bytes(bytes[r], &layout[r], err) < 0 ||
            int_bytes(sum, &layout[ranks->size + r], err) < 0)
            return -1;
        sum += bytes[r];
    }
    const size_t mine = bytes[ranks->rank];
    ranks->sent_bytes += mine * (size_t)(ranks->size - 1);
    ranks->received_bytes += sum - mine;
    ranks->calls++;
    return 0;
}

static int gather(struct ranks *ranks, void *all, const size_t *bytes, struct err *err)
{
    int *layout = ((const struct mpi *)ranks->state)->layout;
    if (make_layout(ranks, layout, bytes, err) < 0)
        return -1;
    return check_mpi(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, layout,
                                    layout + ranks->size, MPI_BYTE, MPI_COMM_WORLD),
                     "gather", err);
}

static int gather_start(struct ranks *ranks, void *all, const size_t *bytes, struct err *err)
{
    struct mpi *mpi = ranks->state;
    const size_t size = (size_t)ranks->size;
    struct pending_mpi_gather *g = malloc(sizeof *g + 2 * size * sizeof *g->layout);
    if (!g)
        return err_no_memory(err, "a gather of %zu ranks", size);
    *g = (struct pending_mpi_gather){.request = MPI_REQUEST_NULL};
    if (make_layout(ranks, g->layout, bytes, err) < 0) {
        free(g);
        return -1;
    }
    *mpi->end = g;
    mpi->end = &g->next;
    g->rc = MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, g->layout, g->layout + size,
                            MPI_BYTE, MPI_COMM_WORLD, &g->request);
    return check_mpi(g->rc, "gather", err);
}

/* Waits for the oldest all-gather and frees it, except after an error: MPI may still read its
 * layout. */
static int gather_wait(struct ranks *ranks, struct err *err)
{
    struct mpi *mpi = ranks->state;
    struct pending_mpi_gather *g = mpi->oldest;
    if (check_mpi(g->rc == MPI_SUCCESS ? MPI_Wait(&g->request, MPI_STATUS_IGNORE) : g->rc, "gather",
                  err) < 0)
        return -1;
    if (!(mpi->oldest = g->next))
        mpi->end = &mpi->oldest;
    free(g);
    return 0;
}

/* Lets MPI progress all gathers in flight: testing any incomplete one is enough. */
static void progress(struct ranks *ranks)
{
    const struct mpi *mpi = ranks->state;
    int complete = 1;
    for (struct pending_mpi_gather *g = mpi->oldest; g && complete && g->rc == MPI_SUCCESS; g = g->next)
        g->rc = MPI_Test(&g->request, &complete, MPI_STATUS_IGNORE);
}

static int broadcast(struct ranks *ranks, void *data, size_t bytes, int from, struct err *err)
{
    int n;
    if (int_bytes(bytes, &n, err) < 0)
        return -1;
    if (ranks->rank == from)
        ranks->sent_bytes += bytes * (size_t)(ranks->size - 1);
    else
        ranks->received_bytes += bytes;
    ranks->calls++;
    return check_mpi(MPI_Bcast(data, n, MPI_BYTE, from, MPI_COMM_WORLD), "broadcast", err);
}

/* Frees the copies of sent messages whose transfer is complete. */
static int free_sent(struct mpi *mpi, struct err *err)
{
    for (struct sent **at = &mpi->sent, *sent; (sent = *at);) {
        int done;
        if (check_mpi(MPI_Test(&sent->request, &done, MPI_STATUS_IGNORE), "send", err) < 0)
            return -1;
        if (done) {
            *at = sent->next;
            free(sent);
        } else {
            at = &sent->next;
        }
    }
    return 0;
}

static int send(struct ranks *ranks, const void *data, size_t bytes, int to, int tag, struct err *err)
{
    struct mpi *mpi = ranks->state;
    struct sent *sent;
    int n;
    if (int_bytes(bytes, &n, err) < 0 || free_sent(mpi, err) < 0)
        return -1;
    if (!(sent = malloc(sizeof *sent + bytes)))
        return err_no_memory(err, "a message of %zu bytes", bytes);
    memcpy(sent->data, data, bytes);
    if (check_mpi(MPI_Isend(sent->data, n, MPI_BYTE, to, tag, MPI_COMM_WORLD, &sent->request), "send",
                  err) < 0) {
        free(sent);
        return -1;
    }
    sent->next = mpi->sent;
    mpi->sent = sent;
    ranks->sent_bytes += bytes;
    ranks->calls++;
    return 0;
}

static int probe_message(int from, int tag, int *there, MPI_Status *status, struct err *err)
{
    return check_mpi(MPI_Iprobe(from < 0 ? MPI_ANY_SOURCE : from, tag < 0 ? MPI_ANY_TAG : tag,
                                MPI_COMM_WORLD, there, status),
                     "look for a message", err);
}

static int probe(struct ranks *ranks, int *from, int *tag, size_t *bytes, struct err *err)
{
    MPI_Status status;
    int there, n = 0;
    if (free_sent(ranks->state, err) < 0 || probe_message(*from, *tag, &there, &status, err) < 0)
        return -1;
    if (!there)
        return 0;
    if (check_mpi(MPI_Get_count(&status, MPI_BYTE, &n), "measure a message", err) < 0)
        return -1;
    *from = status.MPI_SOURCE;
    *tag = status.MPI_TAG;
    *bytes = (size_t)n;
    return 1;
}

static int await(int from, int tag, MPI_Status *status, struct err *err)
{
    const double start = clock_ms();
    for (int there;;) {
        if (probe_message(from, tag, &there, status, err) < 0)
            return -1;
        if (there)
            return 0;
        if (clock_ms() - start > EAGER_MS)
            nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
}

static int receive(struct ranks *ranks, void *data, size_t bytes, int *from, int *tag, size_t *received,
                   struct err *err)
{
    MPI_Status status;
    int max, n;
    if (int_bytes(size_min(bytes, INT_MAX), &max, err) < 0 || await(*from, *tag, &status, err) < 0 ||
        check_mpi(
            MPI_Recv(data, max, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status),
            "receive", err) < 0 ||
        check_mpi(MPI_Get_count(&status, MPI_BYTE, &n), "measure a message", err) < 0)
        return -1;
    *from = status.MPI_SOURCE;
    *tag = status.MPI_TAG;
    *received = (size_t)n;
    ranks->received_bytes += *received;
    ranks->calls++;
    return 0;
}

static const struct ranks_ops ops = {gather,    gather_start, gather_wait, progress,
                                     broadcast, send,         receive,     probe};

static int init_mpi(struct ranks *ranks, struct err *err)
{
    int given;
    if (check_mpi(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &given), "start", err) < 0)
        return -1;
    if (given < MPI_THREAD_FUNNELED)
        return err_set(err, "this MPI does not support threads: install Debian's Open MPI or MPICH");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &ranks->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks->size);
    return 0;
}

static void release_requests(struct ranks *ranks)
{
    struct mpi *mpi = ranks->state;
    free(mpi->layout);
    free(mpi);
    ranks->state = NULL;
}

static int open_ranks(struct ranks *ranks, struct err *err)
{
    struct mpi *mpi = calloc(1, sizeof *mpi);
    if (!mpi)
        return err_no_memory(err, "ranks");
    mpi->end = &mpi->oldest;
    ranks->ops = &ops;
    ranks->state = mpi;
    int rc = init_mpi(ranks, err);
    const size_t n = (size_t)ranks->size;
    if (rc == 0 && !(mpi->layout = calloc(2 * n, sizeof *mpi->layout)))
        rc = err_no_memory(err, "%zu ranks", n);
    if (rc < 0)
        release_requests(ranks);
    return rc;
}

static void close_ranks(struct ranks *ranks)
{
    struct mpi *mpi = ranks->state;
    for (struct sent *sent; (sent = mpi->sent); free(sent)) {
        mpi->sent = sent->next;
        MPI_Wait(&sent->request, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    release_requests(ranks);
}

extern const struct ranks_driver ranks_driver;
__attribute__((visibility("default"))) const struct ranks_driver ranks_driver = {
    .ranks_bytes = sizeof(struct ranks),
    .ops_bytes = sizeof(struct ranks_ops),
    .open = open_ranks,
    .close = close_ranks,
};
