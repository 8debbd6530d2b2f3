/* Quantised types: each value has a small integer q, and groups of values share scales.
 *
 *   value = scale * (q - zero_point) + min, rounded once
 *
 * In types with a codebook, q is an index into a table of 16 integers, which take its place:
 *
 *   value = scale * codebook[q], rounded once
 *
 * scale and min belong to a quant group: neighbouring inputs of one output. They are computed from
 * up to four scale arrays. Types of one level have a scale (and a min) for every group. Types of
 * two levels have a small integer for every group, and for every 256 inputs an f16 that multiplies
 * these:
 *
 *   type        q             scale arrays                                      scale      min            holds without loss
 *   q8_0        8 bits - 128  f16 scale                                         scale      0              Q8_0
 *   q8_channel  8 bits - 128  f32 scale, one for a whole row                    scale      0
 *   q4_1        4 bits        f16 scale, f16 min                                scale      min            Q4_1
 *   q4_0        4 bits - 8    f16 scale                                         scale      0              Q4_0
 *   iq4_nl      codebook      f16 scale                                         scale      0              IQ4_NL
 *   q5_0        5 bits - 16   f16 scale                                         scale      0              Q5_0
 *   q5_1        5 bits        f16 scale, f16 min                                scale      min            Q5_1
 *   q2_k        2 bits        u4 scale, u4 min per 16; f16 d, f16 dmin          d * scale  -(dmin * min)  Q2_K
 *   q3_k        3 bits - 4    i8 scale per 16; f16 d                            d * scale  0              Q3_K
 *   q4_k        4 bits        u8 scale, u8 min; f16 d, f16 dmin                 d * scale  -(dmin * min)  Q4_K
 *   iq4_xs      codebook      i8 scale; f16 d                                   d * scale  0              IQ4_XS
 *   q5_k        5 bits        u8 scale, u8 min; f16 d, f16 dmin                 d * scale  -(dmin * min)  Q5_K
 *   q6_k        6 bits - 32   i8 scale per 16; f16 d                            d * scale  0              Q6_K
 *   mxfp4       codebook      e8m0 scale                                        scale      0              MXFP4
 *   nvfp4       codebook      e4m3 scale per 16                                 scale / 2  0              NVFP4
 *   q1_0        1 bit, -1, 1  f16 scale per 128                                 scale      0              Q1_0
 *   q2_0        2 bits - 1    f16 scale per 64                                  scale      0              Q2_0
 *   q4_z32      4 bits        f16 scale, u8 zero                                scale      -(scale * zero)
 *   q4_z128     4 bits        f16 scale, u8 zero per 128                        scale      -(scale * zero)
 *   tq1_0       0 to 2, - 1   f16 d                                             d          0              TQ1_0
 *   tq2_0       2 bits - 1    f16 d                                             d          0              TQ2_0
 *   iq2_xxs     grid          s: bits 7 of the sign bytes; f16 d                d (2 s + 1) / 8  0        IQ2_XXS
 *   iq2_xs      grid          u4 s per 16, two in a byte; f16 d                 d (2 s + 1) / 8  0        IQ2_XS
 *   iq2_s       grid          u4 s per 16, two in a byte; f16 d                 d (2 s + 1) / 8  0        IQ2_S
 *   iq3_xxs     grid          s: bits 7 of the sign bytes; f16 d                d (2 s + 1) / 2  0        IQ3_XXS
 *   iq3_s       grid          u4 s, two in a byte; f16 d                        d (2 s + 1)      0        IQ3_S
 *   iq1_s       grid          3 bits of s in 16 bits; f16 d                     d (2 s + 1) / 8  0        IQ1_S
 *   iq1_m       grid          u4 s per 16, two in a byte; f16 d                 d (2 s + 1) / 8  0        IQ1_M
 *   q8_2l       8 bits - 128  i8 scale per 16, u8 min per 16; f16 d, f16 dmin   d * scale  -(dmin * min)
 *
 * Groups have 32 inputs, or 16, 64 or 128 where the table says so; d and dmin cover 256. q8_channel: BASS
 * paper A.1. The last column lists GGUF types; earlier versions stored several of them as q8_0,
 * q6_k or q8_2l. An e8m0 scale is a power of two, 2^(byte - 128): half of that in the OCP's format, as
 * the codebook has twice its values. An e4m3 scale is a byte without sign: 4 bits of exponent, 3 of fraction. The
 * q4_z types hold integers of 4 bits with zero points (GPTQ, AWQ) without loss. The u4 scale and min of q2_k share a byte, the scale in its low half.
 *
 * Types with a grid have no q: units of 32 inputs (quant/grids.h) take their place.
 *
 * Row form, which converters write, hashes cover and caches store: all q, then the scale arrays.
 * A q takes a byte; in 4-bit types, byte i of 16 has q number i of 32 in its low half and number
 * 16 + i in its high half. Units of grids are as they are. Rows need no alignment. quant/pack.h
 * describes the packed form. */
