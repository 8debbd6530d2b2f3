/* load_grid_line() (template/grid_lines.h) by AVX512-VBMI: 64 indices at a time are looked up in
 * registers, 128 points per vpermi2b, and their bits spread to bytes by vpmultishiftqb. */
#pragma once

#include "kernel/x86/vnni_begin.h"

/* Returns table[index] for 64 bytes: bits 0 to 6 of the index are those of `low`, the others are
 * masks. */
INLINE __m512i vbmi_lookup(const uint8_t *table, size_t points, __m512i low, const __mmask64 high[4])
{
    __m512i found[16];
    const size_t parts = points / 128;
    UNROLL(for (size_t i = 0; i < parts; i++))
    found[i] = _mm512_permutex2var_epi8(_mm512_loadu_si512(table + 128 * i), low,
                                        _mm512_loadu_si512(table + 128 * i + 64));
    UNROLL(for (size_t bit = 0; 1u << bit < parts; bit++))
    UNROLL(for (size_t i = 0; i < parts >> (bit + 1); i++))
    found[i] = _mm512_mask_blend_epi8(high[bit], found[2 * i], found[2 * i + 1]);
    return found[0];
}

/* Control of vpmultishiftqb: byte b of each 4-byte lane takes 8 bits of that lane from bit
 * first + b * each on. */
INLINE __m512i vbmi_shifts(int first, int each)
{
    const unsigned low = (unsigned)first & 63, high = (unsigned)(first + 32) & 63;
    uint64_t control = 0;
    for (unsigned b = 0; b < 4; b++) {
        control |= (uint64_t)((low + b * (unsigned)each) & 63) << 8 * b;
        control |= (uint64_t)((high + b * (unsigned)each) & 63) << (32 + 8 * b);
    }
    return _mm512_set1_epi64((long long)control);
}

/* The 16 bits of types with deltas, in 4 bytes per output. */
INLINE __m512i vbmi_deltas(const struct quant_grid *grid, const unsigned char *qtile)
{
    const unsigned char *at = qtile + grid_signs_at(grid) * NR;
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)at));
}

/* The index bits above 7 of indices 4 word to 4 word + 3 of each output, as masks. */
INLINE void vbmi_high(const struct quant_grid *grid, const unsigned char *qtile, int word, __m512i low,
                      __mmask64 high[4])
{
    high[0] = _mm512_movepi8_mask(low);
    if (grid->bit7 == GRID_BIT_INDEX)
        high[1] = _mm512_movepi8_mask(_mm512_loadu_si512(qtile + grid_signs_at(grid) * NR));
    if (grid->delta) {
        const __m512i bits = _mm512_multishift_epi64_epi8(vbmi_shifts(0, grid_delta_high(grid, 1)),
                                                          vbmi_deltas(grid, qtile));
        for (int bit = 0; bit < 3; bit++)
            high[1 + bit] = _mm512_test_epi8_mask(bits, _mm512_set1_epi8((char)(1 << bit)));
        return;
    }
    if (!grid->high_bits)
        return;
    const unsigned char *at = qtile + grid_high_at(grid) * NR;
    const __m512i bytes =
        _mm512_shuffle_epi8(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)at)),
                            _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0x00000000));
    for (int bit = 0; bit < grid->high_bits; bit++) {
        uint32_t test = 0;
        for (int n = 0; n < 4; n++)
            test |= 1u << ((4 * word + n) * grid->high_bits + bit) << 8 * n;
        high[1 + bit] = _mm512_test_epi8_mask(bytes, _mm512_set1_epi32((int)test));
    }
}

/* The sign bytes of 32 inputs of each output. */
INLINE __m512i vbmi_signs(const struct quant_grid *grid, const unsigned char *qtile)
{
    const __m512i stored = _mm512_loadu_si512(qtile + grid_signs_at(grid) * NR);
    return grid->bit7 == GRID_BIT_SIGN
               ? stored
               : _mm512_permutex2var_epi8(_mm512_loadu_si512(grid_even_signs), stored,
                                          _mm512_loadu_si512(grid_even_signs + 64));
}

/* load_line() of a type with a grid. What several lines share is written once for each; compilers
 * merge it. */
INLINE vu vbmi_grid_line(enum dtype type, const unsigned char *qtile, int j, int g)
{
    const struct quant_grid *grid = &quant_types[type].grid;
    const size_t points = grid_points(grid->bit7, grid->high_bits);
    const int fours = grid->each == 4, word = fours ? j / 4 : 0;
    const __m512i low = _mm512_loadu_si512(qtile + word * PACK_LINE);
    __mmask64 high[4];
    (void)g;
    vbmi_high(grid, qtile, word, low, high);
    const __m512i bits = vbmi_lookup(grid->planes + (fours ? 0 : j % 2 * points), points, low, high);
    __m512i rest = grid->delta ? vbmi_deltas(grid, qtile) : vbmi_signs(grid, qtile);
    const int index = fours ? j % 4 : j / 2;
    if (fours) /* third bits of magnitudes above the signs of each index */
        rest = _mm512_ternarylogic_epi32(_mm512_set1_epi8(15),
                                         _mm512_multishift_epi64_epi8(vbmi_shifts(16 * word, 4), rest),
                                         vbmi_lookup(grid->planes + points, points, low, high), 0xca);
    /* bits 1 and 2 of each byte from `bits`, 0 and 4 from `rest` */
    const __m512i t = _mm512_ternarylogic_epi32(
        _mm512_set1_epi8(0x11),
        _mm512_multishift_epi64_epi8(grid->delta ? vbmi_shifts(grid_delta_at(grid, index), 0)
                                                 : vbmi_shifts(fours ? 8 * index : 4 * j, 1),
                                     rest),
        _mm512_multishift_epi64_epi8(vbmi_shifts(8 * index - 1, 2), bits), 0xca);
    return (vu)_mm512_permutexvar_epi8(t, _mm512_loadu_si512(grid->values));
}
