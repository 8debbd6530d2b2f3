/* Vectors of f32 for the kernel sets, in GCC's vector extension.
 *
 * The including file defines VW, the lanes of its registers, vf_fma(a, b, c) = a * b + c, vf_max(a, b) =
 * a > b ? a : b and vf_min(a, b) = a < b ? a : b (b where one of them is NaN), and may define vf_load_f16(p); everything else is the same code for every instruction set. A `group` is LANES lanes in LANES / VW registers. */
#ifndef BMC_SET_VEC_H
#define BMC_SET_VEC_H

#include <math.h>

#include "kernel/kernel.h"

typedef float vf __attribute__((vector_size(4 * VW)));
typedef int32_t vi __attribute__((vector_size(4 * VW)));
typedef uint32_t vu __attribute__((vector_size(4 * VW)));
typedef uint16_t vh __attribute__((vector_size(2 * VW)));
/* The same at any address. */
typedef vf vf_any __attribute__((aligned(4), may_alias));
typedef vu vu_any __attribute__((aligned(4), may_alias));
typedef vh vh_any __attribute__((aligned(2), may_alias));

#define INLINE static inline __attribute__((always_inline))

/* Compilers keep arrays in registers whose loops they unroll early enough. */
#ifdef __clang__
#define UNROLL(loop) _Pragma("clang loop unroll(full)") loop
#define ROLLED(loop) _Pragma("clang loop unroll(disable)") loop
#else
#define UNROLL(loop) _Pragma("GCC unroll 16") loop
#define ROLLED(loop) _Pragma("GCC unroll 1") loop
#endif

enum { GROUP = LANES / VW };

INLINE vf vf_load(const float *p) { return *(const vf_any *)p; }
INLINE void vf_store(float *p, vf x) { *(vf_any *)p = x; }
INLINE vf vf_set1(float x) { return x - (vf){0}; }
INLINE vu vu_load(const void *p) { return *(const vu_any *)p; }

/* x, which stays in a register where the set can say so. */
#ifndef vu_keep
#define vu_keep(x) (x)
#endif

/* VW bf16 numbers, widened. */
INLINE vf vf_load_bf16(const bf16 *p)
{
    return (vf)(__builtin_convertvector(*(const vh_any *)p, vu) << 16);
}

/* a where the mask is set, else b. */
INLINE vf vf_select(vi mask, vf a, vf b) { return (vf)(((vi)a & mask) | ((vi)b & ~mask)); }

/* VW f16 numbers, widened; exactly as f16_to_f32() does it, or by the instruction that the set names vf_load_f16. */
#ifndef vf_load_f16
INLINE vf vf_load_f16(const f16 *p)
{
    const vu bits = __builtin_convertvector(*(const vh_any *)p, vu), rest = bits & 0x7fff;
    const vu special = (vu)(rest >= 0x7c00) & (112u << 23);
    const vf tiny = __builtin_convertvector((vi)rest, vf) * vf_set1(0x1p-24f);
    const vf wide = vf_select((vi)(rest < 0x400), tiny, (vf)((rest << 13) + (112u << 23) + special));
    return (vf)((vu)wide | (bits & 0x8000) << 16);
}
#endif

/* VW whole numbers of a byte, and back: by the instructions that the set names vi_load_u8, vi_load_i8 and vi_store_i8, for
 * compilers do it a lane at a time. */
#ifndef vi_load_u8
INLINE vi vi_load_u8(const void *p)
{
    vi x = {0};
    for (int lane = 0; lane < VW; lane++)
        x[lane] = ((const uint8_t *)p)[lane];
    return x;
}
INLINE vi vi_load_i8(const void *p) { return (vi_load_u8(p) ^ 128) - 128; }
INLINE void vi_store_i8(int8_t *p, vi x)
{
    for (int lane = 0; lane < VW; lane++)
        p[lane] = (int8_t)x[lane];
}
#endif

/* F(lane, s) of every lane, for shuffles. */
#define FOUR(F, l, s)  F(l, s), F(l + 1, s), F(l + 2, s), F(l + 3, s)
#define EIGHT(F, l, s) FOUR(F, l, s), FOUR(F, l + 4, s)
#if VW == 4
#define ALL_LANES(F, s) FOUR(F, 0, s)
#elif VW == 8
#define ALL_LANES(F, s) EIGHT(F, 0, s)
#else
#define ALL_LANES(F, s) EIGHT(F, 0, s), EIGHT(F, 8, s)
#endif

/* Lanes folded in halves: one order for every number of rows. */
#define FLIP(l, s)    ((l) ^ (s))
#define FLIPPED(x, s) __builtin_shufflevector(x, x, ALL_LANES(FLIP, s))

INLINE float vf_fold(vf x)
{
#if VW > 8
    x += FLIPPED(x, 8);
#endif
#if VW > 4
    x += FLIPPED(x, 4);
#endif
    x += FLIPPED(x, 2);
    x += FLIPPED(x, 1);
    return x[0];
}

INLINE float vf_fold_max(vf x)
{
#if VW > 8
    x = vf_max(x, FLIPPED(x, 8));
#endif
#if VW > 4
    x = vf_max(x, FLIPPED(x, 4));
#endif
    x = vf_max(x, FLIPPED(x, 2));
    x = vf_max(x, FLIPPED(x, 1));
    return x[0];
}

/* Runs TILE for rows i, i + 1, .. i + R - 1, with R a constant of at most MAX, over all of `rows`: as
 * few tiles as there can be, of nearly equal size. Cases above MAX are not there: a compiler would take as long over them. */
#define TILE_CASE(N, MAX, TILE)                                                                        \
    case N: {                                                                                          \
        enum { R = N < MAX ? N : MAX };                                                                \
        if (N <= MAX) {                                                                                \
            TILE;                                                                                      \
        }                                                                                              \
        break;                                                                                         \
    }
