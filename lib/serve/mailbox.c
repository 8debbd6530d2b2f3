/* Messages between the dispatcher and the workers. */
#include "serve/mailbox.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static void queue_clear(struct message_queue *queue)
{
    while (queue->first) {
        struct message *message = queue->first;
        queue->first = message->next;
        free(message);
    }
}

void mailbox_open(struct mailbox *mailbox, struct ranks *ranks)
{
    *mailbox = (struct mailbox){.ranks = ranks};
    pthread_mutex_init(&mailbox->lock, NULL);
    mailbox->to_dispatcher.last = &mailbox->to_dispatcher.first;
    mailbox->to_worker.last = &mailbox->to_worker.first;
}

void mailbox_close(struct mailbox *mailbox)
{
    queue_clear(&mailbox->to_dispatcher);
    queue_clear(&mailbox->to_worker);
    pthread_mutex_destroy(&mailbox->lock);
}

static struct message *new_message(int kind, int from, size_t bytes, struct err *err)
{
    struct message *message = malloc(sizeof *message + bytes);
    if (message)
        *message = (struct message){.kind = kind, .from = from, .bytes = bytes};
    else
        err_no_memory(err, "a message of %zu bytes", bytes);
    return message;
}

static void enqueue(struct mailbox *mailbox, struct message_queue *queue, struct message *message)
{
    pthread_mutex_lock(&mailbox->lock);
    *queue->last = message;
    queue->last = &message->next;
    pthread_mutex_unlock(&mailbox->lock);
}

static struct message *dequeue(struct mailbox *mailbox, struct message_queue *queue)
{
    pthread_mutex_lock(&mailbox->lock);
    struct message *message = queue->first;
    if (message) {
        queue->first = message->next;
        if (!queue->first)
            queue->last = &queue->first;
    }
    pthread_mutex_unlock(&mailbox->lock);
    return message;
}

int mailbox_send(struct mailbox *mailbox, int to, enum message_kind kind, const void *head,
                 size_t head_bytes, const void *text, size_t len, struct err *err)
{
    struct ranks *ranks = mailbox->ranks;
    struct message *message = new_message(kind, ranks->rank, head_bytes + len, err);
    if (!message)
        return -1;
    if (head_bytes)
        memcpy(message->data, head, head_bytes);
    if (len)
        memcpy(message->data + head_bytes, text, len);
    if (ranks->rank == 0 && to <= 0) {
        enqueue(mailbox, to == TO_DISPATCHER ? &mailbox->to_dispatcher : &mailbox->to_worker, message);
        return 0;
    }
    const int rc =
        ranks->ops->send(ranks, message->data, message->bytes, to == TO_DISPATCHER ? 0 : to, kind, err);
    free(message);
    return rc;
}

static int receive(struct ranks *ranks, struct message **message, struct err *err)
{
    int from = -1, kind = -1;
    size_t bytes;
    const int available = ranks->ops->probe(ranks, &from, &kind, &bytes, err);
    if (available <= 0)
        return available;
    if (!(*message = new_message(kind, from, bytes, err)))
        return -1;
    if (ranks->ops->receive(ranks, (*message)->data, bytes, &from, &kind, &bytes, err) == 0)
        return 0;
    free(*message);
    *message = NULL;
    return -1;
}

int mailbox_receive(struct mailbox *mailbox, bool dispatcher, struct message **message, struct err *err)
{
    const bool rank_0 = mailbox->ranks->rank == 0;
    *message =
        rank_0 ? dequeue(mailbox, dispatcher ? &mailbox->to_dispatcher : &mailbox->to_worker) : NULL;
    return *message || (rank_0 && !dispatcher) ? 0 : receive(mailbox->ranks, message, err);
}

void mailbox_pause(void) { nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL); }
