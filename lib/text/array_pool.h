/* Interned arrays of integers: equal arrays get the same id. Ids count from 0 in order of insertion. */
#pragma once

#include "base/mem.h"

struct array_pool {
    uint32_t *data; /* all arrays, one after the other */
    size_t len, cap;
    size_t *at; /* [n + 1]: where each array begins in `data` */
    size_t n, at_cap;
    uint32_t *slot; /* hash table of ids + 1; 0: free */
    size_t slots;   /* a power of two, or 0 */
};

/* Returns the id of an array; UINT32_MAX with err set when out of memory. */
uint32_t array_pool_intern(struct array_pool *pool, const uint32_t *array, size_t n,
                           struct err *err) MUST_USE;

/* The array with an id, valid until the next insertion; *n is its length. NULL if it is empty. */
static inline const uint32_t *array_pool_get(const struct array_pool *pool, uint32_t id, size_t *n)
{
    *n = pool->at[id + 1] - pool->at[id];
    return *n ? pool->data + pool->at[id] : NULL;
}

/* Puts integers in ascending order. */
void array_pool_sort(uint32_t *array, size_t n);

/* Bytes of memory in use. */
size_t array_pool_bytes(const struct array_pool *pool);

void array_pool_release(struct array_pool *pool);
