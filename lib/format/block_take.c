/* Blocks of sources taken over: the numbers in them become codes and planes of a row, and none of them is rounded. What a
 * type of a source adds to its codes, that of the model has, too, or another amount: then codes are moved by the rest. */
#include <string.h>

#include "base/few_bits.h"
#include "format/block_bits.h"
#include "format/block_types.h"

#define INLINE static inline __attribute__((always_inline))

/* Where what is in a block belongs in the row. */
struct place {
    unsigned char *code, *scale, *low, *d, *dmin;
};

INLINE void put_f16(unsigned char *to, const unsigned char *from) { memcpy(to, from, sizeof(f16)); }

enum { ZERO = 128 }; /* the code of 0 where codes are of 8 bits */

/* ---- blocks of 32 ---- */

INLINE void q8_0(struct place to, const unsigned char *b)
{
    put_f16(to.scale, b);
    for (size_t i = 0; i < SMALL; i++)
        to.code[i] = b[2 + i] ^ ZERO; /* of two's complement: 128 more */
}

INLINE void q4_0(struct place to, const unsigned char *b)
{
    put_f16(to.scale, b);
    memcpy(to.code, b + 2, SMALL / 2);
}

INLINE void q4_1(struct place to, const unsigned char *b)
{
    put_f16(to.scale, b);
    put_f16(to.low, b + 2);
    memcpy(to.code, b + 4, SMALL / 2);
}

INLINE void q5_0(struct place to, const unsigned char *b)
{
    put_f16(to.scale, b);
    for (size_t i = 0; i < SMALL; i++)
        to.code[i] = (unsigned char)(five_bits(b + 2, b + 6, i) - 16 + ZERO);
}

INLINE void put_uneven(unsigned char *code, const unsigned char *q)
{
    for (size_t i = 0; i < SMALL; i++)
        code[i] = (unsigned char)(uneven[nibble(q, i)] + ZERO);
}

INLINE void iq4_nl(struct place to, const unsigned char *b)
{
    put_f16(to.scale, b);
    put_uneven(to.code, b + 2);
}

/* ---- super-blocks of 256 ---- */

/* Loops over codes are over parts of 32, whose places and shifts are constants: they become instructions on many bytes. */
enum { PART = 32, PARTS = SUPER / PART };

INLINE void q2_k(struct place to, const unsigned char *b)
{
    put_f16(to.d, b + 80);
    put_f16(to.dmin, b + 82);
    for (size_t part = 0; part < 16; part++) {
        to.scale[part] = b[part] & 15;
        to.low[part] = b[part] >> 4;
    }
    for (size_t part = 0; part < PARTS; part++)
        for (size_t i = 0; i < PART; i++)
            to.code[PART * part + i] = (unsigned char)(two_bits(b + 16, part, i) + ZERO);
}

INLINE void q3_k(struct place to, const unsigned char *b)
{
    put_f16(to.d, b + 108);
    for (size_t part = 0; part < 16; part++)
        to.scale[part] = (unsigned char)q3_scale(b + 96, part);
    for (size_t part = 0; part < PARTS; part++)
        for (size_t i = 0; i < PART; i++) { /* the third bit takes 4 away where it is not set */
            const int third = (b[i] >> part & 1) * 4 - 4;
            to.code[PART * part + i] = (unsigned char)(two_bits(b + 32, part, i) + third + 32);
        }
}

/* Scales, minima and what multiplies them, as Q4_K and Q5_K begin; each of 32 elements, which may be `times` numbers. */
INLINE void put_q45_scales(struct place to, const unsigned char *b, size_t times)
{
    put_f16(to.d, b);
    put_f16(to.dmin, b + 2);
    for (size_t part = 0; part < 8; part++) {
        int scale, low;
        q4_scales(b + 4, part, &scale, &low);
        memset(to.scale + times * part, scale, times);
        memset(to.low + times * part, low, times);
    }
}

/* A byte of the source has elements of two parts, one of the row has two elements of one part. */
INLINE void q4_k(struct place to, const unsigned char *b)
{
    put_q45_scales(to, b, 1);
    for (size_t pair = 0; pair < 4; pair++)
        for (size_t i = 0; i < 16; i++) {
            const unsigned char *q = b + 16 + 32 * pair + i;
            to.code[32 * pair + i] = (unsigned char)((q[0] & 15) | (q[16] & 15) << 4);
            to.code[32 * pair + 16 + i] = (unsigned char)(q[0] >> 4 | (q[16] & 0xf0));
        }
}

