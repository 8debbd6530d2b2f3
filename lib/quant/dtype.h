/* Element types and layouts of stored tensors; struct mat, the operand of matrix products. */
#pragma once

#include "base/base.h"

/* The quantised types (quant/quant_types.h): X(name, number in files, name in texts, argument) for each. Kernels
 * may have instructions that unpack those of the second list faster: by looking bytes up or moving their bits. */
#define QUANT_TYPES(X, argument)                                                                       \
    PLAIN_TYPES(X, argument)                                                                           \
    LOOKUP_TYPES(X, argument)
#define PLAIN_TYPES(X, argument)                                                                       \
    X(Q8_0, 3, "q8_0", argument)                                                                       \
    X(Q8_CHANNEL, 4, "q8_channel", argument)                                                           \
    X(Q4_1, 5, "q4_1", argument)                                                                       \
    X(Q4_0, 6, "q4_0", argument)                                                                       \
    X(Q4_K, 7, "q4_k", argument)                                                                       \
    X(Q6_K, 8, "q6_k", argument)                                                                       \
    X(Q8_2L, 9, "q8_2l", argument)                                                                     \
    X(Q5_0, 10, "q5_0", argument)                                                                      \
    X(Q5_1, 11, "q5_1", argument)                                                                      \
    X(Q5_K, 12, "q5_k", argument)                                                                      \
    X(Q3_K, 13, "q3_k", argument)                                                                      \
    X(Q2_K, 14, "q2_k", argument)                                                                      \
    X(TQ2_0, 21, "tq2_0", argument)                                                                    \
    X(Q4_Z32, 30, "q4_z32", argument)                                                                  \
    X(Q4_Z128, 31, "q4_z128", argument)
#define LOOKUP_TYPES(X, argument)                                                                      \
    X(IQ4_NL, 15, "iq4_nl", argument)                                                                  \
    X(IQ4_XS, 16, "iq4_xs", argument)                                                                  \
    X(MXFP4, 17, "mxfp4", argument)                                                                    \
    X(NVFP4, 27, "nvfp4", argument)                                                                    \
    X(IQ3_S, 18, "iq3_s", argument)                                                                    \
    X(IQ3_XXS, 19, "iq3_xxs", argument)                                                                \
    X(TQ1_0, 20, "tq1_0", argument)                                                                    \
    X(IQ2_S, 22, "iq2_s", argument)                                                                    \
    X(IQ2_XS, 23, "iq2_xs", argument)                                                                  \
    X(IQ2_XXS, 24, "iq2_xxs", argument)                                                                \
    X(IQ1_S, 25, "iq1_s", argument)                                                                    \
    X(IQ1_M, 26, "iq1_m", argument)                                                                    \
    X(Q1_0, 28, "q1_0", argument)                                                                      \
    X(Q2_0, 29, "q2_0", argument)

#define DTYPE_NUMBER(name, number, text, unused) DTYPE_##name = number,
#define DTYPE_ONE(name, number, text, unused)    +1

/* Types of the elements of a tensor. The numbers are stored in files. */
enum dtype {
    DTYPE_F32 = 0,
    DTYPE_BF16 = 1,
    DTYPE_F16 = 2,
    QUANT_TYPES(DTYPE_NUMBER, ) DTYPE_COUNT = 3 QUANT_TYPES(DTYPE_ONE, )
};

/* A type of KV entries only: DTYPE_Q4_1 of vectors that are rotated first (quant/hadamard.h). No case of a
 * switch over weight types; functions of this header accept it, as do those of quant_rows.h. */
#define DTYPE_Q4_1_ROTATED ((enum dtype)128)

/* The type of a row's bytes. */
static inline enum dtype dtype_stored(enum dtype type)
{
    return type == DTYPE_Q4_1_ROTATED ? DTYPE_Q4_1 : type;
}

/* All quantised types, for use as `case DTYPE_QUANTIZED:` in a switch. */
#define DTYPE_QUANTIZED DTYPE_Q8_0... DTYPE_COUNT - 1

/* Layout of a matrix [out][in]: row-major or packed (quant/pack.h). Values are stored in files. */
enum layout { LAYOUT_ROWS = 0, LAYOUT_PACKED = 1, LAYOUT_COUNT };

