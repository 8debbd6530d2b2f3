/* Memory footprints by arithmetic, compared with open caches: every policy, in small and large
 * steps, alone and as beams of one prompt; and the equations of the papers. */
#include <stdlib.h>

#include "tests/unit/cache.h"
#include "kv/kv_footprint.h"

enum { LAYERS = 2, KV_HEADS = 3, D = 8, MOST = 4, MOST_STEP = 512, WIDE_D = 128 };

static struct kv *open_cache(const char *text, size_t N)
{
    const struct kv_shape shape = cache_shape(LAYERS, KV_HEADS, D, N, DTYPE_F32);
    return cache_of(text, &shape, MOST);
}

/* Appends KV entries up to `rows`, `step` at a time. */
static void grow(struct kv *kv, size_t seq, size_t rows, size_t step)
{
    static const float zeros[MOST_STEP * KV_HEADS * WIDE_D]; /* the longest step */
    struct err err;
    const size_t most = kv_setup(kv)->step_rows;
    for (size_t n = kv_position(kv, seq), more; n < rows; n += more) {
        more = size_min(most ? size_min(most, step) : step, rows - n);
        if (!check(kv_ensure(kv, seq, more, &err) == 0, "%s", err.text))
            return;
        for (size_t l = 0; l < LAYERS; l++)
            cache_append(kv, seq, l, zeros, zeros, KV_HEADS * kv_setup(kv)->shape.sizes[0].head_dim);
        kv_commit(kv, seq, more);
    }
}

/* Exactly the total, except for growth in advance, during which a matrix exists twice. */
static bool within(size_t bytes, const struct kv_footprint *need)
{
    return bytes >= need->total && bytes - need->total <= need->ahead + need->transient;
}

static void test_one(const char *spec, size_t N, size_t rows, size_t step)
{
    struct kv *kv = open_cache(spec, N);
    const struct kv_footprint need = kv_footprint(kv, 0, rows, 1);
    grow(kv, 0, rows, step);
    const struct kv_stats s = kv_stats(kv);
    check(within(s.resident_bytes, &need), "%s, %zu of %zu rows: %zu bytes, not %zu", spec, rows, N,
          s.resident_bytes, need.total);
    check(s.peak_bytes <= kv_footprint_peak(kv, need),
          "%s, %zu of %zu rows: %zu bytes at most, not %zu", spec, rows, N, s.peak_bytes,
          kv_footprint_peak(kv, need));
    kv_close(kv);
}

/* MOST beams that continue one prompt in turns. */
static void test_beams(const char *spec, size_t N, size_t prompt, size_t rows)
{
    struct err err;
    struct kv *kv = open_cache(spec, N);
    const struct kv_footprint need = kv_footprint(kv, prompt, rows, MOST);
    grow(kv, 0, prompt, 100);
    for (size_t s = 1; s < MOST; s++)
        check(kv_fork(kv, s, 0, prompt, &err) == 0, "%s: cannot fork", spec);
    for (size_t n = prompt; n++ < rows;)
        for (size_t s = 0; s < MOST; s++)
            grow(kv, s, n, 1);
    const struct kv_stats s = kv_stats(kv);
    check(within(s.resident_bytes, &need) && s.peak_bytes <= kv_footprint_peak(kv, need),
          "%s, beams of %zu and %zu of %zu rows: %zu and at most %zu bytes, not %zu and %zu", spec,
          prompt, rows, N, s.resident_bytes, s.peak_bytes, need.total, kv_footprint_peak(kv, need));
    kv_close(kv);
}

static void test_policy(const char *spec)
{
    static const size_t contexts[] = {100, 256, 500}, steps[] = {1, 7, 512};
    for (size_t c = 0; c < (v_in_k ? 1 : ARRAY_LEN(contexts)); c++) {
        const size_t N = contexts[c], rows[] = {1, 16, 17, N / 2, N - 1, N};
        for (size_t i = 0; i < ARRAY_LEN(rows); i++)
            for (size_t s = 0; s < ARRAY_LEN(steps); s++)
                test_one(spec, N, rows[i], steps[s]);
        test_beams(spec, N, 5, N);
        test_beams(spec, N, 50, 51);
        test_beams(spec, N, 64, N - 3);
    }
}

/* Segment paper: 32 prompts, 4 beams, 1024 + 1024 rows. Eq. 3 is 0.625 of eq. 2. */
static void test_paper(void)
{
    enum { ROWS = 2048, PROMPT = 1024 };
    struct kv *segment = open_cache("segment", ROWS), *iterative = open_cache("iterative", ROWS);
    const size_t one = kv_footprint(segment, PROMPT, ROWS, 4).total, row = kv_rows_bytes(segment, 1);
    const double eq_3 = 32.0 * (PROMPT + 4 * (ROWS - PROMPT)) * (double)row;
    check((double)one * 32 > 0.98 * eq_3 && (double)one * 32 < 1.02 * eq_3, "eq. 3: %zu", one);
    check(kv_footprint(iterative, PROMPT, ROWS, 4).total == 4 * ROWS * row, "eq. 2");
    test_beams("segment", ROWS, PROMPT, ROWS);
    kv_close(segment);
    kv_close(iterative);
}

