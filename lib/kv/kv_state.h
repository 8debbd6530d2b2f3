/* Inside lib/kv: the recurrent state of a cache's sequences follows their rows. All of these do nothing
 * in a cache without state. */
#ifndef BMC_KV_STATE_H
#define BMC_KV_STATE_H

#include "kv/kv_policy.h"

/* Called before kv_seq.n and .first change. */
int kv_state_begin(struct kv *kv, size_t seq, size_t rows, struct err *err) MUST_USE;
void kv_state_accept(struct kv *kv, size_t seq, const size_t *row, size_t n);
void kv_state_truncate(struct kv *kv, size_t seq, size_t end);
void kv_state_fork(struct kv *kv, size_t to, size_t from, size_t end);

/* The states of sequences seq[parent[i]] move to to[i]. */
int kv_state_reorder(struct kv *kv, const size_t *seq, const size_t *parent, const size_t *to, size_t n,
                     struct err *err) MUST_USE;

/* Adds memory that the state has allocated or freed since the last call to the statistics. */
void kv_count_state(struct kv *kv);

#endif
