/* Where the elements of a weight matrix lie, for every layout.
 *
 * LAYOUT_PACKED is what matrix kernels read in place. A matrix [out][in] is cut into blocks of 16 outputs; a
 * block lies in one piece and is made of words, an f32, an f16 or two neighbouring bf16 (dtype_pair()): the first
 * word of outputs 0 to 15, then the second word of each, and so on. bf16 is thus [out/16][in/2][16][2], f32 and f16 are
 * [out/16][in][16]. Outputs are padded to a multiple of 16, inputs to one of 32; padding is zero. */
#ifndef BMC_PACK_H
#define BMC_PACK_H

#include "base/dtype.h"

enum { PACK_OUT = 16, PACK_IN = 32 };

/* The stored shape of a matrix [out][in] in that layout. */
static inline size_t layout_out(enum layout layout, size_t out)
{
    return layout == LAYOUT_PACKED ? round_up(out, PACK_OUT) : out;
}
static inline size_t layout_in(enum layout layout, size_t in)
{
    return layout == LAYOUT_PACKED ? round_up(in, PACK_IN) : in;
}

/* Index of element (o, k) from the start of the data. */
static inline size_t mat_at(const struct mat *w, size_t o, size_t k)
{
    if (w->layout == LAYOUT_ROWS)
        return o * w->in_padded + k;
    const size_t lane = o % PACK_OUT, block = o / PACK_OUT * w->in_padded * PACK_OUT;
    const size_t word = dtype_pair(w->dtype);
    return block + k / word * (word * PACK_OUT) + word * lane + k % word;
}

/* Packs `n_rows` rows of `n` elements, `stride` elements apart, into whole blocks of `n_padded` >= n inputs (even),
 * padding included: round_up(n_rows, 16) * n_padded elements at `packed`. */
void pack_rows(void *packed, size_t n_padded, const void *rows, size_t stride, size_t n_rows, size_t n,
               enum dtype type);

/* The way back for one block: its first `n_rows` rows, at most 16, of `n` elements each, `n` apart. */
void unpack_block(void *rows, const void *block, size_t n_rows, size_t n, enum dtype type);

/* Row `row` of a table in any layout, widened to f32: y[w->in]. */
void mat_fetch_row(float *y, const struct mat *w, size_t row);

#endif
