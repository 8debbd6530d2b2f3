/* Vectors for the kernel templates, in GCC's vector extension.
 *
 * A kernel file includes the begin header of its instruction set (x86/avx2_begin.h), then
 * templates. A begin header defines, before it includes this file,
 *   VW                              lanes of a register
 *   vf_fma(a, b, c)                 a * b + c, rounded once
 *   vf_max(a, b), vf_min(a, b)      a > b ? a : b and a < b ? a : b: b if one of them is NaN
 *   TUNING, SMALLM_HEIGHTS          sizes of micro-kernels (tuning.h)
 *   INT8_*                          int8 micro-kernels (gemm_int8.h)
 * and may define any operation below that stands between #ifndef and #endif. Without a begin
 * header, templates are compiled for plain C. */
#ifndef BMC_VEC_H
#define BMC_VEC_H

#include "kernel/kernel.h"
#include "quant/pack.h"
#ifndef VW
#include "kernel/ref/ref_begin.h"
#endif
#include "kernel/template/tuning.h"

/* Functions with vector arguments are all inlined, so warnings about their ABI do not matter. */
#pragma GCC diagnostic ignored "-Wpsabi"

typedef float vf __attribute__((vector_size(4 * VW)));
typedef int32_t vi __attribute__((vector_size(4 * VW)));
typedef uint32_t vu __attribute__((vector_size(4 * VW)));
typedef uint16_t vh __attribute__((vector_size(2 * VW)));
/* Unaligned versions of these types; words of quantised cache rows begin at any byte. */
typedef vf vf_any __attribute__((aligned(4), may_alias));
typedef vu vu_any __attribute__((aligned(1), may_alias));
typedef vh vh_any __attribute__((aligned(1), may_alias));

#ifndef VECTOR_REGISTER /* constraint of inline assembly */
#define VECTOR_REGISTER "v"
#endif

#ifndef INLINE /* tests compile templates without inlining */
#define INLINE static inline __attribute__((always_inline))
#endif

/* Unrolls a loop fully, or not at all. Arrays stay in registers only if the loops over them are
 * unrolled early. */
#ifdef __clang__
#define UNROLL(loop) _Pragma("clang loop unroll(full)") loop
#define ROLLED(loop) _Pragma("clang loop unroll(disable)") loop
#else
#define UNROLL(loop) _Pragma("GCC unroll 16") loop
#define ROLLED(loop) _Pragma("GCC unroll 1") loop
#endif

enum { NR_VECS = NR / VW }; /* registers that hold NR lanes */

INLINE vf vf_load(const float *p) { return *(const vf_any *)p; }
INLINE void vf_store(float *p, vf x) { *(vf_any *)p = x; }
INLINE vf vf_set1(float x) { return x - (vf){0}; }
INLINE vu vu_load(const void *p) { return *(const vu_any *)p; }
INLINE void vu_store(void *p, vu x) { *(vu_any *)p = x; }
INLINE vu vu_load_u16(const void *p) { return __builtin_convertvector(*(const vh_any *)p, vu); }
INLINE void vu_store_u16(void *p, vu x) { *(vh_any *)p = __builtin_convertvector(x, vh); }

INLINE vi vi_set1(int32_t x) { return x - (vi){0}; }
INLINE vf vf_of(vi x) { return __builtin_convertvector(x, vf); }

/* Broadcasts the 4 bytes at p to every lane. */
INLINE vi load_word(const void *p)
{
    int32_t word;
    memcpy(&word, p, sizeof word);
    return vi_set1(word);
}

/* Broadcasts 4 bytes like load_word(), but always loads them from memory, where the compiler would
 * copy registers instead. */
#ifndef vi_load_own
#define vi_load_own(p) load_word(p)
#endif

/* Loads n 4-byte words; the other lanes are 0. */
#ifndef vu_load_some
INLINE vu vu_load_some(const void *p, size_t n)
{
    vu x = {0};
    memcpy(&x, p, n * 4);
    return x;
}
#endif

