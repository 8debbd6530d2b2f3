/* Merging by rank, for the models that join neighbours: all pairs wait in a queue.
 *
 * An entry of the queue is rank, then place, in one number. Entries are never taken out when a pair
 * changes: one counts if its place still has its rank. */
#include "text/merging.h"

#include <stdlib.h>

void merging_release(struct merging *merging)
{
    free(merging->link);
    free(merging->queue);
    *merging = (struct merging){0};
}

int merging_start(struct merging *merging, size_t count, struct err *err)
{
    /* One entry per pair at the start, and at most two for each of the count - 1 merges. */
    size_t entries = 3 * count;
    if (merging->cap < count) {
        merging_release(merging);
        merging->link = mem_alloc(count, sizeof merging->link[0]);
        merging->queue = mem_alloc(entries, sizeof merging->queue[0]);
        merging->cap = merging->link && merging->queue ? count : 0;
        if (!merging->cap)
            return err_set(err, "out of memory: a piece of text of %zu units", count);
    }
    for (size_t i = 0; i < count; i++) {
        merging->link[i].before = i > 0 ? (uint32_t)i - 1 : MERGING_NONE;
        merging->link[i].after = i + 1 < count ? (uint32_t)i + 1 : MERGING_NONE;
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

static void push(struct merging *merging, uint64_t entry)
{
    size_t hole = merging->queue_len++;
    for (; hole > 0 && merging->queue[(hole - 1) / 2] > entry; hole = (hole - 1) / 2)
        merging->queue[hole] = merging->queue[(hole - 1) / 2];
    merging->queue[hole] = entry;
}

static uint64_t pop(struct merging *merging)
{
    uint64_t entry = merging->queue[0];
    merging->queue[0] = merging->queue[--merging->queue_len];
    if (merging->queue_len)
        sift_down(merging->queue, merging->queue_len, 0);
    return entry;
}

/* The pair that begins at `at` is new. */
static void look(struct merging *merging, uint32_t at, merging_rank_fn *rank, void *owner)
{
    struct merging_link *link = &merging->link[at];
    link->rank = MERGING_NONE;
    if (link->after != MERGING_NONE)
        link->rank = rank(owner, merging->link, at, &link->result);
    if (link->rank != MERGING_NONE)
        push(merging, (uint64_t)link->rank << 32 | at);
}

static void join(struct merging *merging, uint32_t at)
{
    struct merging_link *link = &merging->link[at], *right = &merging->link[link->after];
    link->id = link->result;
    link->after = right->after;
    right->rank = MERGING_NONE;
    if (link->after != MERGING_NONE)
        merging->link[link->after].before = at;
}

void merging_run(struct merging *merging, size_t count, merging_rank_fn *rank, void *owner)
{
    merging->queue_len = 0;
    for (size_t i = 0; i < count; i++)
        look(merging, (uint32_t)i, rank, owner);
    while (merging->queue_len) {
        uint64_t entry = pop(merging);
        uint32_t at = (uint32_t)entry;
        if (merging->link[at].rank != (uint32_t)(entry >> 32))
            continue;
        join(merging, at);
        if (merging->link[at].before != MERGING_NONE)
            look(merging, merging->link[at].before, rank, owner);
        look(merging, at, rank, owner);
    }
}