/* offload_floor() is enough for any steps, and at most twice what is needed. */
static void test_floor(size_t rows, size_t step)
{
    const struct kv_shape shape = cache_shape(LAYERS, KV_HEADS, WIDE_D, 4096, DTYPE_F32);
    struct kv *kv = cache_of("headwise:ram=1G", &shape, 1);
    const size_t least = offload_floor(kv, rows, step);
    kv_close(kv);
    char spec[64];
    snprintf(spec, sizeof spec, "headwise:ram=%zu,group=1", least);
    kv = cache_of(spec, &shape, 1);
    grow(kv, 0, rows, step);
    const size_t peak = kv_stats(kv).peak_bytes, all = kv_footprint(kv, 0, rows, 1).total;
    check(peak <= least && 2 * peak > size_min(least, all), "%zu rows by %zu: %zu bytes of %zu", rows,
          step, peak, least);
    kv_close(kv);
}

/* offload_prompt_excess() predicts whether a prompt and its forks fit into an empty cache. */
static void test_prompt(size_t rows, size_t step, size_t width, size_t ram)
{
    static const float zeros[MOST_STEP * KV_HEADS * WIDE_D];
    const struct kv_shape shape = cache_shape(LAYERS, KV_HEADS, WIDE_D, 4096, DTYPE_F32);
    char spec[64];
    struct err err;
    bool ok = true;
    snprintf(spec, sizeof spec, "headwise:ram=%zu,group=1", ram);
    struct kv *kv = cache_of(spec, &shape, MOST);
    const size_t beyond = offload_prompt_excess(kv, rows, step, width);
    for (size_t n = 0, more; n < rows && ok; n += more) {
        more = size_min(step, rows - n);
        ok = kv_ensure(kv, 0, more, &err) == 0;
        for (size_t l = 0; l < LAYERS && ok; l++)
            cache_append(kv, 0, l, zeros, zeros, KV_HEADS * WIDE_D);
        if (ok)
            kv_commit(kv, 0, more);
    }
    for (size_t s = 1; s < width && ok; s++)
        ok = kv_fork(kv, s, 0, rows, &err) == 0;
    check(ok == !beyond, "%zu rows by %zu, %zu times, in %zu bytes: %s, and %zu were predicted", rows,
          step, width, ram, ok ? "they fit" : err.text, beyond);
    kv_close(kv);
}

static void test_prompts(void)
{
    static const size_t steps[] = {16, 60, 64, 100, 500};
    for (size_t i = 0; i < ARRAY_LEN(steps); i++)
        for (size_t rows = 30; rows < 400; rows += 110)
            for (size_t part = 2; part < 20; part++)
                test_prompt(rows, steps[i], 1 + part % 3, rows * part << 10);
}

/* Every process computes the footprint of the largest shard. */
static void test_shards(void)
{
    const struct kv_shape small = kv_shape_uniform(
                              1, (struct kv_sizes){.kv_heads = 2, .head_dim = WIDE_D}, 4096, DTYPE_F32),
                          large = kv_shape_uniform(
                              7, (struct kv_sizes){.kv_heads = 3, .head_dim = WIDE_D}, 4096, DTYPE_F32);
    struct kv *kv[2] = {NULL, cache_of("headwise:ram=1M", &large, 1)};
    struct kv_spec spec;
    struct err err;
    check(cache_spec_parse(&spec, "headwise:ram=1M", &err) == 0, "%s", err.text);
    spec.shards = (struct kv_shards){.largest = &large};
    if (!check(kv_open(&kv[0], &spec, &small, 1, &err) == 0, "%s", err.text))
        return;
    check(kv_footprint(kv[0], 10, 500, 2).total == kv_footprint(kv[1], 10, 500, 2).total &&
              offload_floor(kv[0], 500, 100) == offload_floor(kv[1], 500, 100) &&
              offload_prompt_excess(kv[0], 4096, 64, 1) == offload_prompt_excess(kv[1], 4096, 64, 1) &&
              offload_prompt_excess(kv[0], 4096, 64, 1) && !offload_prompt_excess(kv[0], 16, 64, 1),
          "the largest part");
    /* Heads of the largest shard may be offloaded while those of this shard are in memory. */
    const struct kv_footprint tight = {1 << 20, 0, 2 << 20, 0, 0};
    check(!kv_footprint_possible(kv[0], tight) && kv_footprint_possible(kv[1], tight),
          "what is possible there");
    check(kv_footprint_fits(kv[0], tight, 4 << 20) == 0 &&
              kv_footprint_fits(kv[1], tight, 4 << 20) == 1,
          "how many are");
    kv_close(kv[0]);
    kv_close(kv[1]);
}

