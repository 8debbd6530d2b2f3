/* The types of elements that sources have. Few-bit types come in blocks: some elements with the scales that they share.
 * Each row of the table widens whole blocks to f32, with the very sums and products that gguf's own functions make. */
#ifndef BMC_BLOCK_TYPES_H
#define BMC_BLOCK_TYPES_H

#include "base/dtype.h"

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
    SOURCE_OTHER /* cannot be converted; number of the others */
};

/* No block has more elements, and all numbers of elements divide it. */
enum { BLOCK_MAX_ELEMENTS = 256 };

struct block_type {
    const char *name;
    uint32_t ggml; /* its number in GGUF files */
    size_t elements, bytes;
    void (*widen)(float *to, const unsigned char *from, size_t blocks);
    enum dtype stored; /* a model's type that holds it exactly */
};

extern const struct block_type block_types[SOURCE_OTHER];

/* Takes a row of n elements over as it is: blocks of a type whose `stored` is of few bits become a row of that type
 * (base/few_bits.h), code by code and scale by scale. */
void block_take(enum source_type from, unsigned char *row, const unsigned char *blocks, size_t n);

/* The row of the table that has this number in GGUF files, or NULL. */
const struct block_type *block_type_of_ggml(uint32_t ggml);

#endif
