/* Quantised types: each value has a small integer q, and groups of values share scales.
 *
 *   value = scale * (q - zero_point) + min, rounded once
 *
 * scale and min belong to a quant group: neighbouring inputs of one output. They are computed from
 * up to four scale arrays. Types of one level have a scale (and a min) for every group. Types of
 * two levels have a small integer for every group, and for every 256 inputs an f16 that multiplies
 * these:
 *
 *   type        q             scale arrays                                      scale      min            holds without loss
 *   q8_0        8 bits - 128  f16 scale                                         scale      0              Q8_0, Q5_0, IQ4_NL
 *   q8_channel  8 bits - 128  f32 scale, one for a whole row                    scale      0
 *   q4_1        4 bits        f16 scale, f16 min                                scale      min            Q4_1
 *   q4_0        4 bits - 8    f16 scale                                         scale      0              Q4_0
 *   q4_k        4 bits        u8 scale, u8 min; f16 d, f16 dmin                 d * scale  -(dmin * min)  Q4_K
 *   q6_k        6 bits - 32   i8 scale per 16; f16 d                            d * scale  0              Q6_K, Q3_K
 *   q8_2l       8 bits - 128  i8 scale per 16, u8 min per 16; f16 d, f16 dmin   d * scale  -(dmin * min)  Q5_K, Q2_K, IQ4_XS
 *
 * Groups have 32 inputs, or 16 where the table says so; d and dmin cover 256. q8_channel: BASS
 * paper A.1. The last column lists GGUF types.
 *
 * Row form, which converters write, hashes cover and caches store: all q, then the scale arrays.
 * A q takes a byte; in 4-bit types, byte i of 16 has q number i of 32 in its low half and number
 * 16 + i in its high half. Rows need no alignment. quant/pack.h describes the packed form. */
#ifndef BMC_QUANT_TYPES_H
#define BMC_QUANT_TYPES_H

#include <math.h>

#include "quant/dtype.h"

enum { QK_GROUP = 32, QK_HALF = 16, QK_SUPER = 256, SCALE_KINDS = 4 };

/* The scale arrays of a type. In types of two levels (f16 d and dmin per 256 inputs) SCALE_MAIN and
 * SCALE_MIN are small integers. */
enum scale_kind { SCALE_MAIN, SCALE_MIN, SCALE_D, SCALE_DMIN };

struct scale_array {
    uint8_t bytes;  /* bytes of an element; 0: the type has no such array */
    uint16_t every; /* inputs that share an element; 0: all inputs of a row */
};

struct quant_types {
    uint8_t bits; /* bits per quantised value q */
    uint8_t zero_point;
    bool offset; /* SCALE_MIN is an f16 that is added unscaled */
    struct scale_array scales[SCALE_KINDS];
};

/* Properties of the quantised types, in the header so that kernels see constants. Unquantised types
 * have 0 bits. */
static const struct quant_types quant_types[DTYPE_COUNT] = {
    [DTYPE_Q8_0] = {8, 128, false, {{2, 32}}},
    [DTYPE_Q8_CHANNEL] = {8, 128, false, {{4, 0}}},
    [DTYPE_Q4_1] = {4, 0, true, {{2, 32}, {2, 32}}},
    [DTYPE_Q4_0] = {4, 8, false, {{2, 32}}},
    [DTYPE_Q4_K] = {4, 0, false, {{1, 32}, {1, 32}, {2, 256}, {2, 256}}},
    [DTYPE_Q6_K] = {6, 32, false, {{1, 16}, {0, 0}, {2, 256}}},
    [DTYPE_Q8_2L] = {8, 128, false, {{1, 16}, {1, 16}, {2, 256}, {2, 256}}},
};

/* Number of elements of a scale array for n inputs of one output. */
static inline size_t scale_count(struct scale_array scales, size_t n)
{
    return !scales.bytes ? 0 : scales.every ? div_up(n, scales.every) : 1;
}

/* Number of inputs that share a scale (a quant group): 16, 32, or all n of a row that has one
 * scale. */
static inline size_t quant_group(enum dtype type, size_t n)
{
    return quant_types[type].scales[SCALE_MAIN].every ? quant_types[type].scales[SCALE_MAIN].every : n;
}

/* ---- scales ---- */

struct quant_scale {
    float scale, min;
};

static inline float quant_load_f16(const void *at)
{
    f16 x;
    memcpy(&x, at, sizeof x);
    return f16_to_f32(x);
}

/* Stores x as f16, rounded; returns the stored value. */
static inline float quant_store_f16(void *at, float x)
{
    const f16 rounded = f16_from_f32(x);
    memcpy(at, &rounded, sizeof rounded);
    return f16_to_f32(rounded);
}

