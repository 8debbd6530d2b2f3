/* Allocate, copy, zero: storage of the policies whose sequences lie in one piece per layer.
 * One block per layer and K or V: [KV head][stored rows][d], stored rows a multiple of TILE_ROWS. */
#ifndef BMC_KV_GROW_H
#define BMC_KV_GROW_H

#include "kv/kv_policy.h"

/* Slots of struct kv_policy; room grows to the next multiple of r that fits, at most N. */
int kv_grow_open(struct kv *kv, struct err *err);
int kv_grow_room(struct kv *kv, size_t seq, size_t rows, struct err *err);
char *kv_grow_row_at(const struct kv *kv, size_t seq, size_t matrix, size_t head, size_t row);
int kv_grow_view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                 struct kv_view *view, struct err *err);
void kv_grow_keep(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra);
int kv_grow_fork(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err);
int kv_grow_adopt(struct kv *kv, size_t seq, const struct kv_rows_in *layer, size_t rows, size_t stored,
                  struct err *err);
void kv_grow_close(struct kv *kv);

/* What stands twice, at most, while a sequence grows to `rows` rows; 0 for policies that do not grow by copying. */
size_t kv_grow_moving_bytes(const struct kv *kv, size_t rows);

#endif
