/* Lossless transcoding of ggml blocks to bmc's quantised types: quantised values and scales are
 * rearranged, none is rounded. */
#include <string.h>

#include "quant/quant_types.h"
#include "format/gguf/block_bits.h"
#include "format/gguf/block_grids.h"
#include "format/gguf/block_types.h"

#define INLINE static inline __attribute__((always_inline))

/* Where the quantised values and scales of one ggml block go in a row of model.bmc. */
struct block_dest {
    unsigned char *q, *scale, *min, *d, *dmin;
};

INLINE void put_f16(unsigned char *to, const unsigned char *from) { memcpy(to, from, sizeof(f16)); }

enum { Q8_ZERO_POINT = 128 }; /* zero point of 8-bit types */

/* ---- blocks of 32 ---- */

INLINE void q8_0(struct block_dest to, const unsigned char *b)
{
    put_f16(to.scale, b);
    for (size_t i = 0; i < SMALL; i++)
        to.q[i] = b[2 + i] ^ Q8_ZERO_POINT; /* two's complement to offset 128 */
}

/* Q4_0 and IQ4_NL */
INLINE void q4_0(struct block_dest to, const unsigned char *b)
{
    put_f16(to.scale, b);
    memcpy(to.q, b + 2, SMALL / 2);
}

INLINE void q4_1(struct block_dest to, const unsigned char *b)
{
    put_f16(to.scale, b);
    put_f16(to.min, b + 2);
    memcpy(to.q, b + 4, SMALL / 2);
}

INLINE void mxfp4(struct block_dest to, const unsigned char *b)
{
    *to.scale = *b;
    memcpy(to.q, b + 1, SMALL / 2);
}

INLINE void q5_0(struct block_dest to, const unsigned char *b)
{
    put_f16(to.scale, b);
    for (size_t i = 0; i < SMALL; i++)
        to.q[i] = (unsigned char)five_bits(b + 2, b + 6, i);
}

INLINE void q5_1(struct block_dest to, const unsigned char *b)
{
    put_f16(to.scale, b);
    put_f16(to.min, b + 2);
    for (size_t i = 0; i < SMALL; i++)
        to.q[i] = (unsigned char)five_bits(b + 4, b + 8, i);
}

/* ---- super-blocks of 256 ---- */

/* Loops run over sub-blocks of 32 with constant offsets and shifts, so that they vectorise. */
enum { SUB_BLOCK = 32, SUB_BLOCKS = SUPER / SUB_BLOCK };

INLINE void q2_k(struct block_dest to, const unsigned char *b)
{
    put_f16(to.d, b + 80);
    put_f16(to.dmin, b + 82);
    memcpy(to.scale, b, 16);
    for (size_t sub = 0; sub < SUB_BLOCKS; sub++)
        for (size_t i = 0; i < SUB_BLOCK; i++)
            to.q[SUB_BLOCK * sub + i] = (unsigned char)two_bits(b + 16, sub, i);
}

INLINE void q3_k(struct block_dest to, const unsigned char *b)
{
    put_f16(to.d, b + 108);
    for (size_t sub = 0; sub < 16; sub++)
        to.scale[sub] = (unsigned char)q3_scale(b + 96, sub);
    for (size_t sub = 0; sub < SUB_BLOCKS; sub++)
        for (size_t i = 0; i < SUB_BLOCK; i++)
            to.q[SUB_BLOCK * sub + i] =
                (unsigned char)(two_bits(b + 32, sub, i) | (b[i] >> sub & 1) << 2);
}

/* Transcodes d, dmin, scales and minima, with which Q4_K and Q5_K blocks begin. */
INLINE void put_q45_scales(struct block_dest to, const unsigned char *b)
{
    put_f16(to.d, b);
    put_f16(to.dmin, b + 2);
    for (size_t sub = 0; sub < 8; sub++) {
        int scale, min;
        q4_scales(b + 4, sub, &scale, &min);
        to.scale[sub] = (unsigned char)scale;
        to.min[sub] = (unsigned char)min;
    }
}

/* Q4_K: a byte of ggml has elements of two sub-blocks, a byte of model.bmc two of the same one. */
INLINE void q4_k(struct block_dest to, const unsigned char *b)
{
    put_q45_scales(to, b);
    for (size_t pair = 0; pair < 4; pair++)
        for (size_t i = 0; i < 16; i++) {
            const unsigned char *q = b + 16 + 32 * pair + i;
            to.q[32 * pair + i] = (unsigned char)((q[0] & 15) | (q[16] & 15) << 4);
            to.q[32 * pair + 16 + i] = (unsigned char)(q[0] >> 4 | (q[16] & 0xf0));
        }
}

