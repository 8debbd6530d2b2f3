/* Element types of source tensors. Quantised types come in blocks: elements with shared scales.
 * The table has a dequantiser for each type, with exactly the operations of ggml's reference, so
 * results are bitwise equal. */
#ifndef BMC_BLOCK_TYPES_H
#define BMC_BLOCK_TYPES_H

#include "quant/dtype.h"

enum source_type {
    SOURCE_F32,
    SOURCE_F16,
    SOURCE_BF16,
    SOURCE_Q8_0,
    SOURCE_Q4_0,
    SOURCE_Q4_1,
    SOURCE_Q5_0,
    SOURCE_Q5_1,
    SOURCE_Q2_K,
    SOURCE_Q3_K,
    SOURCE_Q4_K,
    SOURCE_Q5_K,
    SOURCE_Q6_K,
    SOURCE_IQ4_NL,
    SOURCE_IQ4_XS,
    SOURCE_MXFP4,
    SOURCE_IQ3_S,
    SOURCE_IQ3_XXS,
    SOURCE_TQ1_0,
    SOURCE_TQ2_0,
    SOURCE_IQ2_S,
    SOURCE_IQ2_XS,
    SOURCE_IQ2_XXS,
    SOURCE_IQ1_S,
    SOURCE_IQ1_M,
    SOURCE_OTHER /* unsupported; also the number of supported types */
};

/* A multiple of the elements per block of every type. */
enum { BLOCK_MAX_ELEMENTS = 256 };

struct block_type {
    const char *name;
    uint32_t ggml;          /* ggml type number */
    size_t elements, bytes; /* of a block; elements is 1 for unquantised types */
    void (*dequantize)(float *to, const unsigned char *from, size_t blocks);
    enum dtype stored; /* data type of model.bmc that holds it without loss */
};

extern const struct block_type block_types[SOURCE_OTHER];

/* Transcodes `blocks`, n elements of type `from`, losslessly to `row` in the type's `stored` type:
 * quantised values and scales are kept bit for bit (quant/quant_types.h). */
void block_transcode(enum source_type from, unsigned char *row, const unsigned char *blocks, size_t n);

/* Joins n blocks of MXFP4 as safetensors have them, bytes of neighbouring elements and scales apart, to ggml's,
 * with the scale before bytes that have element i in the lower half and 16 + i in the upper half. */
enum { MXFP4_SPLIT_BYTES = 16, MXFP4_BYTES = 17 };
void block_join_mxfp4(unsigned char *to, const unsigned char *blocks, const unsigned char *scales,
                      size_t n);

/* The type with this ggml number, or NULL. */
const struct block_type *block_type_of_ggml(uint32_t ggml);

#endif
