/* Begin header of AVX512-VNNI with VBMI and GFNI, included before kernel templates (vec.h): as vnni_begin.h, but
 * points of grids and ternary digits are looked up in registers, and bits are moved by one instruction. */
#pragma once

#include "kernel/x86/vnni_begin.h"

#define load_grid_line(type, qtile, j, g) vbmi_grid_line(type, qtile, j, g)
#include "kernel/x86/grid_vbmi.h"

#include "kernel/template/ternary_lines.h"
#define load_ternary_line(qtile, j, g) vbmi_ternary_line(qtile, j, g)
#include "kernel/x86/ternary_vbmi.h"

/* move_bits() as a product of every byte, a vector of bits, with a matrix. */
INLINE vu vbmi_move_bits(vu x, const int from, const int to, const uint32_t mask)
{
    uint64_t matrix = 0;
    UNROLL(for (int bit = 0; bit < 8; bit++))
    if (mask >> bit & 1)
        matrix |= (uint64_t)1 << (bit - to + from) << 8 * (7 - bit);
    return (vu)_mm512_gf2p8affine_epi64_epi8((__m512i)x, _mm512_set1_epi64((long long)matrix), 0);
}
#define vu_move_bits(x, from, to, mask) vbmi_move_bits(x, from, to, mask)

/* Looks up the low 4 bits of every byte: vpermb ignores the two highest bits, and the table is repeated four times. */
INLINE vu vbmi_lookup_low(const uint8_t table[16], vu x)
{
    const __m128i once = _mm_loadu_si128((const __m128i *)(const void *)table);
    return (vu)_mm512_permutexvar_epi8((__m512i)x, _mm512_broadcast_i32x4(once));
}
#define vu_lookup_low(table, x) vbmi_lookup_low(table, x)
