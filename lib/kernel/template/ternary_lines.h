/* Template: loads weights of ternary types from packed tiles (quant/ternary.h). */
#pragma once

#include "kernel/template/vec.h"
#include "quant/ternary.h"

/* Every second byte of words, in 16 bits. */
struct byte_halves {
    vu even, odd;
};

INLINE struct byte_halves split_bytes(vu x)
{
    return (struct byte_halves){x & 0x00ff00ff, x >> 8 & 0x00ff00ff};
}

typedef uint16_t vu16 __attribute__((vector_size(4 * VW)));

/* Digit `line` of fractions, in 16 bits. */
INLINE vu digit_of(vu fraction, int line)
{
    static const uint16_t powers[TERNARY_LINES] = {1, 3, 9, 27, 81};
    const vu rest = (vu)((vu16)fraction * powers[line]) & 0x00ff00ff;
    return (vu)((vu16)rest * (uint16_t)3) >> 8 & 0x00030003;
}

/* ternary_fraction3() of numbers in 16 bits. */
INLINE vu fraction_of(vu number)
{
    return ((number << 3) + number + (number >> 1 & 0x000f000f) + 0x00010001) & 0x00ff00ff;
}

/* The numbers of three digits of outputs [g * VW, (g + 1) * VW), a byte each. */
INLINE vu load_ternary_rest(const unsigned char *qtile, int g)
{
    static const int32_t outputs[NR] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const vi o = (vi)vu_load(outputs + g * VW), late = o > 7;
    const unsigned char *high_at = qtile + TERNARY_HIGH;
    vu low = vu_load_u16(qtile + TERNARY_LOW + g * VW * 2);
    low = (low | low << 8) & 0x00ff00ff;
    low = (low | low << 4) & 0x0f0f0f0f;
    /* byte o % 8 has the bits of output o, in its lower half or its upper half */
    vu bytes = {0};
    if (VW == 16) {
        bytes = (vu)((load_word(high_at) & (vi)((o & 4) == 0)) |
                     (load_word(high_at + 4) & (vi)((o & 4) != 0)));
        bytes = bytes >> ((vu)o % 4 * 8);
    } else {
        bytes = (vu)vi_load_u8(high_at + g * VW % 8);
    }
    const vu high = bytes >> ((vu)late & 4) & 15;
    return low | (high * 0x00204081 & 0x01010101) << 4;
}

/* load_line() of a ternary type. */
INLINE vu load_ternary_line(const unsigned char *qtile, int j, int g)
{
    struct byte_halves x;
    if (j < TERNARY_LINES) {
        x = split_bytes(vu_load(qtile + g * VW * 4));
        return digit_of(x.even, j) | digit_of(x.odd, j) << 8;
    }
    x = split_bytes(load_ternary_rest(qtile, g));
    j -= TERNARY_LINES;
    return digit_of(fraction_of(x.even), j) | digit_of(fraction_of(x.odd), j) << 8;
}
