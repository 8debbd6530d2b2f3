/* Growth in advance (kv_prepare.h) of policies bmc and reserve against growth at once: the same rows
 * after any operations, bounds on the bytes that a step copies or commits, memory within its footprint,
 * and allocations that fail. Under ThreadSanitizer it tests the loops that copy. */
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "kv/kv_footprint.h"
#include "quant/cache_types.h"
#include "quant/kv_entries.h"
#include "tests/unit/cache.h"

enum { LAYERS = 3, KV_HEADS = 2, D = 32, WIDTH = KV_HEADS * D, N = 240, SEQS = 4, MOST_ROWS = 70 };

static unsigned seed;
static size_t draw(size_t below) { return (size_t)rand_r(&seed) % below; }

/* ---- allocations that fail (through the linker's --wrap) ---- */

void *__real_vm_get(enum vm_alloc how, size_t bytes);
void *__wrap_vm_get(enum vm_alloc how, size_t bytes);

bool __real_vm_commit(void *from, size_t bytes);
bool __wrap_vm_commit(void *from, size_t bytes);

static bool counting;                               /* the calls of the cache under test */
static size_t calls, fail_from = SIZE_MAX, fail_to; /* calls with these numbers fail */

static bool fails(void)
{
    const size_t call = counting ? __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) : SIZE_MAX - 1;
    return counting && call >= fail_from && call < fail_to;
}

void *__wrap_vm_get(enum vm_alloc how, size_t bytes)
{
    return fails() ? NULL : __real_vm_get(how, bytes);
}

bool __wrap_vm_commit(void *from, size_t bytes) { return !fails() && __real_vm_commit(from, bytes); }

static void fail_calls(size_t from, size_t count)
{
    calls = 0;
    fail_from = from;
    fail_to = size_plus(from, count);
}

/* ---- a pair of caches ---- */

static struct kv *open_cache(const char *spec, enum dtype type)
{
    const struct kv_shape shape = cache_shape(LAYERS, KV_HEADS, D, N, type);
    return cache_of(spec, &shape, SEQS);
}

static float values[MOST_ROWS * WIDTH * 2];

/* Makes rows pending whose values depend on `salt`. */
static bool append(struct kv *kv, size_t seq, size_t rows, size_t salt)
{
    struct err err;
    if (kv_ensure(kv, seq, rows, &err) < 0)
        return false;
    for (size_t l = 0; l < LAYERS; l++) {
        const float *k = values + (salt + l) % WIDTH, *v = values + (salt * 3 + l) % WIDTH;
        cache_append(kv, seq, l, k, v, WIDTH);
    }
    return true;
}

/* One row. */
static void append_one(struct kv *kv, size_t seq, size_t salt)
{
    check(append(kv, seq, 1, salt), "no room for a row");
    kv_commit(kv, seq, 1);
}

static void same_rows(struct kv *a, struct kv *b, size_t seq, const char *what, const char *how)
{
    static char rows[2][N * D * sizeof(float)];
    struct err err;
    const struct kv_seq_info x = kv_seq_info(a, seq), y = kv_seq_info(b, seq);
    const size_t row = dtype_row_bytes(kv_setup(a)->shape.sizes[0].type[KV_K], D);
    check(x.n == y.n && x.cap == y.cap && x.attached == y.attached,
          "%s, %s: %zu of %zu rows, not %zu of %zu", how, what, x.n, x.cap, y.n, y.cap);
    for (size_t m = 0; x.n && m < 2 * LAYERS; m++)
        for (size_t h = 0; h < KV_HEADS; h++)
            check(kv_read(a, seq, m / 2, m % 2, h, rows[0], &err) == 0 &&
                      kv_read(b, seq, m / 2, m % 2, h, rows[1], &err) == 0 &&
                      memcmp(rows[0], rows[1], x.n * row) == 0,
                  "%s, %s: other rows in sequence %zu, matrix %zu, head %zu", how, what, seq, m, h);
}

