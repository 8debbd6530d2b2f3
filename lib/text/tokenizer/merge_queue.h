/* Merges adjacent symbols in order of rank, with a priority queue. */
#ifndef BMC_MERGE_QUEUE_H
#define BMC_MERGE_QUEUE_H

#include "base/err.h"
#include "base/mem.h"

#define MERGE_NONE UINT32_MAX

/* A symbol in a doubly linked list. A merge keeps the left symbol, so the first one remains. */
struct merge_queue_link {
    uint32_t id;
    uint32_t before; /* indices of the neighbours, or MERGE_NONE */
    uint32_t after;
    uint32_t rank;   /* rank of the pair with the next symbol, or MERGE_NONE */
    uint32_t result; /* id of the merged pair */
};

/* Symbols and queue, reused for all pre-tokens; to be initialised with zeros. */
struct merge_queue {
    struct merge_queue_link *link;
    size_t cap;
    uint64_t *queue;
    size_t queue_len;
};

/* Callback: the rank of the pair of symbol `at` and the next one, with its merged id in *result;
 * MERGE_NONE if they do not merge. */
typedef uint32_t merge_rank_fn(void *owner, const struct merge_queue_link *link, uint32_t at,
                               uint32_t *result);

void merge_queue_release(struct merge_queue *mq);

/* More symbols are refused: they are nothing that a model could read, but take 48 bytes each. */
enum { MERGE_MOST = 1 << 22 };
int merge_queue_check(size_t count, struct err *err) MUST_USE;

/* Links `count` symbols, at most MERGE_MOST, to a list; the caller sets their ids. */
int merge_queue_start(struct merge_queue *mq, size_t count, struct err *err) MUST_USE;

/* Merges pairs of symbols, lowest rank first, leftmost of equals, until no pair has a rank:
 * O(n log n). `owner` is passed to rank(). */
void merge_queue_run(struct merge_queue *mq, size_t count, merge_rank_fn *rank, void *owner);

#endif