#define FOR_TILES(rows, MAX, TILE)                                                                     \
    for (size_t i = 0, n_; i < (rows); i += n_) {                                                      \
        n_ = div_up((rows)-i, div_up((rows)-i, MAX));                                                  \
        switch (n_) {                                                                                  \
            TILE_CASE(1, MAX, TILE)                                                                    \
            TILE_CASE(2, MAX, TILE)                                                                    \
            TILE_CASE(3, MAX, TILE)                                                                    \
            TILE_CASE(4, MAX, TILE)                                                                    \
            TILE_CASE(5, MAX, TILE)                                                                    \
            TILE_CASE(6, MAX, TILE)                                                                    \
            TILE_CASE(7, MAX, TILE)                                                                    \
            TILE_CASE(8, MAX, TILE)                                                                    \
        }                                                                                              \
    }

/* What is multiplied next is fetched while this is multiplied, so that memory never waits for arithmetic:
 * each of the first tiles fetches one or two blocks of it, as it goes over its inputs. One tile alone waits
 * for memory itself. */
struct ahead {
    const char *block[2]; /* NULL: nothing to fetch */
};

INLINE struct ahead ahead_of(const struct panel *w, size_t tile, size_t tiles)
{
    const size_t each = tiles < PANEL_BLOCKS ? 2 : 1, block = tile * each;
    struct ahead ahead = {{NULL, NULL}};
    if (w->next && tiles > 1 && block < w->blocks) {
        ahead.block[0] = w->next + block * w->block_bytes;
        ahead.block[1] = each == 2 ? ahead.block[0] + w->block_bytes : NULL;
    }
    return ahead;
}

/* `bytes` bytes of a block, at `at`. */
INLINE void fetch(const struct ahead *ahead, size_t at, size_t bytes)
{
    for (size_t line = 0; line < bytes && ahead->block[0]; line += 64) {
        __builtin_prefetch(ahead->block[0] + at + line, 0, 3);
        if (ahead->block[1])
            __builtin_prefetch(ahead->block[1] + at + line, 0, 3);
    }
}

/* Groups of LANES sums that many loops end in. */
INLINE float group_fold(const vf *x)
{
    vf sum = x[0];
    for (int i = 1; i < GROUP; i++)
        sum += x[i];
    return vf_fold(sum);
}

/* x[i][j] <-> x[j][i]: blocks of half the size change places, then of a quarter, and so on (Eklundh,
 * 1972). */
#define LOW(l, s)  ((l) & (s) ? VW + (l) - (s) : (l))
#define HIGH(l, s) ((l) & (s) ? VW + (l) : (l) + (s))
#define SWAP_BLOCKS(x, s)                                                                              \
    for (int i = 0; i < VW; i++)                                                                       \
        if (!(i & (s))) {                                                                              \
            const vf a = x[i], b = x[i + (s)];                                                         \
            x[i] = __builtin_shufflevector(a, b, ALL_LANES(LOW, s));                                   \
            x[i + (s)] = __builtin_shufflevector(a, b, ALL_LANES(HIGH, s));                            \
        }

INLINE void vf_transpose(vf x[VW])
{
#if VW > 8
    SWAP_BLOCKS(x, 8)
#endif
#if VW > 4
    SWAP_BLOCKS(x, 4)
#endif
    SWAP_BLOCKS(x, 2)
    SWAP_BLOCKS(x, 1)
}

/* e^x within 2 units in the last place; 0 below -87.3, finite above 88.3. x = n ln 2 + r; e^r is the
 * polynomial of Cody and Waite's range reduction, 2^n goes into the exponent. */
INLINE vf vf_exp(vf x)
{
    const vf magic = vf_set1(12582912.f); /* 1.5 * 2^23: rounds to an integer */
    const vi zero = x < vf_set1(-87.3f);
    x = vf_min(vf_set1(88.3f), vf_max(vf_set1(-87.3f), x)); /* in this order NaN stays NaN */
    const vf n = vf_fma(x, vf_set1(1.44269504f), magic) - magic;
    vf r = vf_fma(n, vf_set1(-0.693359375f), x);
    r = vf_fma(n, vf_set1(2.12194440e-4f), r);
    vf p = vf_set1(1.9875691500e-4f);
    p = vf_fma(p, r, vf_set1(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set1(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set1(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set1(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set1(5.0000001201e-1f));
    p = vf_fma(p, r * r, r) + vf_set1(1);
    const vi power = (__builtin_convertvector(n, vi) + 127) << 23;
    return (vf)((vi)(p * (vf)power) & ~zero);
}

INLINE vf vf_tanh(vf x)
{
    /* 1 - 2 / (e^2x + 1): its error is absolute, a unit in the last place of 1. */
    const vf e = vf_exp(vf_min(vf_set1(40), vf_max(vf_set1(-40), x + x)));
    return vf_set1(1) - vf_set1(2) / (e + vf_set1(1));
}

INLINE vf vf_activate(enum finish_act act, vf x)
{
    switch (act) {
    case FINISH_NONE: break;
    case FINISH_RELU: return vf_max(vf_set1(0), x);
    case FINISH_SILU: return x / (vf_set1(1) + vf_exp(-x));
    case FINISH_GELU:
        for (int i = 0; i < VW; i++)
            x[i] = 0.5f * x[i] * (1 + erff(x[i] * 0.70710678f));
        return x;
    case FINISH_GELU_TANH:
        return vf_set1(0.5f) * x *
               (vf_set1(1) + vf_tanh(vf_set1(0.79788456f) * (x + vf_set1(0.044715f) * x * x * x)));
    }
    return x;
}

#endif