/* A pass over some rows, of which all or a few are accepted. */
static void feed(struct kv *const *kv, size_t seq)
{
    const size_t most = draw(3) ? 3 : draw(4) ? 12 : MOST_ROWS, salt = draw(1000);
    const size_t rows = size_min(1 + draw(most), kv_left(kv[0], seq)),
                 kept = draw(2) ? rows : draw(rows + 1);
    size_t list[MOST_ROWS], n = 0;
    for (size_t i = 0; i < rows; i++)
        if (i < kept || draw(4) == 0)
            list[n++] = i;
    for (size_t i = 0; rows && i < 2; i++) {
        check(append(kv[i], seq, rows, salt), "no room");
        if (n == rows)
            kv_commit(kv[i], seq, rows);
        else
            kv_accept(kv[i], seq, list, n);
    }
}

static void attach(struct kv *const *kv, size_t seq)
{
    enum { STORED = 64 };
    static char memory[2][SEQS][LAYERS][2][KV_HEADS * STORED * D * sizeof(float)];
    const size_t rows = 1 + draw(STORED);
    struct err err;
    for (size_t i = 0; i < 2; i++) {
        struct kv_layer_rows layer[LAYERS];
        kv_truncate(kv[i], seq, 0);
        for (size_t l = 0; l < LAYERS; l++)
            layer[l] =
                (struct kv_layer_rows){cpu_addr(memory[i][seq][l][0]), cpu_addr(memory[i][seq][l][1]),
                                       kv_sizes_types(&kv_setup(kv[i])->shape.sizes[0])};
        memset(memory[i][seq], 0, sizeof memory[i][seq]);
        check(kv_attach(kv[i], seq, layer, 0, rows, STORED, &err) == 0, "%s", err.text);
    }
}

static void fork_rows(struct kv *const *kv, size_t to, size_t from)
{
    const size_t rows = draw(kv_position(kv[0], from) + 1);
    struct err err;
    for (size_t i = 0; i < 2; i++) {
        kv_truncate(kv[i], to, 0);
        check(kv_fork(kv[i], to, from, rows, &err) == 0, "no fork: %s", err.text);
    }
}

static void reorder(struct kv *const *kv)
{
    size_t parent[SEQS], seq[2][SEQS];
    struct err err;
    for (size_t s = 0; s < SEQS; s++) {
        parent[s] = draw(SEQS);
        seq[0][s] = seq[1][s] = s;
    }
    for (size_t i = 0; i < 2; i++)
        check(kv_reorder(kv[i], seq[i], parent, SEQS, &err) == 0, "no reordering: %s", err.text);
    check(memcmp(seq[0], seq[1], sizeof seq[0]) == 0, "other sequences");
}

/* Random operations on both caches. */
static void test_random(const char *policy, size_t r, enum dtype type, size_t steps)
{
    static const char *const names[] = {"feeding", "truncating", "forking", "reordering", "attaching"};
    char ahead[32], now[32];
    snprintf(ahead, sizeof ahead, "%s:r=%zu", policy, r);
    snprintf(now, sizeof now, "%s:r=%zu,grow=now", policy, r);
    struct kv *kv[] = {open_cache(ahead, type), open_cache(now, type)};
    for (size_t n = 0; n < steps; n++) {
        const size_t seq = draw(SEQS), what = draw(40) ? 0 : 1 + draw(4);
        if (what == 1)
            for (size_t i = 0, end = draw(kv_position(kv[0], seq) + 1); i < 2; i++)
                kv_truncate(kv[i], seq, end);
        else if (what == 2)
            fork_rows(kv, (seq + 1) % SEQS, seq);
        else if (what == 3)
            reorder(kv);
        else if (what == 4)
            attach(kv, seq);
        else
            feed(kv, seq);
        if (what || n % 16 == 0)
            for (size_t s = 0; s < SEQS; s++)
                same_rows(kv[0], kv[1], s, names[what], ahead);
        check(kv_stats(kv[0]).allocations == kv_stats(kv[1]).allocations &&
                  kv_stats(kv[0]).rows_computed == kv_stats(kv[1]).rows_computed,
              "%s: other growth events", ahead);
    }
    for (size_t s = 0; s < SEQS; s++) {
        kv_truncate(kv[0], s, 0);
        kv_truncate(kv[1], s, 0);
    }
    check(kv_stats(kv[0]).resident_bytes == 0, "%s: %zu bytes are left", ahead,
          kv_stats(kv[0]).resident_bytes);
    kv_close(kv[0]);
    kv_close(kv[1]);
}

