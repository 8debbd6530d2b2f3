/* Bit layouts of ggml's quantised blocks. */
#ifndef BMC_BLOCK_BITS_H
#define BMC_BLOCK_BITS_H

#include <stddef.h>
#include <stdint.h>

/* Elements of ggml's small quantised blocks, and of the super-blocks of K-quants and IQ4_XS. */
enum { SMALL = 32, SUPER = 256 };

static inline uint16_t load_u16(const unsigned char *at) { return (uint16_t)(at[0] | at[1] << 8); }

/* Element i of 32 4-bit values: 0 to 15 are the low nibbles of 16 bytes, 16 to 31 the high ones. */
static inline int nibble(const unsigned char *q, size_t i)
{
    return i < 16 ? q[i] & 15 : q[i - 16] >> 4;
}

/* Element i of 32 5-bit values: low four bits in `q` as in nibble(), fifth bits in `high`. */
static inline int five_bits(const unsigned char *high, const unsigned char *q, size_t i)
{
    return nibble(q, i) | (high[i / 8] >> i % 8 & 1) << 4;
}

/* 2-bit element i of sub-block `sub` of 32 elements. Each 32 bytes hold four sub-blocks, the first
 * one in the lowest two bits. */
static inline int two_bits(const unsigned char *q, size_t sub, size_t i)
{
    return q[sub / 4 * 32 + i] >> sub % 4 * 2 & 3;
}

/* Q3_K: the 6-bit scale of sub-block `sub` of 16, minus 32. Low four bits are in s[0] to s[7],
 * upper two in s[8] to s[11]. */
static inline int q3_scale(const unsigned char *s, size_t sub)
{
    const int low = sub < 8 ? s[sub] & 15 : s[sub - 8] >> 4;
    return (low | (s[8 + sub % 4] >> sub / 4 * 2 & 3) << 4) - 32;
}

/* Q4_K and Q5_K: the 6-bit scale and minimum of sub-block `sub` of 8, all packed in 12 bytes. */
static inline void q4_scales(const unsigned char *s, size_t sub, int *scale, int *low)
{
    if (sub < 4) {
        *scale = s[sub] & 63;
        *low = s[sub + 4] & 63;
    } else {
        *scale = (s[sub + 4] & 15) | s[sub - 4] >> 6 << 4;
        *low = s[sub + 4] >> 4 | s[sub] >> 6 << 4;
    }
}

/* 4-bit element i of sub-block `sub`: 32 bytes hold two sub-blocks, the first in low nibbles. */
static inline int four_bits(const unsigned char *q, size_t sub, size_t i)
{
    return q[sub / 2 * 32 + i] >> sub % 2 * 4 & 15;
}

/* Q6_K: low four bits of element i of sub-block `sub`. Of each four sub-blocks, 0 and 2 share
 * bytes, and 1 and 3. */
static inline int q6_low(const unsigned char *q, size_t sub, size_t i)
{
    return q[sub / 4 * 64 + sub % 2 * 32 + i] >> sub % 4 / 2 * 4 & 15;
}

/* IQ4_XS: the 6-bit scale of sub-block `sub` of 8, minus 32; upper two bits are stored first. */
static inline int iq4_scale(const unsigned char *b, size_t sub)
{
    return ((b[4 + sub / 2] >> sub % 2 * 4 & 15) | (load_u16(b + 2) >> 2 * sub & 3) << 4) - 32;
}

/* TQ1_0: digit i, 0 to 2. Bytes hold digits of 32, then 16, then 4 bytes in turn, five or (of the last
 * 4) four in each: the highest digit is the integer part of 3 / 256 of the byte, and so on. */
static inline int ternary_digit_at(const unsigned char *q, size_t i)
{
    const size_t from = i < 160 ? 0 : i < 240 ? 160 : 240, turn = i < 160 ? 32 : i < 240 ? 16 : 4;
    unsigned fraction = q[from / 5 + (i - from) % turn];
    for (size_t digit = (i - from) / turn; digit > 0; digit--)
        fraction = fraction * 3 & 255;
    return (int)(fraction * 3 >> 8);
}

#endif
