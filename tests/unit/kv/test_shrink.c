/* Memory is given back: a sequence that was long and is truncated takes at most 1.1 of what a short one takes, by the
 * statistics and by those of the system, keeps its entries, and grows again. */
#include <stdlib.h>
#include <unistd.h>

#include "kv/kv_footprint.h"
#include "tests/unit/cache.h"

enum { LAYERS = 2, KV_HEADS = 2, D = 16, WIDTH = KV_HEADS * D, STEP = 512, LONG = 32768, SHORT = 1024 };

static size_t resident(void)
{
    size_t pages = 0, all;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%zu %zu", &all, &pages) != 2)
        pages = 0;
    if (file)
        fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Appends entries up to `rows`: the row's position, plus `mark`. */
static void grow(struct kv *kv, size_t seq, size_t rows, float mark)
{
    static float entries[STEP * WIDTH];
    struct err err;
    for (size_t n = kv_position(kv, seq), more; n < rows; n += more) {
        more = size_min(STEP, rows - n);
        for (size_t i = 0; i < more * WIDTH; i++)
            entries[i] = (float)(n + i / WIDTH) + mark;
        if (!check(kv_ensure(kv, seq, more, &err) == 0, "%s", err.text))
            exit(1);
        for (size_t l = 0; l < LAYERS; l++)
            cache_append(kv, seq, l, entries, entries, WIDTH);
        kv_commit(kv, seq, more);
    }
}

static bool has(struct kv *kv, size_t seq, size_t kept, float mark)
{
    const size_t n = kv_position(kv, seq);
    float *rows = malloc(n * D * sizeof *rows);
    struct err err;
    bool same = rows && kv_read(kv, seq, LAYERS - 1, true, KV_HEADS - 1, rows, &err) == 0;
    for (size_t i = 0; same && i < n * D; i++)
        same = rows[i] == (float)(i / D) + (i / D < kept ? 0 : mark);
    free(rows);
    return same;
}

static void test_policy(const char *spec)
{
    const struct kv_shape shape = cache_shape(LAYERS, KV_HEADS, D, LONG, DTYPE_F32);
    struct kv *kv = cache_of(spec, &shape, 2);
    grow(kv, 0, 1, 0);
    kv_truncate(kv, 0, 0);
    const size_t before = resident();
    grow(kv, 0, SHORT, 0);
    const size_t small = kv_stats(kv).resident_bytes, least = resident() - size_min(resident(), before);
    kv_truncate(kv, 0, 0);
    grow(kv, 0, LONG, 0);
    const size_t large = kv_stats(kv).resident_bytes;
    kv_truncate(kv, 0, SHORT);
    const size_t now = kv_stats(kv).resident_bytes, left = resident() - size_min(resident(), before),
                 rows = kv_rows_bytes(kv, SHORT);
    check(large >= kv_rows_bytes(kv, LONG), "%s: %zu bytes before", spec, large);
    check(now <= size_min(small, 2 * rows) * 11 / 10, "%s: %zu bytes, a short sequence takes %zu", spec,
          now, small);
    /* the system counts pages of other memory, too */
    check(left <= size_max(least, rows) * 11 / 10 + (512 << 10), "%s: %zu bytes resident, %zu at first",
          spec, left, least);
    check(has(kv, 0, SHORT, 0), "%s: other entries", spec);
    grow(kv, 0, 3 * SHORT, 0.5F);
    check(has(kv, 0, SHORT, 0.5F), "%s: other entries once it grows again", spec);
    kv_truncate(kv, 0, SHORT + 20); /* less than is kept: nothing moves until memory is asked for */
    kv_truncate(kv, 0, SHORT + 7);
    kv_give_back(kv);
    check(kv_stats(kv).resident_bytes <= kv_rows_bytes(kv, 2 * SHORT), "%s: %zu bytes on demand", spec,
          kv_stats(kv).resident_bytes);
    check(has(kv, 0, SHORT, 0.5F), "%s: other entries then", spec);
    kv_truncate(kv, 0, 0);
    check(kv_stats(kv).resident_bytes == 0, "%s: %zu bytes left of nothing", spec,
          kv_stats(kv).resident_bytes);
    kv_close(kv);
}

/* Sequences that share a prefix lose no row that the other has. */
static void test_shared(void)
{
    const struct kv_shape shape = cache_shape(LAYERS, KV_HEADS, D, LONG, DTYPE_F32);
    struct kv *kv = cache_of("segment", &shape, 2);
    struct err err;
    grow(kv, 0, 2 * SHORT, 0);
    check(kv_fork(kv, 1, 0, 2 * SHORT, &err) == 0, "%s", err.text);
    kv_truncate(kv, 0, 100);
    kv_give_back(kv);
    check(has(kv, 1, 2 * SHORT, 0) && has(kv, 0, 100, 0), "a shared prefix");
    kv_truncate(kv, 1, 50);
    kv_give_back(kv);
    check(has(kv, 1, 50, 0) && has(kv, 0, 100, 0), "a shared prefix that is cut");
    grow(kv, 1, 600, 0.5F);
    grow(kv, 0, 300, 0.25F);
    check(has(kv, 1, 50, 0.5F) && has(kv, 0, 100, 0.25F), "what follows it");
    kv_close(kv);
}

int main(void)
{
    static const char *const specs[] = {
        "bmc",   "bmc:r=256,grow=now", "iterative", "upfront",       "bmc:T=1",
        "paged", "paged:32",           "reserve",   "reserve:r=100", "segment"};
    for (size_t i = 0; i < ARRAY_LEN(specs); i++)
        test_policy(specs[i]);
    test_shared();
    return check_result();
}
