/* Plans which KV heads stay in memory, and how many of the others are read from the file at a time;
 * only computes.
 *
 * A group of heads is read while attention computes the previous one, so there are two buffers,
 * each for one group; the rest of the budget keeps heads in memory. Small groups leave more of
 * the budget, but must take long enough to read to hide the overhead of an I/O request. */
#pragma once

#include "kv/kv.h"
#include "kv/offload/kv_streaming.h"

struct offload_memory {
    size_t ram; /* budget in bytes */
    const struct kv_shape *shape;
    size_t group;  /* requested heads per group; 0: chosen here */
    size_t before; /* current heads per group, 0: all heads are resident; it only decreases */
    struct {
        size_t head_bytes;                /* K and V of a head of one layer, over all sequences */
        size_t tail_bytes;                /* of these, bytes in memory if the head is offloaded */
    } size[KV_MAX_SIZES];                 /* of layers of each of shape->sizes */
    size_t more_bytes;                    /* additional bytes in memory while any head is offloaded */
    const struct kv_streaming *streaming; /* heads that are never offloaded; NULL: none */
    size_t streaming_bytes;               /* K and V of all streaming heads together */
    double bytes_per_ms;                  /* read throughput */
};

struct offload_plan {
    /* heads per group, or fewer in layers with fewer heads; 0: all heads stay in memory */
    size_t group;
    size_t bytes; /* memory needed */
};

/* Sets resident[layers], if it is not NULL, to the number of leading heads of each layer that stay in memory: the
 * first group of each layer has priority, then the second group of each. False if the budget is too small:
 * plan->bytes is then the memory needed with the smallest group, or with the requested one. */
bool offload_plan_make(struct offload_plan *plan, const struct offload_memory *memory,
                       size_t *resident);

/* Bytes needed if the first resident[layer] heads of each layer (NULL: none), and the streaming heads, stay in memory
 * and the others are read `group` at a time. */
size_t offload_plan_bytes(const struct offload_memory *memory, size_t group, const size_t *resident);