#pragma once

#include "quant/dtype.h"
#include "quant/grids.h"

enum { QK_GROUP = 32, QK_HALF = 16, QK_SUPER = 256, SCALE_KINDS = 4 };

/* The scale arrays of a type. In types of two levels (f16 d and dmin per 256 inputs) SCALE_MAIN and
 * SCALE_MIN are small integers. */
enum scale_kind { SCALE_MAIN, SCALE_MIN, SCALE_D, SCALE_DMIN };

struct scale_array {
    uint8_t bytes;  /* bytes of an element; 0: the type has no such array */
    uint16_t every; /* inputs that share an element; 0: all inputs of a row */
};

/* Tables of integers that stand for 4-bit quantised values, the type's zero point added. */
enum codebook { CODEBOOK_NONE, CODEBOOK_IQ4, CODEBOOK_FP4, CODEBOOKS };
static const uint8_t quant_codebooks[CODEBOOKS][16] = {
    [CODEBOOK_IQ4] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241},
    [CODEBOOK_FP4] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0},
};

struct quant_types {
    uint8_t bits; /* bits per quantised value q; with a grid: of the integers of its weights */
    uint8_t zero_point;
    bool offset; /* SCALE_MIN is an f16 that is added unscaled */
    struct scale_array scales[SCALE_KINDS];
    enum codebook codebook;
    bool e4m3;   /* an element of SCALE_MAIN is half a number of 4 bits of exponent and 3 of fraction */
    bool zeros;  /* an element of SCALE_MIN is a zero point: the min is minus the scale times it */
    bool power;  /* an element of SCALE_MAIN is the exponent of a power of two */
    bool paired; /* an element of SCALE_MAIN has the scale in its low half, the min in its high half */
    bool ternary; /* q is 0, 1 or 2; packed blocks hold five in a byte */
    bool halves;  /* an element of SCALE_MAIN has the scales of two groups, the first in its low half */
    uint8_t level_bits; /* types of two levels: bits of a group's scale, signed if there is a zero
                           point, and of its min; elements may be wider */
    struct quant_grid grid;
};

/* Properties of the quantised types, in the header so that kernels see constants. Unquantised types
 * have 0 bits. */
