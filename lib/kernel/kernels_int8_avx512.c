/* AVX-512 without VNNI: products of rows in int8, a part of the set avx512 that is compiled by itself. */
#include "kernel/set_512.h"

/* vpmaddubsw adds two products in 16 bits, which do not hold those of codes of 8 bits: these are taken as numbers around
 * 0, and their sign moves to x. */
#define INT8_BITS_MATTER
#define INT8_ZERO(bits) ((bits) == 8 ? 128 : 0)
INLINE vi vi_dot4(unsigned bits, vi sum, vu weights, vi x)
{
    __m512i unsigned_w = (__m512i)weights, signed_x = (__m512i)x;
    if (bits == 8) {
        const __m512i centred = (__m512i)(weights ^ 0x80808080u);
        const __mmask64 negative = _mm512_movepi8_mask(centred);
        unsigned_w = _mm512_abs_epi8(centred);
        signed_x = _mm512_mask_sub_epi8(signed_x, negative, _mm512_setzero_si512(), signed_x);
    }
    const __m512i pairs = _mm512_maddubs_epi16(unsigned_w, signed_x);
    return sum + (vi)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}

enum {
    INT8_ROWS = 3,
    INT8_COLUMNS = 4,
    WHOLE_ROWS = 4,
    WHOLE_COLUMNS = 4,
    LINE_ROWS = 6,
    LINE_COLUMNS = 2,
    INT8_FEW_ROWS = 32
};
#include "kernel/set_lines.h"
#include "kernel/set_piece.h"
#include "kernel/set_int8.h"

const struct kernels kernels_int8_avx512 = {INT8_SLOTS};
