/* Asynchronous I/O by a thread, where there is no io_uring. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/io/async_engine.h"
#include "base/thread_start.h"

/* A FIFO queue. */
struct list {
    struct async_request *first, **last;
};

struct helper {
    int fd;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more, done; /* signalled when to_do, or ready, gets a request */
    struct list to_do, ready;
    bool ends; /* the thread is to exit */
};

static void put(struct list *list, struct async_request *request)
{
    request->next = NULL;
    *list->last = request;
    list->last = &request->next;
}

static struct async_request *get(struct list *list)
{
    struct async_request *request = list->first;
    list->first = request->next;
    if (!list->first)
        list->last = &list->first;
    return request;
}

ssize_t async_request_run(int fd, const struct async_request *request, size_t done)
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

static void *help(void *arg)
{
    struct helper *h = arg;
    pthread_mutex_lock(&h->lock);
    for (;;) {
        while (!h->to_do.first && !h->ends)
            pthread_cond_wait(&h->more, &h->lock);
        if (!h->to_do.first)
            break;
        struct async_request *request = get(&h->to_do);
        pthread_mutex_unlock(&h->lock);
        request->result = async_request_run(h->fd, request, 0);
        pthread_mutex_lock(&h->lock);
        put(&h->ready, request);
        pthread_cond_signal(&h->done);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

/* Starts the I/O thread with all signals blocked: the program's other threads handle them. */
static bool start_thread(struct helper *h)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = thread_start(&h->thread, help, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0;
}

static bool open_helper(void **state, int fd)
{
    struct helper *h = mem_zalloc(1, sizeof *h);
    if (!h)
        return false;
    h->fd = fd;
    h->to_do.last = &h->to_do.first;
    h->ready.last = &h->ready.first;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->more, NULL);
    pthread_cond_init(&h->done, NULL);
    if (!start_thread(h)) {
        free(h);
        return false;
    }
    *state = h;
    return true;
}

static void queue(void *state, struct async_request *request)
{
    struct helper *h = state;
    pthread_mutex_lock(&h->lock);
    put(&h->to_do, request);
    pthread_mutex_unlock(&h->lock);
}

static void submit(void *state)
{
    struct helper *h = state;
    pthread_mutex_lock(&h->lock);
    pthread_cond_signal(&h->more);
    pthread_mutex_unlock(&h->lock);
}

static struct async_request *wait_any(void *state)
{
    struct helper *h = state;
    pthread_mutex_lock(&h->lock);
    while (!h->ready.first)
        pthread_cond_wait(&h->done, &h->lock);
    struct async_request *request = get(&h->ready);
    pthread_mutex_unlock(&h->lock);
    return request;
}

static void close_helper(void *state)
{
    struct helper *h = state;
    pthread_mutex_lock(&h->lock);
    h->ends = true;
    pthread_cond_signal(&h->more);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->thread, NULL);
    pthread_cond_destroy(&h->more);
    pthread_cond_destroy(&h->done);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

const struct async_engine async_engine_thread = {open_helper, close_helper, queue, submit, wait_any};
