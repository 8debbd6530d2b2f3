/* Dequantisers of ggml's types; blocks are little-endian and unaligned. */
#include "format/gguf/block_types.h"

#include <string.h>

#include "format/gguf/block_bits.h"
#include "format/gguf/block_grids.h"
#include "quant/quant_types.h"

static float load_f16(const unsigned char *from) { return f16_to_f32(load_u16(from)); }

static void dequantize_f32(float *to, const unsigned char *from, size_t n) { memcpy(to, from, 4 * n); }

static void dequantize_f16(float *to, const unsigned char *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = load_f16(from + 2 * i);
}

static void dequantize_bf16(float *to, const unsigned char *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = bf16_to_f32(load_u16(from + 2 * i));
}

/* The value of a code of IQ4_NL and IQ4_XS. */
static float iq4_value(int code)
{
    const struct quant_types *quant = &quant_types[DTYPE_IQ4_NL];
    return (float)(quant_codebooks[quant->codebook][code] - quant->zero_point);
}

/* ---- blocks of 32 ---- */

static void q8_0(float *to, const unsigned char *b)
{
    const float d = load_f16(b);
    for (size_t i = 0; i < SMALL; i++)
        to[i] = (float)(int8_t)b[2 + i] * d;
}

static void q4_0(float *to, const unsigned char *b)
{
    const float d = load_f16(b);
    for (size_t i = 0; i < SMALL; i++)
        to[i] = d * (float)(nibble(b + 2, i) - 8);
}

static void q4_1(float *to, const unsigned char *b)
{
    const float d = load_f16(b), m = load_f16(b + 2);
    for (size_t i = 0; i < SMALL; i++)
        to[i] = d * (float)nibble(b + 4, i) + m;
}

static void q5_0(float *to, const unsigned char *b)
{
    const float d = load_f16(b);
    for (size_t i = 0; i < SMALL; i++)
        to[i] = d * (float)(five_bits(b + 2, b + 6, i) - 16);
}

static void q5_1(float *to, const unsigned char *b)
{
    const float d = load_f16(b), m = load_f16(b + 2);
    for (size_t i = 0; i < SMALL; i++)
        to[i] = d * (float)five_bits(b + 4, b + 8, i) + m;
}

static void iq4_nl(float *to, const unsigned char *b)
{
    const float d = load_f16(b);
    for (size_t i = 0; i < SMALL; i++)
        to[i] = d * iq4_value(nibble(b + 2, i));
}

static void mxfp4(float *to, const unsigned char *b)
{
    const struct quant_types *quant = &quant_types[DTYPE_MXFP4];
    const float d = quant_power(*b);
    for (size_t i = 0; i < SMALL; i++)
        to[i] = d * (float)(quant_codebooks[quant->codebook][nibble(b + 1, i)] - quant->zero_point);
}

/* ---- super-blocks of 256 ---- */

static void q2_k(float *to, const unsigned char *b)
{
    const unsigned char *scales = b, *q = b + 16;
    const float d = load_f16(b + 80), dmin = load_f16(b + 82);
    for (size_t sub = 0; sub < 16; sub++) {
        const float scale = d * (float)(scales[sub] & 15), low = dmin * (float)(scales[sub] >> 4);
        for (size_t i = 16 * sub; i < 16 * (sub + 1); i++)
            to[i] = scale * (float)two_bits(q, i / 32, i % 32) - low;
    }
}

static void q3_k(float *to, const unsigned char *b)
{
    const unsigned char *high = b, *q = b + 32;
    const float d = load_f16(b + 108);
    for (size_t sub = 0; sub < 16; sub++) {
        const float scale = d * (float)q3_scale(b + 96, sub);
        for (size_t i = 16 * sub; i < 16 * (sub + 1); i++) {
            /* 4 is subtracted if the third bit is 0 */
            const int taken = high[i % 32] >> i / 32 & 1 ? 0 : 4;
            to[i] = scale * (float)(two_bits(q, i / 32, i % 32) - taken);
        }
    }
}

/* Q4_K (high == NULL) and Q5_K, which adds a fifth bit. */
static void q45_k(float *to, const unsigned char *b, const unsigned char *high, const unsigned char *q)
{
    const float d = load_f16(b), dmin = load_f16(b + 2);
    for (size_t sub = 0; sub < 8; sub++) {
        int scale, low;
        q4_scales(b + 4, sub, &scale, &low);
        const float step = d * (float)scale, base = dmin * (float)low;
        for (size_t i = 32 * sub; i < 32 * (sub + 1); i++) {
            const int fifth = high ? high[i % 32] >> sub & 1 : 0;
            to[i] = step * (float)(four_bits(q, sub, i % 32) | fifth << 4) - base;
        }
    }
}

