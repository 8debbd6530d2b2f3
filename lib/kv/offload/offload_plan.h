/* Plans which KV heads stay in memory, and how many of the others are read from the file at a time;
 * only computes.
 *
 * A group of heads is read while attention computes the previous one, so there are two buffers,
 * each for one group; the rest of the budget keeps heads in memory. Small groups leave more of
 * the budget, but must take long enough to read to hide the overhead of an I/O request. */
#ifndef BMC_OFFLOAD_PLAN_H
#define BMC_OFFLOAD_PLAN_H

#include "base/base.h"
#include "kv/offload/kv_streaming.h"

struct offload_memory {
    size_t ram; /* budget in bytes */
    size_t layers, kv_heads;
    size_t group;       /* requested heads per group; 0: chosen here */
    size_t before;      /* current heads per group, 0: all heads are resident; it only decreases */
    size_t head_bytes;  /* K and V of a head of one layer, over all sequences */
    size_t tail_bytes;  /* of these, bytes in memory if the head is offloaded */
    size_t other_bytes; /* additional bytes in memory while any head is offloaded */
    const struct kv_streaming *streaming; /* heads that are never offloaded; NULL: none */
    size_t streaming_bytes;               /* K and V of all streaming heads together */
    double bytes_per_ms;                  /* read throughput */
};

struct offload_plan {
    size_t group;  /* heads per group; 0: all heads stay in memory */
    size_t groups; /* number of groups that stay in memory, over all layers */
    size_t bytes;  /* memory needed */
};

/* False if the budget is too small: plan->bytes is then the memory needed with the smallest group,
 * or with the requested one. */
bool offload_plan_make(struct offload_plan *plan, const struct offload_memory *memory);

/* Number of leading heads of a layer that stay in memory: the first group of each layer has
 * priority, then the second group of each. */
size_t offload_plan_heads(const struct offload_plan *plan, const struct offload_memory *memory,
                          size_t layer);

/* Bytes needed if `heads` heads, counted over all layers, and the streaming heads stay in memory
 * and the others are read `group` at a time. */
size_t offload_plan_bytes(const struct offload_memory *memory, size_t group, size_t heads);

#endif