/* One row of each sequence at a time. Growth to 2r, 3r .. is done in the r/2 steps before. In one of them at most
 *   ceil(LAYERS * (new rows per block) / (r/2))
 * rows of K and V of each sequence are copied in advance, and when a block is full, the rows since it began: at most
 * one for each step. Twice as many where a sequence fills those of others and these their own. The growth event copies
 * nothing. No more than a block of one sequence exists twice. */
static void test_copied(size_t r, size_t seqs)
{
    char spec[32];
    snprintf(spec, sizeof spec, "bmc:r=%zu", r);
    struct kv *kv = open_cache(spec, DTYPE_F32);
    const size_t matrices = cache_matrices(), layer_row = matrices * KV_HEADS * D * sizeof(float),
                 half = (r + 1) / 2, all = LAYERS * layer_row * seqs;
    size_t most = 0;
    for (size_t n = 0; n < N; n++) {
        const size_t before = kv_stats(kv).copied_bytes;
        for (size_t s = 0; s < seqs; s++)
            append_one(kv, s, n);
        const size_t copied = kv_stats(kv).copied_bytes - before, next = size_min((n / r + 2) * r, N),
                     part = div_up(LAYERS * round_up(next, 16), half);
        most = size_max(most, copied);
        if (n % r == 0)
            check(copied == 0, "%s: growth at row %zu copies %zu bytes", spec, n, copied);
        if (n % r < r - half)
            check(copied == 0, "%s: %zu bytes are copied at row %zu already", spec, copied, n);
        check(copied <= seqs * ((seqs > 1 ? 2 : 1) * part + half) * layer_row,
              "%s: %zu bytes copied at row %zu", spec, copied, n);
        check(kv_stats(kv).peak_bytes <=
                  round_up(next, 16) * all + round_up(next, 16) * layer_row / matrices,
              "%s: %zu bytes at row %zu", spec, kv_stats(kv).peak_bytes, n);
    }
    check(most > 0 && kv_stats(kv).allocations == seqs * div_up(N, r), "%s: %zu bytes, %zu allocations",
          spec, most, kv_stats(kv).allocations);
    /* Growth at once copies r + 2r + .. rows: in advance fewer, since layers are copied earlier, but
     * no layer by more than r/2 rows. */
    size_t at_once = 0, least = 0;
    for (size_t n = r; n < N; n += r) {
        at_once += n;
        least += n - half;
    }
    const size_t total = kv_stats(kv).copied_bytes;
    check(total < at_once * all && total >= least * all, "%s: %zu bytes in all", spec, total);
    kv_close(kv);
}

/* One row at a time under policy reserve, which copies nothing: the memory of the next growth step comes
 * in the r/2 passes before it, that of at most
 *   ceil(heads of K and V / (r/2))
 * heads in each, and none when the cache grows. */
static void test_committed(size_t r, size_t seqs)
{
    char spec[32];
    snprintf(spec, sizeof spec, "reserve:r=%zu", r);
    struct kv *kv = open_cache(spec, DTYPE_F32);
    const size_t heads = cache_matrices() * LAYERS * KV_HEADS, half = (r + 1) / 2,
                 row = D * sizeof(float);
    for (size_t n = 0; n < N; n++)
        for (size_t s = 0; s < seqs; s++) {
            const size_t cap = size_min((n / r + 1) * r, N), next = size_min(cap + r, N);
            const size_t rows = round_up(next, 16) - round_up(cap, 16),
                         before = kv_stats(kv).resident_bytes;
            append_one(kv, s, n);
            const size_t more = kv_stats(kv).resident_bytes - before;
            if (n >= r && n % r < r - half)
                check(more == 0, "%s: %zu bytes are committed at row %zu", spec, more, n);
            if (n % r >= r - half)
                check(more <= div_up(heads, half) * rows * row, "%s: %zu bytes committed at row %zu",
                      spec, more, n);
        }
    const size_t all = seqs * heads * round_up(N, 16) * row;
    check(kv_stats(kv).resident_bytes == all && kv_stats(kv).copied_bytes == 0 &&
              kv_stats(kv).allocations == seqs * div_up(N, r),
          "%s: %zu bytes, %zu copied, %zu growth events", spec, kv_stats(kv).resident_bytes,
          kv_stats(kv).copied_bytes, kv_stats(kv).allocations);
    kv_close(kv);
}

