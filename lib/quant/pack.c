/* Packs rows of weight matrices into blocks of 16 outputs (pack.h), by transposing words. */
#include "quant/pack.h"

#include "quant/repack_quant.h"

enum { LINE_WORDS = 16 };

#define INLINE static inline __attribute__((always_inline))

/* Bytes of a word, the unit of transposition (pack.h). */
static size_t word_size(enum dtype type) { return dtype_pair(type) * dtype_size(type); }

/* Packs up to 16 rows of `bytes` bytes, `stride_bytes` apart, into a block with room for `words`
 * words per row, padded with zeros. */
INLINE void transpose_block(const size_t word, char *block, size_t words, const char *rows,
                            size_t stride_bytes, size_t n_rows, size_t bytes)
{
    const size_t whole = bytes / word, rest = bytes % word;
    const size_t kept = n_rows < PACK_OUT ? 0 : whole; /* leading words without padding */
    memset(block + kept * PACK_OUT * word, 0, (words - kept) * PACK_OUT * word);
    /* Copies a cache line of each row at a time. */
    for (size_t from = 0; from < whole; from += LINE_WORDS)
        for (size_t o = 0; o < n_rows; o++)
            for (size_t j = from; j < size_min(from + LINE_WORDS, whole); j++)
                memcpy(block + (j * PACK_OUT + o) * word, rows + o * stride_bytes + j * word, word);
    for (size_t o = 0; rest && o < n_rows; o++)
        memcpy(block + (whole * PACK_OUT + o) * word, rows + o * stride_bytes + whole * word, rest);
}

/* Calls transpose_block() with a constant word size: a version is compiled for each size. */
static void pack_block(size_t word, char *block, size_t words, const char *rows, size_t stride_bytes,
                       size_t n_rows, size_t bytes)
{
    if (word == 2)
        transpose_block(2, block, words, rows, stride_bytes, n_rows, bytes);
    else
        transpose_block(4, block, words, rows, stride_bytes, n_rows, bytes);
}

void pack_rows(void *packed, size_t n_padded, const void *rows, size_t stride, size_t n_rows, size_t n,
               enum dtype type)
{
    const size_t size = dtype_size(type), word = word_size(type);
    for (size_t row = 0; row < n_rows; row += PACK_OUT)
        if (dtype_is_quantized(type))
            repack_quant(type,
                         (unsigned char *)packed + row / PACK_OUT * pack_block_bytes(type, n_padded),
                         n_padded, (const unsigned char *)rows + row * dtype_row_bytes(type, n),
                         size_min(PACK_OUT, n_rows - row), n);
        else
            pack_block(word, (char *)packed + row * n_padded * size, n_padded * size / word,
                       (const char *)rows + row * stride * size, stride * size,
                       size_min(PACK_OUT, n_rows - row), n * size);
}

void unpack_block(void *rows, const void *block, size_t n_padded, size_t n_rows, size_t n,
                  enum dtype type)
{
    const size_t bytes = n * dtype_size(type), word = word_size(type);
    if (dtype_is_quantized(type)) {
        unpack_quant(type, rows, block, n_padded, n_rows, n);
        return;
    }
    for (size_t o = 0; o < n_rows; o++)
        for (size_t at = 0; at < bytes; at += word)
            memcpy((char *)rows + o * bytes + at, (const char *)block + (at * PACK_OUT + o * word),
                   size_min(word, bytes - at));
}

void mat_fetch(float *y, const struct mat *w, size_t row, size_t from, size_t n)
{
    if (dtype_is_quantized(w->dtype)) {
        fetch_quant(y, w, row, from, n);
        return;
    }
    for (size_t k = 0; k < n; k++)
        y[k] = dtype_element(w->dtype, w->data, mat_at(w, row, from + k));
}

void mat_fetch_row(float *y, const struct mat *w, size_t row) { mat_fetch(y, w, row, 0, w->in); }
