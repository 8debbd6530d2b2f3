/* Merging by rank with a binary heap. A queue entry is rank << 32 | index of the left
 * symbol. Entries are not removed when a pair changes; an entry is stale if the symbol's rank is
 * another one now. */
#include "text/tokenizer/merge_queue.h"

#include <stdlib.h>

void merge_queue_release(struct merge_queue *mq)
{
    free(mq->link);
    free(mq->queue);
    *mq = (struct merge_queue){0};
}

int merge_queue_check(size_t count, struct err *err)
{
    return count <= MERGE_MOST ? 0
                               : err_set(err,
                                         "a word of more than %d characters: text without a place to "
                                         "cut it cannot be longer",
                                         MERGE_MOST);
}

int merge_queue_start(struct merge_queue *mq, size_t count, struct err *err)
{
    /* Queue entries: one per initial pair, and at most two more per merge. */
    size_t entries = 3 * count;
    if (mq->cap < count) {
        merge_queue_release(mq);
        mq->link = mem_alloc(count, sizeof mq->link[0]);
        mq->queue = mem_alloc(entries, sizeof mq->queue[0]);
        mq->cap = mq->link && mq->queue ? count : 0;
        if (!mq->cap)
            return err_no_memory(err, "a piece of text of %zu units", count);
    }
    for (size_t i = 0; i < count; i++) {
        mq->link[i].before = i > 0 ? (uint32_t)i - 1 : MERGE_NONE;
        mq->link[i].after = i + 1 < count ? (uint32_t)i + 1 : MERGE_NONE;
    }
    return 0;
}

static void sift_down(uint64_t *queue, size_t len, size_t at)
{
    uint64_t entry = queue[at];
    for (size_t child; (child = 2 * at + 1) < len; at = child) {
        if (child + 1 < len && queue[child + 1] < queue[child])
            child++;
        if (entry <= queue[child])
            break;
        queue[at] = queue[child];
    }
    queue[at] = entry;
}

static void push(struct merge_queue *mq, uint64_t entry)
{
    size_t hole = mq->queue_len++;
    for (; hole > 0 && mq->queue[(hole - 1) / 2] > entry; hole = (hole - 1) / 2)
        mq->queue[hole] = mq->queue[(hole - 1) / 2];
    mq->queue[hole] = entry;
}

static uint64_t pop(struct merge_queue *mq)
{
    uint64_t entry = mq->queue[0];
    mq->queue[0] = mq->queue[--mq->queue_len];
    if (mq->queue_len)
        sift_down(mq->queue, mq->queue_len, 0);
    return entry;
}

/* Ranks the pair of symbol `at` and the next one, and queues it if it has a rank. */
static void look(struct merge_queue *mq, uint32_t at, merge_rank_fn *rank, void *owner)
{
    struct merge_queue_link *link = &mq->link[at];
    link->rank = MERGE_NONE;
    if (link->after != MERGE_NONE)
        link->rank = rank(owner, mq->link, at, &link->result);
    if (link->rank != MERGE_NONE)
        push(mq, (uint64_t)link->rank << 32 | at);
}

static void join(struct merge_queue *mq, uint32_t at)
{
    struct merge_queue_link *link = &mq->link[at], *right = &mq->link[link->after];
    link->id = link->result;
    link->after = right->after;
    right->rank = MERGE_NONE;
    if (link->after != MERGE_NONE)
        mq->link[link->after].before = at;
}

void merge_queue_run(struct merge_queue *mq, size_t count, merge_rank_fn *rank, void *owner)
{
    mq->queue_len = 0;
    for (size_t i = 0; i < count; i++)
        look(mq, (uint32_t)i, rank, owner);
    while (mq->queue_len) {
        uint64_t entry = pop(mq);
        uint32_t at = (uint32_t)entry;
        if (mq->link[at].rank != (uint32_t)(entry >> 32))
            continue;
        join(mq, at);
        if (mq->link[at].before != MERGE_NONE)
            look(mq, mq->link[at].before, rank, owner);
        look(mq, at, rank, owner);
    }
}
