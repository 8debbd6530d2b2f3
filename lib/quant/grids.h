/* Types whose weights are points of a grid: an index stands for 4 or 8 neighbouring magnitudes, and
 * signs are stored apart. A grid is a fixed list of points, part of the type.
 *
 * A unit holds 32 inputs of an output. In rows it has, in this order,
 *   index bytes     the lowest 8 bits of the index of every 4 or 8 inputs
 *   4 sign bytes    of 8 inputs each, the first in the lowest bit; 1: negative
 *   index bits      what indices have above 8 bits, the first index in the lowest bits
 * Types with 7 bits per sign byte have an even number of negative weights among 8, so that the
 * eighth sign is known. Bit 7 is free for something else: bit 8 of the index of the same inputs, or a
 * bit of the group's scale.
 *
 * Types with deltas have no signs, their points have values -1, 0 and 1, to which +1/8 or, where a delta
 * bit is 1, -1/8 is added. 16 bits follow the index bytes: in iq1_s three index bits of each index,
 * three bits of the group's scale, a delta of all inputs; in iq1_m three index bits and a delta of each
 * index.
 *
 * In packed blocks, a unit's bytes are words of 4, then the rest: [words][16][4], [16][rest]. */
#pragma once

#include "base/base.h"

enum { GRID_UNIT_MOST = 16, GRID_SIGN_BYTES = 4 };

/* What bit 7 of sign bytes is; GRID_BIT_SCALE, too, if a unit with deltas has its scale. */
enum grid_bit { GRID_BIT_SIGN, GRID_BIT_INDEX, GRID_BIT_SCALE };

/* Deltas: none, one per unit, one per index. */
enum grid_delta { GRID_SIGNED, GRID_DELTA, GRID_DELTAS };

struct quant_grid {
    /* 4 magnitudes of a point per element, one in each byte, the type's zero point added. Points of 8
     * have two elements. Filled before main(). */
    const uint32_t *points;
    /* The same points for lookups in registers. planes: by index, two bytes apart in two arrays: of 8
     * magnitudes two bits each, four in each array; of 4, the lower two bits of each in the first
     * array, the third bits in bits 4 to 7 of the second. values[t]: a magnitude of t's bits 1, 2 and
     * 4, negative if bit 0 is set, the zero point added; bits 3 and 5 (with 8 magnitudes bit 4,
     * too) are ignored. Filled before main(). */
    const uint8_t *planes, *values;
    uint8_t unit;      /* bytes of a unit; 0: not a type with a grid */
    uint8_t each;      /* inputs per index: 4 or 8 */
    uint8_t high_bits; /* bits of an index above 8 that are index bits of the unit */
    enum grid_bit bit7;
    float factor; /* a group's scale is d * factor * (2 s + 1), s: 4 bits */
    enum grid_delta delta;
};

extern uint32_t grid_iq3_xxs[256], grid_iq3_s[512];
extern uint32_t grid_iq2_xxs[256 * 2], grid_iq2_xs[512 * 2], grid_iq2_s[1024 * 2], grid_iq1[2048 * 2];

enum { GRID_VALUES = 64 };
extern uint8_t grid_iq3_xxs_planes[256 * 2], grid_iq3_s_planes[512 * 2];
extern uint8_t grid_iq2_xxs_planes[256 * 2], grid_iq2_xs_planes[512 * 2], grid_iq2_s_planes[1024 * 2],
    grid_iq1_planes[2048 * 2];
extern uint8_t grid_iq3_xxs_values[GRID_VALUES], grid_iq3_s_values[GRID_VALUES],
    grid_iq2_values[GRID_VALUES], grid_iq1_values[GRID_VALUES];
/* grid_even() of 0 to 127. */
extern uint8_t grid_even_signs[128];

/* Number of points. */
static inline size_t grid_points(enum grid_bit bit7, unsigned high_bits)
{
    return 256u << (high_bits + (bit7 == GRID_BIT_INDEX));
}

/* Offsets in a unit of the sign bytes, or of the 16 bits of types with deltas, and of the index bits. */
static inline size_t grid_signs_at(const struct quant_grid *g) { return 32u / g->each; }
static inline size_t grid_high_at(const struct quant_grid *g)
{
    return grid_signs_at(g) + GRID_SIGN_BYTES;
}

/* Byte offset of byte j of output o's unit in a packed tile of 16 outputs. */
static inline size_t grid_packed_at(const struct quant_grid *g, size_t o, size_t j)
{
    const size_t width = j / 4 < g->unit / 4u ? 4 : g->unit % 4u;
    return j / 4 * 64 + o * width + j % 4;
}

/* Bit 7 is set so that the number of set bits is even. */
static inline unsigned grid_even(unsigned signs)
{
    signs &= 127;
    return signs | (unsigned)__builtin_parity(signs) << 7;
}

/* Positions of index bits and delta of index n in the 16 bits of types with deltas. */
static inline int grid_delta_high(const struct quant_grid *g, int n)
{
    return (g->delta == GRID_DELTAS ? 4 : 3) * n;
}
static inline int grid_delta_at(const struct quant_grid *g, int n)
{
    return g->delta == GRID_DELTAS ? 4 * n + 3 : 15;
}

/* grid_integer() of types with deltas. */
static inline unsigned grid_delta_integer(const struct quant_grid *g, const unsigned char *unit,
                                          size_t i)
{
    const int n = (int)i / 8;
    const unsigned char *at = unit + grid_signs_at(g);
    const unsigned bits = at[0] | (unsigned)at[1] << 8,
                   index = unit[n] | (bits >> grid_delta_high(g, n) & 7) << 8;
    return (g->points[index * 2 + i % 8 / 4] >> i % 4 * 8 & 255) + 1 -
           2 * (bits >> grid_delta_at(g, n) & 1);
}

/* The magnitude and sign of input i of a unit: an integer `zero` too large. */
static inline unsigned grid_integer(const struct quant_grid *g, unsigned zero,
                                    const unsigned char *unit, size_t i)
{
    const size_t n = i / g->each, bit = n * g->high_bits, word = i % g->each / 4;
    if (g->delta)
        return grid_delta_integer(g, unit, i);
    unsigned index = unit[n], signs = unit[grid_signs_at(g) + i / 8];
    if (g->high_bits)
        index |= (unit[grid_high_at(g) + bit / 8] >> bit % 8 & ((1u << g->high_bits) - 1)) << 8;
    if (g->bit7 == GRID_BIT_INDEX)
        index |= signs >> 7 << 8;
    if (g->bit7 != GRID_BIT_SIGN)
        signs = grid_even(signs);
    const unsigned magnitude = g->points[index * (g->each / 4u) + word] >> i % 4 * 8 & 255;
    return signs >> i % 8 & 1 ? 2 * zero - magnitude : magnitude;
}

/* The bits of a group's scale that its unit has: bits 7 of its sign bytes, or bits 12 to 14 of 16. */
static inline unsigned grid_unit_scale(const struct quant_grid *g, const unsigned char *signs)
{
    if (g->delta)
        return signs[1] >> 4 & 7;
    return signs[0] >> 7 | signs[1] >> 7 << 1 | signs[2] >> 7 << 2 | signs[3] >> 7 << 3;
}
