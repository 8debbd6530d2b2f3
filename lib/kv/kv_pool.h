/* Blocks of one size that sequences take and give back: what one gives back, the next gets without an allocation.
 * When no sequence has any, the pool is given back. */
#ifndef BMC_KV_POOL_H
#define BMC_KV_POOL_H

#include "kv/kv_policy.h"

struct kv_pool {
    size_t block_bytes;
    char **spare; /* blocks that no sequence has */
    size_t n, cap;
    size_t in_use; /* blocks that sequences have */
};

/* A block, cleared, so that padding is finite; NULL when memory cannot be had. */
char *kv_pool_take(struct kv *kv, struct kv_pool *pool);
void kv_pool_give(struct kv *kv, struct kv_pool *pool, char *block);

/* The pool's own table; every block has been given back. */
void kv_pool_release(struct kv_pool *pool);

#endif
