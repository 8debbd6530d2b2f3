/* The memory of the CPU: addresses are pointers. */
#include "cpu/cpu_memory.h"

#include <stdatomic.h>

#include "base/threads.h"
#include "quant/cache_types.h"
#include "quant/quant_rows.h"

static struct device_addr alloc(enum vm_alloc how, size_t bytes)
{
    return cpu_addr(vm_get(how, bytes));
}

static void free_block(enum vm_alloc how, struct device_addr block, size_t bytes)
{
    vm_free(how, cpu_at(block), bytes);
}

static struct device_addr reserve(enum vm_alloc how, size_t bytes)
{
    return cpu_addr(vm_reserve(how, bytes));
}

static void release(struct device_addr block, size_t bytes) { vm_release(cpu_at(block), bytes); }
static bool commit(struct device_addr from, size_t bytes) { return vm_commit(cpu_at(from), bytes); }
static void drop(struct device_addr from, size_t bytes) { vm_drop(cpu_at(from), bytes); }

static struct device_addr adopt(const void *memory, size_t bytes)
{
    (void)bytes;
    return cpu_addr(memory);
}

static void disown(struct device_addr block, size_t bytes)
{
    (void)block;
    (void)bytes;
}

static void read_bytes(void *to, struct device_addr from, size_t bytes)
{
    memcpy(to, cpu_at(from), bytes);
}

static void write_bytes(struct device_addr to, const void *from, size_t bytes)
{
    memcpy(cpu_at(to), from, bytes);
}

/* ---- copies ---- */

enum { STRIP_BYTES = 1 << 18 }; /* most bytes that a thread zeroes at a time */

static void copy_one(void *arg, size_t index)
{
    const struct memory_copy *c = (const struct memory_copy *)arg + index;
    char *to = cpu_at(c->to);
    if (c->bytes)
        memmove(to, cpu_at(c->from), c->bytes);
    memset(to + c->bytes, 0, c->zeros);
}

static void zero_strip(void *arg, size_t index)
{
    const struct memory_copy *c = arg;
    const size_t at = index * STRIP_BYTES;
    memset((char *)cpu_at(c->to) + at, 0, size_min(STRIP_BYTES, c->zeros - at));
}

static void copy(const struct memory_copy *list, size_t n)
{
    void *arg = (void *)(uintptr_t)list;
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += list[i].bytes + list[i].zeros;
    if (n == 1 && !list->bytes) /* one large block: each thread zeroes a part */
        parallel_for(div_up(bytes, STRIP_BYTES), bytes, zero_strip, arg);
    else
        parallel_for(n, bytes, copy_one, arg);
}

/* ---- KV entries ---- */

struct storing {
    const struct memory_store *list;
    atomic_bool overflowed;
};

/* Returns a row of entries as f32, in `wide` unless it is f32. */
static const float *as_f32(const struct memory_store *s, const void *from, float *wide)
{
    if (s->from_type == DTYPE_F32)
        return from;
    dtype_to_f32(wide, s->from_type, from, s->d);
    return wide;
}

static void store_one(void *arg, size_t index)
{
    struct storing *job = arg;
    const struct memory_store *s = &job->list[index];
    char *to = cpu_at(s->to);
    const char *from = cpu_at(s->from);
    float wide[MEMORY_STORE_ELEMENTS];
    const size_t same = s->from_type == s->type && !s->ranged ? dtype_row_bytes(s->type, s->d) : 0;
    for (size_t i = 0; i < s->rows; i++, to += s->to_stride, from += s->from_stride) {
        if (i > 0 && !s->from_stride &&
            !s->n_queries) { /* one row again and again: a cache is filled to be measured */
            memcpy(to, to - s->to_stride, dtype_row_bytes(s->type, s->d));
            continue;
        }
        if (same && s->type != DTYPE_F32) {
            memcpy(to, from, same);
            continue;
        }
        const float *row = as_f32(s, from, wide);
        if (s->ranged)
            quant_rows_quantize_range(to, s->type, row, s->d, s->low, s->high);
        else if (s->n_queries)
            dtype_from_key(to, s->type, row, s->d, cpu_at(addr_add(s->queries, i * s->queries_stride)),
                           s->n_queries);
        else
            dtype_from_f32(to, s->type, row, s->d);
        if (cache_type_overflowed(s->type, to, row, s->d))
            atomic_store_explicit(&job->overflowed, true, memory_order_relaxed);
    }
}

static bool store(const struct memory_store *list, size_t n)
{
    struct storing job = {list, false};
    size_t elements = 0;
    for (size_t i = 0; i < n; i++)
        elements += list[i].rows * list[i].d;
    parallel_for(n, elements, store_one, &job);
    return !job.overflowed;
}

/* ---- files ---- */

static void file_read(struct async_file *file, struct async_ticket *ticket, struct device_addr to,
                      size_t offset, size_t bytes)
{
    async_file_read(file, ticket, cpu_at(to), offset, bytes);
}

static void file_write(struct async_file *file, struct async_ticket *ticket, struct device_addr from,
                       size_t offset, size_t bytes)
{
    async_file_write(file, ticket, cpu_at(from), offset, bytes);
}

const struct backend_memory cpu_memory = {
    .name = "cpu",
    .alloc = alloc,
    .free = free_block,
    .reserve = reserve,
    .release = release,
    .commit = commit,
    .drop = drop,
    .adopt = adopt,
    .disown = disown,
    .read = read_bytes,
    .write = write_bytes,
    .copy = copy,
    .store = store,
    .file_read = file_read,
    .file_write = file_write,
};
