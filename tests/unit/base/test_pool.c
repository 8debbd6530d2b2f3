/* Blocks that share huge pages: they do not overlap, keep their contents, are reused, and return their memory. */
#include <stdlib.h>

#include "base/file_head.h"
#include "base/vm.h"
#include "base/vm_pool.h"
#include "tests/unit/check.h"

enum { BLOCKS = 40, STEPS = 4000, MIB = 1 << 20 };

struct taken {
    char *at;
    size_t bytes;
};

static size_t resident(void) { return file_proc_bytes("/proc/self/status", "RssAnon"); }

static void fill(const struct taken *b, char tag)
{
    for (size_t i = 0; i < b->bytes; i += 512)
        b->at[i] = tag;
    b->at[b->bytes - 1] = tag;
}

static bool holds(const struct taken *b, char tag)
{
    bool same = b->at[b->bytes - 1] == tag;
    for (size_t i = 0; i < b->bytes; i += 512)
        same = same && b->at[i] == tag;
    return same;
}

/* Blocks of random sizes come and go; each has its own byte. */
static void test_random(void)
{
    struct taken block[BLOCKS] = {{0}};
    size_t wrong = 0, failed = 0;
    srand(1);
    for (size_t step = 0; step < STEPS; step++) {
        const size_t i = (size_t)rand() % BLOCKS;
        struct taken *b = &block[i];
        if (b->at) {
            wrong += !holds(b, (char)(i + 1));
            vm_free(VM_POOL, b->at, b->bytes);
            b->at = NULL;
            continue;
        }
        b->bytes = (size_t)rand() % (step % 50 ? 300 << 10 : 40 * MIB) + 1;
        if (!(b->at = vm_get(VM_POOL, b->bytes)))
            failed++;
        else
            fill(b, (char)(i + 1));
    }
    for (size_t i = 0; i < BLOCKS; i++)
        if (block[i].at) {
            wrong += !holds(&block[i], (char)(i + 1));
            vm_free(VM_POOL, block[i].at, block[i].bytes);
        }
    check(!wrong && !failed, "%zu blocks have bytes of others, %zu could not be had", wrong, failed);
}

/* Freed memory is used again. All but 64 MiB return to the system, and those, too, on request. */
static void test_memory(void)
{
    enum { N = 96, KEPT = 64 };
    char *block[N];
    size_t full = 0;
    pool_trim(false); /* what other tests have left */
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < N; i++)
            fill(&(struct taken){block[i] = vm_get(VM_POOL, MIB), MIB}, 1);
        const size_t held = resident();
        check(!round || held < full + MIB, "round %d: %zu bytes more", round, held - full);
        full = held;
        for (size_t i = 1; i < N; i++)
            vm_free(VM_POOL, block[i], MIB);
        if (round == 1)
            vm_trim_heap();
        if (round == 2)
            pool_trim(true);
        const size_t left = resident(), returned = full > left ? full - left : 0;
        const size_t due = (round ? N - 1 : N - 1 - KEPT) * MIB;
        check(returned + 4 * MIB > due && returned < due + 4 * MIB,
              "round %d: %zu bytes of %zu are returned", round, returned, due);
        vm_free(VM_POOL, block[0], MIB);
    }
}

/* Blocks of 1 MiB, in huge pages where the system lets programs ask for some, also after others were freed and trimmed. */
static void test_huge_pages(void)
{
    enum { N = 16 };
    char *block[N], enabled[64] = "";
    FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    const bool some = f && fgets(enabled, sizeof enabled, f) && !strstr(enabled, "[never]");
    if (f)
        fclose(f);
    for (size_t i = 0; i < N; i++)
        fill(&(struct taken){block[i] = vm_get(VM_POOL, MIB), MIB}, 1);
    for (int round = 0; round < 2; round++) {
        const size_t huge = file_proc_bytes("/proc/self/smaps_rollup", "AnonHugePages");
        if (some)
            check(huge >= (N - 2) * MIB, "round %d: %zu bytes of %d MiB are in huge pages", round, huge,
                  N);
        for (size_t i = 1; i < N; i += 2)
            vm_free(VM_POOL, block[i], MIB);
        vm_trim_heap();
        for (size_t i = 1; i < N; i += 2)
            fill(&(struct taken){block[i] = vm_get(VM_POOL, MIB), MIB}, 1);
    }
    for (size_t i = 0; i < N; i++)
        vm_free(VM_POOL, block[i], MIB);
}

int main(void)
{
    test_huge_pages();
    test_random();
    test_memory();
    return check_result();
}