/* Sums and products saturate. */
static void test_countless(void)
{
    static const char *const specs[] = {"headwise:ram=1M", "headwise:ram=1M,group=3", "paged"};
    for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
        struct kv *kv = open_cache(specs[i], 4096);
        const bool limited = kv_offload(kv).ram;
        /* 2^58 rows of 32 bytes are 2^63: any further factor overflows. */
        for (size_t rows = (size_t)1 << 58; rows; rows *= 2) {
            const size_t least = offload_floor(kv, rows, rows);
            check(!limited || least == SIZE_MAX, "%s: 2^58 rows or more need %zu", specs[i], least);
            check(kv_footprint(kv, 0, rows, 1).total == SIZE_MAX, "%s: 2^58 rows or more are held",
                  specs[i]);
        }
        kv_close(kv);
    }
    check(size_times(SIZE_MAX / 2, 3) == SIZE_MAX && size_times(SIZE_MAX / 2, 2) == SIZE_MAX - 1 &&
              size_plus(SIZE_MAX, 1) == SIZE_MAX && size_plus(1, 2) == 3,
          "sums and products");
}

/* A cache with a memory budget stays within it for any number of sequences. */
static void test_limit(void)
{
    struct kv *kv = open_cache("headwise:ram=1M", 4096);
    const struct kv_footprint one = kv_footprint(kv, 0, 4096, 1), many = kv_footprint_times(one, 100);
    const struct kv_footprint two =
        kv_footprint_add(kv_footprint_add((struct kv_footprint){0}, one), one);
    check(kv_footprint_resident(kv, one) == (1 << 20) && kv_footprint_peak(kv, many) == (1 << 20) &&
              kv_footprint_peak(kv, two) == (1 << 20),
          "a cache of 1 MiB takes %zu, %zu and %zu bytes", kv_footprint_resident(kv, one),
          kv_footprint_peak(kv, many), kv_footprint_peak(kv, two));
    check(kv_footprint_possible(kv, one) &&
              !kv_footprint_possible(kv, (struct kv_footprint){2 << 20, 0, 2 << 20, 0, 0}) &&
              kv_footprint_possible(kv, (struct kv_footprint){2 << 20, 0, 1 << 20, 0, 0}) &&
              kv_footprint_possible(kv, (struct kv_footprint){1 << 20, 0, 2 << 20, 0, 0}),
          "footprints that are possible");
    check(kv_footprint_fits(kv, one, 1 << 20) == SIZE_MAX &&
              kv_footprint_fits(kv, one, (1 << 20) - 1) == 0,
          "fits");
    kv_close(kv);
}

static void test_sums(void)
{
    struct kv *kv = open_cache("bmc", 16);
    const struct kv_footprint a = {100, 30, 0, 0, 0}, b = {50, 40, 0, 0, 0},
                              sum = kv_footprint_add(a, b), none = {0};
    check(sum.total == 150 && sum.transient == 40 && kv_footprint_peak(kv, sum) == 190, "a sum");
    check(kv_footprint_fits(kv, a, 129) == 0 && kv_footprint_fits(kv, a, 130) == 1 &&
              kv_footprint_fits(kv, a, 330) == 3,
          "fits");
    check(kv_footprint_fits(kv, a, 0) == 0, "nothing fits");
    check(kv_footprint_fits(kv, none, 10) == SIZE_MAX, "sequences without bytes always fit");
    const struct kv_footprint much = {SIZE_MAX - 10, 20, 0, 0, 0};
    /* 10 bytes ahead of each of two. */
    const struct kv_footprint early = {100, 30, 0, 10, 0}, twice = kv_footprint_times(early, 2);
    check(twice.ahead == 20 && kv_footprint_add(early, a).ahead == 10 &&
              kv_footprint_resident(kv, twice) == 200 && kv_footprint_peak(kv, twice) == 250 &&
              kv_footprint_fits(kv, early, 139) == 0 && kv_footprint_fits(kv, early, 140) == 1 &&
              kv_footprint_fits(kv, early, 360) == 3,
          "growth in advance");
    check(kv_footprint_peak(kv, much) == SIZE_MAX && kv_footprint_add(much, a).total == SIZE_MAX,
          "too much to count");
    kv_close(kv);
}

static void test_all(void)
{
    static const char *const spelt[] = {
        "bmc:r=24",     "bmc:r=24,grow=now", "bmc:T=3",         "paged:32",
        "reserve:r=40", "segment:r=5",       "segment:step=96", "bmc:r=1"};
    for (size_t i = 0; kv_policy_name(i); i++)
        test_policy(kv_policy_name(i));
    for (size_t i = 0; i < ARRAY_LEN(spelt); i++)
        test_policy(spelt[i]);
    test_paper();
    static const size_t steps[] = {1, 17, 63, 64, 65, 500};
    for (size_t i = 0; i < ARRAY_LEN(steps); i++)
        for (size_t rows = 1; rows <= (v_in_k ? 1024 : 4096); rows *= 4)
            test_floor(rows, steps[i]);
}

int main(void)
{
    for (int i = 0; i < 2; i++) {
        v_in_k = i;
        test_all();
    }
    v_in_k = false;
    test_sums();
    test_prompts();
    test_limit();
    test_countless();
    test_shards();
    return check_result();
}
