/* Quantised matrices whose integers, scales and zero points are tensors of their own, as GPTQ, AWQ, compressed-tensors and
 * BitNet publish them, and matrices in FP8 with scales:
 *
 *   value = scale * (q - zero), rounded once to f32
 *
 * scale and zero belong to a group of inputs of one output, or to a block of both. */
#pragma once

#include "format/source.h"

/* Integers in units of 1 or 4 bytes, little-endian, that hold several of neighbouring rows, or of neighbouring columns. */
struct packed_integers {
    const unsigned char *data; /* NULL: none */
    size_t unit_bytes;
    unsigned bits;
    unsigned row_shift, column_shift; /* a unit holds 1 << shift rows or columns; one of both is 0 */
    size_t row_step, column_step;     /* from a unit to the next, in units */
    /* a unit holds the rows r, r + plane, .. and is at row r; 0: neighbouring ones, as above */
    size_t plane;
    const uint8_t *order; /* place in its unit of each integer; NULL: from the lowest bits up */
    unsigned flip;        /* bits that are inverted: the sign of two's complement */
};

struct split_weights {
    const struct block_type *type; /* a row of split_type() */
    const char *name;              /* of the weight, owned */
    size_t rows, columns;
    struct packed_integers q, zero;
    unsigned zero_point; /* the zero of all groups, or added to each, modulo 2^32 */
    bool e4m3; /* q are numbers of 4 bits of exponent and 3 of fraction, in no need of a zero */
    const unsigned char *scale;
    enum dtype scale_type;          /* F32, F16 or BF16 */
    bool inverse;                   /* the scale is what values are divided by */
    size_t row_block, column_block; /* rows and columns that share a scale */
    size_t scale_row_step, scale_column_step;
    const unsigned char *group_of; /* the group of each column, an i32; NULL: column / column_block */
    struct split_weights *next;
};

/* The pseudo-type of source tensors with such values, by the type of model.bmc that holds them: quantised types without
 * rounding, DTYPE_F32 and DTYPE_BF16 those that no quantised type holds. */
const struct block_type *split_type(enum dtype stored);

/* The narrowest type that holds the matrix without rounding more than the formula above does. */
enum dtype split_choose(const struct split_weights *split);

/* Writes n values from element `at` of the matrix in row-major order on, `step` elements apart. */
void split_values(float *x, const struct split_weights *split, size_t at, size_t step, size_t n);

/* Writes one row in the row form of a quantised type that holds it without loss (quant/quant_types.h): that of
 * split_choose(), or q4_z32 in place of q4_0. */
void split_row(unsigned char *to, enum dtype type, const struct split_weights *split, size_t row);
