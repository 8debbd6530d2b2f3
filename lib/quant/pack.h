/* Layouts of weight matrices in memory.
 *
 * Matrix kernels read LAYOUT_PACKED in place. A matrix [out][in] is divided into blocks of 16
 * outputs; a block is contiguous and made of words, an f32, an f16 or two neighbouring bf16
 * (dtype_pair()): the first word of outputs 0 to 15, then the second word of each, and so on. bf16
 * is thus [out/16][in/2][16][2], f32 and f16 are [out/16][in][16]. Outputs are padded to a multiple
 * of 16, inputs to one of 32; padding is zero.
 *
 * A block of a quantised type has the quantised values of all inputs, then its scale arrays
 * (quant_types.h), each [elements per output][16], and is rounded up to lines of 64 bytes. A word
 * is 4 bytes of neighbouring inputs of an output, so that a line of 16 words is one SIMD operand of
 * integer dot products:
 *   8 bits  [in/4][16][4]
 *   fewer   [in/32], each the values' lowest 4 bits, then the next 2, then 1, those of them that the type has:
 *     4 bits  [4][16][4]: byte j of 4 has inputs j and 4 + j of 8, the first in its low half
 *     2 bits  [2][16][4]: byte j of 4 has inputs j, 4 + j, 8 + j and 12 + j of 16, from its lowest bits up
 *     1 bit   [1][16][4]: byte j of 4 has inputs j, 4 + j .. 28 + j, from its lowest bit up
 *   ternary [in/32], each 104 bytes of
 *     [16][4]: byte j has inputs j, 4 + j .. 16 + j, five digits of a fraction (quant/ternary.h)
 *     [16] u16 and [8]: byte j has inputs 20 + j, 24 + j and 28 + j, a number v of three digits; bits
 *             4 j to 4 j + 3 of output o's u16 are bits 0 to 3 of v, bit j of half o / 8 of byte o % 8
 *             is bit 4
 *   grid    [in/32], each the units of 16 outputs (quant/grids.h) */
#pragma once

#include "quant/quant_types.h"

enum { PACK_OUT = 16, PACK_IN = 32, PACK_LINE = 64, TERNARY_BYTES = 104 };

/* Outputs (layout_out) and inputs (layout_in) that a matrix [out][in] has in memory, padding
 * included. */
static inline size_t layout_out(enum layout layout, size_t out)
{
    return layout == LAYOUT_PACKED ? round_up(out, PACK_OUT) : out;
}
static inline size_t layout_in(enum layout layout, size_t in)
{
    return layout == LAYOUT_PACKED ? round_up(in, PACK_IN) : in;
}

/* ---- blocks of quantised types ---- */

/* Bytes of the quantised values of k inputs in a block of 16 outputs; k is a multiple of 32. */
static inline size_t pack_q_bytes(enum dtype type, size_t k)
{
    if (quant_has_grid(type))
        return k / PACK_IN * PACK_OUT * quant_types[type].grid.unit;
    if (quant_types[type].ternary)
        return k / PACK_IN * TERNARY_BYTES;
    return k * PACK_OUT * quant_types[type].bits / 8;
}

/* Byte offset of scale array p (enum scale_kind) in a block of in_padded inputs; p = SCALE_KINDS:
 * end of the last array. */
static inline size_t pack_scales_at(enum dtype type, size_t in_padded, size_t p)
{
    size_t at = pack_q_bytes(type, in_padded);
    for (size_t i = 0; i < p; i++)
        at += scale_count(quant_types[type].scales[i], in_padded) * PACK_OUT *
              quant_types[type].scales[i].bytes;
    return at;
}

/* ---- all types ---- */

/* Bytes of a packed block, the in_padded inputs of 16 outputs, in any type. */
static inline size_t pack_block_bytes(enum dtype type, size_t in_padded)
{
    return dtype_is_quantized(type) ? round_up(pack_scales_at(type, in_padded, SCALE_KINDS), PACK_LINE)
                                    : in_padded * PACK_OUT * dtype_size(type);
}

/* Bytes of a matrix in a layout, padding included. */
static inline size_t layout_bytes(enum layout layout, enum dtype type, size_t out, size_t in)
{
    return layout == LAYOUT_PACKED
               ? div_up(out, PACK_OUT) * pack_block_bytes(type, layout_in(layout, in))
               : out * dtype_row_bytes(type, in);
}

/* Index in w->data of the weight of output o and input k; not for quantised types. */
static inline size_t mat_at(const struct mat *w, size_t o, size_t k)
{
    if (w->layout == LAYOUT_ROWS)
        return o * w->in_padded + k;
    const size_t lane = o % PACK_OUT, block = o / PACK_OUT * w->in_padded * PACK_OUT;
    const size_t word = dtype_pair(w->dtype);
    return block + k / word * (word * PACK_OUT) + word * lane + k % word;
}

/* Packs `n_rows` rows of `n` elements into blocks of 16 rows, padded with zeros to n_padded >= n
 * elements per row: an even number, for quantised types a multiple of 32. Rows begin `stride`
 * elements apart (ignored for quantised types, whose rows are contiguous). */
void pack_rows(void *packed, size_t n_padded, const void *rows, size_t stride, size_t n_rows, size_t n,
               enum dtype type);

/* Unpacks the first `n_rows` <= 16 rows of a packed block, `n` of n_padded elements each, to
 * contiguous rows. */
void unpack_block(void *rows, const void *block, size_t n_padded, size_t n_rows, size_t n,
                  enum dtype type);

/* Converts weights [from, from + n) of output `row` to f32 y[n]; the matrix may have any type and
 * layout. */
void mat_fetch(float *y, const struct mat *w, size_t row, size_t from, size_t n);

/* Converts all weights of output `row` to f32 y[w->in]. */
void mat_fetch_row(float *y, const struct mat *w, size_t row);

/* Bytes of a row of n inputs in memory; quantised matrices are packed, and n is rounded up to their
 * groups. */
static inline size_t pack_row_bytes(enum dtype type, size_t n)
{
    return dtype_is_quantized(type)
               ? pack_scales_at(type, layout_in(LAYOUT_PACKED, n), SCALE_KINDS) / PACK_OUT
               : n * dtype_size(type);
}
