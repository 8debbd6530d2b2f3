/* Blocks of ggml's types, little-endian and unaligned: lossless transcoding to bmc's quantised types, and with it
 * dequantisation. Quantised values and scales are rearranged, none is rounded. */
#include "format/gguf/block_types.h"

#include "quant/quant_types.h"

#define INLINE static inline __attribute__((always_inline))

/* ---- bits of blocks ---- */

/* Elements of ggml's small quantised blocks, and of the super-blocks of K-quants and IQ4_XS. */
enum { SMALL = 32, SUPER = 256 };

static inline uint16_t load_u16(const unsigned char *at) { return (uint16_t)(at[0] | at[1] << 8); }

/* Element i of 32 5-bit values: 0 to 15 have their low four bits in the low halves of the 16 bytes q, 16 to
 * 31 in the high ones; `high` has the fifth bits. */
static inline int five_bits(const unsigned char *high, const unsigned char *q, size_t i)
{
    const int low = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
    return low | (high[i / 8] >> i % 8 & 1) << 4;
}

/* 2-bit element i of sub-block `sub` of 32 elements. Each 32 bytes hold four sub-blocks, the first
 * one in the lowest two bits. */
static inline int two_bits(const unsigned char *q, size_t sub, size_t i)
{
    return q[sub / 4 * 32 + i] >> sub % 4 * 2 & 3;
}

/* Where the quantised values and scales of one ggml block go in a row of model.bmc. */
struct block_dest {
    unsigned char *q, *scale, *min, *d, *dmin;
};

/* Transcodes one block. */
typedef void transcoder(struct block_dest to, const unsigned char *block);

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

/* Four scales, then 8 bytes of each 16 elements: the first 8 in their low halves. A scale of NaN is 0, as for ggml. */
INLINE void nvfp4(struct block_dest to, const unsigned char *b)
{
    for (size_t sub = 0; sub < 4; sub++)
        to.scale[sub] = b[sub] == 0x7f ? 0 : b[sub];
    for (size_t pair = 0; pair < 2; pair++)
        for (size_t i = 0; i < 8; i++) {
            const unsigned char *q = b + 4 + 16 * pair + i;
            to.q[16 * pair + i] = (unsigned char)((q[0] & 15) | (q[8] & 15) << 4);
            to.q[16 * pair + 8 + i] = (unsigned char)(q[0] >> 4 | (q[8] & 0xf0));
        }
}

/* Q1_0 and Q2_0: d, then elements from the lowest bits of each byte up. */
INLINE void q1_0(struct block_dest to, const unsigned char *b)
{
    put_f16(to.scale, b);
    for (size_t i = 0; i < 128; i++)
        to.q[i] = b[2 + i / 8] >> i % 8 & 1;
}

