/* Blocks from 64 KiB to 32 MiB that share transparent huge pages, where a mapping or the C library's heap has pages of
 * 4 KiB. Attention reads a cache once per token, after all weights: by then the page tables have left the caches, too,
 * and in a virtual machine a miss of the TLB takes longer than the transfer of the page. Thread-safe. */
#pragma once

#include "base/base.h"

enum { POOL_LEAST = 64 << 10, POOL_MOST = 32 << 20 }; /* bytes of a block */

/* A block with undefined contents, from a multiple of 4 KiB on; NULL: out of memory. */
void *pool_get(size_t bytes);

/* `bytes` is what the block was allocated with. About 64 MiB of freed memory are kept for other blocks, and what shares a
 * huge page with a block: the system clears a page before it hands it out again. */
void pool_free(void *block, size_t bytes);

/* Returns the huge pages that are free to the system; for good: all free memory, and that of blocks when they are freed. */
void pool_trim(bool for_good);
