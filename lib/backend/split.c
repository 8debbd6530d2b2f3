/* The memory of models whose layers two backends compute. */
#include "backend/split.h"

#include <stdatomic.h>

/* One device per process (backends.c). */
static const struct backend_memory *device;

/* A copy between the two was left out; like failures of a device, it stays. */
static atomic_bool out_of_memory;

static const struct backend_memory *host(void) { return backends[0]->memory; }

static const struct backend_memory *owner(struct device_addr at)
{
    return device->owns(at) ? device : host();
}

static struct device_addr alloc(enum vm_alloc how, size_t bytes) { return host()->alloc(how, bytes); }

static void free_block(enum vm_alloc how, struct device_addr block, size_t bytes)
{
    owner(block)->free(how, block, bytes);
}

static struct device_addr reserve(enum vm_alloc how, size_t bytes)
{
    return host()->reserve(how, bytes);
}

static void release(struct device_addr block, size_t bytes) { host()->release(block, bytes); }
static bool commit(struct device_addr from, size_t bytes) { return host()->commit(from, bytes); }
static void drop(struct device_addr from, size_t bytes) { owner(from)->drop(from, bytes); }

static struct device_addr adopt(const void *memory, size_t bytes)
{
    return host()->adopt(memory, bytes);
}
static void disown(struct device_addr block, size_t bytes) { host()->disown(block, bytes); }

static void read_bytes(void *to, struct device_addr from, size_t bytes)
{
    owner(from)->read(to, from, bytes);
}

static void write_bytes(struct device_addr to, const void *from, size_t bytes)
{
    owner(to)->write(to, from, bytes);
}

/* A block of `to` with a copy of `bytes` bytes of the other memory; none: out of memory, which failed() tells. */
static struct device_addr bring(const struct backend_memory *to, struct device_addr from, size_t bytes)
{
    enum { PART = 1 << 16 };
    const struct device_addr at = to->alloc(VM_POOL, bytes);
    const struct backend_memory *other = owner(from);
    char part[PART];
    for (size_t i = 0, n; i < bytes && !addr_is_null(at); i += n) {
        n = size_min(PART, bytes - i);
        other->read(part, addr_add(from, i), n);
        to->write(addr_add(at, i), part, n);
    }
    if (addr_is_null(at))
        out_of_memory = true;
    return at;
}

/* Copies from one memory to the other. */
static void cross(const struct backend_memory *to, const struct memory_copy *c)
{
    struct memory_copy own = *c;
    own.from = bring(to, c->from, c->bytes);
    if (!addr_is_null(own.from))
        to->copy(&own, 1);
    to->free(VM_POOL, own.from, c->bytes);
}

static void copy(const struct memory_copy *list, size_t n)
{
    for (size_t i = 0, end; i < n; i = end) {
        const struct backend_memory *to = owner(list[i].to);
        for (end = i;
             end < n && owner(list[end].to) == to && (!list[end].bytes || owner(list[end].from) == to);)
            end++;
        if (end > i)
            to->copy(list + i, end - i);
        else
            cross(to, &list[end++]);
    }
}

static bool store(const struct memory_store *list, size_t n)
{
    bool fits = true;
    for (size_t i = 0, end; i < n; i = end) {
        const struct backend_memory *to = owner(list[i].to);
        for (end = i;
             end < n && owner(list[end].to) == to && (!list[end].rows || owner(list[end].from) == to);)
            end++;
        if (end > i) {
            fits = to->store(list + i, end - i) && fits;
            continue;
        }
        struct memory_store own = list[end++];
        const size_t bytes = own.from_stride * (own.rows - 1) + dtype_row_bytes(own.from_type, own.d);
        own.from = bring(to, own.from, bytes);
        fits = (addr_is_null(own.from) || to->store(&own, 1)) && fits;
        to->free(VM_POOL, own.from, bytes);
    }
    return fits;
}

static void file_read(struct async_file *file, struct async_ticket *ticket, struct device_addr to,
                      size_t offset, size_t bytes)
{
    owner(to)->file_read(file, ticket, to, offset, bytes);
}

static void file_write(struct async_file *file, struct async_ticket *ticket, struct device_addr from,
                       size_t offset, size_t bytes)
{
    owner(from)->file_write(file, ticket, from, offset, bytes);
}

static int failed(struct err *err)
{
    return out_of_memory ? err_no_memory(err, "copies between the memory of a device and the process's")
                         : memory_failed(device, err);
}

const struct backend_memory *split_memory(const struct backend *backend)
{
    static const struct backend_memory memory = {
        .name = "split",
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
        .failed = failed,
    };
    device = backend->memory;
    return &memory;
}
