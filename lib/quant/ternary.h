/* Packed tiles of ternary types: 32 inputs of 16 outputs, 1.625 bits per weight (quant/pack.h). */
#pragma once

#include "quant/pack.h"

/* Of 32 inputs in 8 lines of 4, five lines are in bytes, the other three in 5 bits. */
enum { TERNARY_LINES = 5, TERNARY_REST = 3, TERNARY_LOW = PACK_LINE, TERNARY_HIGH = PACK_LINE + 32 };

/* A number of five digits as f, f / 256 in [number / 243, (number + 1) / 243): the integer part of
 * 3 f / 256 is the first digit, and the remainder has the others in the same way. The same of three
 * digits. */
static inline unsigned ternary_fraction5(unsigned number) { return (number * 256 + 242) / 243; }
static inline unsigned ternary_fraction3(unsigned number)
{
    return (number * 9 + number / 2 + 1) & 255;
}

/* Digit `line` of a fraction. */
static inline unsigned ternary_digit_of(unsigned fraction, size_t line)
{
    while (line--)
        fraction = fraction * 3 & 255;
    return fraction * 3 >> 8;
}

/* Digit of output o and input i in a tile. */
static inline unsigned ternary_digit(const unsigned char *tile, size_t o, size_t i)
{
    const size_t line = i / 4, j = i % 4;
    if (line < TERNARY_LINES)
        return ternary_digit_of(tile[o * 4 + j], line);
    const unsigned low = tile[TERNARY_LOW + o * 2 + j / 2] >> j % 2 * 4 & 15,
                   high = tile[TERNARY_HIGH + o % 8] >> (o / 8 * 4 + j) & 1;
    return ternary_digit_of(ternary_fraction3(low | high << 4), line - TERNARY_LINES);
}

/* Writes the 32 digits of output o, a byte each (larger ones count as 2), to a tile whose bits for
 * it are 0 or had been written before. */
static inline void ternary_pack(unsigned char *tile, const unsigned char *digits, size_t o)
{
    unsigned high = 0, low[2] = {0, 0};
    for (size_t j = 0; j < 4; j++) {
        unsigned number[2] = {0, 0};
        for (size_t line = 0; line < TERNARY_LINES + TERNARY_REST; line++) {
            const unsigned digit = digits[4 * line + j] > 2 ? 2 : digits[4 * line + j];
            number[line >= TERNARY_LINES] = 3 * number[line >= TERNARY_LINES] + digit;
        }
        tile[o * 4 + j] = (unsigned char)ternary_fraction5(number[0]);
        low[j / 2] |= (number[1] & 15) << j % 2 * 4;
        high |= number[1] >> 4 << j;
    }
    unsigned char *at = &tile[TERNARY_HIGH + o % 8];
    *at = (unsigned char)((*at & (o < 8 ? 0xf0 : 0x0f)) | high << (o / 8 * 4));
    tile[TERNARY_LOW + o * 2] = (unsigned char)low[0];
    tile[TERNARY_LOW + o * 2 + 1] = (unsigned char)low[1];
}

/* Reads the 32 digits of output o, a byte each. */
static inline void ternary_unpack(unsigned char *digits, const unsigned char *tile, size_t o)
{
    for (size_t i = 0; i < QK_GROUP; i++)
        digits[i] = (unsigned char)ternary_digit(tile, o, i);
}
