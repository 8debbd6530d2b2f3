/* Pieces by a thread of their own, where io_uring is not to be had. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "kv/spill_engine.h"

/* First in, first out. */
struct list {
    struct spill_piece *first, **last;
};

struct helper {
    int fd;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more, done; /* pieces to do; pieces done */
    struct list to_do, ready;
    bool ends;
};

static void put(struct list *list, struct spill_piece *piece)
{
    piece->next = NULL;
    *list->last = piece;
    list->last = &piece->next;
}

static struct spill_piece *get(struct list *list)
{
    struct spill_piece *piece = list->first;
    list->first = piece->next;
    if (!list->first)
        list->last = &list->first;
    return piece;
}

ssize_t spill_piece_run(int fd, const struct spill_piece *piece, size_t done)
{
    while (done < piece->bytes) {
        const off_t offset = (off_t)(piece->offset + done);
        const size_t left = piece->bytes - done;
        const ssize_t n = piece->write ? pwrite(fd, piece->at + done, left, offset)
                                       : pread(fd, piece->at + done, left, offset);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0)
            break;
        if (n >= SPILL_BLOCK)
            done +=
                (size_t)n / SPILL_BLOCK * SPILL_BLOCK; /* reads past the page cache begin at a block */
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
        struct spill_piece *piece = get(&h->to_do);
        pthread_mutex_unlock(&h->lock);
        piece->result = spill_piece_run(h->fd, piece, 0);
        pthread_mutex_lock(&h->lock);
        put(&h->ready, piece);
        pthread_cond_signal(&h->done);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

/* Signals are the program's own threads'. */
static bool start_thread(struct helper *h)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&h->thread, NULL, help, h);
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

static void take(void *state, struct spill_piece *piece)
{
    struct helper *h = state;
    pthread_mutex_lock(&h->lock);
    put(&h->to_do, piece);
    pthread_mutex_unlock(&h->lock);
}

static void begin(void *state)
{
    struct helper *h = state;
    pthread_mutex_lock(&h->lock);
    pthread_cond_signal(&h->more);
    pthread_mutex_unlock(&h->lock);
}

static struct spill_piece *ended(void *state)
{
    struct helper *h = state;
    pthread_mutex_lock(&h->lock);
    while (!h->ready.first)
        pthread_cond_wait(&h->done, &h->lock);
    struct spill_piece *piece = get(&h->ready);
    pthread_mutex_unlock(&h->lock);
    return piece;
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

const struct spill_engine spill_engine_thread = {open_helper, take, begin, ended, close_helper};