INLINE void q2_0(struct block_dest to, const unsigned char *b)
{
    put_f16(to.scale, b);
    for (size_t i = 0; i < 64; i++)
        to.q[i] = b[2 + i / 4] >> i % 4 * 2 & 3;
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

/* 16 scales of 6 bits, plus 32: low four bits in 8 bytes, 0 to 7 in low halves, upper two in 4 bytes. */
INLINE void q3_k(struct block_dest to, const unsigned char *b)
{
    const unsigned char *scales = b + 96;
    put_f16(to.d, b + 108);
    for (size_t sub = 0; sub < 16; sub++) {
        const int low = sub < 8 ? scales[sub] & 15 : scales[sub - 8] >> 4;
        const int high = scales[8 + sub % 4] >> sub / 4 * 2 & 3;
        to.scale[sub] = (unsigned char)((low | high << 4) - 32);
    }
    for (size_t sub = 0; sub < SUB_BLOCKS; sub++)
        for (size_t i = 0; i < SUB_BLOCK; i++)
            to.q[SUB_BLOCK * sub + i] =
                (unsigned char)(two_bits(b + 32, sub, i) | (b[i] >> sub & 1) << 2);
}

/* d, dmin, and 8 scales and mins of 6 bits in 12 bytes, with which Q4_K and Q5_K blocks begin. */
INLINE void put_q45_scales(struct block_dest to, const unsigned char *b)
{
    const unsigned char *s = b + 4;
    put_f16(to.d, b);
    put_f16(to.dmin, b + 2);
    for (size_t sub = 0; sub < 4; sub++) {
        to.scale[sub] = s[sub] & 63;
        to.min[sub] = s[sub + 4] & 63;
        to.scale[sub + 4] = (unsigned char)((s[sub + 8] & 15) | s[sub] >> 6 << 4);
        to.min[sub + 4] = (unsigned char)(s[sub + 8] >> 4 | s[sub + 4] >> 6 << 4);
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

/* Each 32 bytes have the low four bits of two sub-blocks, the first in low halves. */
INLINE void q5_k(struct block_dest to, const unsigned char *b)
{
    put_q45_scales(to, b);
    for (size_t sub = 0; sub < SUB_BLOCKS; sub++)
        for (size_t i = 0; i < SUB_BLOCK; i++) {
            const int low = b[48 + sub / 2 * 32 + i] >> sub % 2 * 4 & 15;
            to.q[SUB_BLOCK * sub + i] = (unsigned char)(low | (b[16 + i] >> sub & 1) << 4);
        }
}

/* Each 64 bytes have the low four bits of four sub-blocks: 0 and 2 share bytes, and 1 and 3. */
INLINE void q6_k(struct block_dest to, const unsigned char *b)
{
    put_f16(to.d, b + 208);
    memcpy(to.scale, b + 192, 16);
    for (size_t sub = 0; sub < SUB_BLOCKS; sub++)
        for (size_t i = 0; i < SUB_BLOCK; i++) {
            const int low = b[sub / 4 * 64 + sub % 2 * 32 + i] >> sub % 4 / 2 * 4 & 15;
            to.q[SUB_BLOCK * sub + i] = (unsigned char)(low | two_bits(b + 128, sub, i) << 4);
        }
}

/* 8 scales of 6 bits, plus 32: upper two bits are stored first. */
INLINE void iq4_xs(struct block_dest to, const unsigned char *b)
{
    put_f16(to.d, b);
    memcpy(to.q, b + 8, SUPER / 2);
    for (size_t sub = 0; sub < 8; sub++) {
        const int low = b[4 + sub / 2] >> sub % 2 * 4 & 15, high = load_u16(b + 2) >> 2 * sub & 3;
        to.scale[sub] = (unsigned char)((low | high << 4) - 32);
    }
}

/* Bytes hold digits of 32, then 16, then 4 elements in turn, five or (of the last 4) four in each: the highest
 * digit is the integer part of 3 / 256 of the byte, and so on. */
INLINE void tq1_0(struct block_dest to, const unsigned char *b)
{
    put_f16(to.d, b + 52);
    for (size_t i = 0; i < SUPER; i++) {
        const size_t from = i < 160 ? 0 : i < 240 ? 160 : 240, turn = i < 160 ? 32 : i < 240 ? 16 : 4;
        unsigned fraction = b[from / 5 + (i - from) % turn];
        for (size_t digit = (i - from) / turn; digit > 0; digit--)
            fraction = fraction * 3 & 255;
        to.q[i] = (unsigned char)(fraction * 3 >> 8);
    }
}

INLINE void tq2_0(struct block_dest to, const unsigned char *b)
{
    put_f16(to.d, b + 64);
    for (size_t sub = 0; sub < SUB_BLOCKS; sub++)
        for (size_t i = 0; i < SUB_BLOCK; i++)
            to.q[SUB_BLOCK * sub + i] = (unsigned char)two_bits(b, sub, i);
}

/* ---- types with a grid, as units of 32 elements (quant/grids.h) ---- */

/* Copies `bytes` bytes of each unit from `from` on, `step` apart, to offset `at` of the units. */
INLINE void put_units(struct block_dest to, size_t unit, size_t at, const unsigned char *from,
                      size_t step, size_t bytes)
{
    for (size_t sub = 0; sub < SUB_BLOCKS; sub++)
        memcpy(to.q + sub * unit + at, from + sub * step, bytes);
}

/* Stores sign bytes whose bits 7 are a scale, at offset `at` of the units, from words of 4 * 7 bits of signs and
 * 4 of scale above. */
INLINE void put_scaled_signs(struct block_dest to, size_t unit, size_t at, const unsigned char *from,
                             size_t step)
{
    for (size_t sub = 0; sub < SUB_BLOCKS; sub++) {
        const unsigned char *word = from + sub * step;
        const uint32_t bits = load_u16(word) | (uint32_t)load_u16(word + 2) << 16;
        for (size_t i = 0; i < GRID_SIGN_BYTES; i++)
            to.q[sub * unit + at + i] =
                (unsigned char)((bits >> 7 * i & 127) | (bits >> (28 + i) & 1) << 7);
    }
}

/* d, 64 bytes of indices, then 8 words of signs and scales. */
INLINE void iq3_xxs(struct block_dest to, const unsigned char *b)
{
    put_f16(to.d, b);
    put_units(to, 12, 0, b + 2, 8, 8);
    put_scaled_signs(to, 12, 8, b + 66, 4);
}

/* d, 64 bytes of indices, 8 of index bits, 32 of signs, 4 of scales. */
INLINE void iq3_s(struct block_dest to, const unsigned char *b)
{
    put_f16(to.d, b);
    put_units(to, 13, 0, b + 2, 8, 8);
    put_units(to, 13, 8, b + 74, 4, 4);
    put_units(to, 13, 12, b + 66, 1, 1);
    memcpy(to.scale, b + 106, 4);
}

/* d, then of each 32 elements 4 bytes of indices and a word of signs and scale. */
INLINE void iq2_xxs(struct block_dest to, const unsigned char *b)
{
    put_f16(to.d, b);
    put_units(to, 8, 0, b + 2, 8, 4);
    put_scaled_signs(to, 8, 4, b + 6, 8);
}

/* d, 32 times 9 bits of index and 7 of signs, 8 bytes of scales. */
INLINE void iq2_xs(struct block_dest to, const unsigned char *b)
{
    put_f16(to.d, b);
    for (size_t n = 0; n < SUPER / 8; n++) {
        const unsigned both = load_u16(b + 2 + 2 * n);
        unsigned char *unit = to.q + n / 4 * 8;
        unit[n % 4] = (unsigned char)both;
        unit[4 + n % 4] = (unsigned char)(both >> 9 | (both >> 8 & 1) << 7);
    }
    memcpy(to.scale, b + 66, 8);
}

/* d, 32 bytes of indices, 32 of signs, 8 of index bits, 8 of scales. */
INLINE void iq2_s(struct block_dest to, const unsigned char *b)
{
    put_f16(to.d, b);
    put_units(to, 9, 0, b + 2, 4, 4);
    put_units(to, 9, 4, b + 34, 4, 4);
    put_units(to, 9, 8, b + 66, 1, 1);
    memcpy(to.scale, b + 74, 8);
}

/* d, 32 bytes of indices, then 16 bits of each 32 elements as units have them. */
INLINE void iq1_s(struct block_dest to, const unsigned char *b)
{
    put_f16(to.d, b);
    put_units(to, 6, 0, b + 2, 4, 4);
    put_units(to, 6, 4, b + 34, 2, 2);
}

/* 32 bytes of indices, 16 bits of each 32 elements as units have them, then four words of four times 3 bits of
 * scale, whose upper four bits are d. */
INLINE void iq1_m(struct block_dest to, const unsigned char *b)
{
    to.d[0] = (unsigned char)(b[49] >> 4 | (b[51] & 0xf0));
    to.d[1] = (unsigned char)(b[53] >> 4 | (b[55] & 0xf0));
    put_units(to, 6, 0, b, 4, 4);
    put_units(to, 6, 4, b + 32, 2, 2);
    for (size_t sub = 0; sub < SUB_BLOCKS; sub++) {
        const unsigned scales = load_u16(b + 48 + sub / 2 * 2) >> sub % 2 * 6;
        to.scale[sub] = (unsigned char)((scales & 7) | (scales >> 3 & 7) << 4);
    }
}

/* ---- rows ---- */

/* Address of the scales of kind `sub` for block i in a row of n elements, `elements` per block. */
INLINE unsigned char *scales_at(enum dtype type, unsigned char *row, size_t n, size_t elements,
                                size_t i, enum scale_kind sub)
{
    const struct scale_array scales = quant_types[type].scales[sub];
    return row + quant_row_scales_at(type, n, sub) + i * scale_count(scales, elements) * scales.bytes;
}

INLINE void transcode_row(enum dtype type, transcoder *transcode, size_t elements, size_t bytes,
                          unsigned char *row, const unsigned char *blocks, size_t n)
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

/* Dequantises a row as ggml does: values without a min are products alone, as a sum with 0 would lose the sign of
 * -0. */
INLINE void dequantize_row(enum dtype type, float *to, const unsigned char *row, size_t n)
{
    const size_t group = quant_group(type, n);
    for (size_t from = 0; from < n; from += group) {
        const struct quant_scale v = quant_row_scale(type, row, n, from);
        for (size_t i = from; i < from + group; i++) {
            const int q = (int)quant_integer(type, quant_row_q(type, row, i));
            const float product = v.scale * (float)(q - quant_types[type].zero_point);
            to[i] = quant_has_min(type) ? product + v.min : product;
        }
    }
}

/* Transcodes and dequantises blocks, BLOCK_MAX_ELEMENTS elements at a time. */
INLINE void dequantize_blocks(enum dtype type, transcoder *transcode, size_t elements, size_t bytes,
                              float *to, const unsigned char *blocks, size_t n)
{
    unsigned char row[2 * BLOCK_MAX_ELEMENTS];
    for (size_t i = 0, some; i < n; i += some) {
        some = size_min(BLOCK_MAX_ELEMENTS / elements, n - i);
        transcode_row(type, transcode, elements, bytes, row, blocks + i * bytes, some * elements);
        dequantize_row(type, to + i * elements, row, some * elements);
    }
}

static void dequantize_f32(float *to, const unsigned char *from, size_t n) { memcpy(to, from, 4 * n); }

static void dequantize_f16(float *to, const unsigned char *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = f16_to_f32(load_u16(from + 2 * i));
}

static void dequantize_bf16(float *to, const unsigned char *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = bf16_to_f32(load_u16(from + 2 * i));
}

/* Quantised blocks: X(name, ggml's number, elements, bytes, transcoder). A type of model.bmc of the same name
 * holds each without loss. */
#define BLOCKS(X)                                                                                      \
    X(Q8_0, 8, SMALL, 34, q8_0)                                                                        \
    X(Q4_0, 2, SMALL, 18, q4_0)                                                                        \
    X(Q4_1, 3, SMALL, 20, q4_1)                                                                        \
    X(Q5_0, 6, SMALL, 22, q5_0)                                                                        \
    X(Q5_1, 7, SMALL, 24, q5_1)                                                                        \
    X(Q2_K, 10, SUPER, 84, q2_k)                                                                       \
    X(Q3_K, 11, SUPER, 110, q3_k)                                                                      \
    X(Q4_K, 12, SUPER, 144, q4_k)                                                                      \
    X(Q5_K, 13, SUPER, 176, q5_k)                                                                      \
    X(Q6_K, 14, SUPER, 210, q6_k)                                                                      \
    X(IQ4_NL, 20, SMALL, 18, q4_0)                                                                     \
    X(IQ4_XS, 23, SUPER, 136, iq4_xs)                                                                  \
    X(MXFP4, 39, SMALL, 17, mxfp4)                                                                     \
    X(NVFP4, 40, 64, 36, nvfp4)                                                                        \
    X(Q1_0, 41, 128, 18, q1_0)                                                                         \
    X(Q2_0, 42, 64, 18, q2_0)                                                                          \
    X(IQ3_S, 21, SUPER, 110, iq3_s)                                                                    \
    X(IQ3_XXS, 18, SUPER, 98, iq3_xxs)                                                                 \
    X(TQ1_0, 34, SUPER, 54, tq1_0)                                                                     \
    X(TQ2_0, 35, SUPER, 66, tq2_0)                                                                     \
    X(IQ2_S, 22, SUPER, 82, iq2_s)                                                                     \
    X(IQ2_XS, 17, SUPER, 74, iq2_xs)                                                                   \
    X(IQ2_XXS, 16, SUPER, 66, iq2_xxs)                                                                 \
    X(IQ1_S, 19, SUPER, 50, iq1_s)                                                                     \
    X(IQ1_M, 29, SUPER, 56, iq1_m)

#define BLOCK_FUNCTIONS(name, ggml, elements, bytes, transcode)                                        \
    static void transcode_##name(unsigned char *row, const unsigned char *blocks, size_t n)            \
    {                                                                                                  \
        transcode_row(DTYPE_##name, transcode, elements, bytes, row, blocks, n);                       \
    }                                                                                                  \
    static void dequantize_##name(float *to, const unsigned char *blocks, size_t n)                    \
    {                                                                                                  \
        dequantize_blocks(DTYPE_##name, transcode, elements, bytes, to, blocks, n);                    \
    }
BLOCKS(BLOCK_FUNCTIONS)

#define BLOCK_ROW(name, ggml, elements, bytes, transcode)                                              \
    [DTYPE_##name] = {#name, ggml, elements, bytes, dequantize_##name, transcode_##name, DTYPE_##name},

const struct block_type block_types[DTYPE_COUNT] = {
    [DTYPE_F32] = {"F32", 0, 1, 4, dequantize_f32, NULL, DTYPE_F32},
    [DTYPE_F16] = {"F16", 1, 1, 2, dequantize_f16, NULL, DTYPE_F16},
    [DTYPE_BF16] = {"BF16", 30, 1, 2, dequantize_bf16, NULL, DTYPE_BF16},
    BLOCKS(BLOCK_ROW)};

/* ---- from rows to blocks ---- */

enum { BLOCK_MOST_BYTES = 256, ONE_ROW_BYTES = 2 * BLOCK_MAX_ELEMENTS };

/* Copies what a row of n elements has of block number `at`, as a row of one block. */
static void take_block(const struct block_type *type, unsigned char *one, const unsigned char *row,
                       size_t n, size_t at)
{
    const enum dtype stored = type->stored;
    const size_t q = quant_row_q_bytes(stored, type->elements);
    memcpy(one, row + at * q, q);
    for (size_t p = 0; p < SCALE_KINDS; p++) {
        const struct scale_array scales = quant_types[stored].scales[p];
        const size_t bytes = scale_count(scales, type->elements) * scales.bytes;
        memcpy(one + quant_row_scales_at(stored, type->elements, p),
               row + quant_row_scales_at(stored, n, p) + at * bytes, bytes);
    }
}

/* Transcoding moves and inverts bits, apart from TQ1_0: every bit of a block decides one bit, or some, of the
 * row. For each, the number of the first such bit, which transcoding a block with that bit alone shows. */
struct bit_map {
    uint16_t at[8 * BLOCK_MOST_BYTES];
    unsigned char zero[ONE_ROW_BYTES]; /* the row of a block of zeros */
};

static void map_bits(const struct block_type *type, struct bit_map *map)
{
    const size_t row = dtype_row_bytes(type->stored, type->elements);
    unsigned char block[BLOCK_MOST_BYTES] = {0}, one[ONE_ROW_BYTES];
    type->transcode(map->zero, block, type->elements);
    for (size_t bit = 0; bit < 8 * type->bytes; bit++) {
        block[bit / 8] = (unsigned char)(1 << bit % 8);
        type->transcode(one, block, type->elements);
        block[bit / 8] = 0;
        size_t i = 0;
        while (i + 1 < row && one[i] == map->zero[i])
            i++;
        map->at[bit] = (uint16_t)(8 * i + (size_t)__builtin_ctz((one[i] ^ map->zero[i]) | 256U));
    }
}

static void encode_bits(const struct block_type *type, const struct bit_map *map, unsigned char *block,
                        const unsigned char *one)
{
    for (size_t i = 0; i < type->bytes; i++) {
        unsigned byte = 0;
        for (size_t k = 0; k < 8; k++) {
            const size_t at = map->at[8 * i + k];
            byte |= ((unsigned)(one[at / 8] ^ map->zero[at / 8]) >> at % 8 & 1) << k;
        }
        block[i] = (unsigned char)byte;
    }
}

/* TQ1_0: digits as tq1_0() reads them; a byte is the least one whose fraction of 256 is not below theirs. */
static void encode_tq1_0(unsigned char *block, const unsigned char *one)
{
    static const size_t begin[] = {0, 160, 240, SUPER}, turn[] = {32, 16, 4};
    for (size_t part = 0; part < ARRAY_LEN(turn); part++)
        for (size_t i = 0; i < turn[part]; i++) {
            unsigned digits = 0;
            for (size_t at = begin[part] + i, k = 0; k < 5; k++, at += turn[part])
                digits = 3 * digits + (at < begin[part + 1] ? one[at] : 0);
            block[begin[part] / 5 + i] = (unsigned char)((digits * 256 + 242) / 243);
        }
    memcpy(block + 52, one + quant_row_scales_at(DTYPE_TQ1_0, SUPER, SCALE_D), sizeof(f16));
}

static bool encode_row(const struct block_type *type, const struct bit_map *map, unsigned char *blocks,
                       const unsigned char *row, size_t n)
{
    const size_t bytes = dtype_row_bytes(type->stored, type->elements);
    unsigned char one[ONE_ROW_BYTES], again[ONE_ROW_BYTES];
    bool same = true;
    for (size_t i = 0; i < n / type->elements; i++, blocks += type->bytes) {
        take_block(type, one, row, n, i);
        if (type->stored == DTYPE_TQ1_0)
            encode_tq1_0(blocks, one);
        else
            encode_bits(type, map, blocks, one);
        type->transcode(again, blocks, type->elements);
        same &= memcmp(one, again, bytes) == 0;
    }
    return same;
}

bool block_type_encode(const struct block_type *type, unsigned char *blocks, const unsigned char *rows,
                       size_t n_rows, size_t n)
{
    struct bit_map map;
    bool same = true;
    map_bits(type, &map);
    for (size_t i = 0; i < n_rows; i++)
        same &= encode_row(type, &map, blocks + i * (n / type->elements * type->bytes),
                           rows + i * dtype_row_bytes(type->stored, n), n);
    return same;
}

const struct block_type *block_type_of_ggml(uint32_t ggml)
{
    for (size_t i = 0; i < SOURCE_OTHER; i++)
        if (block_types[i].name && block_types[i].ggml == ggml)
            return &block_types[i];
    return NULL;
}
