/* Template: loads weights of types with a grid (quant/grids.h) from packed tiles: 4 inputs of VW
 * outputs at a time, looked up by one gather. */
#pragma once

#include "kernel/template/vec.h"

/* Words of the packed units that hold byte `at`, a multiple of 4, for outputs [g * VW, (g + 1) * VW). */
INLINE vu load_unit_word(const unsigned char *qtile, size_t at, int g)
{
    return vu_load(qtile + at * NR + g * VW * 4);
}

/* The sign bytes of 32 inputs, 8 bits each: bits 7 are set where they make the number of bits even. */
INLINE vu load_grid_signs(const struct quant_grid *grid, const unsigned char *qtile, int g)
{
    const vu stored = load_unit_word(qtile, grid_signs_at(grid), g);
    if (grid->bit7 == GRID_BIT_SIGN)
        return stored;
    const vu signs = stored & 0x7f7f7f7f;
    vu odd = signs ^ signs >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return signs | (odd & 0x01010101) << 7;
}

/* What index n has above 8 bits. */
INLINE vu load_grid_high(const struct quant_grid *grid, const unsigned char *qtile, int n, int g)
{
    const int bit = n * grid->high_bits;
    if (grid->bit7 == GRID_BIT_INDEX)
        return load_unit_word(qtile, grid_signs_at(grid), g) >> (8 * n + 7) & 1;
    if (!grid->high_bits)
        return (vu){0};
    const unsigned char *at = qtile + grid_high_at(grid) * NR + g * VW;
    return (vu)vi_load_u8(at) >> bit & ((1u << grid->high_bits) - 1);
}

/* The 16 bits of units of types with deltas. */
INLINE vu load_grid_deltas(const struct quant_grid *grid, const unsigned char *qtile, int g)
{
    return vu_load_u16(qtile + grid_signs_at(grid) * NR + g * VW * 2);
}

/* load_line() of types with deltas. */
INLINE vu load_delta_line(const struct quant_grid *grid, const unsigned char *qtile, int j, int g)
{
    const vu bits = load_grid_deltas(grid, qtile, g);
    const vu index = (load_unit_word(qtile, 0, g) >> j / 2 * 8 & 255) |
                     (bits >> grid_delta_high(grid, j / 2) & 7) << 8;
    const vu delta = bits >> grid_delta_at(grid, j / 2) & 1;
    return vu_gather(grid->points + j % 2, index * 2) + 0x01010101 - delta * 0x02020202;
}

/* load_line() of a type with a grid. */
#ifndef load_grid_line
INLINE vu load_grid_line(enum dtype type, const unsigned char *qtile, int j, int g)
{
    const struct quant_grid *grid = &quant_types[type].grid;
    const int words = grid->each / 4, n = j / words; /* index n */
    if (grid->delta)
        return load_delta_line(grid, qtile, j, g);
    const vu index = (load_unit_word(qtile, (size_t)n / 4 * 4, g) >> n % 4 * 8 & 255) |
                     load_grid_high(grid, qtile, n, g) << 8;
    const vu magnitudes =
        words == 1 ? vu_gather(grid->points, index) : vu_gather(grid->points + j % 2, index * 2);
    /* Four sign bits, one in each byte. 2 zero_point is a power of two, so that negating a magnitude
     * is flipping the bits below it and adding 1. */
    const vu bits = load_grid_signs(grid, qtile, g) >> j * 4 & 15;
    const vu negative = bits * 0x00204081 & 0x01010101;
    const int power = __builtin_ctz(2u * quant_types[type].zero_point);
    return (magnitudes ^ ((negative << power) - negative)) + negative;
}
#endif

/* Scales of the quant group of input w->k_begin + k, without d; `at`: the scales of the first output. */
INLINE vf load_grid_scale(enum dtype type, const struct panel *w, size_t block, size_t k, int g,
                          const unsigned char *at)
{
    const struct quant_grid *grid = &quant_types[type].grid;
    vi s;
    if (grid->bit7 == GRID_BIT_SCALE) {
        const unsigned char *qtile = qtile_at(type, w, block, k / QK_GROUP * QK_GROUP);
        if (grid->delta)
            return vf_of((vi)(load_grid_deltas(grid, qtile, g) >> 11 & 14) + 1) * vf_set1(grid->factor);
        vu bits = load_unit_word(qtile, grid_signs_at(grid), g) >> 7 & 0x01010101;
        bits |= bits >> 7;
        s = (vi)((bits | bits >> 14) & 15);
    } else
        s = vi_load_u8(at) >> (int)((w->k_begin + k) / quant_group(type, QK_GROUP) % 2 * 4) & 15;
    return vf_of(2 * s + 1) * vf_set1(grid->factor);
}