/* Memory at every length is within the footprint, for sequences that grow in turns. */
static void test_memory(const char *policy, size_t r, size_t seqs)
{
    char spec[32];
    snprintf(spec, sizeof spec, "%s:r=%zu", policy, r);
    struct kv *kv = open_cache(spec, DTYPE_F32);
    bool ahead = false;
    for (size_t n = 0; n < N; n++) {
        for (size_t s = 0; s < seqs; s++)
            append_one(kv, s, n);
        const struct kv_footprint one = kv_footprint(kv, 0, n + 1, 1),
                                  all = kv_footprint_times(one, seqs);
        const size_t resident = kv_stats(kv).resident_bytes;
        check(resident >= all.total && kv_stats(kv).peak_bytes <= kv_footprint_peak(kv, all),
              "%s, %zu rows of %zu: %zu bytes, at most %zu, not %zu and %zu", spec, n + 1, seqs,
              resident, kv_stats(kv).peak_bytes, all.total, kv_footprint_peak(kv, all));
        ahead = ahead || resident > all.total;
    }
    check(ahead, "%s: nothing was allocated in advance", spec);
    kv_close(kv);
}

/* Of the allocations in one growth step, one fails, or all from one on: growth in advance says
 * nothing, the growth event reports it, and can be tried again. */
static void test_failures(const char *ahead, const char *now, size_t from, size_t count)
{
    enum { R = 32 };
    struct kv *kv[] = {open_cache(ahead, DTYPE_F32), open_cache(now, DTYPE_F32)};
    size_t failed = 0;
    for (size_t n = 0; n < 4 * R; n++) {
        counting = false;
        append_one(kv[1], 0, n);
        counting = true;
        if (n == R)
            fail_calls(from, count);
        if (append(kv[0], 0, 1, n)) {
            kv_commit(kv[0], 0, 1);
            continue;
        }
        failed++;
        check(n % R == 0 && !append(kv[0], 0, 1, n), "row %zu cannot be appended", n);
        fail_calls(SIZE_MAX, 0);
        append_one(kv[0], 0, n);
        same_rows(kv[0], kv[1], 0, "a failure", ahead);
    }
    counting = false;
    check(failed == (count > 1), "%s: %zu growth events failed, from call %zu", ahead, failed, from);
    fail_calls(SIZE_MAX, 0);
    same_rows(kv[0], kv[1], 0, "the end", ahead);
    kv_truncate(kv[0], 0, 0);
    check(kv_stats(kv[0]).resident_bytes == 0, "memory is left");
    kv_close(kv[0]);
    kv_close(kv[1]);
}

static void test_all(void)
{
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        values[i] = (float)draw(2001) / 1000 - 1;
    static const size_t steps[] = {16, 17, 24, 32, 40, 64, 100};
    static const char *const policies[] = {"bmc", "reserve"};
    for (size_t t = 0; cache_types[t].name; t++)
        for (size_t i = 0; i < ARRAY_LEN(steps); i++)
            for (size_t p = (t + i) % check_every(2); p < ARRAY_LEN(policies); p += check_every(2))
                if (!v_in_k || !kv_type_rotated(cache_types[t].type)) /* V is no whole blocks of K */
                    test_random(policies[p], steps[i], cache_types[t].type, 400);
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        test_copied(steps[i], 1);
        test_copied(steps[i], SEQS);
        test_committed(steps[i], 1);
        test_committed(steps[i], SEQS);
        for (size_t p = 0; p < ARRAY_LEN(policies); p++) {
            test_memory(policies[p], steps[i], 1);
            test_memory(policies[p], steps[i], SEQS);
        }
    }
    for (size_t from = 0; from < cache_matrices() * LAYERS * KV_HEADS + 2; from++) {
        test_failures("reserve:r=32", "reserve:r=32,grow=now", from, 1);
        test_failures("reserve:r=32", "reserve:r=32,grow=now", from, SIZE_MAX);
    }
    for (size_t from = 0; from < cache_matrices() * LAYERS + 2; from++) {
        test_failures("bmc:r=32", "bmc:r=32,grow=now", from, 1);
        test_failures("bmc:r=32", "bmc:r=32,grow=now", from, SIZE_MAX);
    }
}

int main(void)
{
    threads_set(2);
    seed = (unsigned)check_seed(1);
    for (int i = 0; i < 2; i++) {
        v_in_k = i;
        test_all();
    }
    return check_result();
}
