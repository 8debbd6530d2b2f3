/* Mappings of anonymous memory, and what becomes of their pages. */
#include "base/vm_map.h"

#include <sys/mman.h>
#include <unistd.h>

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

size_t vm_pages(size_t bytes)
{
    return bytes > SIZE_MAX / 2 ? 0 : round_up(bytes, (size_t)sysconf(_SC_PAGESIZE));
}

void *vm_map(enum vm_alloc how, size_t bytes, int flags)
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

void *vm_reserve(enum vm_alloc how, size_t bytes)
{
    return vm_map(how == VM_THP ? how : VM_MMAP, vm_pages(bytes), MAP_NORESERVE);
}

void vm_release(void *block, size_t bytes)
{
    if (block)
        munmap(block, vm_pages(bytes));
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
