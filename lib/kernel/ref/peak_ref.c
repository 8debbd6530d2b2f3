/* Peak throughput of portable C: f32 multiply-adds on registers, int8 ones from L1. */
#include "kernel/peak.h"

static bool always(void) { return true; }

static double peak_ref_run(size_t rounds, float *sink)
{
    typedef float lanes __attribute__((vector_size(16)));
    enum { CHAINS = 8 };
    lanes sum[CHAINS] = {{0}};
    const lanes a = {1.0001f, 1.0002f, 1.0003f, 1.0004f};
    for (size_t i = 0; i < rounds; i++)
        for (int c = 0; c < CHAINS; c++)
            sum[c] = sum[c] * a + a;
    for (int c = 0; c < CHAINS; c++)
        *sink += sum[c][0];
    return (double)rounds * CHAINS * 4;
}

const struct peak peak_ref = {.isa = "ref", .usable = always, .run = peak_ref_run};

/* Benchmark loop of int8 dot products with operands in L1. Each turn reads `a` from another offset,
 * or the compiler would hoist the product out of the loop. */
static double run_int8(size_t rounds, float *sink)
{
    enum { LENGTH = 1024, STARTS = 64 };
    int8_t a[LENGTH + STARTS], b[LENGTH];
    const size_t turns = rounds / 16;
    int32_t all = 0;
    memset(a, 3, sizeof a);
    memset(b, 5, sizeof b);
    for (size_t i = 0; i < turns; i++) {
        const int8_t *x = a + i % STARTS;
        int32_t sum = 0;
        for (size_t j = 0; j < LENGTH; j++)
            sum += x[j] * b[j];
        all ^= sum;
    }
    *sink += (float)all;
    return (double)turns * LENGTH;
}

const struct peak peak_ref_int8 = {.isa = "ref", .kind = PEAK_INT8, .usable = always, .run = run_int8};
