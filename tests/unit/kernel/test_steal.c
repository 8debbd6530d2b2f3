/* Work stealing: every item is taken once, a thread's own items in order and before those of others, from
 * whose end it takes. */
#include <string.h>

#include "tests/unit/check.h"
#include "base/threads.h"
#include "kernel/steal.h"

enum { THREADS = 4, ITEMS = 5000 };

/* One thread takes everything: its own range upwards, then the others' downwards. */
static void test_order(void)
{
    struct steal_range ranges[3];
    static const size_t items[] = {3, 4, 5, 9, 2, 8, 1, 7, 0, 6}; /* ranges of 3, 3 and 4 items */
    static const size_t next[] = {4, 5, 6, 8, 1, 7, 0, 6, SIZE_MAX, SIZE_MAX};
    steal_begin(ranges, 3, 10);
    for (size_t i = 0; i < ARRAY_LEN(items); i++) {
        struct steal_item got;
        check(steal_take(ranges, 3, 1, &got), "no item %zu", i);
        check(got.item == items[i], "item %zu is %zu, expected %zu", i, got.item, items[i]);
        check(got.next == next[i], "after %zu follows %zu, expected %zu", i, got.next, next[i]);
    }
    check(!steal_take(ranges, 3, 1, &(struct steal_item){0}), "an item is left");
}

static struct steal_range ranges[THREADS];
static atomic_int taken[ITEMS];

static void take(void *arg, size_t i)
{
    struct steal_item got;
    (void)arg;
    (void)i;
    while (steal_take(ranges, THREADS, (size_t)threads_self(), &got))
        atomic_fetch_add(&taken[got.item], 1);
}

static void test_once(size_t n)
{
    memset(taken, 0, sizeof taken);
    steal_begin(ranges, THREADS, n);
    parallel_for(THREADS, SIZE_MAX, take, NULL);
    size_t wrong = 0;
    for (size_t i = 0; i < ITEMS; i++)
        wrong += taken[i] != (i < n);
    check(wrong == 0, "of %zu items, %zu are not taken once", n, wrong);
}

int main(void)
{
    test_order();
    threads_set(THREADS);
    for (int i = 0; i < 50; i++)
        test_once(ITEMS);
    for (size_t n = 1; n < 10; n++)
        test_once(n);
    return check_result();
}