INLINE void q5_k(struct block_dest to, const unsigned char *b)
{
    put_q45_scales(to, b);
    for (size_t sub = 0; sub < SUB_BLOCKS; sub++)
        for (size_t i = 0; i < SUB_BLOCK; i++) {
            const int fifth = (b[16 + i] >> sub & 1) << 4;
            to.q[SUB_BLOCK * sub + i] = (unsigned char)(four_bits(b + 48, sub, i) | fifth);
        }
}

INLINE void q6_k(struct block_dest to, const unsigned char *b)
{
    put_f16(to.d, b + 208);
    memcpy(to.scale, b + 192, 16);
    for (size_t sub = 0; sub < SUB_BLOCKS; sub++)
        for (size_t i = 0; i < SUB_BLOCK; i++)
            to.q[SUB_BLOCK * sub + i] =
                (unsigned char)(q6_low(b, sub, i) | two_bits(b + 128, sub, i) << 4);
}

INLINE void iq4_xs(struct block_dest to, const unsigned char *b)
{
    put_f16(to.d, b);
    memcpy(to.q, b + 8, SUPER / 2);
    for (size_t sub = 0; sub < 8; sub++)
        to.scale[sub] = (unsigned char)iq4_scale(b, sub);
}

INLINE void tq1_0(struct block_dest to, const unsigned char *b)
{
    put_f16(to.d, b + 52);
    for (size_t i = 0; i < SUPER; i++)
        to.q[i] = (unsigned char)ternary_digit_at(b, i);
}

INLINE void tq2_0(struct block_dest to, const unsigned char *b)
{
    put_f16(to.d, b + 64);
    for (size_t sub = 0; sub < SUB_BLOCKS; sub++)
        for (size_t i = 0; i < SUB_BLOCK; i++)
            to.q[SUB_BLOCK * sub + i] = (unsigned char)two_bits(b, sub, i);
}

/* Copies what a block has to the rows of a type with a grid. */
INLINE void put_grid(struct block_dest to, enum dtype type, const struct grid_block *block)
{
    const size_t unit = quant_types[type].grid.unit;
    put_f16(to.d, block->d);
    for (size_t sub = 0; sub < SUB_BLOCKS; sub++)
        memcpy(to.q + sub * unit, block->unit[sub], unit);
    memcpy(to.scale, block->scale, scale_count(quant_types[type].scales[SCALE_MAIN], SUPER));
}

#define GRID(name, type)                                                                               \
    INLINE void name(struct block_dest to, const unsigned char *b)                                     \
    {                                                                                                  \
        const struct grid_block block = grid_block_##name(b);                                          \
        put_grid(to, type, &block);                                                                    \
    }

GRID(iq3_s, DTYPE_IQ3_S)
GRID(iq3_xxs, DTYPE_IQ3_XXS)
GRID(iq2_s, DTYPE_IQ2_S)
GRID(iq2_xs, DTYPE_IQ2_XS)
GRID(iq2_xxs, DTYPE_IQ2_XXS)
GRID(iq1_s, DTYPE_IQ1_S)
GRID(iq1_m, DTYPE_IQ1_M)

/* Address of the scales of kind `sub` for block i in a row of n elements, `elements` per block. */
INLINE unsigned char *scales_at(enum dtype type, unsigned char *row, size_t n, size_t elements,
                                size_t i, enum scale_kind sub)
{
    const struct scale_array scales = quant_types[type].scales[sub];
    return row + quant_row_scales_at(type, n, sub) + i * scale_count(scales, elements) * scales.bytes;
}

INLINE void transcode_row(enum dtype type, void (*transcode)(struct block_dest, const unsigned char *),
                          size_t elements, size_t bytes, unsigned char *row,
                          const unsigned char *blocks, size_t n)
{
    for (size_t i = 0; i < n / elements; i++) {
        const struct block_dest to = {
            .q = row + quant_row_q_bytes(type, i * elements),
            .scale = scales_at(type, row, n, elements, i, SCALE_MAIN),
            .min = scales_at(type, row, n, elements, i, SCALE_MIN),
            .d = scales_at(type, row, n, elements, i, SCALE_D),
            .dmin = scales_at(type, row, n, elements, i, SCALE_DMIN),
        };
        transcode(to, blocks + i * bytes);
    }
}

