/* Memory: aligned blocks and growing arrays. */
#include "base/mem.h"

#include <stdatomic.h>

enum { ALIGNMENT = 64 };

static atomic_size_t plain_bytes, cleared_bytes;

static void *allocate(size_t count, size_t size, atomic_size_t *counter)
{
    size_t bytes, padded;
    if (!size_mul(count, size, &bytes) || !size_add(bytes, ALIGNMENT, &padded))
        return NULL;
    atomic_fetch_add_explicit(counter, bytes, memory_order_relaxed);
    return aligned_alloc(ALIGNMENT, round_up(size_max(bytes, 1), ALIGNMENT));
}

struct mem_requests mem_requests(void)
{
    return (struct mem_requests){atomic_load_explicit(&plain_bytes, memory_order_relaxed),
                                 atomic_load_explicit(&cleared_bytes, memory_order_relaxed)};
}

void *mem_alloc(size_t count, size_t size) { return allocate(count, size, &plain_bytes); }

void *mem_zalloc(size_t count, size_t size)
{
    void *block = allocate(count, size, &cleared_bytes);
    if (block)
        memset(block, 0, count * size);
    return block;
}

int buf_reserve(struct buf *buf, size_t more, struct err *err)
{
    size_t need;
    if (!size_add(buf->len, more, &need) || !size_add(need, 1, &need))
        return err_no_memory(err, "a buffer of %zu bytes that is to grow by %zu", buf->len, more);
    if (need <= buf->cap)
        return 0;
    size_t cap = size_max(need, buf->cap + buf->cap / 2);
    char *data = realloc(buf->data, cap);
    if (!data)
        return err_no_memory(err, "a buffer of %zu bytes", cap);
    buf->data = data;
    buf->cap = cap;
    return 0;
}

int buf_add(struct buf *buf, const void *bytes, size_t len, struct err *err)
{
    if (buf_reserve(buf, len, err) < 0)
        return -1;
    if (len)
        memcpy(buf->data + buf->len, bytes, len);
    buf->len += len;
    buf->data[buf->len] = 0;
    return 0;
}

int buf_addf(struct buf *buf, struct err *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (len < 0)
        return err_set(err, "text cannot be formatted");
    if (buf_reserve(buf, (size_t)len, err) < 0)
        return -1;
    va_start(args, format);
    vsnprintf(buf->data + buf->len, (size_t)len + 1, format, args);
    va_end(args);
    buf->len += (size_t)len;
    return 0;
}

void buf_clear(struct buf *buf)
{
    buf->len = 0;
    if (buf->data)
        buf->data[0] = 0;
}

void buf_release(struct buf *buf)
{
    free(buf->data);
    *buf = (struct buf){0};
}

int mem_grow(void *array_ptr, size_t *cap, size_t used, size_t size, struct err *err)
{
    void **array = array_ptr;
    if (used < *cap)
        return 0;
    size_t new_cap = *cap ? *cap * 2 : 16;
    size_t bytes;
    void *moved = size_mul(new_cap, size, &bytes) ? realloc(*array, bytes) : NULL;
    if (!moved)
        return err_no_memory(err, "a list of %zu entries of %zu bytes", new_cap, size);
    *array = moved;
    *cap = new_cap;
    return 0;
}
