/* ggml's blocks of types with a grid, rearranged to units (quant/grids.h). */
#ifndef BMC_BLOCK_GRIDS_H
#define BMC_BLOCK_GRIDS_H

#include <string.h>

#include "format/gguf/block_bits.h"
#include "quant/quant_types.h"

struct grid_block {
    unsigned char d[2];
    unsigned char unit[SUPER / SMALL][GRID_UNIT_MOST];
    unsigned char scale[SUPER / SMALL]; /* two in a byte; unused if signs have them */
};

static inline uint32_t load_u32(const unsigned char *at)
{
    return load_u16(at) | (uint32_t)load_u16(at + 2) << 16;
}

/* Sign bytes whose bits 7 are a scale, from 4 * 7 bits of signs and 4 of scale above. */
static inline void put_scaled_signs(unsigned char *to, uint32_t from)
{
    for (size_t i = 0; i < GRID_SIGN_BYTES; i++)
        to[i] = (unsigned char)((from >> 7 * i & 127) | (from >> (28 + i) & 1) << 7);
}

/* d, 64 bytes of indices, then 8 words of signs and scales. */
static inline struct grid_block grid_block_iq3_xxs(const unsigned char *b)
{
    struct grid_block block = {.d = {b[0], b[1]}};
    for (size_t sub = 0; sub < SUPER / SMALL; sub++) {
        memcpy(block.unit[sub], b + 2 + 8 * sub, 8);
        put_scaled_signs(block.unit[sub] + 8, load_u32(b + 66 + 4 * sub));
    }
    return block;
}

/* d, 64 bytes of indices, 8 of index bits, 32 of signs, 4 of scales. */
static inline struct grid_block grid_block_iq3_s(const unsigned char *b)
{
    struct grid_block block = {.d = {b[0], b[1]}};
    for (size_t sub = 0; sub < SUPER / SMALL; sub++) {
        memcpy(block.unit[sub], b + 2 + 8 * sub, 8);
        memcpy(block.unit[sub] + 8, b + 74 + 4 * sub, GRID_SIGN_BYTES);
        block.unit[sub][12] = b[66 + sub];
    }
    memcpy(block.scale, b + 106, 4);
    return block;
}

/* d, then of each 32 inputs 4 bytes of indices and a word of signs and scale. */
static inline struct grid_block grid_block_iq2_xxs(const unsigned char *b)
{
    struct grid_block block = {.d = {b[0], b[1]}};
    for (size_t sub = 0; sub < SUPER / SMALL; sub++) {
        memcpy(block.unit[sub], b + 2 + 8 * sub, 4);
        put_scaled_signs(block.unit[sub] + 4, load_u32(b + 6 + 8 * sub));
    }
    return block;
}

/* d, 32 times 9 bits of index and 7 of signs, 8 bytes of scales. */
static inline struct grid_block grid_block_iq2_xs(const unsigned char *b)
{
    struct grid_block block = {.d = {b[0], b[1]}};
    for (size_t n = 0; n < SUPER / 8; n++) {
        const unsigned both = load_u16(b + 2 + 2 * n);
        block.unit[n / 4][n % 4] = (unsigned char)both;
        block.unit[n / 4][4 + n % 4] = (unsigned char)(both >> 9 | (both >> 8 & 1) << 7);
    }
    memcpy(block.scale, b + 66, 8);
    return block;
}

/* d, 32 bytes of indices, 32 of signs, 8 of index bits, 8 of scales. */
static inline struct grid_block grid_block_iq2_s(const unsigned char *b)
{
    struct grid_block block = {.d = {b[0], b[1]}};
    for (size_t sub = 0; sub < SUPER / SMALL; sub++) {
        memcpy(block.unit[sub], b + 2 + 4 * sub, 4);
        memcpy(block.unit[sub] + 4, b + 34 + 4 * sub, GRID_SIGN_BYTES);
        block.unit[sub][8] = b[66 + sub];
    }
    memcpy(block.scale, b + 74, 8);
    return block;
}

/* d, 32 bytes of indices, then 16 bits of each 32 inputs as units have them. */
static inline struct grid_block grid_block_iq1_s(const unsigned char *b)
{
    struct grid_block block = {.d = {b[0], b[1]}};
    for (size_t sub = 0; sub < SUPER / SMALL; sub++) {
        memcpy(block.unit[sub], b + 2 + 4 * sub, 4);
        memcpy(block.unit[sub] + 4, b + 34 + 2 * sub, 2);
    }
    return block;
}

/* 32 bytes of indices, 16 bits of each 32 inputs as units have them, then four words of four times 3
 * bits of scale, whose upper four bits are d. */
static inline struct grid_block grid_block_iq1_m(const unsigned char *b)
{
    struct grid_block block = {.d = {0}};
    for (size_t sub = 0; sub < SUPER / SMALL; sub++) {
        const unsigned scales = load_u16(b + 48 + sub / 2 * 2) >> sub % 2 * 6;
        memcpy(block.unit[sub], b + 4 * sub, 4);
        memcpy(block.unit[sub] + 4, b + 32 + 2 * sub, 2);
        block.scale[sub] = (unsigned char)((scales & 7) | (scales >> 3 & 7) << 4);
    }
    block.d[0] = (unsigned char)(b[49] >> 4 | (b[51] & 0xf0));
    block.d[1] = (unsigned char)(b[53] >> 4 | (b[55] & 0xf0));
    return block;
}

#endif