void block_join_mxfp4(unsigned char *to, const unsigned char *blocks, const unsigned char *scales,
                      size_t n)
{
    for (size_t b = 0; b < n; b++, to += MXFP4_BYTES, blocks += MXFP4_SPLIT_BYTES) {
        to[0] = scales[b];
        for (size_t i = 0; i < SMALL / 2; i++) {
            const unsigned low = blocks[i / 2] >> i % 2 * 4 & 15,
                           high = blocks[8 + i / 2] >> i % 2 * 4 & 15;
            to[1 + i] = (unsigned char)(low | high << 4);
        }
    }
}

void block_transcode(enum source_type from, unsigned char *row, const unsigned char *blocks, size_t n)
{
    switch (from) {
    case SOURCE_Q8_0: transcode_row(DTYPE_Q8_0, q8_0, SMALL, 34, row, blocks, n); break;
    case SOURCE_Q4_0: transcode_row(DTYPE_Q4_0, q4_0, SMALL, 18, row, blocks, n); break;
    case SOURCE_Q4_1: transcode_row(DTYPE_Q4_1, q4_1, SMALL, 20, row, blocks, n); break;
    case SOURCE_Q5_0: transcode_row(DTYPE_Q5_0, q5_0, SMALL, 22, row, blocks, n); break;
    case SOURCE_Q5_1: transcode_row(DTYPE_Q5_1, q5_1, SMALL, 24, row, blocks, n); break;
    case SOURCE_IQ4_NL: transcode_row(DTYPE_IQ4_NL, q4_0, SMALL, 18, row, blocks, n); break;
    case SOURCE_Q2_K: transcode_row(DTYPE_Q2_K, q2_k, SUPER, 84, row, blocks, n); break;
    case SOURCE_Q3_K: transcode_row(DTYPE_Q3_K, q3_k, SUPER, 110, row, blocks, n); break;
    case SOURCE_Q4_K: transcode_row(DTYPE_Q4_K, q4_k, SUPER, 144, row, blocks, n); break;
    case SOURCE_Q5_K: transcode_row(DTYPE_Q5_K, q5_k, SUPER, 176, row, blocks, n); break;
    case SOURCE_Q6_K: transcode_row(DTYPE_Q6_K, q6_k, SUPER, 210, row, blocks, n); break;
    case SOURCE_IQ4_XS: transcode_row(DTYPE_IQ4_XS, iq4_xs, SUPER, 136, row, blocks, n); break;
    case SOURCE_MXFP4: transcode_row(DTYPE_MXFP4, mxfp4, SMALL, 17, row, blocks, n); break;
    case SOURCE_IQ3_S: transcode_row(DTYPE_IQ3_S, iq3_s, SUPER, 110, row, blocks, n); break;
    case SOURCE_IQ3_XXS: transcode_row(DTYPE_IQ3_XXS, iq3_xxs, SUPER, 98, row, blocks, n); break;
    case SOURCE_TQ1_0: transcode_row(DTYPE_TQ1_0, tq1_0, SUPER, 54, row, blocks, n); break;
    case SOURCE_TQ2_0: transcode_row(DTYPE_TQ2_0, tq2_0, SUPER, 66, row, blocks, n); break;
    case SOURCE_IQ2_S: transcode_row(DTYPE_IQ2_S, iq2_s, SUPER, 82, row, blocks, n); break;
    case SOURCE_IQ2_XS: transcode_row(DTYPE_IQ2_XS, iq2_xs, SUPER, 74, row, blocks, n); break;
    case SOURCE_IQ2_XXS: transcode_row(DTYPE_IQ2_XXS, iq2_xxs, SUPER, 66, row, blocks, n); break;
    case SOURCE_IQ1_S: transcode_row(DTYPE_IQ1_S, iq1_s, SUPER, 50, row, blocks, n); break;
    case SOURCE_IQ1_M: transcode_row(DTYPE_IQ1_M, iq1_m, SUPER, 56, row, blocks, n); break;
    case SOURCE_F32:
    case SOURCE_F16:
    case SOURCE_BF16:
    case SOURCE_OTHER: break; /* not quantised */
    }
}
