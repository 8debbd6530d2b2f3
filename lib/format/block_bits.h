/* Where the numbers of few bits lie in the blocks of sources. */
#ifndef BMC_BLOCK_BITS_H
#define BMC_BLOCK_BITS_H

#include <stddef.h>
#include <stdint.h>

/* Elements of a block; of a super-block, in parts with scales of their own. */
enum { SMALL = 32, SUPER = 256 };

static inline uint16_t load_u16(const unsigned char *at) { return (uint16_t)(at[0] | at[1] << 8); }

/* The first half lies in the low nibbles, the second in the high ones. */
static inline int nibble(const unsigned char *q, size_t i)
{
    return i < 16 ? q[i] & 15 : q[i - 16] >> 4;
}

/* The fifth bits lie in four bytes of their own. */
static inline int five_bits(const unsigned char *high, const unsigned char *q, size_t i)
{
    return nibble(q, i) | (high[i / 8] >> i % 8 & 1) << 4;
}

/* What four bits stand for where steps are not even. */
static const int8_t uneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

/* Element i of the 32 of a part of a super-block: two bits of each of four parts lie in 32 bytes, the lowest are those of
 * the first. */
static inline int two_bits(const unsigned char *q, size_t part, size_t i)
{
    return q[part / 4 * 32 + i] >> part % 4 * 2 & 3;
}

/* Sixteen scales of six bits: four bits each in eight bytes, then the upper two in four more. */
static inline int q3_scale(const unsigned char *s, size_t part)
{
    const int low = part < 8 ? s[part] & 15 : s[part - 8] >> 4;
    return (low | (s[8 + part % 4] >> part / 4 * 2 & 3) << 4) - 32;
}

/* Eight scales and eight minima of six bits in twelve bytes. */
static inline void q4_scales(const unsigned char *s, size_t part, int *scale, int *low)
{
    if (part < 4) {
        *scale = s[part] & 63;
        *low = s[part + 4] & 63;
    } else {
        *scale = (s[part + 4] & 15) | s[part - 4] >> 6 << 4;
        *low = s[part + 4] >> 4 | s[part] >> 6 << 4;
    }
}

/* Four bits of each of two parts. */
static inline int four_bits(const unsigned char *q, size_t part, size_t i)
{
    return q[part / 2 * 32 + i] >> part % 2 * 4 & 15;
}

/* In Q6_K, of parts 0 and 2, 1 and 3. */
static inline int q6_low(const unsigned char *q, size_t part, size_t i)
{
    return q[part / 4 * 64 + part % 2 * 32 + i] >> part % 4 / 2 * 4 & 15;
}

/* Eight scales of six bits in a block of IQ4_XS: the upper two bits of all stand in front of the others. */
static inline int iq4_scale(const unsigned char *b, size_t part)
{
    return ((b[4 + part / 2] >> part % 2 * 4 & 15) | (load_u16(b + 2) >> 2 * part & 3) << 4) - 32;
}

#endif
