/* Memory: aligned blocks, and a byte buffer that grows. */
#ifndef BMC_MEM_H
#define BMC_MEM_H

#include "base/err.h"

/* Block of count * size bytes at a 64-byte boundary, not cleared; NULL when it cannot be had
 * (the product overflowing included). Freed with free(). */
void *mem_alloc(size_t count, size_t size) MUST_USE;

/* The same, cleared. */
void *mem_zalloc(size_t count, size_t size) MUST_USE;

/* A growing array of bytes. Zero-initialised is empty; buf_release() frees what it holds. */
struct buf {
    char *data; /* always followed by a 0 byte once anything was added */
    size_t len;
    size_t cap;
};

int buf_reserve(struct buf *buf, size_t more, struct err *err) MUST_USE;
int buf_add(struct buf *buf, const void *bytes, size_t len, struct err *err) MUST_USE;
int buf_addf(struct buf *buf, struct err *err, const char *format, ...) PRINTF_LIKE(3, 4) MUST_USE;
void buf_clear(struct buf *buf);

/* What it holds, as a text: "" before anything was added. */
static inline const char *buf_text(const struct buf *buf) { return buf->data ? buf->data : ""; }

void buf_release(struct buf *buf);

/* Makes room for one more element in an array of *cap elements of `size` bytes that holds `used`;
 * the array may move. For small arrays built by readers. */
int mem_grow(void *array_ptr, size_t *cap, size_t used, size_t size, struct err *err) MUST_USE;

#endif
