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
#include "base/vm_pool.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14 */
#endif

const char *vm_alloc_name(enum vm_alloc how)
{
    static const char *const names[] = {"pool", "malloc", "mmap", "thp"};
    return names[how];
}

/* Maps `bytes` of anonymous memory at a multiple of `align`: maps more and unmaps the excess. */
static void *map_aligned(size_t bytes, size_t align, int flags)
{
    size_t all;
    if (!size_add(bytes, align, &all))
        return NULL;
    char *block = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (block == MAP_FAILED)
        return NULL;
    const size_t before = (align - (uintptr_t)block % align) % align;
    if (before)
        munmap(block, before);
    if (align > before)
        munmap(block + before + bytes, align - before);
    return block + before;
}

/* Rounds a size up to whole pages; returns 0 if it is too large for the address space. */
static size_t whole_pages(size_t bytes)
{
    return bytes > SIZE_MAX / 2 ? 0 : round_up(bytes, (size_t)sysconf(_SC_PAGESIZE));
}

static void *map_block(enum vm_alloc how, size_t bytes, int flags)
{
    if (!bytes)
        return NULL;
    if (how != VM_THP) {
        void *block =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
        if (block == MAP_FAILED)
            return NULL;
        madvise(block, bytes, MADV_NOHUGEPAGE); /* fails harmlessly on kernels without huge pages */
        return block;
    }
    void *block = map_aligned(bytes, HUGE_PAGE, flags);
    if (block)
        madvise(block, bytes, MADV_HUGEPAGE);
    return block;
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
    pool_trim();
}

/* Once half of a limit is used, freed blocks return to the system immediately: those that the C library retains
 * count as used. */
static void save_memory(void)
{
    static atomic_flag done = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&done))
        vm_trim_heap();
}

size_t vm_available(void)
{
    const size_t group = cgroup_memory(""), system = file_proc_bytes("/proc/meminfo", "MemAvailable");
    return group == SIZE_MAX || (system && system < group) ? system : size_max(group, 1);
}

/* What a block of a pool is: small and large ones are not worth sharing. */
static enum vm_alloc own_kind(enum vm_alloc how, size_t bytes)
{
    return how != VM_POOL || (bytes >= POOL_LEAST && bytes <= POOL_MOST) ? how
           : bytes < POOL_LEAST                                          ? VM_MALLOC
                                                                         : VM_THP;
}

static void *get(enum vm_alloc how, size_t bytes)
{
    switch (own_kind(how, bytes)) {
    case VM_POOL: return pool_get(bytes);
    case VM_MALLOC: return mem_alloc(1, bytes);
    case VM_MMAP:
    case VM_THP: break;
    }
    return map_block(how == VM_MMAP ? how : VM_THP, whole_pages(bytes), 0);
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
    case VM_THP: munmap(block, whole_pages(bytes)); break;
    }
}

void *vm_reserve(enum vm_alloc how, size_t bytes)
{
    return map_block(how == VM_THP ? how : VM_MMAP, whole_pages(bytes), MAP_NORESERVE);
}

void vm_release(void *block, size_t bytes)
{
    if (block)
        munmap(block, whole_pages(bytes));
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

void vm_forbid(void *from, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = round_up((uintptr_t)from, page),
                    end = ((uintptr_t)from + bytes) / page * page;
    if (first < end)
        (void)mmap((void *)first, end - first, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void vm_drop(void *from, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (page - (uintptr_t)from % page) % page;
    const size_t whole = bytes > before ? (bytes - before) / page * page : 0;
    if (whole)
        madvise((char *)from + before, whole, MADV_DONTNEED);
}