/* Computes scale and min of a quant group; at[p] points to its element of scale array p. */
static inline struct quant_scale quant_scale(enum dtype type,
                                             const unsigned char *const at[SCALE_KINDS])
{
    const struct quant_types *quant = &quant_types[type];
    struct quant_scale v = {0, 0};
    if (quant->scales[SCALE_D].bytes) {
        v.scale = quant_load_f16(at[SCALE_D]) *
                  (quant->zero_point ? (float)(int8_t)*at[SCALE_MAIN] : (float)*at[SCALE_MAIN]);
        if (quant->scales[SCALE_MIN].bytes)
            v.min = -(quant_load_f16(at[SCALE_DMIN]) * (float)*at[SCALE_MIN]);
    } else {
        if (quant->scales[SCALE_MAIN].bytes == 4)
            memcpy(&v.scale, at[SCALE_MAIN], sizeof v.scale);
        else
            v.scale = quant_load_f16(at[SCALE_MAIN]);
        if (quant->offset)
            v.min = quant_load_f16(at[SCALE_MIN]);
    }
    return v;
}

/* Dequantises q with a single rounding. scale * q has at most 24 bits, so it is exact, except in
 * q8_channel, which has no min, and in q8_2l: only that needs fmaf(), slow on CPUs without FMA. */
static inline float quant_value(enum dtype type, struct quant_scale v, unsigned q)
{
    const float centred = (float)((int)q - quant_types[type].zero_point);
    return type == DTYPE_Q8_2L ? fmaf(v.scale, centred, v.min) : v.scale * centred + v.min;
}

/* All cases of a switch over a type: DO(type) with a constant for quantised types, nothing for
 * others. */
#define QUANT_CASES(DO)                                                                                \
    case DTYPE_Q8_0: DO(DTYPE_Q8_0); break;                                                            \
    case DTYPE_Q8_CHANNEL: DO(DTYPE_Q8_CHANNEL); break;                                                \
    case DTYPE_Q4_1: DO(DTYPE_Q4_1); break;                                                            \
    case DTYPE_Q4_0: DO(DTYPE_Q4_0); break;                                                            \
    case DTYPE_Q4_K: DO(DTYPE_Q4_K); break;                                                            \
    case DTYPE_Q6_K: DO(DTYPE_Q6_K); break;                                                            \
    case DTYPE_Q8_2L: DO(DTYPE_Q8_2L); break;                                                          \
    case DTYPE_F32:                                                                                    \
    case DTYPE_BF16:                                                                                   \
    case DTYPE_F16:                                                                                    \
    case DTYPE_COUNT: break;

/* ---- the row form ---- */

static inline size_t quant_row_q_bytes(enum dtype type, size_t n)
{
    return quant_types[type].bits == 4 ? div_up(n, QK_GROUP) * (QK_GROUP / 2) : n;
}

/* Byte offset of scale array p (enum scale_kind) in a row of n inputs; p = SCALE_KINDS: bytes of
 * the whole row. */
static inline size_t quant_row_scales_at(enum dtype type, size_t n, size_t p)
{
    size_t at = quant_row_q_bytes(type, n);
    for (size_t i = 0; i < p; i++)
        at += scale_count(quant_types[type].scales[i], n) * quant_types[type].scales[i].bytes;
    return at;
}

static inline unsigned quant_row_q(enum dtype type, const unsigned char *row, size_t i)
{
    if (quant_types[type].bits != 4)
        return row[i];
    return row[i / QK_GROUP * (QK_GROUP / 2) + i % 16] >> i % QK_GROUP / 16 * 4 & 15;
}

/* Sets quantised value number i of a row, which must be 0 before. */
static inline void quant_row_set_q(enum dtype type, unsigned char *row, size_t i, unsigned q)
{
    if (quant_types[type].bits != 4)
        row[i] = (unsigned char)q;
    else
        row[i / QK_GROUP * (QK_GROUP / 2) + i % 16] |= (unsigned char)(q << i % QK_GROUP / 16 * 4);
}

/* Returns the scale and min that apply to input i of a row of n inputs. */
static inline struct quant_scale quant_row_scale(enum dtype type, const unsigned char *row, size_t n,
                                                 size_t i)
{
    const unsigned char *at[SCALE_KINDS];
    for (size_t p = 0; p < SCALE_KINDS; p++) {
        const struct scale_array scales = quant_types[type].scales[p];
        at[p] = row + quant_row_scales_at(type, n, p) +
                (scales.every ? i / scales.every * scales.bytes : 0);
    }
    return quant_scale(type, at);
}

/* dequantize() converts a row of n values to f32. quantize_nearest() quantises x[n] by rounding to
 * nearest, with scales that cover each group's largest value; it supports types of one level
 * only. */
void dequantize(float *to, enum dtype type, const void *row, size_t n);
void quantize_nearest(void *row, enum dtype type, const float *x, size_t n);

/* True if all n values of a row are finite. */
bool quant_finite(enum dtype type, const void *row, size_t n);

#endif