static void q4_k(float *to, const unsigned char *b) { q45_k(to, b, NULL, b + 16); }
static void q5_k(float *to, const unsigned char *b) { q45_k(to, b, b + 16, b + 48); }

static void q6_k(float *to, const unsigned char *b)
{
    const unsigned char *low = b, *high = b + 128, *scales = b + 192;
    const float d = load_f16(b + 208);
    for (size_t sub = 0; sub < 16; sub++) {
        const float scale = d * (float)(int8_t)scales[sub];
        for (size_t i = 16 * sub; i < 16 * (sub + 1); i++) {
            const int four = q6_low(low, i / 32, i % 32);
            to[i] = scale * (float)((four | two_bits(high, i / 32, i % 32) << 4) - 32);
        }
    }
}

static void iq4_xs(float *to, const unsigned char *b)
{
    const float d = load_f16(b);
    for (size_t sub = 0; sub < 8; sub++) {
        const float step = d * (float)iq4_scale(b, sub);
        for (size_t i = 0; i < 32; i++)
            to[32 * sub + i] = step * iq4_value(nibble(b + 8 + 16 * sub, i));
    }
}

static void tq1_0(float *to, const unsigned char *b)
{
    const float d = load_f16(b + 52);
    for (size_t i = 0; i < SUPER; i++)
        to[i] = d * (float)(ternary_digit_at(b, i) - 1);
}

static void tq2_0(float *to, const unsigned char *b)
{
    const float d = load_f16(b + 64);
    for (size_t i = 0; i < SUPER; i++)
        to[i] = d * (float)(two_bits(b, i / 32, i % 32) - 1);
}

/* Types with a grid, transcoded to units first. */
static void dequantize_grid(float *to, enum dtype type, const struct grid_block *block)
{
    const struct quant_types *quant = &quant_types[type];
    const size_t group = quant_group(type, SUPER);
    for (size_t i = 0; i < SUPER; i++) {
        const unsigned char *unit = block->unit[i / SMALL];
        const unsigned char *at = quant->grid.bit7 == GRID_BIT_SCALE
                                      ? unit + grid_signs_at(&quant->grid)
                                      : block->scale + i / group / 2;
        to[i] = load_f16(block->d) * quant_grid_scale(type, at, i) *
                (float)((int)grid_integer(&quant->grid, quant->zero_point, unit, i % SMALL) -
                        quant->zero_point);
    }
}

#define GRID(name, type)                                                                               \
    static void name(float *to, const unsigned char *b)                                                \
    {                                                                                                  \
        const struct grid_block block = grid_block_##name(b);                                          \
        dequantize_grid(to, type, &block);                                                             \
    }

GRID(iq3_s, DTYPE_IQ3_S)
GRID(iq3_xxs, DTYPE_IQ3_XXS)
GRID(iq2_s, DTYPE_IQ2_S)
GRID(iq2_xs, DTYPE_IQ2_XS)
GRID(iq2_xxs, DTYPE_IQ2_XXS)
GRID(iq1_s, DTYPE_IQ1_S)
GRID(iq1_m, DTYPE_IQ1_M)

#define BLOCKS(name, n, size)                                                                          \
    static void dequantize_##name(float *to, const unsigned char *from, size_t blocks)                 \
    {                                                                                                  \
        for (size_t i = 0; i < blocks; i++)                                                            \
            name(to + (n)*i, from + (size)*i);                                                         \
    }

BLOCKS(q8_0, SMALL, 34)
BLOCKS(q4_0, SMALL, 18)
BLOCKS(q4_1, SMALL, 20)
BLOCKS(q5_0, SMALL, 22)
BLOCKS(q5_1, SMALL, 24)
BLOCKS(iq4_nl, SMALL, 18)
BLOCKS(mxfp4, SMALL, 17)
BLOCKS(q2_k, SUPER, 84)
BLOCKS(q3_k, SUPER, 110)
BLOCKS(q4_k, SUPER, 144)
BLOCKS(q5_k, SUPER, 176)
BLOCKS(q6_k, SUPER, 210)
BLOCKS(iq4_xs, SUPER, 136)
BLOCKS(iq3_s, SUPER, 110)
BLOCKS(iq3_xxs, SUPER, 98)
BLOCKS(tq1_0, SUPER, 54)
BLOCKS(tq2_0, SUPER, 66)
BLOCKS(iq2_s, SUPER, 82)
BLOCKS(iq2_xs, SUPER, 74)
BLOCKS(iq2_xxs, SUPER, 66)
BLOCKS(iq1_s, SUPER, 50)
BLOCKS(iq1_m, SUPER, 56)

