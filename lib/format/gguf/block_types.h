/* Element types of source tensors. Quantised types come in blocks: elements with shared scales.
 * Dequantised values are bitwise those of ggml's reference. */
#pragma once

#include "quant/dtype.h"

/* The element type of a source tensor: DTYPE_F32, DTYPE_F16, DTYPE_BF16, or the type of model.bmc that holds its
 * blocks without loss. SOURCE_OTHER: unsupported. */
#define SOURCE_OTHER DTYPE_COUNT

/* A multiple of the elements per block of every type. */
enum { BLOCK_MAX_ELEMENTS = 256 };

struct block_type {
    const char *name;
    uint32_t ggml;          /* ggml type number */
    size_t elements, bytes; /* of a block; elements is 1 for unquantised types */
    void (*dequantize)(float *to, const unsigned char *from, size_t blocks);
    /* Transcodes n elements losslessly to a row of the type `stored`: quantised values and scales are kept bit
     * for bit (quant/quant_types.h). NULL: not quantised. */
    void (*transcode)(unsigned char *row, const unsigned char *blocks, size_t n);
    enum dtype stored; /* data type of model.bmc that holds it without loss */
};

/* By type; types of which no source has blocks have no name. */
extern const struct block_type block_types[SOURCE_OTHER];

/* Joins n blocks of MXFP4 as safetensors have them, bytes of neighbouring elements and scales apart, to ggml's,
 * with the scale before bytes that have element i in the lower half and 16 + i in the upper half. */
enum { MXFP4_SPLIT_BYTES = 16, MXFP4_BYTES = 17 };
void block_join_mxfp4(unsigned char *to, const unsigned char *blocks, const unsigned char *scales,
                      size_t n);

/* The inverse of type->transcode(), for many rows, of n elements of type->stored, a multiple of
 * type->elements: makes their blocks. False: a row has values that no block stands for, as those of a damaged
 * file. */
bool block_type_encode(const struct block_type *type, unsigned char *blocks, const unsigned char *rows,
                       size_t n_rows, size_t n) MUST_USE;

/* The type with this ggml number, or NULL. */
const struct block_type *block_type_of_ggml(uint32_t ggml);
