/* Large memory blocks from a choice of allocators, which bmc-prof compares. */
#pragma once

#include "base/base.h"

enum { HUGE_PAGE = 2 << 20 }; /* bytes of a transparent huge page */

/* Values of --alloc; VM_ALLOCS names them, in the same order. */
enum vm_alloc {
    VM_POOL, /* blocks that share huge pages (vm_pool.h); smaller ones as VM_MALLOC, larger ones as VM_THP */
    VM_MALLOC, /* the C library's allocator, 64-byte aligned */
    VM_MMAP,   /* a mapping per block, without huge pages */
    VM_THP     /* a mapping per block, 2 MiB aligned, with transparent huge pages */
};
#define VM_ALLOCS "pool|malloc|mmap|thp"

const char *vm_alloc_name(enum vm_alloc how);

/* Bytes that can be allocated: available in the system, and to the control groups of this process. 0: unknown. */
size_t vm_available(void);

/* Returns free memory of the heap to the system, and maps blocks of more than VM_MAPPED_BYTES from now on, which return
 * when they are freed. glibc raises that threshold to the size of the largest freed block. */
enum { VM_MAPPED_BYTES = 128 << 10 };
void vm_trim_heap(void);

/* Allocates a block; NULL: out of memory, which includes the limit of a control group: beyond it, the
 * kernel would end the process. Contents are zero with VM_MMAP and VM_THP. */
void *vm_get(enum vm_alloc how, size_t bytes);
void vm_free(enum vm_alloc how, void *block, size_t bytes);

/* Reserves address space whose pages take memory only once touched. NULL: not available. */
void *vm_reserve(enum vm_alloc how, size_t bytes);
void vm_release(void *block, size_t bytes);

/* Populates all pages that overlap [from, from + bytes). False: out of memory, as with vm_get(). */
bool vm_commit(void *from, size_t bytes);

/* Unmaps the whole pages within [from, from + bytes) of a mapped file, so that readahead or huge pages of
 * neighbours cannot load them. The address range stays reserved; on failure the pages stay mapped. */
void vm_forbid(void *from, size_t bytes);

/* Frees the whole pages within [from, from + bytes), which then read as zeros. */
void vm_drop(void *from, size_t bytes);
