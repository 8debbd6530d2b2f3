/* A pool of blocks of one size: a freed block is reused without an allocation. When no block is in
 * use, all are freed. */
#ifndef BMC_KV_POOL_H
#define BMC_KV_POOL_H

#include "kv/kv_policy.h"

struct kv_pool {
    size_t block_bytes;
    char **spare; /* free blocks; the owner frees the list when every block has been put back */
    size_t n, cap;
    size_t in_use;
};

/* A zeroed block; NULL when memory is short. */
char *kv_pool_get(struct kv *kv, struct kv_pool *pool);
void kv_pool_put(struct kv *kv, struct kv_pool *pool, char *block);

#endif
