/* Storage in a block of memory per layer for K and one for V, if it is stored: [KV head][rows][head_dim],
 * with allocated rows in whole tiles. It grows by allocating a larger block, copying, and zeroing
 * the padding. */
#ifndef BMC_KV_GROW_H
#define BMC_KV_GROW_H

#include "kv/kv_policy.h"

/* Functions of struct kv_policy. A sequence's capacity is a multiple of r rows, at most N. */
int kv_grow_open(struct kv *kv, struct err *err);
int kv_grow_ensure(struct kv *kv, size_t seq, size_t rows, struct err *err);
char *kv_grow_row_at(const struct kv *kv, size_t seq, size_t matrix, size_t head, size_t row);
int kv_grow_view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                 struct kv_view *view, struct err *err);
void kv_grow_accept(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra);
int kv_grow_fork(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err);
int kv_grow_attach(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, size_t rows,
                   size_t stored, struct err *err);

/* Maximum bytes that exist twice, in old and new blocks, while a sequence grows to `rows` rows; 0
 * under policies that grow without copying. */
size_t kv_grow_transient_bytes(const struct kv *kv, size_t rows);

/* kv_prepare_bytes() of the cache's policy. */
size_t kv_grow_ahead_bytes(const struct kv *kv, size_t rows);

#endif
