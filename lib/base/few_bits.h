/* Types of few bits: a value is a code, and what its neighbours share.
 *
 *   value = step * (code - zero) + base, rounded once
 *
 * step and base belong to a group of neighbouring inputs of one output. They are made of `planes`, numbers that lie one
 * behind the other: for a type of one level the scale (and the offset) of every group; for a type of two levels a small
 * whole number for every group, and the f16 that those of 256 inputs are multiplied by:
 *
 *   type   code          planes                                          step         base           what it holds as it is
 *   q8     8 bits - 128  f16 scale                                       scale        0              Q8_0, Q5_0, IQ4_NL
 *   q8c    8 bits - 128  f32 scale, one for a whole row                  scale        0
 *   q4     4 bits        f16 scale, f16 offset                           scale        offset         Q4_1
 *   q4s    4 bits - 8    f16 scale                                       scale        0              Q4_0
 *   q4k    4 bits        u8 scale, u8 low; f16 d, f16 dmin               d * scale    -(dmin * low)  Q4_K
 *   q6k    6 bits - 32   i8 scale of 16; f16 d                           d * scale    0              Q6_K, Q3_K
 *   q8k    8 bits - 128  i8 scale of 16, u8 low of 16; f16 d, f16 dmin   d * scale    -(dmin * low)  Q5_K, Q2_K, IQ4_XS
 *
 * Scales are of 32 inputs where nothing else is said, d and dmin of 256. (q8c: BASS paper A.1; the names in capitals are
 * GGUF's.)
 *
 * The row form is what converters make, what hashes are over, and what a row of a cache is: the codes, then the planes.
 * A code takes a byte; those of 4 bits take half of one: byte i of 16 has code i of 32 in its low half, code 16 + i in
 * its high half. Rows need no alignment. base/pack.h says how the same things lie for products. */
#ifndef BMC_FEW_BITS_H
#define BMC_FEW_BITS_H

#include <math.h>

#include "base/dtype.h"

enum { FEW_GROUP = 32, FEW_HALF = 16, FEW_SUPER = 256, FEW_PLANES = 4 };

/* What planes are for; scale and low are small whole numbers where there is a d. */
enum few_part { FEW_SCALE, FEW_LOW, FEW_D, FEW_DMIN };

struct few_plane {
    uint8_t bytes;  /* of a number; 0: the type has no such plane */
    uint16_t every; /* inputs that share it; 0: all of a row */
};

struct few_bits {
    uint8_t bits; /* of a code */
    uint8_t zero;
    bool offset; /* FEW_LOW is added as it is: an f16 */
    struct few_plane plane[FEW_PLANES];
};

/* In the header, so that kernels see constants. Types that are not of few bits have 0 bits. */
static const struct few_bits few_bits[DTYPE_COUNT] = {
    [DTYPE_Q8] = {8, 128, false, {{2, 32}}},
    [DTYPE_Q8C] = {8, 128, false, {{4, 0}}},
    [DTYPE_Q4] = {4, 0, true, {{2, 32}, {2, 32}}},
    [DTYPE_Q4S] = {4, 8, false, {{2, 32}}},
    [DTYPE_Q4K] = {4, 0, false, {{1, 32}, {1, 32}, {2, 256}, {2, 256}}},
    [DTYPE_Q6K] = {6, 32, false, {{1, 16}, {0, 0}, {2, 256}}},
    [DTYPE_Q8K] = {8, 128, false, {{1, 16}, {1, 16}, {2, 256}, {2, 256}}},
};

/* Numbers of a plane for n inputs of one output. */
static inline size_t few_count(struct few_plane plane, size_t n)
{
    return !plane.bytes ? 0 : plane.every ? div_up(n, plane.every) : 1;
}

/* Inputs that have one step and one base: 16 or 32; all n of a row where it has one scale. */
static inline size_t few_group(enum dtype type, size_t n)
{
    return few_bits[type].plane[FEW_SCALE].every ? few_bits[type].plane[FEW_SCALE].every : n;
}

/* ---- numbers of planes, wherever they lie ---- */

struct few_values {
    float step, base;
};

static inline float few_f16(const void *at)
{
    f16 x;
    memcpy(&x, at, sizeof x);
    return f16_to_f32(x);
}

/* Rounded to an f16, which is returned as it is stored. */
static inline float few_put_f16(void *at, float x)
{
    const f16 rounded = f16_from_f32(x);
    memcpy(at, &rounded, sizeof rounded);
    return f16_to_f32(rounded);
}

