/* Memory: aligned blocks and growing arrays. */
#pragma once

#include "base/err.h"

/* Allocates count * size bytes, 64-byte aligned, not cleared. NULL: out of memory, or overflow of
 * the product. Freed with free(). */
void *mem_alloc(size_t count, size_t size) MUST_USE;

/* mem_alloc() with all bytes 0. */
void *mem_zalloc(size_t count, size_t size) MUST_USE;

/* Bytes requested since the start of the process, freed ones included, by mem_alloc() and by
 * mem_zalloc(): what a module allocates is the difference of two calls. */
struct mem_requests {
    size_t plain, cleared;
};
struct mem_requests mem_requests(void);

/* Before the type of a local: `release` gets its address at the end of its block, on every way out.
 *
 *   AUTO(buf_release) struct buf text = {0};
 *   AUTO(free_auto) char *copy = strdup(text);
 */
#define AUTO(release) __attribute__((cleanup(release)))

static inline void free_auto(void *pointer)
{
    void *block;
    memcpy(&block, pointer, sizeof block);
    free(block);
}

/* A growing byte array; zero-initialised it is empty. */
struct buf {
    char *data; /* ends in a 0 byte once anything was added */
    size_t len, cap;
};

int buf_reserve(struct buf *buf, size_t more, struct err *err) MUST_USE;
int buf_add(struct buf *buf, const void *bytes, size_t len, struct err *err) MUST_USE;
int buf_addf(struct buf *buf, struct err *err, const char *format, ...) PRINTF_LIKE(3, 4) MUST_USE;
void buf_clear(struct buf *buf);

/* The buffer's contents as a string; "" if it is empty. */
static inline const char *buf_text(const struct buf *buf) { return buf->data ? buf->data : ""; }

void buf_release(struct buf *buf);

/* Makes room for one more element: reallocates the array at *array_ptr, of *cap elements of `size`
 * bytes, if `used` equals *cap. On error the array is unchanged. */
int mem_grow(void *array_ptr, size_t *cap, size_t used, size_t size, struct err *err) MUST_USE;
