/* Figures of policies that grow by copying (kv_grow.c), for memory footprints of the largest shard. */
#pragma once

#include "kv/kv_policy.h"

/* Maximum bytes that exist twice, in old and new blocks, while a sequence grows to `rows` rows; 0
 * under policies that grow without copying. */
size_t kv_grow_transient_bytes(const struct kv *kv, size_t rows);

/* kv_prepare_bytes() of the cache's policy. */
size_t kv_grow_ahead_bytes(const struct kv *kv, size_t rows);
