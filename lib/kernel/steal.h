/* Work stealing: divides items among the threads of a loop in contiguous ranges. A thread takes the items of
 * its own range in order, then the last items of the others.
 *
 * Neighbouring panels write neighbouring cache lines. If two cores take them in turn, their hardware
 * prefetchers fetch lines that the other one is about to write: where the cores share no cache, products
 * of 48 rows took 1.14 times as long. There, a counter that all threads share costs 0.3 us per item, too: so a loop
 * has an iteration per thread, which takes items until none is left. */
#pragma once

#include <stdatomic.h>

#include "base/base.h"

/* A thread's range: its first item in bits 0 to 31, its end in bits 32 to 63. */
struct steal_range {
    _Alignas(64) _Atomic uint64_t items;
};

/* An item that a thread has taken, and the one that it will probably take next; SIZE_MAX: unknown. */
struct steal_item {
    size_t item, next;
};

/* Divides n < 2^32 items in ranges for `threads` threads. */
void steal_begin(struct steal_range *ranges, size_t threads, size_t n);

/* Takes an item for thread `self`; false: none is left. */
bool steal_take(struct steal_range *ranges, size_t threads, size_t self, struct steal_item *item);
