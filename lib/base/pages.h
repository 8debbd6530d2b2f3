/* Large blocks of memory by a chosen way: the choice is one of the things that bmc-prof compares. */
#ifndef BMC_PAGES_H
#define BMC_PAGES_H

#include "base/base.h"

/* Values of --alloc; PAGES_ALLOCS is their spelling, in the same order. */
enum pages_alloc {
    PAGES_MALLOC, /* the C library's allocator, at a 64-byte boundary */
    PAGES_MMAP,   /* a mapping of its own, 4 KiB pages */
    PAGES_THP     /* the same at a 2 MiB boundary, huge pages asked for */
};
#define PAGES_ALLOCS "malloc|mmap|thp"

const char *pages_alloc_name(enum pages_alloc how);

/* A block of `bytes` bytes, not cleared under malloc; NULL when it cannot be had. */
void *pages_get(enum pages_alloc how, size_t bytes);
void pages_free(enum pages_alloc how, void *block, size_t bytes);

/* A mapping of `bytes` bytes of address space that takes no memory until it is touched; NULL when it
 * cannot be had. PAGES_THP asks for huge pages. */
void *pages_reserve(enum pages_alloc how, size_t bytes);
void pages_release(void *block, size_t bytes);

/* Makes the pages of [from, from + bytes) present and writable, whole pages around it. False when
 * memory cannot be had. */
bool pages_commit(void *from, size_t bytes);

/* The whole pages within [from, from + bytes) take no memory any more; they are zeros when they are touched again. */
void pages_drop(void *from, size_t bytes);

#endif
