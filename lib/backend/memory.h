/* A backend's memory, where tensors are: KV entries, recurrent states, weights and activations. Other code computes
 * with addresses and sizes, and reads and writes the memory through these functions only; pointers into it exist in
 * the backend alone. All functions are thread-safe, as long as no two calls use the same bytes and one writes them. */
#pragma once

#include "base/async_file.h"
#include "base/vm.h"
#include "quant/dtype.h"

/* An address in the memory of a backend; all zero: none. Only a backend may look inside. */
struct device_addr {
    uintptr_t device_address;
};

static inline bool addr_is_null(struct device_addr a) { return !a.device_address; }

static inline struct device_addr addr_add(struct device_addr a, size_t bytes)
{
    return (struct device_addr){a.device_address + bytes};
}

/* Bytes from `from` to `to`, negative if it comes before. */
static inline ptrdiff_t addr_distance(struct device_addr to, struct device_addr from)
{
    return (ptrdiff_t)(to.device_address - from.device_address);
}

static inline bool addr_equal(struct device_addr a, struct device_addr b)
{
    return a.device_address == b.device_address;
}

/* Copies `bytes` from `from` to `to`, which may overlap, then zeroes `zeros` bytes behind the copy. */
struct memory_copy {
    struct device_addr to, from;
    size_t bytes, zeros;
};

/* Converts `rows` rows of d elements of from_type, `from_stride` bytes apart, to rows of `type`, `to_stride` bytes
 * apart; rows of the same type are copied. */
struct memory_store {
    struct device_addr to, from;
    enum dtype type, from_type;
    size_t rows, d, to_stride, from_stride;
    /* quantised with one scale for values from `low` to `high`: quant_rows_quantize_range() */
    bool ranged;
    float low, high;
    /* the queries of keys, f32 [n_queries][d], `queries_stride` bytes apart: dtype_from_key(); n_queries 0: none */
    struct device_addr queries;
    size_t n_queries, queries_stride;
};

enum { MEMORY_STORE_ELEMENTS = 4096 }; /* maximum of d where from_type is neither f32 nor `type` */

struct backend_memory {
    const char *name;

    /* A block of memory with undefined contents, from a page's beginning on with VM_MMAP and VM_THP; none: out of
     * memory. */
    struct device_addr (*alloc)(enum vm_alloc how, size_t bytes);
    void (*free)(enum vm_alloc how, struct device_addr block, size_t bytes);

    /* Address space whose bytes take memory once they are written or committed, zeros before; none: not available.
     * commit() gives [from, from + bytes) memory; false: out of memory. drop() takes it from the whole pages there,
     * which read as zeros again. */
    struct device_addr (*reserve)(enum vm_alloc how, size_t bytes);
    void (*release)(struct device_addr block, size_t bytes);
    bool (*commit)(struct device_addr from, size_t bytes);
    void (*drop)(struct device_addr from, size_t bytes);

    /* Memory of the caller's, as of a mapped file, for the backend to read: in place, or a copy. It must stay valid and
     * as it is until disown(). Whoever adopts the same bytes again has the same block, and disowns it, too. None: out of
     * memory. */
    struct device_addr (*adopt)(const void *memory, size_t bytes);
    void (*disown)(struct device_addr block, size_t bytes);

    /* Both wait. A read that fails leaves *to as it was, which failed() tells. */
    void (*read)(void *to, struct device_addr from, size_t bytes);
    void (*write)(struct device_addr to, const void *from, size_t bytes);

    /* Carries out a list of copies, in parallel and in any order. */
    void (*copy)(const struct memory_copy *list, size_t n);

    /* True if the address is in one of its blocks. NULL: it cannot tell. */
    bool (*owns)(struct device_addr at);

    /* Converts rows to types of KV entries, in parallel. False: finite values did not fit a type. */
    bool (*store)(const struct memory_store *list, size_t n);

    /* async_file_read() and async_file_write() of this memory. */
    void (*file_read)(struct async_file *file, struct async_ticket *ticket, struct device_addr to,
                      size_t offset, size_t bytes);
    void (*file_write)(struct async_file *file, struct async_ticket *ticket, struct device_addr from,
                       size_t offset, size_t bytes);

    /* Of a memory apart from the process's, of which reserve() takes all bytes at once; else NULL. Starts a copy between the
     * process's memory and a block, which sees the block as all calls before it leave it. Until wait_exchange() neither may be
     * changed, but the block may be given back. wait_exchange() adds the copy's failure to failed(). */
    void (*exchange)(struct async_ticket *ticket, void *host, struct device_addr at, size_t bytes,
                     bool to_host);
    void (*wait_exchange)(struct async_ticket *ticket);

    /* Returns -1 and the first failure of all functions that return none; from then on, contents are undefined. NULL:
     * they cannot fail. */
    int (*failed)(struct err *err);
};

static inline int memory_failed(const struct backend_memory *memory, struct err *err)
{
    return memory->failed ? memory->failed(err) : 0;
}
