/* Which heads of a cache stay in memory, and how many of the others come and go together: arithmetic, no more.
 *
 * A group of heads is read while the one before is computed, so there are two buffers of a group. What is left of the
 * memory keeps heads for good. Small groups leave more of it; but what a group costs besides its bytes, a loop of
 * the threads and a request to the disk, should not be seen beside the time of reading it. */
#ifndef BMC_KV_PLAN_H
#define BMC_KV_PLAN_H

#include "base/base.h"
#include "kv/kv_sparse.h"

struct kv_memory {
    size_t ram; /* bytes at most */
    size_t layers, kv_heads;
    size_t group; /* heads together, as it was asked for; 0: chosen here */
    size_t
        before; /* the groups so far, 0: all stayed. They become smaller only, and not by a few heads */
    size_t
        head_bytes; /* K and V of one head of a layer, of all sequences, as far as they will be filled */
    size_t tail_bytes;              /* what stays in memory of a head that does not */
    size_t other_bytes;             /* what else is in memory as long as not all heads are */
    const struct kv_sparse *sparse; /* heads that are in memory always; NULL: none */
    size_t sparse_bytes;            /* of all of them */
    double bytes_per_ms;            /* of reading */
};

struct kv_plan {
    size_t group;  /* heads together; 0: all heads stay */
    size_t groups; /* that stay */
    size_t bytes;  /* all of that */
};

/* False when it does not fit: then bytes says what it takes with groups of one head, or as they were asked for. */
bool kv_plan_make(struct kv_plan *plan, const struct kv_memory *memory);

/* Heads of all layers but the sparse ones. */
size_t kv_plan_all(const struct kv_memory *memory);

/* Leading heads of a layer that stay: the first group of every layer stays longest, then the second. */
size_t kv_plan_heads(const struct kv_plan *plan, const struct kv_memory *memory, size_t layer);

/* Bytes in memory where so many heads stay, of all layers, and sparse ones besides. */
size_t kv_plan_bytes(const struct kv_memory *memory, size_t group, size_t heads);

#endif
