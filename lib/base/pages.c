/* Large blocks of memory by a chosen way. */
#include "base/pages.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum { HUGE_PAGE = 2 << 20 };

const char *pages_alloc_name(enum pages_alloc how)
{
    static const char *const names[] = {"malloc", "mmap", "thp"};
    return names[how];
}

/* Anonymous memory at a multiple of `align`: more is mapped, and what is too much given back. */
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

/* 0 for sizes that no address space has. */
static size_t whole_pages(size_t bytes)
{
    return bytes > SIZE_MAX / 2 ? 0 : round_up(bytes, (size_t)sysconf(_SC_PAGESIZE));
}

static void *map_block(enum pages_alloc how, size_t bytes, int flags)
{
    if (!bytes)
        return NULL;
    if (how != PAGES_THP) {
        void *block =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
        if (block == MAP_FAILED)
            return NULL;
        madvise(block, bytes,
                MADV_NOHUGEPAGE); /* 4 KiB is what was asked for; kernels without huge pages refuse */
        return block;
    }
    void *block = map_aligned(bytes, HUGE_PAGE, flags);
    if (block)
        madvise(block, bytes, MADV_HUGEPAGE);
    return block;
}

void *pages_get(enum pages_alloc how, size_t bytes)
{
    return how == PAGES_MALLOC ? mem_alloc(1, bytes) : map_block(how, whole_pages(bytes), 0);
}

void pages_free(enum pages_alloc how, void *block, size_t bytes)
{
    if (how == PAGES_MALLOC)
        free(block);
    else if (block)
        munmap(block, whole_pages(bytes));
}

void *pages_reserve(enum pages_alloc how, size_t bytes)
{
    return map_block(how == PAGES_MALLOC ? PAGES_MMAP : how, whole_pages(bytes), MAP_NORESERVE);
}

void pages_release(void *block, size_t bytes)
{
    if (block)
        munmap(block, whole_pages(bytes));
}

bool pages_commit(void *from, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *first = (char *)from - (uintptr_t)from % page;
    const size_t all = round_up((size_t)((char *)from - first) + bytes, page);
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

void pages_drop(void *from, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (page - (uintptr_t)from % page) % page;
    const size_t whole = bytes > before ? (bytes - before) / page * page : 0;
    if (whole)
        madvise((char *)from + before, whole, MADV_DONTNEED);
}