INLINE void q5_k(struct place to, const unsigned char *b)
{
    put_q45_scales(to, b, 2);
    for (size_t part = 0; part < PARTS; part++)
        for (size_t i = 0; i < PART; i++) {
            const int fifth = (b[16 + i] >> part & 1) << 4;
            to.code[PART * part + i] = (unsigned char)((four_bits(b + 48, part, i) | fifth) + ZERO);
        }
}

INLINE void q6_k(struct place to, const unsigned char *b)
{
    put_f16(to.d, b + 208);
    memcpy(to.scale, b + 192, 16);
    for (size_t part = 0; part < PARTS; part++)
        for (size_t i = 0; i < PART; i++)
            to.code[PART * part + i] =
                (unsigned char)(q6_low(b, part, i) | two_bits(b + 128, part, i) << 4);
}

/* There is no minimum: a dmin of 0 has none. */
INLINE void iq4_xs(struct place to, const unsigned char *b)
{
    put_f16(to.d, b);
    memset(to.dmin, 0, sizeof(f16));
    memset(to.low, 0, 16);
    for (size_t part = 0; part < 8; part++) {
        memset(to.scale + 2 * part, iq4_scale(b, part), 2);
        put_uneven(to.code + 32 * part, b + 8 + 16 * part);
    }
}

/* ---- rows ---- */

/* A plane of the row, at what block i has of it. */
INLINE unsigned char *plane_at(enum dtype type, unsigned char *row, size_t n, size_t elements, size_t i,
                               enum few_part part)
{
    const struct few_plane plane = few_bits[type].plane[part];
    return row + few_plane_at(type, n, part) + i * few_count(plane, elements) * plane.bytes;
}

INLINE void take_row(enum dtype type, void (*take)(struct place, const unsigned char *),
                     size_t elements, size_t bytes, unsigned char *row, const unsigned char *blocks,
                     size_t n)
{
    for (size_t i = 0; i < n / elements; i++) {
        const struct place to = {
            .code = row + few_code_bytes(type, i * elements),
            .scale = plane_at(type, row, n, elements, i, FEW_SCALE),
            .low = plane_at(type, row, n, elements, i, FEW_LOW),
            .d = plane_at(type, row, n, elements, i, FEW_D),
            .dmin = plane_at(type, row, n, elements, i, FEW_DMIN),
        };
        take(to, blocks + i * bytes);
    }
}

void block_take(enum source_type from, unsigned char *row, const unsigned char *blocks, size_t n)
{
    switch (from) {
    case SOURCE_Q8_0: take_row(DTYPE_Q8, q8_0, SMALL, 34, row, blocks, n); break;
    case SOURCE_Q4_0: take_row(DTYPE_Q4S, q4_0, SMALL, 18, row, blocks, n); break;
    case SOURCE_Q4_1: take_row(DTYPE_Q4, q4_1, SMALL, 20, row, blocks, n); break;
    case SOURCE_Q5_0: take_row(DTYPE_Q8, q5_0, SMALL, 22, row, blocks, n); break;
    case SOURCE_IQ4_NL: take_row(DTYPE_Q8, iq4_nl, SMALL, 18, row, blocks, n); break;
    case SOURCE_Q2_K: take_row(DTYPE_Q8K, q2_k, SUPER, 84, row, blocks, n); break;
    case SOURCE_Q3_K: take_row(DTYPE_Q6K, q3_k, SUPER, 110, row, blocks, n); break;
    case SOURCE_Q4_K: take_row(DTYPE_Q4K, q4_k, SUPER, 144, row, blocks, n); break;
    case SOURCE_Q5_K: take_row(DTYPE_Q8K, q5_k, SUPER, 176, row, blocks, n); break;
    case SOURCE_Q6_K: take_row(DTYPE_Q6K, q6_k, SUPER, 210, row, blocks, n); break;
    case SOURCE_IQ4_XS: take_row(DTYPE_Q8K, iq4_xs, SUPER, 136, row, blocks, n); break;
    case SOURCE_F32:
    case SOURCE_F16:
    case SOURCE_BF16:
    case SOURCE_Q5_1:
    case SOURCE_OTHER: break; /* not of few bits, or of no type that holds them as they are */
    }
}
