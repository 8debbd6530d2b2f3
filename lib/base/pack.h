/* Where the elements of a weight matrix lie, for every layout.
 *
 * LAYOUT_PACKED is what matrix kernels read in place. A matrix [out][in] is cut into blocks of 16 outputs; a
 * block lies in one piece and is made of words, an f32, an f16 or two neighbouring bf16 (dtype_pair()): the first
 * word of outputs 0 to 15, then the second word of each, and so on. bf16 is thus [out/16][in/2][16][2], f32 and f16 are
 * [out/16][in][16]. Outputs are padded to a multiple of 16, inputs to one of 32; padding is zero.
 *
 * A block of few bits has the codes of all inputs, then its planes (base/few_bits.h), each [numbers][16], and is
 * rounded up to whole lines of 64 bytes. Words of codes are of 4 bytes, for neighbouring inputs, so that a line is what
 * an integer product of 16 lanes takes:
 *   8 bits  [in/4][16][4]
 *   4 bits  [in/8][16][4]: inputs 0 to 3 of the 8 in the low halves of the bytes, 4 to 7 in the high halves
 *   6 bits  [in/32], each the lower 4 bits of 32 inputs like that, then [2][16][4]: of input 4 i + j of 16 the upper 2
 *           bits in bits 2 i of byte j */
#ifndef BMC_PACK_H
#define BMC_PACK_H

#include "base/few_bits.h"

enum { PACK_OUT = 16, PACK_IN = 32, PACK_LINE = 64 };

/* The stored shape of a matrix [out][in] in that layout. */
static inline size_t layout_out(enum layout layout, size_t out)
{
    return layout == LAYOUT_PACKED ? round_up(out, PACK_OUT) : out;
}
static inline size_t layout_in(enum layout layout, size_t in)
{
    return layout == LAYOUT_PACKED ? round_up(in, PACK_IN) : in;
}

/* ---- blocks of few bits ---- */

/* Bytes of the codes of the first k inputs of a block: a multiple of 32. */
static inline size_t pack_codes(enum dtype type, size_t k)
{
    return k * PACK_OUT * few_bits[type].bits / 8;
}

/* Where plane p begins in a block of in_padded inputs; p = FEW_PLANES: where the planes end. */
static inline size_t pack_plane_at(enum dtype type, size_t in_padded, size_t p)
{
    size_t at = pack_codes(type, in_padded);
    for (size_t i = 0; i < p; i++)
        at += few_count(few_bits[type].plane[i], in_padded) * PACK_OUT * few_bits[type].plane[i].bytes;
    return at;
}

/* ---- all types ---- */

/* Bytes from block to block. */
static inline size_t pack_block_bytes(enum dtype type, size_t in_padded)
{
    return dtype_few_bits(type) ? round_up(pack_plane_at(type, in_padded, FEW_PLANES), PACK_LINE)
                                : in_padded * PACK_OUT * dtype_size(type);
}

/* Bytes of a matrix in a layout, padding included. */
static inline size_t layout_bytes(enum layout layout, enum dtype type, size_t out, size_t in)
{
    return layout == LAYOUT_PACKED
               ? div_up(out, PACK_OUT) * pack_block_bytes(type, layout_in(layout, in))
               : out * dtype_row_bytes(type, in);
}

/* Index of element (o, k) from the start of the data, of a type that has a dtype_size(). */
static inline size_t mat_at(const struct mat *w, size_t o, size_t k)
{
    if (w->layout == LAYOUT_ROWS)
        return o * w->in_padded + k;
    const size_t lane = o % PACK_OUT, block = o / PACK_OUT * w->in_padded * PACK_OUT;
    const size_t word = dtype_pair(w->dtype);
    return block + k / word * (word * PACK_OUT) + word * lane + k % word;
}

/* Packs `n_rows` rows of `n` elements, `stride` elements apart (n for types of few bits), into whole blocks of
 * `n_padded` >= n inputs (even; a multiple of 32 for types of few bits), padding included. */
void pack_rows(void *packed, size_t n_padded, const void *rows, size_t stride, size_t n_rows, size_t n,
               enum dtype type);

/* The way back for one block of n_padded inputs: its first `n_rows` rows, at most 16, of `n` elements each, one after the
 * other. */
void unpack_block(void *rows, const void *block, size_t n_padded, size_t n_rows, size_t n,
                  enum dtype type);

/* Inputs [from, from + n) of output `row`, of a matrix or table in any layout, widened to f32. */
void mat_fetch(float *y, const struct mat *w, size_t row, size_t from, size_t n);

/* All of them: y[w->in]. */
void mat_fetch_row(float *y, const struct mat *w, size_t row);

#endif
