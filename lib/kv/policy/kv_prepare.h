/* Growth in advance: while a sequence fills the second half of a growth step, each of its forward
 * passes does a part of the next growth event, layer by layer: allocates larger blocks, zeroes the
 * padding, copies the rows. The growth event itself then copies nothing, and no pass takes much
 * longer than others. K and V of one layer at a time exist twice.
 *
 * The thread that decodes does this: the memory bandwidth that copying needs is the same on any
 * thread, a thread of its own would take a core from the team, and page faults of one process
 * exclude each other. */
#ifndef BMC_KV_PREPARE_H
#define BMC_KV_PREPARE_H

#include "kv/kv_policy.h"

/* Before a forward pass of `rows` rows, which have been allocated: does the pass's part. Does
 * nothing if memory is short, since the growth event then tries again and reports it. */
void kv_prepare_advance(struct kv *kv, size_t seq, size_t rows);

/* At a growth event to `cap` rows: completes the layer in progress and returns the number of
 * leading layers that need not grow any more. 0 if something else was prepared. */
size_t kv_prepare_finish(struct kv *kv, size_t seq, size_t cap);

/* Rows from `rows` on will change: those that were copied already will be copied again. */
void kv_prepare_invalidate(struct kv *kv, size_t seq, size_t rows);

/* Forgets what was prepared: frees the blocks of the layer in progress, and adds the rows copied,
 * averaged over layers, to the statistics. */
void kv_prepare_reset(struct kv *kv, size_t seq);

/* Limit on the bytes that a sequence of up to `rows` rows holds in advance; by arithmetic. */
size_t kv_prepare_bytes(const struct kv *kv, size_t rows);

#endif
