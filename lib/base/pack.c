/* Rows become packed blocks: a transposition of words. */
#include "base/pack.h"

#include <math.h>

enum { LINE_WORDS = 16 };

#define INLINE static inline __attribute__((always_inline))

/* Bytes of a word. */
static size_t word_size(enum dtype type) { return dtype_pair(type) * dtype_size(type); }

/* One block of `words` words for each of its 16 outputs, from at most 16 rows of `bytes` bytes. */
INLINE void transpose_block(const size_t word, char *block, size_t words, const char *rows,
                            size_t stride_bytes, size_t n_rows, size_t bytes)
{
    const size_t whole = bytes / word, rest = bytes % word;
    const size_t kept = n_rows < PACK_OUT ? 0 : whole; /* words without padding */
    memset(block + kept * PACK_OUT * word, 0, (words - kept) * PACK_OUT * word);
    /* A cache line of each row at a time. */
    for (size_t from = 0; from < whole; from += LINE_WORDS)
        for (size_t o = 0; o < n_rows; o++)
            for (size_t j = from; j < size_min(from + LINE_WORDS, whole); j++)
                memcpy(block + (j * PACK_OUT + o) * word, rows + o * stride_bytes + j * word, word);
    for (size_t o = 0; rest && o < n_rows; o++)
        memcpy(block + (whole * PACK_OUT + o) * word, rows + o * stride_bytes + whole * word, rest);
}

/* The same with a word of constant size. */
static void pack_block(size_t word, char *block, size_t words, const char *rows, size_t stride_bytes,
                       size_t n_rows, size_t bytes)
{
    if (word == 2)
        transpose_block(2, block, words, rows, stride_bytes, n_rows, bytes);
    else
        transpose_block(4, block, words, rows, stride_bytes, n_rows, bytes);
}

/* ---- few bits ---- */

/* A code in a block: the byte that has its lower bits, and where the others are. */
struct spot {
    size_t low, high;
    unsigned low_shift, high_shift;
};

static struct spot spot_of(enum dtype type, size_t o, size_t k)
{
    const size_t byte = o * 4 + k % 4;
    switch (few_bits[type].bits) {
    case 8: return (struct spot){.low = k / 4 * PACK_LINE + byte};
    case 4:
        return (struct spot){.low = k / 8 * PACK_LINE + byte, .low_shift = (unsigned)(k % 8 / 4 * 4)};
    default: {
        const size_t cell = k / 32 * pack_codes(type, 32);
        return (struct spot){.low = cell + k % 32 / 8 * PACK_LINE + byte,
                             .high = cell + (4 + k % 32 / 16) * PACK_LINE + byte,
                             .low_shift = (unsigned)(k % 8 / 4 * 4),
                             .high_shift = (unsigned)(k % 16 / 4 * 2)};
    }
    }
}

static void put_code(enum dtype type, unsigned char *block, size_t o, size_t k, unsigned code)
{
    const struct spot spot = spot_of(type, o, k);
    const unsigned low = few_bits[type].bits == 8 ? code : code & 15;
    block[spot.low] |= (unsigned char)(low << spot.low_shift);
    if (few_bits[type].bits == 6)
        block[spot.high] |= (unsigned char)(code >> 4 << spot.high_shift);
}

static unsigned get_code(enum dtype type, const unsigned char *block, size_t o, size_t k)
{
    const struct spot spot = spot_of(type, o, k);
    if (few_bits[type].bits == 8)
        return block[spot.low];
    const unsigned low = block[spot.low] >> spot.low_shift & 15;
    return few_bits[type].bits == 4 ? low : low | (block[spot.high] >> spot.high_shift & 3u) << 4;
}

static void pack_few(enum dtype type, unsigned char *block, size_t n_padded, const unsigned char *rows,
                     size_t n_rows, size_t n)
{
    const size_t row_bytes = dtype_row_bytes(type, n);
    memset(block, 0, pack_block_bytes(type, n_padded));
    for (size_t o = 0; o < n_rows; o++) {
        const unsigned char *row = rows + o * row_bytes;
        for (size_t k = 0; k < n; k++)
            put_code(type, block, o, k, few_code(type, row, k));
        for (size_t p = 0; p < FEW_PLANES; p++) {
            const size_t bytes = few_bits[type].plane[p].bytes,
                         many = few_count(few_bits[type].plane[p], n);
            for (size_t i = 0; i < many; i++)
                memcpy(block + pack_plane_at(type, n_padded, p) + (i * PACK_OUT + o) * bytes,
                       row + few_plane_at(type, n, p) + i * bytes, bytes);
        }
    }
}

static void unpack_few(enum dtype type, unsigned char *rows, const unsigned char *block,
                       size_t n_padded, size_t n_rows, size_t n)
{
    const size_t row_bytes = dtype_row_bytes(type, n);
    memset(rows, 0, n_rows * row_bytes);
    for (size_t o = 0; o < n_rows; o++) {
        unsigned char *row = rows + o * row_bytes;
        for (size_t k = 0; k < n; k++)
            few_set_code(type, row, k, get_code(type, block, o, k));
        for (size_t p = 0; p < FEW_PLANES; p++) {
            const size_t bytes = few_bits[type].plane[p].bytes,
                         many = few_count(few_bits[type].plane[p], n);
            for (size_t i = 0; i < many; i++)
                memcpy(row + few_plane_at(type, n, p) + i * bytes,
                       block + pack_plane_at(type, n_padded, p) + (i * PACK_OUT + o) * bytes, bytes);
        }
    }
}

static float few_fetch(const struct mat *w, size_t row, size_t k)
{
    const enum dtype type = w->dtype;
    const unsigned char *block =
        (const unsigned char *)w->data + row / PACK_OUT * pack_block_bytes(type, w->in_padded);
    const size_t o = row % PACK_OUT;
    const unsigned char *at[FEW_PLANES];
    for (size_t p = 0; p < FEW_PLANES; p++) {
        const struct few_plane plane = few_bits[type].plane[p];
        at[p] = block + pack_plane_at(type, w->in_padded, p) +
                ((plane.every ? k / plane.every : 0) * PACK_OUT + o) * plane.bytes;
    }
    const struct few_values v = few_values(type, at);
    return fmaf(v.step, (float)((int)get_code(type, block, o, k) - few_bits[type].zero), v.base);
}

/* ---- all types ---- */

void pack_rows(void *packed, size_t n_padded, const void *rows, size_t stride, size_t n_rows, size_t n,
               enum dtype type)
{
    const size_t size = dtype_size(type), word = word_size(type);
    for (size_t row = 0; row < n_rows; row += PACK_OUT)
        if (dtype_few_bits(type))
            pack_few(type, (unsigned char *)packed + row / PACK_OUT * pack_block_bytes(type, n_padded),
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
    if (dtype_few_bits(type)) {
        unpack_few(type, rows, block, n_padded, n_rows, n);
        return;
    }
    for (size_t o = 0; o < n_rows; o++)
        for (size_t at = 0; at < bytes; at += word)
            memcpy((char *)rows + o * bytes + at, (const char *)block + (at * PACK_OUT + o * word),
                   size_min(word, bytes - at));
}

void mat_fetch(float *y, const struct mat *w, size_t row, size_t from, size_t n)
{
    for (size_t k = 0; k < n; k++)
        y[k] = dtype_few_bits(w->dtype) ? few_fetch(w, row, from + k)
                                        : dtype_element(w->dtype, w->data, mat_at(w, row, from + k));
}

void mat_fetch_row(float *y, const struct mat *w, size_t row) { mat_fetch(y, w, row, 0, w->in); }