/* Of one group: at[p] is its number in plane p. */
static inline struct few_values few_values(enum dtype type, const unsigned char *const at[FEW_PLANES])
{
    const struct few_bits *few = &few_bits[type];
    struct few_values v = {0, 0};
    if (few->plane[FEW_D].bytes) {
        v.step =
            few_f16(at[FEW_D]) * (few->zero ? (float)(int8_t)*at[FEW_SCALE] : (float)*at[FEW_SCALE]);
        if (few->plane[FEW_LOW].bytes)
            v.base = -(few_f16(at[FEW_DMIN]) * (float)*at[FEW_LOW]);
    } else {
        if (few->plane[FEW_SCALE].bytes == 4)
            memcpy(&v.step, at[FEW_SCALE], sizeof v.step);
        else
            v.step = few_f16(at[FEW_SCALE]);
        if (few->offset)
            v.base = few_f16(at[FEW_LOW]);
    }
    return v;
}

/* What a code stands for. The product of a step and a code has no more than 24 bits but in q8k and q8c, so that it is exact
 * and the sum rounds once; q8c has nothing to add. fmaf() is slow where it is no instruction. */
static inline float few_value(enum dtype type, struct few_values v, unsigned code)
{
    const float counted = (float)((int)code - few_bits[type].zero);
    return type == DTYPE_Q8K ? fmaf(v.step, counted, v.base) : v.step * counted + v.base;
}

/* In switches over a type that becomes a constant. */
#define FEW_CASES(DO)                                                                                  \
    case DTYPE_Q8: DO(DTYPE_Q8); break;                                                                \
    case DTYPE_Q8C: DO(DTYPE_Q8C); break;                                                              \
    case DTYPE_Q4: DO(DTYPE_Q4); break;                                                                \
    case DTYPE_Q4S: DO(DTYPE_Q4S); break;                                                              \
    case DTYPE_Q4K: DO(DTYPE_Q4K); break;                                                              \
    case DTYPE_Q6K: DO(DTYPE_Q6K); break;                                                              \
    case DTYPE_Q8K: DO(DTYPE_Q8K); break;                                                              \
    case DTYPE_F32:                                                                                    \
    case DTYPE_BF16:                                                                                   \
    case DTYPE_F16:                                                                                    \
    case DTYPE_COUNT: break;

/* ---- the row form ---- */

static inline size_t few_code_bytes(enum dtype type, size_t n)
{
    return few_bits[type].bits == 4 ? div_up(n, FEW_GROUP) * (FEW_GROUP / 2) : n;
}

/* Where plane p begins in a row of n inputs; p = FEW_PLANES: where the row ends. */
static inline size_t few_plane_at(enum dtype type, size_t n, size_t p)
{
    size_t at = few_code_bytes(type, n);
    for (size_t i = 0; i < p; i++)
        at += few_count(few_bits[type].plane[i], n) * few_bits[type].plane[i].bytes;
    return at;
}

static inline unsigned few_code(enum dtype type, const unsigned char *row, size_t i)
{
    if (few_bits[type].bits != 4)
        return row[i];
    return row[i / FEW_GROUP * (FEW_GROUP / 2) + i % 16] >> i % FEW_GROUP / 16 * 4 & 15;
}

/* Into a row whose codes were 0. */
static inline void few_set_code(enum dtype type, unsigned char *row, size_t i, unsigned code)
{
    if (few_bits[type].bits != 4)
        row[i] = (unsigned char)code;
    else
        row[i / FEW_GROUP * (FEW_GROUP / 2) + i % 16] |=
            (unsigned char)(code << i % FEW_GROUP / 16 * 4);
}

/* Step and base of input i of a row of n. */
static inline struct few_values few_row_values(enum dtype type, const unsigned char *row, size_t n,
                                               size_t i)
{
    const unsigned char *at[FEW_PLANES];
    for (size_t p = 0; p < FEW_PLANES; p++) {
        const struct few_plane plane = few_bits[type].plane[p];
        at[p] = row + few_plane_at(type, n, p) + (plane.every ? i / plane.every * plane.bytes : 0);
    }
    return few_values(type, at);
}

/* A row of n values, and back: codes and scales nearest to x, as the simplest rule has it (the largest value of a group
 * decides). Only types of one level can be made. */
void few_widen(float *to, enum dtype type, const void *row, size_t n);
void few_narrow(void *row, enum dtype type, const float *x, size_t n);

/* All values are finite. */
bool few_finite(enum dtype type, const void *row, size_t n);

#endif
