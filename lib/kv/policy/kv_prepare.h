/* Growth in advance: while a sequence fills the second half of a growth step, each of its forward
 * passes does a part of the next growth event, so that no pass takes much longer than others. Under
 * policies that copy, K and V of each layer one after the other: allocates a larger block, zeroes the padding,
 * copies the rows; those of one sequence at a time exist twice. Under policy reserve, head by head: commits the rows of
 * the next step (kv_segment.c).
 *
 * The thread that decodes does this: the memory bandwidth that copying needs is the same on any
 * thread, a thread of its own would take a core from the team, and page faults of one process
 * exclude each other. */
#pragma once

#include "kv/kv_policy.h"

/* Capacity after the next growth event, if a pass of `rows` rows, for which the sequence has memory,
 * is to do a part of that event; 0: it is not. */
size_t kv_prepare_due(const struct kv *kv, size_t seq, size_t rows);

/* Parts of a growth event to prepare in a pass of `rows` rows, so that all are ready when the sequence
 * has used its memory: `done` of `all` are. */
size_t kv_prepare_share(const struct kv *kv, size_t seq, size_t rows, size_t all, size_t done);

/* Capacity after the growth event that follows `cap` rows. */
size_t kv_prepare_next(const struct kv *kv, size_t cap);

/* Limit on the bytes that a sequence of up to `rows` rows holds in advance; by arithmetic. `copies`: the
 * policy copies. */
size_t kv_prepare_bytes(const struct kv *kv, size_t rows, bool copies);

/* The same of the rows of one matrix, which exist twice while they are copied, in one sequence at a time. */
size_t kv_prepare_copied_bytes(const struct kv *kv, size_t rows);