static const struct quant_types quant_types[DTYPE_COUNT] = {
    [DTYPE_Q8_0] = {.bits = 8, .zero_point = 128, .scales = {{2, 32}}},
    [DTYPE_Q8_CHANNEL] = {.bits = 8, .zero_point = 128, .scales = {{4, 0}}},
    [DTYPE_Q4_1] = {.bits = 4, .offset = true, .scales = {{2, 32}, {2, 32}}},
    [DTYPE_Q4_0] = {.bits = 4, .zero_point = 8, .scales = {{2, 32}}},
    [DTYPE_Q4_K] = {.bits = 4, .scales = {{1, 32}, {1, 32}, {2, 256}, {2, 256}}, .level_bits = 6},
    [DTYPE_Q6_K] = {.bits = 6,
                    .zero_point = 32,
                    .scales = {{1, 16}, {0, 0}, {2, 256}},
                    .level_bits = 8},
    [DTYPE_Q8_2L] = {.bits = 8,
                     .zero_point = 128,
                     .scales = {{1, 16}, {1, 16}, {2, 256}, {2, 256}},
                     .level_bits = 8},
    [DTYPE_Q5_0] = {.bits = 5, .zero_point = 16, .scales = {{2, 32}}},
    [DTYPE_Q5_1] = {.bits = 5, .offset = true, .scales = {{2, 32}, {2, 32}}},
    [DTYPE_Q5_K] = {.bits = 5, .scales = {{1, 32}, {1, 32}, {2, 256}, {2, 256}}, .level_bits = 6},
    [DTYPE_Q3_K] = {.bits = 3, .zero_point = 4, .scales = {{1, 16}, {0, 0}, {2, 256}}, .level_bits = 6},
    [DTYPE_Q2_K] = {.bits = 2,
                    .scales = {{1, 16}, {0, 0}, {2, 256}, {2, 256}},
                    .paired = true,
                    .level_bits = 4},
    [DTYPE_IQ4_NL] = {.bits = 4, .zero_point = 128, .scales = {{2, 32}}, .codebook = CODEBOOK_IQ4},
    [DTYPE_IQ4_XS] = {.bits = 4,
                      .zero_point = 128,
                      .scales = {{1, 32}, {0, 0}, {2, 256}},
                      .codebook = CODEBOOK_IQ4,
                      .level_bits = 6},
    [DTYPE_MXFP4] =
        {.bits = 4, .zero_point = 12, .scales = {{1, 32}}, .codebook = CODEBOOK_FP4, .power = true},
    [DTYPE_IQ3_S] = {.bits = 5,
                     .zero_point = 16,
                     .scales = {{1, 64}, {0, 0}, {2, 256}},
                     .halves = true,
                     .grid = {grid_iq3_s, grid_iq3_s_planes, grid_iq3_s_values, 13, 4, 1, GRID_BIT_SIGN,
                              1, GRID_SIGNED}},
    [DTYPE_IQ3_XXS] = {.bits = 6,
                       .zero_point = 32,
                       .scales = {{0, 32}, {0, 0}, {2, 256}},
                       .grid = {grid_iq3_xxs, grid_iq3_xxs_planes, grid_iq3_xxs_values, 12, 4, 0,
                                GRID_BIT_SCALE, 0.5f, GRID_SIGNED}},
    [DTYPE_IQ2_S] = {.bits = 7,
                     .zero_point = 64,
                     .scales = {{1, 32}, {0, 0}, {2, 256}},
                     .halves = true,
                     .grid = {grid_iq2_s, grid_iq2_s_planes, grid_iq2_values, 9, 8, 2, GRID_BIT_SIGN,
                              0.125f, GRID_SIGNED}},
    [DTYPE_IQ2_XS] = {.bits = 7,
                      .zero_point = 64,
                      .scales = {{1, 32}, {0, 0}, {2, 256}},
                      .halves = true,
                      .grid = {grid_iq2_xs, grid_iq2_xs_planes, grid_iq2_values, 8, 8, 0,
                               GRID_BIT_INDEX, 0.125f, GRID_SIGNED}},
    [DTYPE_IQ2_XXS] = {.bits = 7,
                       .zero_point = 64,
                       .scales = {{0, 32}, {0, 0}, {2, 256}},
                       .grid = {grid_iq2_xxs, grid_iq2_xxs_planes, grid_iq2_values, 8, 8, 0,
                                GRID_BIT_SCALE, 0.125f, GRID_SIGNED}},
    [DTYPE_IQ1_S] = {.bits = 5,
                     .zero_point = 16,
                     .scales = {{0, 32}, {0, 0}, {2, 256}},
                     .grid = {grid_iq1, grid_iq1_planes, grid_iq1_values, 6, 8, 3, GRID_BIT_SCALE,
                              0.125f, GRID_DELTA}},
    [DTYPE_IQ1_M] = {.bits = 5,
                     .zero_point = 16,
                     .scales = {{1, 32}, {0, 0}, {2, 256}},
                     .halves = true,
                     .grid = {grid_iq1, grid_iq1_planes, grid_iq1_values, 6, 8, 3, GRID_BIT_SIGN,
                              0.125f, GRID_DELTAS}},
    [DTYPE_TQ1_0] = {.bits = 2,
                     .zero_point = 1,
                     .scales = {{0, 32}, {0, 0}, {2, 256}},
                     .ternary = true},
    [DTYPE_NVFP4] =
        {.bits = 4, .zero_point = 12, .scales = {{1, 16}}, .codebook = CODEBOOK_FP4, .e4m3 = true},
    [DTYPE_Q1_0] = {.bits = 1, .zero_point = 1, .scales = {{2, 128}}},
    [DTYPE_Q2_0] = {.bits = 2, .zero_point = 1, .scales = {{2, 64}}},
    [DTYPE_Q4_Z32] = {.bits = 4, .scales = {{2, 32}, {1, 32}}, .zeros = true},
    [DTYPE_Q4_Z128] = {.bits = 4, .scales = {{2, 128}, {1, 128}}, .zeros = true},
    [DTYPE_TQ2_0] = {.bits = 2, .zero_point = 1, .scales = {{0, 32}, {0, 0}, {2, 256}}},
};

