/* Work stealing over contiguous ranges. */
#include "kernel/steal.h"

static size_t first_of(uint64_t items) { return (uint32_t)items; }
static size_t end_of(uint64_t items) { return items >> 32; }

void steal_begin(struct steal_range *ranges, size_t threads, size_t n)
{
    for (size_t i = 0; i < threads; i++) {
        const uint64_t first = n * i / threads, end = n * (i + 1) / threads;
        atomic_store_explicit(&ranges[i].items, end << 32 | first, memory_order_relaxed);
    }
}

/* Returns the range with the most items; NULL: all are empty. */
static _Atomic uint64_t *fullest(struct steal_range *ranges, size_t threads)
{
    _Atomic uint64_t *best = NULL;
    size_t most = 0;
    for (size_t i = 0; i < threads; i++) {
        const uint64_t items = atomic_load_explicit(&ranges[i].items, memory_order_relaxed);
        if (end_of(items) - first_of(items) > most) {
            most = end_of(items) - first_of(items);
            best = &ranges[i].items;
        }
    }
    return best;
}

bool steal_take(struct steal_range *ranges, size_t threads, size_t self, struct steal_item *item)
{
    _Atomic uint64_t *own = &ranges[self].items, *other;
    uint64_t items = atomic_load_explicit(own, memory_order_relaxed);
    while (first_of(items) < end_of(items))
        if (atomic_compare_exchange_weak_explicit(own, &items, items + 1, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            *item = (struct steal_item){first_of(items), first_of(items) + 1};
            return true;
        }
    while ((other = fullest(ranges, threads)) != NULL) {
        items = atomic_load_explicit(other, memory_order_relaxed);
        const size_t first = first_of(items), last = end_of(items) - 1;
        if (first < end_of(items) &&
            atomic_compare_exchange_strong_explicit(other, &items, (uint64_t)last << 32 | first,
                                                    memory_order_relaxed, memory_order_relaxed)) {
            *item = (struct steal_item){last, last > first ? last - 1 : SIZE_MAX};
            return true;
        }
    }
    return false;
}
