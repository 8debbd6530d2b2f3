/* What this machine can do at most. */
#include "prof/roof.h"

#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/pages.h"
#include "base/threads.h"

/* Best first. */
static const struct peak *const peaks[] = {&peak_bf16, &peak_avx512, &peak_avx2, &peak_ref};

enum { PIECE = 1 << 20 };

/* A block of `bytes`, cut into one run of whole pieces per thread. */
struct pass {
    char *to;
    const char *from;
    size_t bytes, threads;
};

static size_t share_begin(const struct pass *pass, size_t thread)
{
    return pass->bytes / PIECE * thread / pass->threads * PIECE;
}

static void read_share(void *arg, size_t thread)
{
    typedef uint64_t lanes __attribute__((vector_size(64), aligned(8), may_alias));
    const struct pass *pass = arg;
    const size_t end = share_begin(pass, thread + 1);
    lanes sum[4] = {{0}};
    for (size_t at = share_begin(pass, thread); at < end; at += 4 * sizeof(lanes)) {
        const lanes *from = (const void *)(pass->from + at);
        for (int k = 0; k < 4; k++)
            sum[k] += from[k];
    }
    const lanes all = sum[0] + sum[1] + sum[2] + sum[3];
    volatile uint64_t keep = all[0] + all[1] + all[2] + all[3] + all[4] + all[5] + all[6] + all[7];
    (void)keep;
}

static void copy_share(void *arg, size_t thread)
{
    const struct pass *pass = arg;
    const size_t end = share_begin(pass, thread + 1);
    for (size_t at = share_begin(pass, thread); at < end; at += PIECE)
        memcpy(pass->to + at, pass->from + at, PIECE);
}

static double pass_ms(threads_body *share, struct pass *pass)
{
    const double start = clock_ms();
    threads_all(share, pass);
    return clock_ms() - start;
}

static double touch_ns(char *block, size_t bytes)
{
    const double start = clock_ms();
    for (size_t at = 0; at < bytes; at += 4096)
        *(volatile char *)(block + at) = 1;
    return (clock_ms() - start) * 1e6 / ((double)bytes / 4096);
}

enum { ROUNDS = 3000000 };

struct peaking {
    const struct peak *peak;
    _Atomic uint64_t work; /* operations of all threads */
};

static void run_peak(void *arg, size_t thread)
{
    struct peaking *p = arg;
    float sink = 0;
    (void)thread;
    atomic_fetch_add(&p->work, (uint64_t)p->peak->run(ROUNDS, &sink));
    volatile float keep = sink;
    (void)keep;
}

/* The best usable loop of a kind, on all threads at once. */
static double peak_gflop_s(bool bf16, int repeats, const char **isa)
{
    double best = 0;
    *isa = NULL;
    for (size_t p = 0; p < ARRAY_LEN(peaks) && !*isa; p++) {
        if (peaks[p]->bf16 != bf16 || !peaks[p]->usable())
            continue;
        *isa = peaks[p]->isa;
        for (int r = 0; r < repeats; r++) {
            struct peaking peaking = {peaks[p], 0};
            const double start = clock_ms();
            threads_all(run_peak, &peaking);
            const double rate = 2 * (double)peaking.work / (clock_ms() - start) / 1e6;
            best = rate > best ? rate : best;
        }
    }
    return best;
}

int roof_measure(struct roof *roof, size_t bytes, int repeats, struct err *err)
{
    *roof = (struct roof){0};
    bytes = round_up(size_max(bytes, PIECE), PIECE);
    char *a = pages_get(PAGES_MMAP, bytes), *b = pages_get(PAGES_MMAP, bytes);
    if (!a || !b) {
        pages_free(PAGES_MMAP, a, bytes);
        pages_free(PAGES_MMAP, b, bytes);
        return err_set(err, "out of memory: two blocks of %zu bytes to measure with", bytes);
    }
    roof->page_fault_ns = touch_ns(a, bytes);
    struct pass pass = {b, a, bytes, (size_t)threads_now()};
    pass_ms(copy_share, &pass);
    for (int r = 0; r < repeats; r++) {
        const double reading = (double)bytes / pass_ms(read_share, &pass) / 1e6;
        const double copying = (double)bytes / pass_ms(copy_share, &pass) / 1e6;
        roof->read_gb_s = reading > roof->read_gb_s ? reading : roof->read_gb_s;
        roof->copy_gb_s = copying > roof->copy_gb_s ? copying : roof->copy_gb_s;
    }
    pages_free(PAGES_MMAP, a, bytes);
    pages_free(PAGES_MMAP, b, bytes);
    roof->f32_gflop_s = peak_gflop_s(false, repeats, &roof->f32_isa);
    roof->bf16_gflop_s = peak_gflop_s(true, repeats, &roof->bf16_isa);
    return 0;
}
