/* Multiply-adds from registers with what every x86-64 has. */
#include "prof/roof.h"

static bool always(void) { return true; }

static double run(size_t rounds, float *sink)
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

const struct peak peak_ref = {.isa = "ref", .usable = always, .run = run};
