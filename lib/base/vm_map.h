/* Anonymous mappings, of which the allocators of vm.h consist. vm_map.c has vm_reserve(), vm_release(), vm_forbid() and
 * vm_drop(), too. */
#pragma once

#include "base/vm.h"

/* Rounds a size up to whole pages; returns 0 if it is too large for the address space. */
size_t vm_pages(size_t bytes);

/* Maps whole pages with mmap()'s `flags` beside the usual ones: 2 MiB aligned and in huge pages for VM_THP, else in pages of
 * 4 KiB. NULL: out of memory, or no bytes. vm_release() unmaps them. */
void *vm_map(enum vm_alloc how, size_t bytes, int flags);