typedef uint16_t bf16, f16;

extern const char *const dtype_names[DTYPE_COUNT + 1]; /* indexed by dtype; ended by NULL */

static inline const char *dtype_name(enum dtype type) { return dtype_names[dtype_stored(type)]; }

/* Finds the type of a name ("Q8_0"), case-insensitive; names of earlier versions ("q4s") are
 * accepted. False: no type has that name. */
bool dtype_parse(const char *name, enum dtype *type) MUST_USE;

static inline bool dtype_is_quantized(enum dtype type) { return type >= DTYPE_Q8_0; }

/* Bytes of an element; 0 for quantised types. */
static inline size_t dtype_size(enum dtype type)
{
    switch (type) {
    case DTYPE_F32: return 4;
    case DTYPE_BF16:
    case DTYPE_F16: return 2;
    case DTYPE_QUANTIZED:
    case DTYPE_COUNT: break;
    }
    return 0;
}

/* Number of neighbouring inputs of an output that share a word in packed weights (quant/pack.h). */
static inline size_t dtype_pair(enum dtype type) { return type == DTYPE_BF16 ? 2 : 1; }

/* Bytes of a row of n elements; no more than 8 n + 24. */
size_t dtype_row_bytes(enum dtype type, size_t n);

/* dtype_to_f32() converts a row of n elements of `type` to f32, dtype_from_f32() from f32.
 * Quantised rows can only be converted whole. */
void dtype_to_f32(float *to, enum dtype type, const void *from, size_t n);
void dtype_from_f32(void *to, enum dtype type, const float *from, size_t n);

/* dtype_from_f32() of a key that queries[n_queries][n] attend to: levels of KV entries of 4, 5 and 6 bits, of up to KV_FITTED
 * elements, are fit to them (quant/kv_entries.h); the key's own queries stand for those of later positions. */
void dtype_from_key(void *to, enum dtype type, const float *key, size_t n, const float *queries,
                    size_t n_queries);

/* True if none of the n elements of a row is infinite or NaN. */
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

/* Converts f32 to bf16: rounds to nearest, ties to even. NaN stays NaN. */
static inline bf16 bf16_from_f32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (bf16)(bits >> 16 | 0x40);
    return (bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Converts f16 to f32. An f16 has 5 bits of exponent, biased by 15, and 10 of fraction; it is
 * subnormal below 2^-14. */
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

/* Converts f32 to f16: rounds to nearest, ties to even; overflow becomes infinite, NaN stays
 * NaN. */
static inline f16 f16_from_f32(float f)
{
    uint32_t bits, tiny;
    memcpy(&bits, &f, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    float counted; /* adding 0.5 rounds to multiples of 2^-24 */
    memcpy(&counted, &bits, sizeof counted);
    counted += 0.5f;
    memcpy(&tiny, &counted, sizeof tiny);
    const uint32_t normal = (bits - (112u << 23) + 0xfff + (bits >> 13 & 1)) >> 13;
    uint32_t rest = bits < 0x38800000 ? tiny - 0x3f000000 : normal; /* 2^-14 */
    rest = bits < 0x47800000 ? rest : 0x7c00;                       /* 2^16 */
    return (f16)(sign | (bits > 0x7f800000 ? 0x7e00 : rest));
}

/* Returns element i of the array `from` as f32, for unquantised types. Inlined, as kernels pass a
 * constant type. */
static inline __attribute__((always_inline)) float dtype_element(enum dtype type, const void *from,
                                                                 size_t i)
{
    switch (type) {
    case DTYPE_F32: return ((const float *)from)[i];
    case DTYPE_BF16: return bf16_to_f32(((const bf16 *)from)[i]);
    case DTYPE_F16: return f16_to_f32(((const f16 *)from)[i]);
    case DTYPE_QUANTIZED:
    case DTYPE_COUNT: break;
    }
    return 0;
}

/* A weight matrix [out][in], or a table of `out` vectors of `in` elements (an embedding). */
struct mat {
    enum dtype dtype;
    enum layout layout;
    size_t out, in;   /* logical shape */
    size_t in_padded; /* inputs per row as stored, padding included */
    const void *data; /* NULL: the model lacks this matrix */
};
