/* What this machine can do at most. */
#include "prof/roof.h"

#include <string.h>

#include "base/clock.h"
#include "base/pages.h"
#include "base/threads.h"

/* Best first. */
static const struct peak *const peaks[] = {&peak_bf16, &peak_avx512, &peak_avx2, &peak_ref};

enum { PIECE = 1 << 20 };

/* One pass over a block, in pieces that all threads take in turn. */
static double read_ms(const char *block, size_t bytes)
{
    typedef uint64_t lanes __attribute__((vector_size(64), aligned(8), may_alias));
    uint64_t total = 0;
    const double start = clock_ms();
#pragma omp parallel for reduction(+ : total) num_threads(threads_now()) schedule(static)
    for (size_t at = 0; at < bytes; at += PIECE) {
        const lanes *from = (const void *)(block + at);
        lanes sum[4] = {{0}};
        for (size_t i = 0; i + 3 < PIECE / sizeof(lanes); i += 4)
            for (int k = 0; k < 4; k++)
                sum[k] += from[i + (size_t)k];
        const lanes all = sum[0] + sum[1] + sum[2] + sum[3];
        for (int i = 0; i < 8; i++)
            total += all[i];
    }
    volatile uint64_t keep = total;
    (void)keep;
    return clock_ms() - start;
}

static double copy_ms(char *to, const char *from, size_t bytes)
{
    const double start = clock_ms();
#pragma omp parallel for num_threads(threads_now()) schedule(static)
    for (size_t at = 0; at < bytes; at += PIECE)
        memcpy(to + at, from + at, PIECE);
    return clock_ms() - start;
}

static double touch_ns(char *block, size_t bytes)
{
    const double start = clock_ms();
    for (size_t at = 0; at < bytes; at += 4096)
        *(volatile char *)(block + at) = 1;
    return (clock_ms() - start) * 1e6 / ((double)bytes / 4096);
}

/* The best usable loop of a kind, on all threads at once. */
static double peak_gflop_s(bool bf16, int repeats, const char **isa)
{
    enum { ROUNDS = 3000000 };
    double best = 0;
    *isa = NULL;
    for (size_t p = 0; p < ARRAY_LEN(peaks) && !*isa; p++) {
        if (peaks[p]->bf16 != bf16 || !peaks[p]->usable())
            continue;
        *isa = peaks[p]->isa;
        for (int r = 0; r < repeats; r++) {
            double work = 0;
            float sink = 0;
            const double start = clock_ms();
#pragma omp parallel reduction(+ : work, sink) num_threads(threads_now())
            work += peaks[p]->run(ROUNDS, &sink);
            volatile float keep = sink;
            (void)keep;
            const double rate = 2 * work / (clock_ms() - start) / 1e6;
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
    copy_ms(b, a, bytes);
    for (int r = 0; r < repeats; r++) {
        const double reading = (double)bytes / read_ms(a, bytes) / 1e6;
        const double copying = (double)bytes / copy_ms(b, a, bytes) / 1e6;
        roof->read_gb_s = reading > roof->read_gb_s ? reading : roof->read_gb_s;
        roof->copy_gb_s = copying > roof->copy_gb_s ? copying : roof->copy_gb_s;
    }
    pages_free(PAGES_MMAP, a, bytes);
    pages_free(PAGES_MMAP, b, bytes);
    roof->f32_gflop_s = peak_gflop_s(false, repeats, &roof->f32_isa);
    roof->bf16_gflop_s = peak_gflop_s(true, repeats, &roof->bf16_isa);
    return 0;
}
