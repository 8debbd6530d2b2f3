/* Element types and layouts of stored tensors, and the matrix that products read. */
#ifndef BMC_DTYPE_H
#define BMC_DTYPE_H

#include <string.h>

#include "base/base.h"

/* Values are part of the file formats. */
enum dtype {
    DTYPE_F32 = 0,
    DTYPE_BF16 = 1,
    DTYPE_F16 = 2,
    DTYPE_Q8 = 3, /* from here on: few bits and shared scales, base/few_bits.h */
    DTYPE_Q8C = 4,
    DTYPE_Q4 = 5,
    DTYPE_Q4S = 6,
    DTYPE_Q4K = 7,
    DTYPE_Q6K = 8,
    DTYPE_Q8K = 9,
    DTYPE_COUNT
};

/* In switches that are over the other types. */
#define DTYPE_FEW_BITS                                                                                 \
    DTYPE_Q8:                                                                                          \
    case DTYPE_Q8C:                                                                                    \
    case DTYPE_Q4:                                                                                     \
    case DTYPE_Q4S:                                                                                    \
    case DTYPE_Q4K:                                                                                    \
    case DTYPE_Q6K:                                                                                    \
    case DTYPE_Q8K

/* How a matrix [out][in] lies in memory: row after row, or as base/pack.h says, which is what products read. Values
 * are part of the file format. */
enum layout { LAYOUT_ROWS = 0, LAYOUT_PACKED = 1, LAYOUT_COUNT };

typedef uint16_t bf16, f16;

extern const char *const dtype_names[DTYPE_COUNT + 1]; /* ended by NULL */

static inline const char *dtype_name(enum dtype type) { return dtype_names[type]; }

/* A value has a code of few bits and shares scales: base/few_bits.h. */
static inline bool dtype_few_bits(enum dtype type) { return type >= DTYPE_Q8; }

/* Bytes of an element; 0 for types of few bits. The switch is for kernels, where the type is a constant. */
static inline size_t dtype_size(enum dtype type)
{
    switch (type) {
    case DTYPE_F32: return 4;
    case DTYPE_BF16:
    case DTYPE_F16: return 2;
    case DTYPE_FEW_BITS:
    case DTYPE_COUNT: break;
    }
    return 0;
}

/* Neighbouring inputs that lie together in packed weights. */
static inline size_t dtype_pair(enum dtype type) { return type == DTYPE_BF16 ? 2 : 1; }

/* Bytes of a row of n elements; no more than 8 n + 16. */
size_t dtype_row_bytes(enum dtype type, size_t n);

/* A row of n elements to f32, and back; these and dtype_row_bytes() are all that most code needs to know of types. Parts
 * of a row can be had of the types that have a dtype_size(). */
void dtype_widen(float *to, enum dtype type, const void *from, size_t n);
void dtype_narrow(void *to, enum dtype type, const float *from, size_t n);

/* None of the n elements of a row is infinite or NaN. */
bool dtype_finite(enum dtype type, const void *from, size_t n);

static inline const char *layout_name(enum layout layout)
{
    return layout == LAYOUT_PACKED ? "packed" : "rows";
}

static inline float bf16_to_f32(bf16 x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Rounds to nearest, ties to even. NaN stays NaN. */
static inline bf16 bf16_from_f32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (bf16)(bits >> 16 | 0x40);
    return (bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* An f16 has 5 bits of exponent, biased by 15, and 10 of fraction; below 2^-14 it counts in units of 2^-24. */
static inline float f16_to_f32(f16 x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000) << 16, rest = x & 0x7fff;
    const float tiny = (float)rest * 0x1p-24f;
    uint32_t bits = (rest << 13) + (rest >= 0x7c00 ? 224u << 23 : 112u << 23);
    if (rest < 0x400)
        memcpy(&bits, &tiny, sizeof bits);
    bits |= sign;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Rounds to nearest, ties to even; what is too large becomes infinite. NaN stays NaN. */
static inline f16 f16_from_f32(float f)
{
    uint32_t bits, rounded;
    memcpy(&bits, &f, sizeof bits);
    const f16 sign = (f16)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000)
        return sign | 0x7e00;
    if (bits >= 0x47800000) /* 2^16 */
        return sign | 0x7c00;
    if (bits >= 0x38800000) /* 2^-14 */
        return sign | (f16)((bits - (112u << 23) + 0xfff + (bits >> 13 & 1)) >> 13);
    float counted; /* added to 0.5, whose last digit is 2^-24 */
    memcpy(&counted, &bits, sizeof counted);
    counted += 0.5f;
    memcpy(&rounded, &counted, sizeof rounded);
    return sign | (f16)(rounded - 0x3f000000);
}

/* Element i of those at `from`, of a type that has a dtype_size(). In loops of kernels the type is a constant. */
static inline __attribute__((always_inline)) float dtype_element(enum dtype type, const void *from,
                                                                 size_t i)
{
    switch (type) {
    case DTYPE_F32: return ((const float *)from)[i];
    case DTYPE_BF16: return bf16_to_f32(((const bf16 *)from)[i]);
    case DTYPE_F16: return f16_to_f32(((const f16 *)from)[i]);
    case DTYPE_FEW_BITS:
    case DTYPE_COUNT: break;
    }
    return 0;
}

/* A weight matrix [out][in] in place, or a list of `out` rows (an embedding). */
struct mat {
    enum dtype dtype;
    enum layout layout;
    size_t out, in;   /* logical shape */
    size_t in_padded; /* inputs as stored: elements that a row takes */
    const void *data; /* NULL: the model has no such matrix */
};

#endif
