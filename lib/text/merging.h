/* Neighbours in a row of symbols, merged in the order of their rank. */
#ifndef BMC_MERGING_H
#define BMC_MERGING_H

#include "base/err.h"
#include "base/mem.h"

#define MERGING_NONE UINT32_MAX

/* A symbol, in the order of the row at first; the first one is never merged away. */
struct merging_link {
    uint32_t id;
    uint32_t before; /* places of the neighbours, or MERGING_NONE */
    uint32_t after;
    uint32_t rank;   /* of the pair of this one and the next, or MERGING_NONE */
    uint32_t result; /* the id that the pair becomes */
};

/* Room that is used again for row after row. Zero-initialised is empty. */
struct merging {
    struct merging_link *link;
    size_t cap;
    uint64_t *queue;
    size_t queue_len;
};

/* The rank of the pair that begins at a place, and what it becomes, or MERGING_NONE. */
typedef uint32_t merging_rank_fn(void *owner, const struct merging_link *link, uint32_t at,
                                 uint32_t *result);

void merging_release(struct merging *merging);

/* Makes a row of `count` symbols, at most UINT32_MAX / 4, whose ids the caller fills in. */
int merging_start(struct merging *merging, size_t count, struct err *err) MUST_USE;

/* Merges the pair of the lowest rank, the leftmost of equals, until none is left: `count` symbols cost
 * count * log(count). */
void merging_run(struct merging *merging, size_t count, merging_rank_fn *rank, void *owner);

#endif
