/* Interned arrays of integers, in a hash table with linear probing. */
#include "text/array_pool.h"

static size_t hash_array(const uint32_t *array, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325ULL + n;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ array[i]) * 0x9e3779b97f4a7c15ULL;
        hash ^= hash >> 29;
    }
    return (size_t)hash;
}

static bool is_equal(const struct array_pool *pool, uint32_t id, const uint32_t *array, size_t n)
{
    size_t len;
    const uint32_t *stored = array_pool_get(pool, id, &len);
    return len == n && (n == 0 || memcmp(stored, array, n * sizeof *array) == 0);
}

static int grow_table(struct array_pool *pool, struct err *err)
{
    const size_t slots = pool->slots ? 2 * pool->slots : 64;
    uint32_t *slot = mem_zalloc(slots, sizeof *slot);
    if (!slot)
        return err_no_memory(err, "%zu states of a constraint", pool->n);
    for (size_t id = 0; id < pool->n; id++) {
        size_t len;
        const uint32_t *array = array_pool_get(pool, (uint32_t)id, &len);
        size_t at = hash_array(array, len) & (slots - 1);
        while (slot[at])
            at = (at + 1) & (slots - 1);
        slot[at] = (uint32_t)id + 1;
    }
    free(pool->slot);
    pool->slot = slot;
    pool->slots = slots;
    return 0;
}

static int append(struct array_pool *pool, const uint32_t *array, size_t n, struct err *err)
{
    if (pool->cap - pool->len < n) {
        const size_t cap = size_max(2 * pool->cap, pool->len + n + 256);
        uint32_t *data = realloc(pool->data, cap * sizeof *data);
        if (!data)
            return err_no_memory(err, "%zu states of a constraint", pool->n);
        pool->data = data;
        pool->cap = cap;
    }
    while (pool->at_cap < pool->n + 2)
        if (mem_grow(&pool->at, &pool->at_cap, pool->at_cap, sizeof *pool->at, err) < 0)
            return -1;
    if (n)
        memcpy(pool->data + pool->len, array, n * sizeof *array);
    pool->at[pool->n] = pool->len;
    pool->len += n;
    pool->at[++pool->n] = pool->len;
    return 0;
}

uint32_t array_pool_intern(struct array_pool *pool, const uint32_t *array, size_t n, struct err *err)
{
    if (2 * (pool->n + 1) > pool->slots && grow_table(pool, err) < 0)
        return UINT32_MAX;
    size_t at = hash_array(array, n) & (pool->slots - 1);
    for (; pool->slot[at]; at = (at + 1) & (pool->slots - 1))
        if (is_equal(pool, pool->slot[at] - 1, array, n))
            return pool->slot[at] - 1;
    if (append(pool, array, n, err) < 0)
        return UINT32_MAX;
    pool->slot[at] = (uint32_t)pool->n;
    return (uint32_t)pool->n - 1;
}

size_t array_pool_bytes(const struct array_pool *pool)
{
    return pool->cap * sizeof *pool->data + pool->at_cap * sizeof *pool->at +
           pool->slots * sizeof *pool->slot;
}

void array_pool_release(struct array_pool *pool)
{
    free(pool->data);
    free(pool->at);
    free(pool->slot);
    *pool = (struct array_pool){0};
}

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void array_pool_sort(uint32_t *array, size_t n)
{
    if (n > 1)
        qsort(array, n, sizeof *array, by_number);
}