const struct block_type block_types[SOURCE_OTHER] = {
    [SOURCE_F32] = {"F32", 0, 1, 4, dequantize_f32, DTYPE_F32},
    [SOURCE_F16] = {"F16", 1, 1, 2, dequantize_f16, DTYPE_F16},
    [SOURCE_BF16] = {"BF16", 30, 1, 2, dequantize_bf16, DTYPE_BF16},
    [SOURCE_Q8_0] = {"Q8_0", 8, SMALL, 34, dequantize_q8_0, DTYPE_Q8_0},
    [SOURCE_Q4_0] = {"Q4_0", 2, SMALL, 18, dequantize_q4_0, DTYPE_Q4_0},
    [SOURCE_Q4_1] = {"Q4_1", 3, SMALL, 20, dequantize_q4_1, DTYPE_Q4_1},
    [SOURCE_Q5_0] = {"Q5_0", 6, SMALL, 22, dequantize_q5_0, DTYPE_Q5_0},
    [SOURCE_Q5_1] = {"Q5_1", 7, SMALL, 24, dequantize_q5_1, DTYPE_Q5_1},
    [SOURCE_Q2_K] = {"Q2_K", 10, SUPER, 84, dequantize_q2_k, DTYPE_Q2_K},
    [SOURCE_Q3_K] = {"Q3_K", 11, SUPER, 110, dequantize_q3_k, DTYPE_Q3_K},
    [SOURCE_Q4_K] = {"Q4_K", 12, SUPER, 144, dequantize_q4_k, DTYPE_Q4_K},
    [SOURCE_Q5_K] = {"Q5_K", 13, SUPER, 176, dequantize_q5_k, DTYPE_Q5_K},
    [SOURCE_Q6_K] = {"Q6_K", 14, SUPER, 210, dequantize_q6_k, DTYPE_Q6_K},
    [SOURCE_IQ4_NL] = {"IQ4_NL", 20, SMALL, 18, dequantize_iq4_nl, DTYPE_IQ4_NL},
    [SOURCE_IQ4_XS] = {"IQ4_XS", 23, SUPER, 136, dequantize_iq4_xs, DTYPE_IQ4_XS},
    [SOURCE_MXFP4] = {"MXFP4", 39, SMALL, 17, dequantize_mxfp4, DTYPE_MXFP4},
    [SOURCE_IQ3_S] = {"IQ3_S", 21, SUPER, 110, dequantize_iq3_s, DTYPE_IQ3_S},
    [SOURCE_IQ3_XXS] = {"IQ3_XXS", 18, SUPER, 98, dequantize_iq3_xxs, DTYPE_IQ3_XXS},
    [SOURCE_TQ1_0] = {"TQ1_0", 34, SUPER, 54, dequantize_tq1_0, DTYPE_TQ1_0},
    [SOURCE_TQ2_0] = {"TQ2_0", 35, SUPER, 66, dequantize_tq2_0, DTYPE_TQ2_0},
    [SOURCE_IQ2_S] = {"IQ2_S", 22, SUPER, 82, dequantize_iq2_s, DTYPE_IQ2_S},
    [SOURCE_IQ2_XS] = {"IQ2_XS", 17, SUPER, 74, dequantize_iq2_xs, DTYPE_IQ2_XS},
    [SOURCE_IQ2_XXS] = {"IQ2_XXS", 16, SUPER, 66, dequantize_iq2_xxs, DTYPE_IQ2_XXS},
    [SOURCE_IQ1_S] = {"IQ1_S", 19, SUPER, 50, dequantize_iq1_s, DTYPE_IQ1_S},
    [SOURCE_IQ1_M] = {"IQ1_M", 29, SUPER, 56, dequantize_iq1_m, DTYPE_IQ1_M},
};

const struct block_type *block_type_of_ggml(uint32_t ggml)
{
    for (size_t i = 0; i < SOURCE_OTHER; i++)
        if (block_types[i].ggml == ggml)
            return &block_types[i];
    return NULL;
}
