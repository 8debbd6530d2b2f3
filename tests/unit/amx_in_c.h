/* The tile instructions of AMX-BF16 and AMX-INT8 emulated in plain C, for machines without them:
 * the operations of Intel's manual in the same order, but denormals are not flushed. */
#ifndef BMC_AMX_IN_C_H
#define BMC_AMX_IN_C_H

#include <math.h>

#include "quant/dtype.h"

/* The kernel sets that the AMX sets extend. */
#define kernels_vnni kernels_ref
#ifndef kernels_int8_amx
#define kernels_int8_amx kernels_ref
#endif
#ifndef __x86_64__
#define peak_amx_bf16 peak_ref
#define peak_amx      peak_ref_int8
#endif

typedef float four __attribute__((vector_size(16)));

static inline four four_fma(four a, four b, four c)
{
    for (int i = 0; i < 4; i++)
        c[i] = fmaf(a[i], b[i], c[i]);
    return c;
}

static _Thread_local struct {
    unsigned char byte[8][16][64];
    int rows[8], row_bytes[8]; /* as configured; 0: unused */
} amx;

static inline bool tiles_granted(void) { return true; }

static inline void _tile_loadconfig(const void *config)
{
    const unsigned char *c = config;
    memset(&amx, 0, sizeof amx);
    for (int t = 0; t < 8 && c[0] == 1; t++) {
        amx.row_bytes[t] = c[16 + 2 * t] + 256 * c[17 + 2 * t];
        amx.rows[t] = c[48 + t];
    }
}

static inline void _tile_release(void) { memset(&amx, 0, sizeof amx); }

static inline void _tile_zero(int t) { memset(amx.byte[t], 0, sizeof amx.byte[t]); }

static inline void _tile_loadd(int t, const void *from, size_t stride)
{
    memset(amx.byte[t], 0, sizeof amx.byte[t]);
    for (int i = 0; i < amx.rows[t]; i++)
        memcpy(amx.byte[t][i], (const char *)from + i * stride, amx.row_bytes[t]);
}

static inline void _tile_stored(int t, void *to, size_t stride)
{
    for (int i = 0; i < amx.rows[t]; i++)
        memcpy((char *)to + i * stride, amx.byte[t][i], amx.row_bytes[t]);
}

/* TDPBSUD and TDPBSSD: adds dot products of 4 signed bytes of a and 4 bytes of b, unsigned or signed, to int32 sums. */
#define AMX_INT8_PRODUCT(name, byte_of_b)                                                              \
    static inline void name(int c, int a, int b)                                                       \
    {                                                                                                  \
        for (int m = 0; m < amx.rows[c]; m++)                                                          \
            for (int k = 0; k < amx.row_bytes[a] / 4; k++)                                             \
                for (int n = 0; n < amx.row_bytes[c] / 4; n++) {                                       \
                    int32_t sum;                                                                       \
                    memcpy(&sum, amx.byte[c][m] + 4 * n, sizeof sum);                                  \
                    for (int i = 0; i < 4; i++)                                                        \
                        sum +=                                                                         \
                            (int8_t)amx.byte[a][m][4 * k + i] * (byte_of_b)amx.byte[b][k][4 * n + i];  \
                    memcpy(amx.byte[c][m] + 4 * n, &sum, sizeof sum);                                  \
                }                                                                                      \
    }
AMX_INT8_PRODUCT(_tile_dpbsud, uint8_t)
AMX_INT8_PRODUCT(_tile_dpbssd, int8_t)

/* TDPBF16PS: adds dot products of 2 bf16 each to f32 sums. A product of two bf16 is exact in f32,
 * so adding it rounds once, as fmaf() does. */
static inline void _tile_dpbf16ps(int c, int a, int b)
{
    for (int m = 0; m < amx.rows[c]; m++) {
        float sum[16];
        memcpy(sum, amx.byte[c][m], sizeof sum);
        for (int k = 0; k < 16; k++) {
            bf16 x[2], w[32];
            memcpy(x, amx.byte[a][m] + 4 * k, sizeof x);
            memcpy(w, amx.byte[b][k], sizeof w);
            const float first = bf16_to_f32(x[0]), second = bf16_to_f32(x[1]);
            for (int n = 0; n < 16; n++) {
                sum[n] += first * bf16_to_f32(w[2 * n]);
                sum[n] += second * bf16_to_f32(w[2 * n + 1]);
            }
        }
        memcpy(amx.byte[c][m], sum, sizeof sum);
    }
}

#endif