/* Number of elements of a scale array for n inputs of one output. */
static inline size_t scale_count(struct scale_array scales, size_t n)
{
    return !scales.bytes ? 0 : scales.every ? div_up(n, scales.every) : 1;
}

/* Number of inputs that share a scale (a quant group): 16, 32 (of types whose scales have more inputs, too), or all n
 * of a row that has one scale. */
static inline size_t quant_group(enum dtype type, size_t n)
{
    const size_t every = quant_types[type].scales[SCALE_MAIN].every;
    return every ? size_min(QK_GROUP, every >> quant_types[type].halves) : n;
}

/* True if the type's weights are points of a grid. */
static inline bool quant_has_grid(enum dtype type) { return quant_types[type].grid.unit; }

/* True if groups of the type have a min. */
static inline bool quant_has_min(enum dtype type)
{
    return quant_types[type].scales[SCALE_MIN].bytes || quant_types[type].paired;
}

/* The integer, zero_point too large, that quantised value q stands for (of 1 bit: 0 or 2), and its number of bits. */
static inline unsigned quant_integer(enum dtype type, unsigned q)
{
    return quant_types[type].codebook    ? quant_codebooks[quant_types[type].codebook][q]
           : quant_types[type].bits == 1 ? 2 * q
                                         : q;
}
static inline unsigned quant_integer_bits(enum dtype type)
{
    static const uint8_t bits[CODEBOOKS] = {[CODEBOOK_IQ4] = 8, [CODEBOOK_FP4] = 5};
    return quant_types[type].codebook    ? bits[quant_types[type].codebook]
           : quant_types[type].bits == 1 ? 2
                                         : quant_types[type].bits;
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

/* 2^(exponent - 128); the two smallest are subnormal. */
enum { QUANT_POWER_MOST = 231 }; /* larger exponents overflow when sums of products are scaled */
static inline float quant_power(unsigned exponent)
{
    const uint32_t bits = exponent < 2 ? 0x200000u << exponent : (exponent - 1) << 23;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Half of a number of 4 bits of exponent, biased by 7, and 3 of fraction; bit 7 is ignored. */
static inline float quant_e4m3_half(unsigned x)
{
    const unsigned exponent = x >> 3 & 15;
    const uint32_t bits = ((exponent ? exponent : 1) + 116) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return (float)((x & 7) + (exponent ? 8 : 0)) * power;
}

/* The scale of a quant group of a type with a grid, without d. */
static inline float quant_grid_scale(enum dtype type, const unsigned char *at, size_t k)
{
    const struct quant_grid *grid = &quant_types[type].grid;
    const unsigned s = grid->bit7 == GRID_BIT_SCALE ? grid_unit_scale(grid, at)
                                                    : *at >> k / quant_group(type, k) % 2 * 4 & 15;
    return (float)(2 * s + 1) * grid->factor;
}

/* Computes scale and min of the quant group of input k; at[p] points to its element of scale array
 * p. If bits 7 of sign bytes are its scale, at[SCALE_MAIN] points to these bytes. */
static inline struct quant_scale quant_scale(enum dtype type,
                                             const unsigned char *const at[SCALE_KINDS], size_t k)
{
    const struct quant_types *quant = &quant_types[type];
    struct quant_scale v = {0, 0};
    if (quant->paired) {
        v.scale = quant_load_f16(at[SCALE_D]) * (float)(*at[SCALE_MAIN] & 15);
        v.min = -(quant_load_f16(at[SCALE_DMIN]) * (float)(*at[SCALE_MAIN] >> 4));
    } else if (quant->grid.unit) {
        v.scale = quant_load_f16(at[SCALE_D]) * quant_grid_scale(type, at[SCALE_MAIN], k);
    } else if (quant->scales[SCALE_D].bytes && !quant->scales[SCALE_MAIN].bytes) {
        v.scale = quant_load_f16(at[SCALE_D]);
    } else if (quant->scales[SCALE_D].bytes) {
        v.scale = quant_load_f16(at[SCALE_D]) *
                  (quant->zero_point ? (float)(int8_t)*at[SCALE_MAIN] : (float)*at[SCALE_MAIN]);
        if (quant->scales[SCALE_MIN].bytes)
            v.min = -(quant_load_f16(at[SCALE_DMIN]) * (float)*at[SCALE_MIN]);
    } else {
        if (quant->power)
            v.scale = quant_power(*at[SCALE_MAIN]);
        else if (quant->e4m3)
            v.scale = quant_e4m3_half(*at[SCALE_MAIN]);
        else if (quant->scales[SCALE_MAIN].bytes == 4)
            memcpy(&v.scale, at[SCALE_MAIN], sizeof v.scale);
        else
            v.scale = quant_load_f16(at[SCALE_MAIN]);
        if (quant->offset)
            v.min = quant_load_f16(at[SCALE_MIN]);
        else if (quant->zeros)
            v.min = -(v.scale * (float)*at[SCALE_MIN]);
    }
    return v;
}

/* Dequantises q with a single rounding. scale * q has at most 24 bits, so it is exact, except in
 * q8_channel, which has no min, and in q8_2l: only that needs fmaf(), slow on CPUs without FMA. */
static inline float quant_value(enum dtype type, struct quant_scale v, unsigned q)
{
    const float centred = (float)((int)quant_integer(type, q) - quant_types[type].zero_point);
    return type == DTYPE_Q8_2L ? fmaf(v.scale, centred, v.min) : v.scale * centred + v.min;
}

/* All cases of a switch over a type: DO(type) with a constant for quantised types, nothing for
 * others. */
#define QUANT_CASE(name, number, text, DO)                                                             \
    case DTYPE_##name:                                                                                 \
        DO(DTYPE_##name);                                                                              \
        break;
#define QUANT_CASES(DO)                                                                                \
    QUANT_TYPES(QUANT_CASE, DO)                                                                        \
    case DTYPE_F32:                                                                                    \
    case DTYPE_BF16:                                                                                   \
    case DTYPE_F16:                                                                                    \
    case DTYPE_COUNT: break;

/* ---- the row form ---- */

static inline size_t quant_row_q_bytes(enum dtype type, size_t n)
{
    if (quant_has_grid(type))
        return div_up(n, QK_GROUP) * quant_types[type].grid.unit;
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

/* Quantised value number i of a row; of types with a grid, the weight's integer. */
static inline unsigned quant_row_q(enum dtype type, const unsigned char *row, size_t i)
{
    const struct quant_types *quant = &quant_types[type];
    if (quant->grid.unit)
        return grid_integer(&quant->grid, quant->zero_point, row + i / QK_GROUP * quant->grid.unit,
                            i % QK_GROUP);
    if (quant_types[type].bits != 4)
        return row[i];
    return row[i / QK_GROUP * (QK_GROUP / 2) + i % 16] >> i % QK_GROUP / 16 * 4 & 15;
}

/* Sets quantised value number i of a row, which must be 0 before; not for types with a grid. */
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
    if (quant_types[type].grid.bit7 == GRID_BIT_SCALE)
        at[SCALE_MAIN] =
            row + i / QK_GROUP * quant_types[type].grid.unit + grid_signs_at(&quant_types[type].grid);
    return quant_scale(type, at, i);
}

/* Converts a row of n values to f32. */
void dequantize(float *to, enum dtype type, const void *row, size_t n);

/* True if all n values of a row are finite. */
bool quant_finite(enum dtype type, const void *row, size_t n);
