/* A pool of memory blocks of one size: a block that was put back is reused without an allocation.
 * When no block is in use, all are freed. */
#ifndef BMC_KV_POOL_H
#define BMC_KV_POOL_H

#include "kv/kv_policy.h"

struct kv_pool {
    size_t block_bytes;
    char **spare; /* unused blocks; the pool's owner frees this array when no block is in use */
    size_t n, cap;
    size_t in_use;
};

/* Takes a zeroed block from the pool, or allocates one; NULL when memory is short. */
char *kv_pool_get(struct kv *kv, struct kv_pool *pool);
void kv_pool_put(struct kv *kv, struct kv_pool *pool, char *block);

#endif
