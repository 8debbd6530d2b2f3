/* Chooses the default kernel set by the throughput of its instructions. */
#include "kernel/rates.h"

#include "base/clock.h"
#include "kernel/gemm.h"

enum { BURST = 1600 }; /* iterations of a timed loop: 3 to 20 microseconds */

/* Times one burst of a benchmark loop; returns 10^9 operations per second. */
static double burst(const struct peak *peak)
{
    float sink = 0;
    const double start = clock_ms(), done = peak->run(BURST, &sink), ms = clock_ms() - start;
    volatile float keep = sink;
    (void)keep;
    return ms > 0 ? 2 * done / ms / 1e6 : 0;
}

/* Times each benchmark loop once and keeps every kernel set's best rate; sets that share a loop
 * share its rate. */
static void measure_turn(struct kernel_rates *rates, size_t n)
{
    for (int kind = 0; kind < PEAK_KINDS; kind++)
        for (size_t i = 0; i < n; i++) {
            const struct peak *peak = rates[i].kernels->peak[kind];
            size_t same = 0;
            while (same < i && rates[same].kernels->peak[kind] != peak)
                same++;
            if (!peak)
                continue;
            const double rate = same < i ? rates[same].gop_s[kind] : burst(peak);
            if (rate > rates[i].gop_s[kind])
                rates[i].gop_s[kind] = rate;
        }
}

/* Estimates the GEMM rate of a kernel set for a class of weights, in 10^9 operations per second. Products of bf16 count
 * half: to be the default they must be clearly faster than those of f32, which are more accurate and the same
 * everywhere. */
static double rate_for(const struct kernel_rates *r, enum weights_class weights)
{
    switch (weights) {
    case WEIGHTS_F32: return r->gop_s[PEAK_F32];
    case WEIGHTS_BF16: return r->kernels->panel_bf16 ? r->gop_s[PEAK_BF16] / 2 : r->gop_s[PEAK_F32];
    case WEIGHTS_QUANTISED: return r->gop_s[PEAK_INT8];
    case WEIGHTS_CLASSES: break;
    }
    return 0;
}

static bool slower(const struct kernel_rates *a, const struct kernel_rates *than, double margin)
{
    bool any = false;
    for (int w = 0; w < WEIGHTS_CLASSES; w++) {
        const double rate = rate_for(a, (enum weights_class)w);
        any |= rate > 0 && rate * margin < rate_for(than, (enum weights_class)w);
    }
    return any;
}

static size_t fastest(const struct kernel_rates *rates, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (!slower(&rates[i], &rates[best], RATES_MARGIN))
            best = i;
    return best;
}

const struct kernels *rates_fastest(const struct kernel_rates *rates, size_t n)
{
    return rates[fastest(rates, n)].kernels;
}

/* Other work only lowers rates. So the newest set is chosen as soon as it is slower than none; a set is left out as slower once
 * it has been so in all rounds, or in a quarter of them by more than the factor that a busy second thread of the core explains. */
static bool settled(const struct kernel_rates *rates, size_t n, int rounds)
{
    enum { SHARED_CORE = 2 };
    const size_t best = fastest(rates, n);
    for (size_t i = 0; i < n; i++)
        if (i < best ? slower(&rates[best], &rates[i], RATES_MARGIN)
                     : i > best && (rounds < RATES_ROUNDS / 4 ||
                                    !slower(&rates[i], &rates[best], RATES_MARGIN * SHARED_CORE)))
            return false;
    return true;
}

size_t rates_measure(struct kernel_rates *rates, const struct kernels *const *sets, int turns)
{
    size_t n = 0, timed = 0;
    for (size_t i = 0; sets[i] && n < RATES_MOST; i++)
        if (sets[i]->usable()) {
            rates[n++] = (struct kernel_rates){.kernels = sets[i]};
            timed += sets[i]->peak[PEAK_F32] != NULL;
        }
    for (int round = 1; timed > 1 && round <= RATES_ROUNDS; round++) {
        for (int turn = 0; turn < turns; turn++)
            measure_turn(rates, n);
        if (settled(rates, n, round))
            break;
    }
    return n;
}
