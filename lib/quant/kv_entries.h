/* KV entries of rotated vectors, and those of 4, 5 and 6 bits: K or V of a head, rotated by hadamard(), then quantised as
 *
 *   value = scale * integer(q, m)      q: of every value;  m, 0 to 15: of every KV_GROUP values;  one scale
 *
 * where integer(q, m) is (m + 1) / 16 of level q, rounded to 8 bits. So an entry becomes one of
 * DTYPE_Q8_CHANNEL without arithmetic in floating point, and kernels multiply it as such. After the rotation values
 * are nearly normally distributed: the levels of 4 bits are those with the least mean squared error for these
 * (Lloyd's algorithm, with the best m of every group), those of 5 and 6 bits have equal distances.
 *
 * An entry of n values, in blocks of 32: per block 16 bytes of q's low 4 bits (byte i has those of value i, and of
 * value 16 + i in its high half); then per block q's high bits (6 bits: 8 bytes, byte i those of values i, 8 + i,
 * 16 + i and 24 + i; 5 bits: 4 bytes, byte i those of values i, 4 + i, ..); then per block a byte with m of both
 * groups, the first in its low half; then the scale, a bf16. */
#pragma once

#include "quant/dtype.h"

/* Types of KV entries only, of rotated vectors, as DTYPE_Q4_1_ROTATED is: as DTYPE_Q8_CHANNEL, or in 6, 5 or 4 bits.
 * dtype_row_bytes() and the conversions of dtype.h accept them. */
#define DTYPE_KV8 ((enum dtype)129)
#define DTYPE_KV6 ((enum dtype)130)
#define DTYPE_KV5 ((enum dtype)131)
#define DTYPE_KV4 ((enum dtype)132)

static inline bool kv_type_rotated(enum dtype type)
{
    return type >= DTYPE_Q4_1_ROTATED && type <= DTYPE_KV4;
}

/* The type by which entries are read, whether or not their vectors are rotated. */
static inline enum dtype kv_type_multiplied(enum dtype type)
{
    return type == DTYPE_KV8 ? DTYPE_Q8_CHANNEL : dtype_stored(type);
}

enum { KV_GROUP = 16, KV_BLOCK = 32 };

/* Bits of a value; 0: entries of the type are not of this kind. */
static inline unsigned kv_entry_bits(enum dtype type)
{
    return type == DTYPE_KV4 ? 4 : type == DTYPE_KV5 ? 5 : type == DTYPE_KV6 ? 6 : 0;
}

/* Byte offsets of the parts of an entry. */
struct kv_entry_layout {
    size_t high, multiplier, scale, bytes;
};
static inline struct kv_entry_layout kv_entry_layout(unsigned bits, size_t n)
{
    const size_t blocks = div_up(n, KV_BLOCK), high = KV_BLOCK / 2 * blocks,
                 multiplier = high + (bits - 4) * (KV_BLOCK / 8) * blocks;
    return (struct kv_entry_layout){high, multiplier, multiplier + blocks,
                                    multiplier + blocks + sizeof(bf16)};
}

/* 128 + integer(q, m) of 4 bits. Levels are 1/16 of the numbers here. */
#define KV4_PART(level, m) (((level) * ((m) + 1) + 128) >> 8)
#define KV4_ROW(m)                                                                                     \
    {                                                                                                  \
        128 - KV4_PART(2032, m), 128 - KV4_PART(1674, m), 128 - KV4_PART(1355, m),                     \
            128 - KV4_PART(1067, m), 128 - KV4_PART(802, m), 128 - KV4_PART(549, m),                   \
            128 - KV4_PART(317, m), 128 - KV4_PART(104, m), 128 + KV4_PART(104, m),                    \
            128 + KV4_PART(317, m), 128 + KV4_PART(549, m), 128 + KV4_PART(802, m),                    \
            128 + KV4_PART(1067, m), 128 + KV4_PART(1355, m), 128 + KV4_PART(1674, m),                 \
            128 + KV4_PART(2032, m),                                                                   \
    }
static const uint8_t kv4_integers[16][16] = {
    KV4_ROW(0),  KV4_ROW(1),  KV4_ROW(2),  KV4_ROW(3),  KV4_ROW(4),  KV4_ROW(5),
    KV4_ROW(6),  KV4_ROW(7),  KV4_ROW(8),  KV4_ROW(9),  KV4_ROW(10), KV4_ROW(11),
    KV4_ROW(12), KV4_ROW(13), KV4_ROW(14), KV4_ROW(15),
};

/* integer(q, m) of 5 and 6 bits is (2 q - (2^bits - 1)) (m + 1) / 2^KV_SHIFT, rounded up at halves. */
#define KV_SHIFT(bits) ((int)(bits)-3)

static inline int kv_entry_integer(unsigned bits, unsigned q, unsigned m)
{
    const int odd = 2 * (int)q - (1 << bits) + 1, shift = KV_SHIFT(bits);
    return bits == 4 ? kv4_integers[m][q] - 128 : (odd * ((int)m + 1) + (1 << shift >> 1)) >> shift;
}

/* Quantise x[n], already rotated, to an entry, of which a group has the m, of up to four, with the least squared
 * error; and dequantise it, still rotated. A NaN or infinity makes the scale NaN. */
void kv_entry_quantize(void *entry, enum dtype type, const float *x, size_t n);
void kv_entry_dequantize(float *to, enum dtype type, const void *entry, size_t n);

/* Levels of an entry of x[n], already rotated, n <= KV_FITTED, are changed one by one, twice each, wherever
 *
 *   sum over j of (query[j] . error)^2 + KV_FIT_SPREAD / n |error|^2 sum over j of |query[j]|^2
 *
 * becomes less (coordinate descent, as of the layer-wise objective of GPTQ, Frantar et al. 2023, equation 1, whose inputs are
 * queries here): errors of a key matter by their products with queries. These are query[n][KV_FIT_QUERIES], rotated;
 * a column may be 0. Every sum has one order. */
enum { KV_FITTED = 512, KV_FIT_QUERIES = 4, KV_FIT_SPREAD = 3 };
void kv_entry_fit(void *entry, enum dtype type, const float *x, size_t n,
                  float (*query)[KV_FIT_QUERIES]);

/* Quantises x[n], already rotated, to an entry of DTYPE_KV8. The scale is the one, of eight about largest magnitude / 127,
 * with the least squared error: 5 to 10 % less than with that one. */
void kv_entry_quantize8(void *entry, const float *x, size_t n);

bool kv_entry_finite(enum dtype type, const void *entry, size_t n);
