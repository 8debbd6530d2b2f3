/* load_ternary_line() (template/ternary_lines.h) by AVX512-VBMI: four digits of 64 numbers are looked up
 * at once. */
#pragma once

#include "kernel/x86/grid_vbmi.h"
#include "quant/ternary.h"
#include "quant/ternary_tables.h"

/* The numbers of three digits, 0 to 31. */
INLINE __m512i vbmi_ternary_rest(const unsigned char *qtile)
{
    const __m512i low = _mm512_cvtepu16_epi32(
                      _mm256_loadu_si256((const __m256i *)(const void *)(qtile + TERNARY_LOW))),
                  nibbles = _mm512_and_si512(_mm512_multishift_epi64_epi8(vbmi_shifts(0, 4), low),
                                             _mm512_set1_epi8(15));
    /* byte o % 8 for output o: its bit j, or 4 + j of later outputs, is bit 4 of number j */
    const __m128i byte = _mm_loadl_epi64((const __m128i *)(const void *)(qtile + TERNARY_HIGH));
    const __m512i high = _mm512_shuffle_epi8(
        _mm512_broadcast_i32x4(byte),
        _mm512_set_epi32(0x07070707, 0x06060606, 0x05050505, 0x04040404, 0x03030303, 0x02020202,
                         0x01010101, 0x00000000, 0x07070707, 0x06060606, 0x05050505, 0x04040404,
                         0x03030303, 0x02020202, 0x01010101, 0x00000000));
    const __m512i test =
        _mm512_inserti64x4(_mm512_set1_epi32(0x08040201), _mm256_set1_epi32((int)0x80402010u), 1);
    return _mm512_mask_add_epi8(nibbles, _mm512_test_epi8_mask(high, test), nibbles,
                                _mm512_set1_epi8(16));
}

INLINE vu vbmi_ternary_line(const unsigned char *qtile, int j, int g)
{
    __m512i digits;
    (void)g;
    if (j < TERNARY_LINES) {
        const __m512i fraction = _mm512_loadu_si512(qtile);
        const __mmask64 high[4] = {_mm512_movepi8_mask(fraction)};
        digits = vbmi_lookup(j < 4 ? ternary_four : ternary_fifth, 256, fraction, high);
        j %= 4;
    } else {
        digits = _mm512_permutexvar_epi8(vbmi_ternary_rest(qtile), _mm512_loadu_si512(ternary_three));
        j -= TERNARY_LINES;
    }
    return (vu)_mm512_and_si512(_mm512_srli_epi16(digits, (unsigned)(2 * j)), _mm512_set1_epi8(3));
}
