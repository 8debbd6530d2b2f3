/* An open file and its I/O requests in flight. */
#include "base/async_file.h"

#include <liburing.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/threads.h"

/* ---- a thread, where there is no io_uring ---- */

/* A FIFO queue. */
struct request_queue {
    struct async_request *first, **last;
};

struct io_thread {
    int fd;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more, done; /* signalled when to_do, or ready, gets a request */
    struct request_queue to_do, ready;
    bool ends; /* the thread is to exit */
};

static void queue_push(struct request_queue *queue, struct async_request *request)
{
    request->next = NULL;
    *queue->last = request;
    queue->last = &request->next;
}

static struct async_request *queue_pop(struct request_queue *queue)
{
    struct async_request *request = queue->first;
    queue->first = request->next;
    if (!queue->first)
        queue->last = &queue->first;
    return request;
}

/* Executes a request from its byte `done` on, until the needed bytes are transferred. Returns their number,
 * including the first `done`, or -errno. */
static ssize_t transfer_bytes(int fd, const struct async_request *request, size_t done)
{
    while (done < request->needed) {
        const off_t offset = (off_t)(request->offset + done);
        const size_t left = request->bytes - done;
        const ssize_t n = request->write ? pwrite(fd, request->at + done, left, offset)
                                         : pread(fd, request->at + done, left, offset);
        if (n < 0 && errno == EINVAL && done % ASYNC_BLOCK)
            break; /* O_DIRECT, behind the end of the file */
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0)
            break;
        /* O_DIRECT needs offsets that are multiples of a block */
        if (n >= ASYNC_BLOCK)
            done += (size_t)n / ASYNC_BLOCK * ASYNC_BLOCK;
        else if (n > 0)
            done += (size_t)n;
    }
    return (ssize_t)done;
}

static void *serve_requests(void *arg)
{
    struct io_thread *h = arg;
    pthread_mutex_lock(&h->lock);
    for (;;) {
        while (!h->to_do.first && !h->ends)
            pthread_cond_wait(&h->more, &h->lock);
        if (!h->to_do.first)
            break;
        struct async_request *request = queue_pop(&h->to_do);
        pthread_mutex_unlock(&h->lock);
        request->result = transfer_bytes(h->fd, request, 0);
        pthread_mutex_lock(&h->lock);
        queue_push(&h->ready, request);
        pthread_cond_signal(&h->done);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

static bool io_thread_open(void **state, int fd)
{
    struct io_thread *h = mem_zalloc(1, sizeof *h);
    if (!h)
        return false;
    h->fd = fd;
    h->to_do.last = &h->to_do.first;
    h->ready.last = &h->ready.first;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->more, NULL);
    pthread_cond_init(&h->done, NULL);
    if (thread_start(&h->thread, serve_requests, h) != 0) {
        free(h);
        return false;
    }
    *state = h;
    return true;
}

static void io_thread_queue(void *state, struct async_request *request)
{
    struct io_thread *h = state;
    pthread_mutex_lock(&h->lock);
    queue_push(&h->to_do, request);
    pthread_mutex_unlock(&h->lock);
}

static void io_thread_submit(void *state)
{
    struct io_thread *h = state;
    pthread_mutex_lock(&h->lock);
    pthread_cond_signal(&h->more);
    pthread_mutex_unlock(&h->lock);
}

static struct async_request *io_thread_wait(void *state)
{
    struct io_thread *h = state;
    pthread_mutex_lock(&h->lock);
    while (!h->ready.first)
        pthread_cond_wait(&h->done, &h->lock);
    struct async_request *request = queue_pop(&h->ready);
    pthread_mutex_unlock(&h->lock);
    return request;
}

static void io_thread_close(void *state)
{
    AUTO(free_auto) struct io_thread *h = state;
    pthread_mutex_lock(&h->lock);
    h->ends = true;
    pthread_cond_signal(&h->more);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    pthread_cond_destroy(&h->more);
    pthread_cond_destroy(&h->done);
    pthread_mutex_destroy(&h->lock);
}

const struct async_engine async_engine_thread = {io_thread_open, io_thread_close, io_thread_queue,
                                                 io_thread_submit, io_thread_wait};

/* ---- io_uring ---- */

struct ring {
    struct io_uring uring;
    int fd;
    struct async_request *request[ASYNC_QUEUE_DEPTH]; /* in flight */
    size_t n, submitted; /* requests in flight; of these, submitted to the kernel */
    int error;           /* -errno of a broken ring: all requests have failed; 0: none */
};

/* Opens the ring; returns false on systems that lack or forbid io_uring. */
static bool ring_open(void **state, int fd)
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

static void ring_close(void *state)
{
    AUTO(free_auto) struct ring *ring = state;
    io_uring_queue_exit(&ring->uring);
}

/* Adds a request to the submission ring_queue, which has an entry for every request in flight. */
static void ring_queue(void *state, struct async_request *request)
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

static void ring_submit(void *state)
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
 * may access a request's memory until then, so if waiting fails, the completion ring_queue, in shared
 * memory, is polled. */
static struct async_request *wait_completion(struct ring *ring)
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

static struct async_request *ring_wait(void *state)
{
    struct ring *ring = state;
    struct async_request *request = wait_completion(ring);
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

const struct async_engine async_engine_uring = {ring_open, ring_close, ring_queue, ring_submit,
                                                ring_wait};

/* ---- files ---- */

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
static void finish_request(struct async_file *file)
{
    struct async_request *request = file->engine->wait(file->state);
    struct async_ticket *ticket = request->ticket;
    ssize_t n = request->result;
    const bool again = n == -EINTR || n == -EAGAIN;
    if (again || (n >= 0 && (size_t)n < request->needed))
        n = transfer_bytes(file->fd, request, again ? 0 : (size_t)n / ASYNC_BLOCK * ASYNC_BLOCK);
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
        finish_request(file);
    }
    struct async_request *request = file->spare;
    file->spare = request->next;
    return request;
}

static void start_requests(struct async_file *file, struct async_ticket *ticket, bool write, char *at,
                           size_t offset, size_t bytes)
{
    const size_t max = size_max(REQUEST_BYTES, round_up(div_up(bytes, REQUESTS_OF_ONE), ASYNC_BLOCK));
    if (!ticket->bytes)
        ticket->since_ms = clock_ms();
    ticket->bytes += bytes;
    for (size_t done = 0, n; done < bytes; done += n) {
        n = size_min(max, bytes - done);
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
    start_requests(file, ticket, false, at, offset, bytes);
}

void async_file_write(struct async_file *file, struct async_ticket *ticket, const void *at,
                      size_t offset, size_t bytes)
{
    ticket->wrote = true;
    start_requests(file, ticket, true, (char *)(uintptr_t)at, offset, bytes);
}

void async_file_progress(struct async_file *file) { finish_request(file); }

bool async_file_wait(struct async_file *file, struct async_ticket *ticket,
                     struct async_failure *failure)
{
    while (ticket->pending)
        finish_request(file);
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
        finish_request(file);
    if (file->engine)
        file->engine->close(file->state);
    close(file->fd);
    free(file);
}
