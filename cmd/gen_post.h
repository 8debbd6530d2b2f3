/* Messages between rank 0, which deals requests, and the workers, one in each rank: over MPI, or within rank 0, where dealing and
 * working are two threads. Only the thread that opened the ranks sends to other ranks, and receives from them. */
#ifndef BMC_GEN_POST_H
#define BMC_GEN_POST_H

#include <pthread.h>

#include "base/ranks.h"

enum post_kind {
    POST_LINE,      /* to a worker: a request; struct post_line, then its text */
    POST_LONG_LINE, /* one that was too long, and is not there */
    POST_NO_MORE,   /* no line follows */
    POST_RESULT,    /* to the dealer: struct jsonl_result, then its text */
    POST_ENDED,     /* the worker has ended, with what it counted: struct rank_counts */
    POST_FAILED,    /* the worker has failed: a sentence */
    POST_BYE        /* to a worker: all that it sent has come */
};

struct message {
    struct message *next;
    int kind, from;
    size_t bytes;
    _Alignas(16) char data[];
};

struct post_queue {
    struct message *first, **last;
};

struct post {
    struct ranks *ranks;
    pthread_mutex_t lock;
    struct post_queue to_dealer, to_worker; /* within rank 0 */
};

enum { POST_DEALER = -1 };

void post_open(struct post *post, struct ranks *ranks);
void post_close(struct post *post);

/* To the dealer, or to the worker of a rank: the bytes of `head`, and those of `text` behind them. Never waits for who receives. */
int post_send(struct post *post, int to, enum post_kind kind, const void *head, size_t head_bytes,
              const void *text, size_t len, struct err *err) MUST_USE;

/* What has come for the dealer, or for the worker of this rank; NULL: nothing yet. The caller frees it. */
int post_take(struct post *post, bool dealer, struct message **message, struct err *err) MUST_USE;

/* Before one looks again. */
void post_pause(void);

#endif
