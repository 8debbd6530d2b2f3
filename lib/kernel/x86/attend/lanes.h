/* The tiles of a block of positions, and transposing loads of their KV entries into registers of 512 bits:
 * 16 bytes of 4 entries at a time. */
#ifndef BMC_ATTEND_LANES_H
#define BMC_ATTEND_LANES_H

#include "kernel/x86/vec_512.h"
#include "kernel/template/online_softmax.h"
#include "kernel/template/quant_shuffles.h"

/* Returns x, about which the compiler then knows nothing: so it does not keep multiples of a stride in
 * more registers than there are. */
INLINE size_t hide(size_t x)
{
    __asm__ volatile("" : "+r"(x));
    return x;
}

/* Finds the tiles of a block; one that does not exist repeats the last. Returns whether any has a row table;
 * `strided`, one for contiguous entries, is then that of the others. */
static bool find_tiles(const struct attend *a, size_t block, const ptrdiff_t strided[ATTEND_TILE],
                       struct tile k[BLOCK_TILES], struct tile v[BLOCK_TILES])
{
    bool scattered = false;
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        const size_t tile = size_min(block * BLOCK_TILES + t, a->tiles - 1);
        k[t] = k_tile(a, tile);
        v[t] = v_tile(a, tile);
        scattered = scattered || k[t].row;
    }
    for (size_t t = 0; scattered && t < BLOCK_TILES; t++) {
        k[t].row = k[t].row ? k[t].row : strided;
        v[t].row = v[t].row ? v[t].row : strided;
    }
    return scattered;
}

/* Converts the f16 halves of words to f32: the low ones, then the high ones. */
INLINE void f16_halves(vu x, vf half[2])
{
    static const uint16_t deal[32] = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                                      1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
    const __m512i halves = _mm512_permutexvar_epi16(_mm512_loadu_si512(deal), (__m512i)x);
    half[0] = (vf)_mm512_cvtph_ps(_mm512_castsi512_si256(halves));
    half[1] = (vf)_mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
}

/* Loads 4 words of each of 4 entries: lane l has those at at[l], of which only `some` exist unless
 * `whole`. */
INLINE vu load_lanes(bool whole, const char *const at[4], size_t some)
{
    __m128i x[4];
    UNROLL(for (int l = 0; l < 4; l++))
    x[l] = whole ? _mm_loadu_si128((const void *)at[l])
                 : _mm_maskz_loadu_epi32((__mmask8)((1u << some) - 1), at[l]);
    __m512i lanes = _mm512_castsi128_si512(x[0]);
    lanes = _mm512_mask_broadcast_i32x4(lanes, 0x00f0, x[1]);
    lanes = _mm512_mask_broadcast_i32x4(lanes, 0x0f00, x[2]);
    lanes = _mm512_mask_broadcast_i32x4(lanes, 0xf000, x[3]);
    return (vu)lanes;
}

/* Transposes words [w, w + 4) of the entries of a tile, of which `some` exist unless `whole`: lane p of
 * x[i] has word w + i of entry p. */
INLINE void load_words(bool whole, bool scattered, struct tile tile, size_t row_stride, size_t w,
                       size_t some, vu x[4])
{
    const char *group = tile.base + w * 4;
    const size_t stride = hide(row_stride), stride_4 = hide(4 * stride);
    UNROLL(for (size_t i = 0; i < 4; i++))
    {
        const char *at[4];
        UNROLL(for (size_t l = 0; l < 4; l++))
        at[l] = scattered ? group + tile.row[4 * l + i] : group + l * stride_4;
        x[i] = load_lanes(whole, at, some);
        group += scattered ? 0 : stride;
    }
    transpose_lanes(x);
}

/* Prefetches `lines` cache lines into L2; into L1, they would be fewer at a time. */
INLINE void prefetch_lines(const char *at, size_t lines)
{
    UNROLL(for (size_t i = 0; i < lines; i++))
    __builtin_prefetch(at + i * 64, 0, 2);
}

/* Lanes l with (l & s) == 0: the larger one of lanes l and l + s of a; others: of l - s and l of b. */
#define LARGER(a, b, s)                                                                                \
    vf_max(__builtin_shufflevector(a, b, ALL_LANES(LOW, s)),                                           \
           __builtin_shufflevector(a, b, ALL_LANES(HIGH, s)))

/* Lane l: the largest lane of x[l], l < 8. */
INLINE vf largest_of_8(vf x[8])
{
    UNROLL(for (int i = 0; i < 8; i++))
    x[i] = vf_max(x[i], FLIPPED(x[i], 8));
    UNROLL(for (int i = 0; i < 4; i++))
    x[i] = LARGER(x[i], x[i + 4], 4);
    UNROLL(for (int i = 0; i < 2; i++))
    x[i] = LARGER(x[i], x[i + 2], 2);
    return LARGER(x[0], x[1], 1);
}

#endif
