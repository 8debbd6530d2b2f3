/* Ranks that are threads, whose messages are copies: tests of what ranks compute. */
#ifndef BMC_TEST_THREAD_RANKS_H
#define BMC_TEST_THREAD_RANKS_H

#include <pthread.h>

#include "base/mem.h"
#include "ranks/ranks.h"
#include "ranks/ranks_tags.h"

enum { MAX_RANKS = 8, MOST_GATHERS = 8 };

enum { TAG_GATHER = RANKS_TAG_END }; /* unused by others */

/* Messages in flight, in order. */
struct test_message {
    struct test_message *next;
    int from, to, tag;
    size_t bytes;
    char data[];
};

struct started {
    char *all;
    size_t bytes[MAX_RANKS];
};

struct meeting {
    pthread_barrier_t barrier;
    void *data[MAX_RANKS];
    pthread_mutex_t mutex;
    pthread_cond_t arrived;
    struct test_message *first;
    struct started started[MAX_RANKS][MOST_GATHERS]; /* per rank, oldest first */
    size_t n_started[MAX_RANKS];
    size_t most_started; /* maximum in flight on rank 0 */
};

static void meet(struct ranks *ranks, void *data)
{
    struct meeting *meeting = ranks->state;
    meeting->data[ranks->rank] = data;
    pthread_barrier_wait(&meeting->barrier);
}

static void part_ways(struct ranks *ranks)
{
    struct meeting *meeting = ranks->state;
    pthread_barrier_wait(&meeting->barrier);
}

static int gather(struct ranks *ranks, void *all, const size_t *bytes, struct err *err)
{
    const struct meeting *meeting = ranks->state;
    (void)err;
    meet(ranks, all);
    for (size_t r = 0, at = 0; r < (size_t)ranks->size; at += bytes[r++]) {
        if (r != (size_t)ranks->rank)
            memcpy((char *)all + at, (const char *)meeting->data[r] + at, bytes[r]);
        ranks->sent_bytes += r == (size_t)ranks->rank ? bytes[r] * (size_t)(ranks->size - 1) : 0;
    }
    part_ways(ranks);
    return 0;
}

static int broadcast(struct ranks *ranks, void *data, size_t bytes, int from, struct err *err)
{
    const struct meeting *meeting = ranks->state;
    (void)err;
    meet(ranks, data);
    if (ranks->rank != from && bytes)
        memcpy(data, meeting->data[from], bytes);
    part_ways(ranks);
    return 0;
}

static int send(struct ranks *ranks, const void *data, size_t bytes, int to, int tag, struct err *err)
{
    struct meeting *meeting = ranks->state;
    struct test_message *message = malloc(sizeof *message + bytes), **end = &meeting->first;
    if (!message)
        return err_set(err, "out of memory");
    *message = (struct test_message){.from = ranks->rank, .to = to, .tag = tag, .bytes = bytes};
    memcpy(message->data, data, bytes);
    pthread_mutex_lock(&meeting->mutex);
    while (*end)
        end = &(*end)->next;
    *end = message;
    pthread_cond_broadcast(&meeting->arrived);
    pthread_mutex_unlock(&meeting->mutex);
    return 0;
}

static int receive(struct ranks *ranks, void *data, size_t bytes, int *from, int *tag, size_t *came,
                   struct err *err)
{
    struct meeting *meeting = ranks->state;
    struct test_message *message = NULL;
    pthread_mutex_lock(&meeting->mutex);
    while (!message) {
        struct test_message **at = &meeting->first;
        while (*at && ((*at)->to != ranks->rank || (*at)->from != *from || (*at)->tag != *tag))
            at = &(*at)->next;
        if ((message = *at))
            *at = message->next;
        else
            pthread_cond_wait(&meeting->arrived, &meeting->mutex);
    }
    pthread_mutex_unlock(&meeting->mutex);
    const bool fits = message->bytes <= bytes;
    *came = message->bytes;
    memcpy(data, message->data, size_min(bytes, message->bytes));
    free(message);
    return fits ? 0 : err_set(err, "a message is too long");
}

/* Other ranks' outputs are NaN until the gather ends: reading them early shows in the logits. */
static int start(struct ranks *ranks, void *all, const size_t *bytes, struct err *err)
{
    struct meeting *meeting = ranks->state;
    const size_t me = (size_t)ranks->rank, n = meeting->n_started[me];
    if (n == MOST_GATHERS)
        return err_set(err, "too many gathers");
    struct started *started = &meeting->started[me][meeting->n_started[me]++];
    started->all = all;
    for (size_t r = 0, at = 0; r < (size_t)ranks->size; at += bytes[r++]) {
        started->bytes[r] = bytes[r];
        if (r != me)
            memset(started->all + at, 0xff, bytes[r]);
        for (int to = 0; r == me && to < ranks->size; to++)
            if (to != ranks->rank && send(ranks, started->all + at, bytes[r], to, TAG_GATHER, err) < 0)
                return -1;
    }
    if (me == 0)
        meeting->most_started = size_max(meeting->most_started, n + 1);
    return 0;
}

static int end(struct ranks *ranks, struct err *err)
{
    struct meeting *meeting = ranks->state;
    const size_t me = (size_t)ranks->rank, n = --meeting->n_started[me];
    const struct started oldest = meeting->started[me][0];
    for (size_t r = 0, at = 0; r < (size_t)ranks->size; at += oldest.bytes[r++])
        if (r != me && ranks_take(ranks, (int)r, TAG_GATHER, oldest.all + at, oldest.bytes[r], err) < 0)
            return -1;
    memmove(meeting->started[me], meeting->started[me] + 1, n * sizeof oldest);
    return 0;
}

static void push(struct ranks *ranks) { (void)ranks; }

static const struct ranks_ops thread_ranks_ops = {gather,    start, end,     push,
                                                  broadcast, send,  receive, NULL};

#endif
