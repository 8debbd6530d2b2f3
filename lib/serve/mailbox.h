/* Messages between the dispatcher in rank 0 and the workers, one per rank: sent over MPI, or
 * through queues in memory to rank 0's own worker, which is a thread. Only the thread that opened
 * `ranks` may communicate with other ranks. */
#ifndef BMC_MAILBOX_H
#define BMC_MAILBOX_H

#include <pthread.h>

#include "ranks/ranks.h"

enum message_kind {
    /* Dispatcher to worker: */
    MESSAGE_LINE,    /* a request: uint64_t number of the line, then its text */
    MESSAGE_CANCEL,  /* a request to cancel: uint64_t number of its line */
    MESSAGE_NO_MORE, /* the input has ended */
    /* Worker to dispatcher: */
    MESSAGE_RESULT, /* struct serve_result, then its text */
    MESSAGE_EVENT,  /* text of a request that streams, as a line */
    MESSAGE_ENDED,  /* the worker has finished: struct rank_counts */
    MESSAGE_FAILED, /* the worker has failed: error message */
    /* Dispatcher to worker: it has received everything, and the worker may exit. */
    MESSAGE_BYE
};

struct message {
    struct message *next;
    int kind, from; /* enum message_kind; rank of the sender */
    size_t bytes;
    _Alignas(16) char data[];
};

struct message_queue {
    struct message *first, **last;
};

struct mailbox {
    struct ranks *ranks;
    pthread_mutex_t lock;
    struct message_queue to_dispatcher, to_worker; /* between threads of rank 0 */
};

enum { TO_DISPATCHER = -1 };

void mailbox_open(struct mailbox *mailbox, struct ranks *ranks);
void mailbox_close(struct mailbox *mailbox);

/* Sends `head` followed by `text` as one message to the worker of rank `to`, or to the dispatcher
 * if `to` is TO_DISPATCHER. Does not wait for the receiver. */
int mailbox_send(struct mailbox *mailbox, int to, enum message_kind kind, const void *head,
                 size_t head_bytes, const void *text, size_t len, struct err *err) MUST_USE;

/* Sets *message to the next one for the dispatcher, or for this rank's worker if `dispatcher` is
 * false; the caller frees it. NULL: none has arrived. Does not wait. */
int mailbox_receive(struct mailbox *mailbox, bool dispatcher, struct message **message,
                    struct err *err) MUST_USE;

/* Sleeps briefly; call it when mailbox_receive() found nothing. */
void mailbox_pause(void);

#endif
