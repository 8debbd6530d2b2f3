/* AVX2: products of rows in int8, a part of the set avx2 that is compiled by itself. */
#include "kernel/set_256.h"

/* vpmaddubsw adds two products in 16 bits, which do not hold those of codes of 8 bits: these are taken as numbers around
 * 0, and their sign moves to x. Of 4 and 6 bits they hold 16 and 4 products. */
#define INT8_BITS_MATTER
#define INT8_ZERO(bits)  ((bits) == 8 ? 128 : 0)
#define INT8_PAIRS(bits) ((bits) == 4 ? 8 : (bits) == 6 ? 2 : 1)
typedef int16_t vs __attribute__((vector_size(4 * VW)));
INLINE vs vs_pairs(unsigned bits, vu weights, vi x)
{
    __m256i unsigned_w = (__m256i)weights, signed_x = (__m256i)x;
    if (bits == 8) {
        const __m256i centred = (__m256i)(weights ^ 0x80808080u);
        unsigned_w = _mm256_abs_epi8(centred);
        signed_x = _mm256_sign_epi8(signed_x, centred);
    }
    return (vs)_mm256_maddubs_epi16(unsigned_w, signed_x);
}

INLINE vi vi_join(vs pairs) { return (vi)_mm256_madd_epi16((__m256i)pairs, _mm256_set1_epi16(1)); }

enum {
    INT8_ROWS = 3,
    INT8_COLUMNS = 1,
    WHOLE_ROWS = 3,
    WHOLE_COLUMNS = 1,
    LINE_ROWS = 4,
    LINE_COLUMNS = 1,
    INT8_FEW_ROWS = 8
};
#include "kernel/set_lines.h"
#include "kernel/set_piece.h"
#include "kernel/set_int8.h"

const struct kernels kernels_int8_avx2 = {INT8_SLOTS};
