/* Blocks of one size that sequences take and give back. */
#include "kv/kv_pool.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/kv_rows.h"

char *kv_pool_take(struct kv *kv, struct kv_pool *pool)
{
    const double start = clock_ms();
    char *block = pool->n ? pool->spare[--pool->n] : NULL;
    if (!block) {
        block = pages_get(kv->alloc, pool->block_bytes);
        kv_count_bytes(kv, block ? pool->block_bytes : 0, 0);
    }
    const double taken = clock_ms();
    pool->in_use += block != NULL;
    if (block)
        kv_clear(block, pool->block_bytes);
    kv->stats.alloc_ms += taken - start;
    kv->stats.copy_ms += clock_ms() - taken;
    return block;
}

static void free_block(struct kv *kv, const struct kv_pool *pool, char *block)
{
    pages_free(kv->alloc, block, pool->block_bytes);
    kv_count_bytes(kv, 0, pool->block_bytes);
}

void kv_pool_give(struct kv *kv, struct kv_pool *pool, char *block)
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

void kv_pool_release(struct kv_pool *pool) { free(pool->spare); }
