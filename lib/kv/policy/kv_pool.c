/* A pool of memory blocks of one size. */
#include "kv/policy/kv_pool.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/kv_rows.h"

char *kv_pool_get(struct kv *kv, struct kv_pool *pool)
{
    const double start = clock_ms();
    char *block = pool->n ? pool->spare[--pool->n] : NULL;
    if (!block) {
        block = vm_get(kv->spec.alloc, pool->block_bytes);
        kv_count_memory(kv, block ? pool->block_bytes : 0, 0);
    }
    const double allocated = clock_ms();
    pool->in_use += block != NULL;
    if (block)
        kv_zero(block, pool->block_bytes);
    kv->stats.alloc_ms += allocated - start;
    kv->stats.copy_ms += clock_ms() - allocated;
    return block;
}

static void free_block(struct kv *kv, const struct kv_pool *pool, char *block)
{
    vm_free(kv->spec.alloc, block, pool->block_bytes);
    kv_count_memory(kv, 0, pool->block_bytes);
}

void kv_pool_put(struct kv *kv, struct kv_pool *pool, char *block)
{
    struct err err;
    pool->in_use--;
    if (mem_grow(&pool->spare, &pool->cap, pool->n, sizeof *pool->spare, &err) < 0)
        free_block(kv, pool, block);
    else
        pool->spare[pool->n++] = block;
    while (!pool->in_use && pool->n)
        free_block(kv, pool, pool->spare[--pool->n]);
}
