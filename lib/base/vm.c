/* Allocators of large memory blocks. */
#include "base/vm.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/file_head.h"
#include "base/mem.h"
#include "base/vm_map.h"
#include "base/vm_pool.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14 */
#endif

const char *vm_alloc_name(enum vm_alloc how)
{
    static const char *const names[] = {"pool", "malloc", "mmap", "thp"};
    return names[how];
}

/* ---- memory limits ---- */

enum { SPARE = 64 << 20 };

static pthread_once_t measured = PTHREAD_ONCE_INIT;
static size_t room;             /* what control groups left at the first allocation */
static atomic_size_t held;      /* bytes of vm_get() that are not freed, touched or not */
static atomic_size_t unchecked; /* bytes allocated since the groups were last asked */

/* Leaves a part for what the program allocates later by other means. */
static void measure_room(void)
{
    room = cgroup_memory("");
    if (room != SIZE_MAX)
        room -= size_min(room / 8, SPARE);
}

/* True if control groups have room for bytes that will be touched now. Reading their files takes longer than a
 * small allocation, so that it is done once for a step of them, which must fit, too, and so must
 * the block before, which may not have been touched yet. */
static bool has_room(size_t bytes)
{
    enum { MOST = 16 << 20, STEPS = 32 };
    pthread_once(&measured, measure_room);
    const size_t step = size_min(room / STEPS, MOST);
    if (room == SIZE_MAX || atomic_fetch_add(&unchecked, bytes) + bytes < step)
        return true;
    atomic_store(&unchecked, 0);
    return size_plus(bytes, size_plus(size_min(bytes, SPARE), step)) <= cgroup_memory("");
}

void vm_trim_heap(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, VM_MAPPED_BYTES);
    malloc_trim(0);
#endif
    pool_trim(false);
}

/* Once half of a limit is used, freed blocks return to the system immediately: those that the C library retains
 * count as used. */
static void save_memory(void)
{
    static atomic_flag done = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&done)) {
        vm_trim_heap();
        pool_trim(true);
    }
}

size_t vm_available(void)
{
    const size_t group = cgroup_memory(""), system = file_proc_bytes("/proc/meminfo", "MemAvailable");
    return group == SIZE_MAX || (system && system < group) ? system : size_max(group, 1);
}

/* What a block of a pool is: small and large ones are not worth sharing. */
static enum vm_alloc own_kind(enum vm_alloc how, size_t bytes)
{
    if (how != VM_POOL)
        return how;
    if (bytes < POOL_LEAST)
        return VM_MALLOC;
    return bytes > POOL_MOST ? VM_THP : VM_POOL;
}

static void *get(enum vm_alloc how, size_t bytes)
{
    const enum vm_alloc kind = own_kind(how, bytes);
    switch (kind) {
    case VM_POOL: return pool_get(bytes);
    case VM_MALLOC: return mem_alloc(1, bytes);
    case VM_MMAP:
    case VM_THP: break;
    }
    return vm_map(kind, vm_pages(bytes), 0);
}

void *vm_get(enum vm_alloc how, size_t bytes)
{
    if (!has_room(bytes))
        return NULL;
    const size_t before = atomic_fetch_add(&held, bytes);
    void *block = NULL;
    if (room != SIZE_MAX && size_plus(before, bytes) > room / 2)
        save_memory();
    if (bytes <= room && before <= room - bytes)
        block = get(how, bytes);
    if (!block)
        atomic_fetch_sub(&held, bytes);
    return block;
}

void vm_free(enum vm_alloc how, void *block, size_t bytes)
{
    if (!block)
        return;
    atomic_fetch_sub(&held, bytes);
    switch (own_kind(how, bytes)) {
    case VM_POOL: pool_free(block, bytes); break;
    case VM_MALLOC: free(block); break;
    case VM_MMAP:
    case VM_THP: vm_release(block, bytes); break;
    }
}

bool vm_commit(void *from, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *first = (char *)from - (uintptr_t)from % page;
    const size_t all = round_up((size_t)((char *)from - first) + bytes, page);
    if (!has_room(all))
        return false;
    if (madvise(first, all, MADV_POPULATE_WRITE) == 0)
        return true;
    if (errno != EINVAL)
        return false;
    for (size_t at = 0; at < all; at += page) {
        volatile char *byte = first + at;
        *byte = *byte;
    }
    return true;
}