/* Returns x and keeps it in a register; otherwise the compiler would load it again at each use. */
#ifndef vu_keep
#define vu_keep(x) (x)
#endif

/* Loads VW bf16 numbers as f32. */
INLINE vf vf_load_bf16(const bf16 *p)
{
    return (vf)(__builtin_convertvector(*(const vh_any *)p, vu) << 16);
}

/* Rounds to bf16, ties to even; NaN stays NaN if its low bits are 0, as in all that arithmetic makes. */
INLINE vf vf_round_bf16(vf x)
{
    const vu bits = (vu)x;
    return (vf)((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
}

/* Lane by lane: a where the mask is set, else b. */
INLINE vf vf_select(vi mask, vf a, vf b) { return (vf)(((vi)a & mask) | ((vi)b & ~mask)); }

/* Loads VW f16 numbers as f32, with the same bits as f16_to_f32(). */
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

/* Loads VW bytes as int32_t; stores int32_t lanes as bytes. */
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

/* Replaces every byte of q, which must be below 16, by table[byte]. */
#ifndef vu_lookup
INLINE vu vu_lookup(const uint8_t table[16], vu q)
{
    uint8_t byte[sizeof q];
    memcpy(byte, &q, sizeof q);
    for (size_t i = 0; i < sizeof q; i++)
        byte[i] = table[byte[i]];
    memcpy(&q, byte, sizeof q);
    return q;
}
#endif

/* Loads table[index] for every lane. */
#ifndef vu_gather
INLINE vu vu_gather(const uint32_t *table, vu index)
{
    vu x = {0};
    for (int lane = 0; lane < VW; lane++)
        x[lane] = table[index[lane]];
    return x;
}
#endif

/* Adds to each lane of sum 4 products: unsigned bytes of u times signed bytes of s. */
#ifndef vi_dot4
INLINE vi vi_dot4(vi sum, vu u, vi s)
{
    for (int b = 0; b < 4; b++)
        sum += (vi)(u >> 8 * b & 255) * (s << (24 - 8 * b) >> 24);
    return sum;
}
#endif

/* vi_dot4() for weights of `bits` bits; a kernel set may subtract INT8_ZERO(bits) from them. */
#ifndef vi_dot4_bits
#define vi_dot4_bits(bits, sum, w, x) ((void)(bits), vi_dot4(sum, w, x))
#endif

/* Adds to each lane of sum 2 products of signed 16-bit numbers. */
#ifndef vi_dot2
INLINE vi vi_dot2(vi sum, vu a, vi b)
{
    return sum + ((vi)a << 16 >> 16) * (b << 16 >> 16) + ((vi)a >> 16) * (b >> 16);
}
#endif

/* Index lists for shuffles: F(lane, s) for every lane. */
#define FOUR(F, l, s)  F(l, s), F(l + 1, s), F(l + 2, s), F(l + 3, s)
#define EIGHT(F, l, s) FOUR(F, l, s), FOUR(F, l + 4, s)
/* Runs STEP(x, s) for s = VW / 2, VW / 4 .. 1, to reduce all lanes. */
#define STEPS_FROM_2(STEP, x) STEP(x, 2) STEP(x, 1)
#if VW == 4
#define ALL_LANES(F, s)    FOUR(F, 0, s)
#define ALL_STEPS(STEP, x) STEPS_FROM_2(STEP, x)
#elif VW == 8
#define ALL_LANES(F, s)    EIGHT(F, 0, s)
#define ALL_STEPS(STEP, x) STEP(x, 4) STEPS_FROM_2(STEP, x)
#else
#define ALL_LANES(F, s)    EIGHT(F, 0, s), EIGHT(F, 8, s)
#define ALL_STEPS(STEP, x) STEP(x, 8) STEP(x, 4) STEPS_FROM_2(STEP, x)
#endif

/* Shuffles for sums and maxima over lanes: halves of a register are combined, then quarters. */
#define FLIP(l, s)        ((l) ^ (s))
#define FLIPPED(x, s)     __builtin_shufflevector(x, x, ALL_LANES(FLIP, s))
#define ADD_FLIPPED(x, s) x += FLIPPED(x, s);
#define MAX_FLIPPED(x, s) x = vf_max(x, FLIPPED(x, s));

INLINE float vf_sum(vf x)
{
    ALL_STEPS(ADD_FLIPPED, x)
    return x[0];
}

INLINE float vf_max_lane(vf x)
{
    ALL_STEPS(MAX_FLIPPED, x)
    return x[0];
}

/* Covers `rows` rows with as few tiles as possible, of nearly equal size: runs TILE for rows i to
 * i + R - 1, R a constant <= MAX <= 8. Cases above MAX compile to nothing. */
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

/* Address of the q tile (quantised values of 32 inputs of 16 outputs) at input k of a weight
 * block. */
INLINE const unsigned char *qtile_at(enum dtype type, const struct panel *w, size_t block, size_t k)
{
    return (const unsigned char *)w->w + block * w->block_bytes + pack_q_bytes(type, k);
}

/* Returns activation row i of x, from input k on. */
INLINE struct int8_rows row_at(const struct int8_rows *x, size_t i, size_t k)
{
    return (struct int8_rows){
        .q = x->q + i * x->row_bytes + k,
        .scale = (const void *)((const char *)(x->scale + k / QK_GROUP) + i * x->row_bytes),
        .sum = (const void *)((const char *)(x->sum + k / QK_HALF) + i * x->row_bytes),
        .row_bytes = x->row_bytes,
    };
}

/* Weight blocks of the next panel that a tile prefetches while it multiplies, one or two for each
 * of the first tiles. A single tile prefetches none, as it is bound by memory bandwidth anyway. */
struct panel_prefetch {
    const char *block[2]; /* weight blocks to prefetch, or NULL */
};

INLINE struct panel_prefetch panel_prefetch_of(const struct panel *w, size_t tile, size_t tiles)
{
    const size_t each = tiles < PANEL_BLOCKS ? 2 : 1, block = tile * each;
    struct panel_prefetch prefetch = {{NULL, NULL}};
    if (w->next && tiles > 1 && block < w->blocks) {
        prefetch.block[0] = w->next + block * w->block_bytes;
        prefetch.block[1] = each == 2 ? prefetch.block[0] + w->block_bytes : NULL;
    }
    return prefetch;
}

/* Prefetches `bytes` bytes of each block of `prefetch`, from offset `at` on. */
INLINE void prefetch_next(const struct panel_prefetch *prefetch, size_t at, size_t bytes)
{
    for (size_t line = 0; line < bytes && prefetch->block[0]; line += 64) {
        __builtin_prefetch(prefetch->block[0] + at + line, 0, 3);
        if (prefetch->block[1])
            __builtin_prefetch(prefetch->block[1] + at + line, 0, 3);
    }
}

/* Returns the sum of the NR lanes of x[NR_VECS]: lanes 8 apart are added, then 4, 2 and 1. */
INLINE float vf_sum_nr(vf *x)
{
    for (int half = NR_VECS / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            x[i] += x[i + half];
    return vf_sum(x[0]);
}

/* Transposes a matrix of VW registers of VW lanes: swaps its off-diagonal blocks of half its size,
 * within the blocks those of a quarter, and so on (Eklundh, 1972). */
#define LOW(l, s)  ((l) & (s) ? VW + (l) - (s) : (l))
#define HIGH(l, s) ((l) & (s) ? VW + (l) : (l) + (s))
#define SWAP_BLOCKS(x, s)                                                                              \
    for (int i = 0; i < VW; i++)                                                                       \
        if (!(i & (s))) {                                                                              \
            const vf a = x[i], b = x[i + (s)];                                                         \
            x[i] = __builtin_shufflevector(a, b, ALL_LANES(LOW, s));                                   \
            x[i + (s)] = __builtin_shufflevector(a, b, ALL_LANES(HIGH, s));                            \
        }

INLINE void vf_transpose(vf x[VW]) { ALL_STEPS(SWAP_BLOCKS, x) }

/* MAGIC_FLOAT + x rounds x, |x| < 2^22, to an integer n; the bits of the sum are MAGIC_BITS + n. */
enum { MAGIC_BITS = 0x4b400000 };
#define MAGIC_FLOAT 12582912.f /* 1.5 * 2^23: one unit in the last place is 1 */

/* e^x within 2 ulp; 0 below -87.3, finite above 88.3. x = n ln 2 + r (Cody and Waite's range
 * reduction), e^r is a polynomial, 2^n goes into the exponent. */
INLINE vf vf_exp(vf x)
{
    const vf magic = vf_set1(MAGIC_FLOAT);
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
    /* 1 - 2 / (e^2x + 1): the error is absolute, 1 ulp of 1. */
    const vf e = vf_exp(vf_min(vf_set1(40), vf_max(vf_set1(-40), x + x)));
    return vf_set1(1) - vf_set1(2) / (e + vf_set1(1));
}

/* erf(x) with an absolute error of 1 ulp of 1: a polynomial of x^2 below 1, 1 - e^polynomial above. */
INLINE vf vf_erf(vf x)
{
    const vi sign = (vi)x & INT32_MIN;
    const vf size = (vf)((vi)x ^ sign), square = size * size;
    vf low = vf_set1(7.853857823647559e-5f);
    low = vf_fma(low, square, vf_set1(-8.010192541405559e-4f));
    low = vf_fma(low, square, vf_set1(5.188327748328447e-3f));
    low = vf_fma(low, square, vf_set1(-2.6853810995817184e-2f));
    low = vf_fma(low, square, vf_set1(1.128358542919159e-1f));
    low = vf_fma(low, square, vf_set1(-3.761262595653534e-1f));
    low = vf_fma(low, square, vf_set1(1.1283791065216064f)) * size;
    const vf far = vf_min(vf_set1(3.95f), size); /* erf is 1 from there on; NaN stays NaN */
    vf log = vf_set1(-2.16976368392352e-5f);
    log = vf_fma(log, far, vf_set1(4.414728900883347e-4f));
    log = vf_fma(log, far, vf_set1(-4.20528557151556e-3f));
    log = vf_fma(log, far, vf_set1(2.5210341438651085e-2f));
    log = vf_fma(log, far, vf_set1(-1.0842210054397583e-1f));
    log = vf_fma(log, far, vf_set1(-6.33216381072998e-1f));
    log = vf_fma(log, far, vf_set1(-1.1295802593231201f));
    log = vf_fma(log, far, vf_set1(1.8846767488867044e-4f));
    const vf high = vf_set1(1) - vf_exp(log);
    return (vf)((vi)vf_select(size < vf_set1(1), low, high) | sign);
}

INLINE vf vf_activate(enum epilogue_act act, vf x)
{
    switch (act) {
    case EPILOGUE_NONE:
    case EPILOGUE_CLAMPED_SWIGLU: break;
    case EPILOGUE_RELU: return vf_max(vf_set1(0), x);
    case EPILOGUE_SILU: return x / (vf_set1(1) + vf_exp(-x));
    case EPILOGUE_SIGMOID: return vf_set1(1) / (vf_set1(1) + vf_exp(-x));
    case EPILOGUE_GELU: return vf_set1(0.5f) * x * (vf_set1(1) + vf_erf(x * vf_set1(0.70710678f)));
    case EPILOGUE_GELU_TANH:
        return vf_set1(0.5f) * x *
               (vf_set1(1) + vf_tanh(vf_set1(0.79788456f) * (x + vf_set1(0.044715f) * x * x * x)));
    case EPILOGUE_RELU2: x = vf_max(vf_set1(0), x); return x * x;
    case EPILOGUE_QUICK_GELU: return x / (vf_set1(1) + vf_exp(vf_set1(-1.702f) * x));
    }
    return x;
}

#endif
