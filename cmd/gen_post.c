/* Messages between rank 0 and the workers. */
#include "gen_post.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static void clear(struct post_queue *queue)
{
    while (queue->first) {
        struct message *message = queue->first;
        queue->first = message->next;
        free(message);
    }
}

void post_open(struct post *post, struct ranks *ranks)
{
    *post = (struct post){.ranks = ranks};
    pthread_mutex_init(&post->lock, NULL);
    post->to_dealer.last = &post->to_dealer.first;
    post->to_worker.last = &post->to_worker.first;
}

void post_close(struct post *post)
{
    clear(&post->to_dealer);
    clear(&post->to_worker);
    pthread_mutex_destroy(&post->lock);
}

static struct message *new_message(int kind, int from, size_t bytes, struct err *err)
{
    struct message *message = malloc(sizeof *message + bytes);
    if (message)
        *message = (struct message){.kind = kind, .from = from, .bytes = bytes};
    else
        err_set(err, "out of memory for a message of %zu bytes", bytes);
    return message;
}

static void enqueue(struct post *post, struct post_queue *queue, struct message *message)
{
    pthread_mutex_lock(&post->lock);
    *queue->last = message;
    queue->last = &message->next;
    pthread_mutex_unlock(&post->lock);
}

static struct message *dequeue(struct post *post, struct post_queue *queue)
{
    pthread_mutex_lock(&post->lock);
    struct message *message = queue->first;
    if (message) {
        queue->first = message->next;
        if (!queue->first)
            queue->last = &queue->first;
    }
    pthread_mutex_unlock(&post->lock);
    return message;
}

int post_send(struct post *post, int to, enum post_kind kind, const void *head, size_t head_bytes,
              const void *text, size_t len, struct err *err)
{
    struct ranks *ranks = post->ranks;
    struct message *message = new_message(kind, ranks->rank, head_bytes + len, err);
    if (!message)
        return -1;
    if (head_bytes)
        memcpy(message->data, head, head_bytes);
    if (len)
        memcpy(message->data + head_bytes, text, len);
    if (ranks->rank == 0 && to <= 0) {
        enqueue(post, to == POST_DEALER ? &post->to_dealer : &post->to_worker, message);
        return 0;
    }
    const int rc =
        ranks->ops->send(ranks, message->data, message->bytes, to == POST_DEALER ? 0 : to, kind, err);
    free(message);
    return rc;
}

static int receive(struct ranks *ranks, struct message **message, struct err *err)
{
    int from = -1, kind = -1;
    size_t bytes;
    const int there = ranks->ops->waiting(ranks, &from, &kind, &bytes, err);
    if (there <= 0)
        return there;
    if (!(*message = new_message(kind, from, bytes, err)))
        return -1;
    if (ranks->ops->receive(ranks, (*message)->data, bytes, &from, &kind, &bytes, err) == 0)
        return 0;
    free(*message);
    *message = NULL;
    return -1;
}

int post_take(struct post *post, bool dealer, struct message **message, struct err *err)
{
    const bool here = post->ranks->rank == 0;
    *message = here ? dequeue(post, dealer ? &post->to_dealer : &post->to_worker) : NULL;
    return *message || (here && !dealer) ? 0 : receive(post->ranks, message, err);
}

void post_pause(void) { nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL); }
