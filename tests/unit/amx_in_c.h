/* The tile instructions of AMX-BF16 in plain C, for machines without them: what Intel's manual says of
 * each, in the order in which it says it, denormals not flushed. */
#ifndef BMC_AMX_IN_C_H
#define BMC_AMX_IN_C_H

#include <math.h>

#include "base/dtype.h"

#ifndef __x86_64__
#define kernels_avx512 kernels_ref /* what the set is built on */
#endif

static _Thread_local struct {
    unsigned char byte[8][16][64];
    bool configured;
} amx;

static bool tiles_granted(void) { return true; }

static void _tile_loadconfig(const void *config)
{
    const unsigned char *c = config;
    amx.configured = c[0] == 1;
    for (int t = 0; t < 8; t++)
        amx.configured = amx.configured && c[16 + 2 * t] == 64 && c[48 + t] == 16;
}

static void _tile_release(void) { amx.configured = false; }

static void _tile_zero(int t) { memset(amx.byte[t], 0, sizeof amx.byte[t]); }

static void _tile_loadd(int t, const void *from, size_t stride)
{
    for (size_t i = 0; amx.configured && i < 16; i++)
        memcpy(amx.byte[t][i], (const char *)from + i * stride, 64);
}

static void _tile_stored(int t, void *to, size_t stride)
{
    for (size_t i = 0; amx.configured && i < 16; i++)
        memcpy((char *)to + i * stride, amx.byte[t][i], 64);
}

static void _tile_dpbf16ps(int c, int a, int b)
{
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 16; n++) {
                float sum;
                bf16 x[2], w[2];
                memcpy(x, amx.byte[a][m] + 4 * k, sizeof x);
                memcpy(w, amx.byte[b][k] + 4 * n, sizeof w);
                memcpy(&sum, amx.byte[c][m] + 4 * n, sizeof sum);
                for (int i = 0; i < 2; i++)
                    sum = fmaf(bf16_to_f32(x[i]), bf16_to_f32(w[i]), sum);
                memcpy(amx.byte[c][m] + 4 * n, &sum, sizeof sum);
            }
}

#endif
