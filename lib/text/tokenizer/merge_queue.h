/* Merges adjacent symbols in order of rank, with a priority queue. */
#ifndef BMC_MERGE_QUEUE_H
#define BMC_MERGE_QUEUE_H

#include "base/err.h"
#include "base/mem.h"

#define MERGE_NONE UINT32_MAX

/* A symbol in a doubly linked list; the first one is never merged away. */
struct merge_queue_link {
    uint32_t id;
    uint32_t before; /* indices of the neighbours, or MERGE_NONE */
    uint32_t after;
    uint32_t rank;   /* rank of the pair with the next symbol, or MERGE_NONE */
    uint32_t result; /* id of the merged pair */
};

/* Scratch memory, reused. Zero-initialised is empty. */
struct merge_queue {
    struct merge_queue_link *link;
    size_t cap;
    uint64_t *queue;
    size_t queue_len;
};

/* The rank of the pair at index `at` and its merged id, or MERGE_NONE. */
typedef uint32_t merge_rank_fn(void *owner, const struct merge_queue_link *link, uint32_t at,
                               uint32_t *result);

void merge_queue_release(struct merge_queue *mq);

/* Initialises a list of `count` symbols, at most UINT32_MAX / 4; the caller sets their ids. */
int merge_queue_start(struct merge_queue *mq, size_t count, struct err *err) MUST_USE;

/* Merges pairs, lowest rank first, leftmost of equals, until none has a rank: O(n log n). */
void merge_queue_run(struct merge_queue *mq, size_t count, merge_rank_fn *rank, void *owner);

#endif
